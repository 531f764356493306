"""Find files of an agent on disk by a table's patterns, and read the heads of transcripts.

Rules: a pattern's fixed steps may lead through links (people move such directories); `**` follows none. Nothing that
cannot be read is an error here: it is not found.
"""

import json
import os
import stat as bits
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sidecar.agents.fields import id_at, path_bytes, text_at
from sidecar.agents.table import FieldTable
from sidecar.transcript.lines import Record, decode, split

STEP_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Head:
    """What the beginning of a transcript tells."""

    sessions: tuple[str, ...]  # ids that its records name, in their order
    cwd: str | None  # the first working directory


def matching(root: str, pattern: str) -> Iterator[str]:
    """Give what fits a `/`-separated pattern below a directory, in the order of names."""
    step, _, rest = pattern.partition("/")
    if step == "**":
        yield from matching(root, rest)
        for name in _names(root):
            path = os.path.join(root, name)
            if os.path.isdir(path) and not os.path.islink(path):
                yield from matching(path, pattern)
        return
    for name in _names(root):
        if fnmatchcase(name, step):
            path = os.path.join(root, name)
            if rest:
                yield from matching(path, rest)
            else:
                yield path


def home_of(path: str, pattern: str) -> str | None:
    """Give the directory below which `path` fits the pattern; None where it does not."""
    steps = pattern.split("/")
    parts = path.rstrip("/").split("/")
    tail = parts[-len(steps) :]
    if len(parts) <= len(steps) or not all(fnmatchcase(part, step) for part, step in zip(tail, steps, strict=True)):
        return None
    return "/".join(parts[: -len(steps)]) or "/"


def is_regular(path: str) -> bool:
    """Tell whether a regular file lies at a path, a link to one included."""
    try:
        return bits.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def read_head(path: str, fields: FieldTable, *, lines: int, size_bytes: int) -> Head:
    """Read the first records of a transcript until one names a working directory, within bounds."""
    sessions: dict[str, None] = {}
    for record in head_records(path, lines, size_bytes):
        session = id_at(record.value, fields.session)
        if session is not None:
            sessions[session] = None
        cwd = text_at(record.value, fields.cwd)
        if cwd is not None and cwd.startswith("/") and path_bytes(cwd) is not None:
            return Head(tuple(sessions), cwd)
    return Head(tuple(sessions), None)


def read_json(path: str, *, size_bytes: int = STEP_BYTES) -> dict[str, Any]:
    """Read a small JSON object; an empty one for anything else, also for one that is being written."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return {}
    try:
        value = json.loads(os.read(fd, size_bytes))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(fd)
    return value if isinstance(value, dict) else {}


def head_records(path: str, lines: int, size_bytes: int) -> Iterator[Record]:
    """Give the first records of a transcript, within bounds; none of what cannot be read."""
    if not is_regular(path):
        return
    try:
        with open(path, "rb", buffering=0) as file:
            torn: list[bytes] = []
            read = 0
            while lines > 0 and read < size_bytes and (chunk := file.read(STEP_BYTES)):
                read += len(chunk)
                if b"\n" not in chunk:
                    torn.append(chunk)
                    continue
                whole, rest = split(b"".join([*torn, chunk]), 0)
                torn = [rest]
                for line in whole[:lines]:
                    yield from (piece for piece in decode(line) if isinstance(piece, Record))
                lines -= len(whole)
    except OSError:
        return


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (OSError, ValueError):
        return []
