"""A lock has one holder, dies with it, and never trusts its own note."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sidecar.fs.lock import FileLock, Owner, boot_id, read_owner

HOLD = """
import sys, time
from sidecar.fs.lock import FileLock
lock = FileLock.acquire(sys.argv[1])
print("held" if lock else "busy", flush=True)
time.sleep(60)
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_one_holder_at_a_time_and_others_learn_who(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert read_owner(str(path)) is None
    before = time.time_ns()
    lock = FileLock.acquire(os.fsencode(path))
    assert lock is not None and lock.held
    assert FileLock.acquire(str(path)) is None
    assert FileLock.acquire(str(path), shared=True) is None
    owner = read_owner(os.fsencode(path))
    assert owner is not None
    assert (owner.pid, owner.boot) == (os.getpid(), boot_id())
    assert before <= owner.since <= time.time_ns()
    lock.release()
    lock.release()
    assert not lock.held
    assert read_owner(str(path)) is None
    assert path.exists()
    with FileLock.acquire(str(path)) or pytest.fail("not free") as again:
        assert again.held
    assert FileLock.acquire(str(path)) is not None


def test_the_file_is_private_whatever_the_umask_and_whatever_it_was(tmp_path: Path) -> None:
    old = os.umask(0o000)
    try:
        with FileLock.acquire(str(tmp_path / "lock")) or pytest.fail("not free"):
            assert (tmp_path / "lock").stat().st_mode & 0o7777 == 0o600
    finally:
        os.umask(old)
    (tmp_path / "wide").write_bytes(b"")
    (tmp_path / "wide").chmod(0o666)
    with FileLock.acquire(str(tmp_path / "wide")) or pytest.fail("not free"):
        assert (tmp_path / "wide").stat().st_mode & 0o7777 == 0o600


def test_a_killed_holder_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = holder(path)
    try:
        assert FileLock.acquire(str(path)) is None
        owner = read_owner(str(path))
        assert owner is not None and owner.pid == process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert json.loads(path.read_bytes())["pid"] == process.pid  # the note is still there
    assert read_owner(str(path)) is None  # and is not believed
    with FileLock.acquire(str(path)) or pytest.fail("not free"):
        owner = read_owner(str(path))
        assert owner is not None and owner.pid == os.getpid()


def test_a_child_program_does_not_keep_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.acquire(str(path))
    assert lock is not None
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lock.release()
        assert FileLock.acquire(str(path)) is not None
    finally:
        child.kill()
        child.wait()


def test_shared_holders_share_and_write_no_note(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    one, two = FileLock.acquire(str(path), shared=True), FileLock.acquire(str(path), shared=True)
    assert one is not None and two is not None
    assert FileLock.acquire(str(path)) is None
    assert path.read_bytes() == b""
    one.release()
    assert FileLock.acquire(str(path)) is None
    two.release()
    assert FileLock.acquire(str(path)) is not None


def test_waiting_gets_it_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.acquire(str(path))
    assert lock is not None
    threading.Timer(0.1, lock.release).start()
    started = time.monotonic()
    with FileLock.acquire(str(path), blocking=True) or pytest.fail("not free"):
        assert time.monotonic() - started >= 0.09


def test_a_lock_on_a_file_that_was_replaced_meanwhile_is_not_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.acquire(str(path))
    assert lock is not None
    got: list[FileLock | None] = []
    waiter = threading.Thread(target=lambda: got.append(FileLock.acquire(str(path), blocking=True)))
    waiter.start()
    time.sleep(0.1)
    path.unlink()  # somebody cleans up; the waiter waits for the old file
    lock.release()
    waiter.join(5)
    assert got[0] is not None
    assert FileLock.acquire(str(path)) is None  # what it got is the lock at the path
    got[0].release()


def test_links_are_refused_and_missing_folders_are_a_fault(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        FileLock.acquire(str(tmp_path / "lock"))
    with pytest.raises(OSError):
        read_owner(str(tmp_path / "lock"))
    assert (tmp_path / "target").read_bytes() == b"mine"
    with pytest.raises(FileNotFoundError):
        FileLock.acquire(str(tmp_path / "none/lock"))


@pytest.mark.parametrize(
    "note", [b"", b"{", b"[]", b"null", b'{"pid": 1}', b'{"pid": "1", "since": 0, "boot": ""}', b"\xff", b"[" * 4000]
)
def test_an_unreadable_note_is_no_owner_and_no_error(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "lock"
    with FileLock.acquire(str(path)) or pytest.fail("not free"):
        path.write_bytes(note)
        assert read_owner(str(path)) is None
    with FileLock.acquire(str(path)) or pytest.fail("not free"):
        assert isinstance(read_owner(str(path)), Owner)


def test_asking_for_the_owner_never_makes_a_free_lock_busy(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"")
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            read_owner(str(path))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            with FileLock.acquire(str(path)) or pytest.fail("busy"):
                pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()
