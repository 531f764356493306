"""What is called whole is whole; everything else says what it is."""

import contextlib
import errno
import mmap
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.fs import read
from sidecar.fs.beneath import Blocked, Root
from sidecar.fs.read import Gone, Linked, Reading, Unread, Whole, has_writer, read_fd_limited, read_whole
from sidecar.model import Kind, Reason


def whole(root: Root, path: bytes, ceiling: int = 1 << 20, attempts: int = 4, settle_ns: int = 2 * 10**9) -> Reading:
    return read_whole(root, path, ceiling_bytes=ceiling, attempts=attempts, settle_ns=settle_ns)


@contextlib.contextmanager
def no_leases(monkeypatch: pytest.MonkeyPatch, root: Root) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(root, "local", False)
        yield


@pytest.mark.parametrize("content", [b"", b"x", b"\0\xff\r\n" * 5000, os.urandom(1 << 20)])
def test_a_quiet_file_is_read_whole_and_sure(root: Root, work: Path, content: bytes) -> None:
    (work / "file").write_bytes(content)
    outcome = whole(root, b"file")
    assert isinstance(outcome, Whole)
    assert outcome.content == content
    assert outcome.sure
    assert outcome.stat == root.stat(b"file")


def test_what_is_no_plain_file_is_a_finding(root: Root, work: Path, outside: Path) -> None:
    (work / "dir").mkdir()
    (work / "link").symlink_to(outside / "secret")
    (work / "way").symlink_to(outside)
    (work / "twin").write_bytes(b"x")
    os.link(work / "twin", work / "second")
    os.mkfifo(work / "fifo")
    (work / "file").write_bytes(b"x")
    link, twin = whole(root, b"link"), whole(root, b"twin")
    assert isinstance(link, Linked) and link.stat is not None and link.stat.kind is Kind.LINK
    assert isinstance(twin, Linked) and twin.stat is not None and twin.stat.links == 2
    assert whole(root, b"way/secret") == Linked(None)
    assert whole(root, b"none") == Gone()
    assert whole(root, b"none/below") == Gone()
    assert whole(root, b"file/below") == Gone()
    for path, kind in ((b"fifo", Kind.UNKNOWN), (b"dir", Kind.DIRECTORY)):
        outcome = whole(root, path)
        assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTORABLE
        assert outcome.stat is not None and outcome.stat.kind is kind
    with pytest.raises(Blocked, match="escape"):
        whole(root, b"../outside/secret")


