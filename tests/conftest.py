"""What every test stands on: a home of its own, and a guard that keeps it away from the real one.

A test may be run on a machine whose owner works with agents and with sidecar. So the environment names throw-away
places before anything of ours is imported, each test gets its own, and an audit hook refuses every open of the real
store, configuration or agent directories, however the path was found.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
REAL_HOME = Path(os.path.expanduser("~")).resolve()

_OURS = ("SIDECAR_", "CLAUDE", "CODEX_", "GEMINI_", "XDG_", "GIT_")
_KEPT = ("SIDECAR_SAMPLES", "SIDECAR_TEST_")
_REAL_PLACES = (
    ".claude",
    ".codex",
    ".gemini",
    ".config/sidecar",
    ".local/share/sidecar",
    ".local/state/sidecar",
    ".cache/sidecar",
    "Library/Application Support/sidecar",
)
_forbidden = tuple(f"{REAL_HOME}/{place}" for place in _REAL_PLACES)
_audited = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect"}


def sandbox_environment(home: Path) -> dict[str, str]:
    """Name every place that the program or an agent would look for, all below `home`."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_RUNTIME_DIR": str(home / ".run"),
        "SIDECAR_HOME": str(home / "sidecar-home"),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CODEX_HOME": str(home / ".codex"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(home.parent),
    }


def _foreign(name: str) -> bool:
    return name.startswith(_OURS) and not name.startswith(_KEPT)


def _guard(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _audited:
        return
    for argument in arguments[:2]:
        path = os.fsdecode(argument) if isinstance(argument, (str, bytes)) else ""
        if path.startswith(_forbidden):
            raise PermissionError(f"a test reached for {path}")


def pytest_configure(config: pytest.Config) -> None:
    """Leave the real environment before any test module is imported."""
    home = Path(tempfile.mkdtemp(prefix="sidecar-tests-")).resolve()
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    for name in [name for name in os.environ if _foreign(name)]:
        del os.environ[name]
    os.environ.update(sandbox_environment(home))
    sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home of its own, empty but for nothing; the store and agent directories lie in it."""
    own = tmp_path_factory.mktemp("home", numbered=True)
    for name in [name for name in os.environ if _foreign(name)]:
        monkeypatch.delenv(name)
    for name, value in sandbox_environment(own).items():
        monkeypatch.setenv(name, value)
    return own


@pytest.fixture(scope="session")
def samples() -> Path:
    """Find the recorded sessions of real agents; not part of the project, without them a test is skipped."""
    named = os.environ.get("SIDECAR_SAMPLES")
    place = Path(named) if named else CHECKOUT.parent / "shared" / "samples"
    if not place.is_dir():
        pytest.skip("the recorded sessions are not at hand (set SIDECAR_SAMPLES)")
    return place


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that needs root where CI has none, so that it is never skipped unseen; skip it elsewhere."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("this test needs root, and CI must have it", pytrace=False)
        pytest.skip("needs root")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let a test marked `alone` run while no other test of this user runs, on any worker.

    Every test holds the lock shared, such a one exclusively. The gate is passed one at a time, so that a waiting
    exclusive test is not overtaken for ever. Outermost, so that waiting does not count against the test's time-out.
    """
    base = Path(tempfile.gettempdir()) / f"sidecar-tests-{os.geteuid()}"
    alone = item.get_closest_marker("alone") is not None
    with open(f"{base}.gate", "ab") as gate, open(f"{base}.lock", "ab") as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # by name: a forked child may still hold the descriptor
