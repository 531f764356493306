"""Find the policy files, lay a person's own over them, and hand out each table once.

In a wheel `policies/` lies inside the package. In a checkout, and so in an editable install, it is the package's
sibling; that place is believed only where a `pyproject.toml` lies beside it, so that a stray folder of that name in
site-packages is never read. A person's own files (`policies/` in sidecar's configuration directory, or the directory
that SIDECAR_POLICIES names) are laid over table by table; a whole new `agents/*.toml` may live there alone.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar, cast

from sidecar.errors import BadPolicy, describe
from sidecar.policy.parse import overlay, parse_table
from sidecar.policy.tables import CheckpointPolicy, IgnorePolicy, WatchPolicy

T = TypeVar("T")

OVERLAY_VARIABLE = "SIDECAR_POLICIES"
_PACKAGE = Path(__file__).resolve().parent.parent
_OPEN_FOLDERS = ("agents",)  # here a person may add tables that are not shipped
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(/[a-z0-9][a-z0-9_-]*)*")
_parsed: dict[tuple[type, str, Path], object] = {}


def load_table(name: str) -> Mapping[str, object]:
    """Read `policies/<name>.toml` (`name` as in `checkpoints` or `agents/claude-code`), a person's own laid over it.

    Raises BadPolicy where there is no such table, or where a file cannot be read or understood.
    """
    if not _NAME.fullmatch(name):
        raise BadPolicy(file=name, why="not a name of a policy table")
    shipped = shipped_directory(_PACKAGE) / f"{name}.toml"
    own = overlay_directory() / f"{name}.toml"
    base = _read(shipped)
    extra = _read(own)
    if base is None:
        if extra is not None and name.split("/", maxsplit=1)[0] in _OPEN_FOLDERS and "/" in name:
            return extra
        raise BadPolicy(file=str(shipped), why="it is missing from this installation")
    return base if extra is None else overlay(base, extra, file=str(own))


def table_names(folder: str = "") -> tuple[str, ...]:
    """List the names that `load_table` takes, below one folder (`agents`) or, by default, all of them."""
    shipped = shipped_directory(_PACKAGE)
    found = {path.relative_to(shipped) for path in shipped.rglob("*.toml")}
    own = overlay_directory()
    for open_folder in _OPEN_FOLDERS:
        found |= {path.relative_to(own) for path in (own / open_folder).glob("*.toml")}
    names = (path.with_suffix("").as_posix() for path in found)
    return tuple(sorted(name for name in names if not folder or name.startswith(f"{folder}/")))


def policy(shape: type[T], name: str) -> T:
    """Give `policies/<name>.toml` as a value of `shape`; read once a process (and overlay directory)."""
    own = overlay_directory()  # part of the key, so that a moved overlay is read anew
    key = (shape, name, own)
    if key not in _parsed:
        file = own / f"{name}.toml"
        shown = str(file) if file.is_file() else f"{name}.toml"
        _parsed[key] = parse_table(shape, load_table(name), file=shown)
    return cast(T, _parsed[key])


def checkpoint_policy() -> CheckpointPolicy:
    """Give `checkpoints.toml`."""
    return policy(CheckpointPolicy, "checkpoints")


def ignore_policy() -> IgnorePolicy:
    """Give `ignore.toml`."""
    return policy(IgnorePolicy, "ignore")


def watch_policy() -> WatchPolicy:
    """Give `watch.toml`."""
    return policy(WatchPolicy, "watch")


def overlay_directory() -> Path:
    """Say where a person's own tables are looked for; it need not exist."""
    moved = os.environ.get(OVERLAY_VARIABLE)
    if moved:
        return Path(moved)
    from platformdirs import user_config_path  # noqa: PLC0415 - slow to import, and not needed when moved

    return user_config_path("sidecar") / "policies"


def shipped_directory(package: Path) -> Path:
    """Find `policies/` for the package in `package`: inside it, else beside it in a checkout, else refuse."""
    inside = package / "policies"
    if inside.is_dir():
        return inside
    beside = package.parent / "policies"
    if beside.is_dir() and (package.parent / "pyproject.toml").is_file():
        return beside
    raise BadPolicy(file=str(inside), why="this installation has no policy files")


def _read(file: Path) -> dict[str, object] | None:
    try:
        return tomllib.loads(file.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise BadPolicy(file=str(file), why=describe(error)) from error
    except ValueError as error:  # bad TOML, or not UTF-8
        raise BadPolicy(file=str(file), why=str(error)) from error
