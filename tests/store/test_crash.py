"""Killed at any system call: what was acknowledged is whole, nothing is half there, nothing is left over."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar import errors
from sidecar.store.check import check
from sidecar.store.workspace import Workspace
from tests.store.timeline import attach, content_at, files_of, message, named_files, open_timeline, put

CHECKOUT = Path(__file__).resolve().parents[2]
CAP = 2
MESSAGES = 5
LEFT_BY_A_KILL = {"stray-file", "doomed-file"}


def big(number: int) -> bytes:
    return random.Random(number).randbytes(2000)


def live_through(directory: str) -> None:
    """Make a timeline, send messages after changes, evict, give back; acknowledge each commit on standard output."""
    from sidecar.checkpoint.apply import enforce_caps  # noqa: PLC0415 - imported by the child alone

    workspace = open_timeline(directory)
    workspace.blobs.remove_strays()
    workspace.blobs.bury()
    attach(workspace, "s", CAP, 1)
    for number in range(MESSAGES):
        at = 10 + number * 10
        with workspace.blobs.writing(), workspace.database.transaction():
            put(workspace, b"big", big(number), at)
            put(workspace, b"small", b"%d" % number, at)
            workspace.instants.add("s", f"m{number}", at=at, kind="message", timeline=True)  # type: ignore[arg-type]
            enforce_caps(workspace, "s", cap=CAP, before_rewinds=20)
            workspace.ledger.release(at - 5)
        os.write(1, b"%d\n" % number)
        workspace.give_back()
    workspace.close()


def traced(call: str, directory: str, *inject: str) -> tuple[int, int, int]:
    """Run a life under strace; give its exit code, the messages acknowledged, and how often it made the call."""
    code = f"from tests.store.test_crash import live_through; live_through({directory!r})"
    log = f"{directory}.log"
    command = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", *inject, sys.executable, "-B", "-c", code]
    answer = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=False, timeout=60)
    with open(log, encoding="utf-8", errors="replace") as lines:
        count = sum(f"{call}(" in line for line in lines)
    os.unlink(log)
    return answer.returncode, len(answer.stdout.split()), count


def sweep(base: Path, call: str, action: str, most: int) -> Iterator[tuple[str, int, int]]:
    """Let lives meet something at the n-th call of a name, for many n; give directory, exit code, acknowledged."""
    if shutil.which("strace") is None:
        pytest.fail("this test needs strace")
    whole = str(base / "whole")
    os.mkdir(whole, 0o700)
    code, acknowledged, count = traced(call, whole)
    assert (code, acknowledged) == (0, MESSAGES)
    assert count, f"{call} is never called"
    most = int(os.environ.get("SIDECAR_TEST_POINTS", most))  # 0: all of them
    points = range(1, count + 1) if not most else random.Random().sample(range(1, count + 1), min(count, most))
    for when in points:
        directory = str(base / f"{call}-{when}")
        os.mkdir(directory, 0o700)
        code, acknowledged, _ = traced(call, directory, "-e", f"inject={call}:{action}:when={when}")
        yield directory, code, acknowledged
        shutil.rmtree(directory)


@pytest.fixture
def base() -> Iterator[Path]:
    """Give a directory in memory, where a sync costs nothing."""
    found = Path(tempfile.mkdtemp(prefix="sidecar-crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    yield found
    shutil.rmtree(found)


def assert_whole(workspace: Workspace, acknowledged: int) -> int:
    """Prove that a timeline holds what was acknowledged, and perhaps one more; give the number of messages in it."""
    (sent,) = workspace.database.one("SELECT count(*) FROM message")
    assert acknowledged <= sent <= acknowledged + 1
    assert [one.message for one in workspace.instants.checkpoints("s")] == [
        f"m{number}" for number in range(sent - 1, max(-1, sent - 1 - CAP), -1)
    ]
    for number in range(max(0, sent - CAP), sent):
        assert content_at(workspace, b"big", 10 + number * 10) == big(number)
        assert content_at(workspace, b"small", 10 + number * 10) == b"%d" % number
    return int(sent)


CALLS = [
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "ftruncate",
    "mkdir",
    "flock",
    "fcntl",
    "openat",
]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_killed_at_any_call(base: Path, call: str) -> None:
    killed = 0
    for directory, code, acknowledged in sweep(base, call, "signal=KILL", 16):
        assert code in (0, -9, 137)  # 0: it made fewer calls this time
        killed += code != 0
        prove_after_a_kill(directory, acknowledged)
    assert killed > 0


def prove_after_a_kill(directory: str, acknowledged: int) -> None:
    made = os.path.exists(os.path.join(directory, "workspaces", "key", "store.db"))
    assert made or not acknowledged
    workspace = open_timeline(directory)
    if made:
        found = {finding.code for finding in check(workspace).findings}
        assert found <= LEFT_BY_A_KILL
        assert_whole(workspace, acknowledged)
    workspace.blobs.remove_strays()  # what every start does
    workspace.blobs.bury()
    assert check(workspace).findings == ()
    assert files_of(workspace) == named_files(workspace)
    sent = assert_whole(workspace, acknowledged)

    attach(workspace, "s", CAP, 1)
    with workspace.blobs.writing(), workspace.database.transaction():
        put(workspace, b"big", b"after" * 100, 1000)
    message(workspace, "s", "after", 1000)
    assert content_at(workspace, b"big", 1000) == b"after" * 100
    if sent:
        assert content_at(workspace, b"big", sent * 10) == big(sent - 1)
    workspace.close()


FAULTS = [
    ("fsync", "error=EIO"),
    ("fdatasync", "error=EIO"),
    ("pwrite64", "error=ENOSPC"),
    ("write", "error=ENOSPC"),
    ("rename", "error=EIO"),
    ("unlink", "error=EACCES"),
    ("ftruncate", "error=EIO"),
]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize(("call", "action"), FAULTS)
def test_any_call_fails_once(base: Path, call: str, action: str) -> None:
    """A fault is a refusal, or makes no difference; either way nothing that was acknowledged is lost."""
    for directory, code, acknowledged in sweep(base, call, action, 10):
        assert code in (0, 1)
        prove_after_a_kill(directory, acknowledged)


def test_a_failed_life_is_a_refusal(tmp_path: Path) -> None:
    """What the sweep above takes for one: a sentence, no traceback of another kind."""
    (tmp_path / "workspaces").write_text("in the way")
    with pytest.raises(errors.StoreFault):
        live_through(str(tmp_path))