def test_sockets_are_findings(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        outcome = whole(root, b"socket")
    assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTORABLE


@pytest.mark.root
def test_devices_are_never_opened(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mknod(work / "null", 0o020666, os.makedev(1, 3))
    monkeypatch.setattr(read, "open_name", lambda *_: pytest.fail("a device was opened"))
    outcome = whole(root, b"null")
    assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTORABLE


@pytest.mark.root
def test_files_across_a_mount_are_not_of_this_workspace(root: Root, work: Path, mount: Callable[..., None]) -> None:
    (work / "mnt").mkdir()
    mount("-t", "tmpfs", "none", str(work / "mnt"))
    (work / "mnt/file").write_bytes(b"x")
    assert whole(root, b"mnt/file") == Unread(Reason.OUTSIDE_WORKSPACE, None)


def test_the_ceiling_holds_for_the_size_and_for_the_bytes(
    root: Root, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "file").write_bytes(b"12345")
    exact, beyond = whole(root, b"file", ceiling=5), whole(root, b"file", ceiling=4)
    assert isinstance(exact, Whole) and exact.content == b"12345"
    assert isinstance(beyond, Unread) and beyond.reason is Reason.TOO_LARGE
    real = os.pread

    def grow(fd: int, count: int, offset: int) -> bytes:
        with open(work / "file", "ab") as file:
            file.write(b"and more")
        return real(fd, count, offset)

    monkeypatch.setattr(os, "pread", grow)
    grown = whole(root, b"file", ceiling=8, attempts=1)
    assert isinstance(grown, Unread) and grown.reason is Reason.TOO_LARGE


def test_a_sparse_giant_costs_nothing(root: Root, work: Path) -> None:
    with open(work / "sparse", "wb") as file:
        file.truncate(10 << 30)
    started = time.monotonic()
    outcome = whole(root, b"sparse")
    assert isinstance(outcome, Unread) and outcome.reason is Reason.TOO_LARGE
    assert time.monotonic() - started < 0.5


def test_limited_reading_stops_and_leaves_the_position(work: Path) -> None:
    (work / "file").write_bytes(b"0123456789")
    fd = os.open(work / "file", os.O_RDONLY)
    try:
        for expected in (0, 3, 10, 50):
            assert read_fd_limited(fd, 10, expected) == b"0123456789"
            assert read_fd_limited(fd, 9, expected) is None
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    finally:
        os.close(fd)


def test_a_file_open_for_writing_is_unstable_and_its_bytes_doubtful(root: Root, work: Path) -> None:
    (work / "log").write_bytes(b"line\n")
    with open(work / "log", "ab"):
        outcome = whole(root, b"log", settle_ns=0)
        assert isinstance(outcome, Unread)
        assert (outcome.reason, outcome.doubtful) == (Reason.UNSTABLE, b"line\n")
        assert outcome.stat == root.stat(b"log")
    outcome = whole(root, b"log")
    assert isinstance(outcome, Whole) and outcome.sure


def test_a_file_mapped_for_writing_is_unstable(root: Root, work: Path) -> None:
    (work / "map").write_bytes(b"x" * 4096)
    with open(work / "map", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    try:
        outcome = whole(root, b"map")
        assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTABLE
    finally:
        mapped.close()


def test_a_writer_is_seen_and_the_lease_given_back(root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"x")
    fd = root.open_read(b"file")
    try:
        assert has_writer(root, fd) is False
        writer = os.open(work / "file", os.O_WRONLY | os.O_NONBLOCK)  # EAGAIN if a lease were still held
        assert has_writer(root, fd) is True
        os.close(writer)
        assert has_writer(root, fd) is False
    finally:
        os.close(fd)


def test_a_short_writer_is_waited_for(root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"old")
    file = open(work / "file", "wb")  # noqa: SIM115
    file.write(b"new")
    threading.Timer(0.01, file.close).start()
    outcome = whole(root, b"file", attempts=8)
    assert isinstance(outcome, Whole) and outcome.content == b"new"


def test_where_leases_cannot_tell_only_rest_is_sure(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "file").write_bytes(b"x")
    with no_leases(monkeypatch, root):
        fresh = whole(root, b"file")
        assert isinstance(fresh, Whole) and not fresh.sure
        time.sleep(0.06)
        rested = whole(root, b"file", settle_ns=50_000_000)
        assert isinstance(rested, Whole) and rested.sure


def test_where_leases_cannot_tell_two_reads_must_agree(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "file").write_bytes(b"aaaa")
    answers = iter([b"aaaa", b"aabb"])
    with no_leases(monkeypatch, root):
        monkeypatch.setattr(read, "read_fd_limited", lambda *_: next(answers))
        outcome = whole(root, b"file", attempts=1)
    assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTABLE


def test_a_change_while_reading_is_noticed(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change leaves size and mtime as they were, and no writer behind."""
    real = read.read_fd_limited
    at_work: list[str] = []

    def in_place() -> None:
        times = (work / "file").stat()
        with open(work / "file", "r+b") as file:
            file.write(b"torn")
        os.utime(work / "file", ns=(times.st_atime_ns, times.st_mtime_ns))

    def replaced() -> None:
        (work / "other").write_bytes(b"torn")
        (work / "other").rename(work / "file")

    def chmodded() -> None:
        (work / "file").chmod(0o600)

    for change in (in_place, replaced, chmodded):
        (work / "file").write_bytes(b"good")
        (work / "file").chmod(0o644)
        time.sleep(0.02)

        def meanwhile(fd: int, ceiling: int, size: int = 0, change: Callable[[], None] = change) -> bytes | None:
            content = real(fd, ceiling, size)
            if not at_work:
                at_work.append("once")
                change()
            return content

        at_work.clear()
        monkeypatch.setattr(read, "read_fd_limited", meanwhile)
        torn = whole(root, b"file", attempts=1)
        assert isinstance(torn, Unread) and torn.reason is Reason.UNSTABLE, change
        at_work.clear()
        again = whole(root, b"file", attempts=3)
        assert isinstance(again, Whole) and again.stat == root.stat(b"file")
        monkeypatch.undo()


def test_a_fresh_file_is_read_only_after_its_tick(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    real = read.read_fd_limited

    def note(fd: int, ceiling: int, size: int = 0) -> bytes | None:
        started.append(time.time_ns())
        return real(fd, ceiling, size)

    monkeypatch.setattr(read, "read_fd_limited", note)
    (work / "file").write_bytes(b"x")
    outcome = whole(root, b"file")
    assert isinstance(outcome, Whole)
    assert started[0] - outcome.stat.ctime_ns >= read.TICK_NS


def test_a_file_that_vanishes_is_gone_and_one_swapped_for_a_link_is_linked(
    root: Root, work: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = read.open_name

    def after(change: Callable[[], None]) -> Callable[[int, bytes, bytes], int]:
        def opened(folder: int, name: bytes, path: bytes) -> int:
            change()
            return real(folder, name, path)

        return opened

    def swap() -> None:
        (work / "file").unlink(missing_ok=True)
        (work / "file").symlink_to(outside / "secret")

    (work / "file").write_bytes(b"x")
    monkeypatch.setattr(read, "open_name", after((work / "file").unlink))
    assert whole(root, b"file") == Gone()
    (work / "file").write_bytes(b"x")
    monkeypatch.setattr(read, "open_name", after(swap))
    assert isinstance(whole(root, b"file"), Linked)


def test_faults_of_the_process_are_raised_and_of_the_file_are_not(
    root: Root, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "file").write_bytes(b"x")

    def fail(number: int) -> Callable[..., int]:
        def opened(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return opened

    for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        monkeypatch.setattr(read, "open_name", fail(number))
        with pytest.raises(OSError):
            whole(root, b"file")
    for number in (errno.EIO, errno.EACCES):
        monkeypatch.setattr(read, "open_name", fail(number))
        outcome = whole(root, b"file")
        assert isinstance(outcome, Unread) and outcome.reason is Reason.UNSTORABLE and outcome.stat is not None


def test_no_handle_is_left_open(root: Root, work: Path) -> None:
    (work / "a/b").mkdir(parents=True)
    (work / "a/b/file").write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for path in (b"a/b/file", b"a/b", b"a/b/none", b"a/none/x", b"a/b/file/x"):
        whole(root, path)
        with contextlib.suppress(Blocked):
            root.stat(path)
    with contextlib.suppress(Blocked, OSError):
        root.list(b"a/b/file")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.slow
def test_a_broken_lease_never_ends_the_process(work: Path) -> None:
    """A writer opens and closes as fast as it can while another process, which ignores nothing, probes."""
    (work / "file").write_bytes(b"x")
    program = """
import sys, time
from sidecar.fs.beneath import Root
from sidecar.fs.read import has_writer
with Root.open(sys.argv[1]) as root:
    fd = root.open_read(b"file")
    stop = time.monotonic() + 2
    seen = {has_writer(root, fd) for _ in iter(lambda: time.monotonic() < stop, False)}
print(sorted(map(str, seen)))
"""
    probe = subprocess.Popen(
        [sys.executable, "-c", program, str(work)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    while probe.poll() is None:
        os.close(os.open(work / "file", os.O_WRONLY))
    assert probe.returncode == 0
    assert probe.stdout is not None and probe.stdout.read() == "['False', 'True']\n"


def test_sigio_can_be_ignored() -> None:
    old = signal.getsignal(signal.SIGIO)
    try:
        read.ignore_sigio()
        os.kill(os.getpid(), signal.SIGIO)
    finally:
        signal.signal(signal.SIGIO, old)


def _rewrite(path: str, stop: float, how: str) -> None:
    """Keep writing contents of one repeated letter; a mixture or a part is a torn one."""
    letter = 0
    while time.monotonic() < stop:
        letter = (letter + 1) % 26
        piece = bytes([65 + letter]) * 20_000
        with open(path, "wb" if how == "truncate" else "r+b", buffering=0) as file:
            for _ in range(10):
                file.write(piece)
                time.sleep(0.0003)
        time.sleep(0.004)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["truncate", "in-place"])
def test_no_torn_read_is_ever_sure(root: Root, work: Path, how: str) -> None:
    (work / "file").write_bytes(b"A" * 200_000)
    stop = time.monotonic() + 3
    writer = multiprocessing.get_context("fork").Process(target=_rewrite, args=(str(work / "file"), stop, how))
    writer.start()
    accepted = refused = 0
    while time.monotonic() < stop:
        outcome = whole(root, b"file", attempts=2)
        if isinstance(outcome, Whole):
            assert outcome.sure
            assert outcome.content == outcome.content[:1] * 200_000
            accepted += 1
        else:
            refused += 1
    writer.join()
    assert accepted and refused
