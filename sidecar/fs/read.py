"""Read one file whole, and say how sure that is.

Rule: bytes are called whole only if nothing that a writer must touch differed between the first look and the last, by
handle and by path. That is not proof: a writer that merely pauses leaves every stamp as it was. So a read lease is
asked for before and after, and given back at once: the kernel refuses it while anyone has the file open for writing
or mapped. Both together accepted no torn read in thousands; either alone did (measured). Where leases cannot tell
(another owner's file, a network file system) only a file that has rested is sure.
"""

import contextlib
import errno
import fcntl
import os
import signal
import stat as bits
import sys
import time
from dataclasses import dataclass

from sidecar.clock import MS, SECOND
from sidecar.fs.beneath import Blocked, Root, open_name, stat_of, trace_of
from sidecar.model import Reason, Stat

# The kernel stamps with its tick: a second write inside one leaves the stamp as it was. Ticks lag up to 6 ms
# (measured).
TICK_NS = 10 * MS

_AGAIN_NS = 20 * MS  # between two reads that must agree
_BACKOFF_NS = MS  # doubled at each attempt
_LONGEST_BACKOFF_NS = 50 * MS
_PIECE = 8 * 1024 * 1024  # bytes; beyond what the file's own size says
_SWAPPED = frozenset({errno.ELOOP, errno.ENXIO, errno.ESTALE})  # it became another between look and open: look again
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # trouble of this process, not of the file


@dataclass(frozen=True, slots=True)
class Whole:
    """The file's bytes, all of one moment; `sure` if no writer can have been at work."""

    content: bytes
    stat: Stat
    sure: bool


@dataclass(frozen=True, slots=True)
class Linked:
    """A link, a file with a second name, or (`stat` None) a path that leads through a link: not read."""

    stat: Stat | None


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing is there, at the instant of the call."""


@dataclass(frozen=True, slots=True)
class Unread:
    """It is there, and its bytes are not known: UNSTORABLE, TOO_LARGE, UNSTABLE, or OUTSIDE_WORKSPACE across a mount.

    `doubtful`: with UNSTABLE, bytes that every stamp confirms although a writer had the file open; else None.
    """

    reason: Reason
    stat: Stat | None
    doubtful: bytes | None = None


Reading = Whole | Linked | Gone | Unread


@dataclass(frozen=True, slots=True)
class _Again:
    """Somebody was at work; what was seen, for the last attempt."""

    stat: Stat | None
    doubtful: bytes | None = None


def read_whole(
    root: Root,
    path: bytes,
    *,
    ceiling_bytes: int,
    attempts: int,
    settle_ns: int = 2 * SECOND,
    ours: tuple[int, int] | None = None,
) -> Reading:
    """Read a regular file below the root, trying again while it changes.

    `ours` (device, inode) is the one file that is read although it has a second name: its bytes are known already.

    A file is settled, where leases cannot tell, when its ctime is older than `settle_ns`. The state of the path is
    always an answer; raised are only Blocked("escape") and faults of this process (too many open files, no memory).
    """
    last = _Again(None)
    for attempt in range(max(attempts, 1)):
        if attempt:
            _sleep(min(_BACKOFF_NS << (attempt - 1), _LONGEST_BACKOFF_NS))
        try:
            outcome = _attempt(root, path, _Rules(ceiling_bytes, settle_ns, final=attempt + 1 >= attempts, ours=ours))
        except Blocked as blocked:
            return _blocked(blocked)
        except FileNotFoundError:
            return Gone()
        except BlockingIOError:  # another's lease: it will be asked to give it back
            outcome = _Again(last.stat)
        except OSError as error:
            if error.errno in _OURS:
                raise
            if error.errno in _SWAPPED:
                outcome = _Again(last.stat)
            else:
                return Unread(Reason.UNSTORABLE, _look(root, path))
        if not isinstance(outcome, _Again):
            return outcome
        last = outcome
    return Unread(Reason.UNSTABLE, last.stat, last.doubtful)


def has_writer(root: Root, fd: int) -> bool | None:
    """Tell whether anyone has an open file open for writing, or mapped so; None where leases cannot tell.

    `fd` must be open for reading only.
    """
    if sys.platform != "linux" or not root.local:
        return None
    try:
        # A writer that opens in this instant makes the kernel signal us; SIGIO would end the process, SIGURG does not.
        # Each time: giving a lease back resets it.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def ignore_sigio() -> None:
    """Make sure that a lease broken by a writer cannot end this process. Call it once, in the main thread."""
    if hasattr(signal, "SIGIO"):
        signal.signal(signal.SIGIO, signal.SIG_IGN)


def read_fd_limited(fd: int, ceiling_bytes: int, expected_bytes: int = 0) -> bytes | None:
    """Read an open file from its first byte to its end; None if there are more bytes than the ceiling.

    Does not move the handle's position. Never holds more than the ceiling and one byte.
    """
    pieces: list[bytes] = []
    total = 0
    want = expected_bytes + 1
    while True:
        piece = os.pread(fd, max(1, min(want, ceiling_bytes + 1 - total)), total)
        if piece:
            pieces.append(piece)
            total += len(piece)
            if total > ceiling_bytes:
                return None
        if not piece or (len(piece) < want and total == expected_bytes):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        want = max(expected_bytes + 1 - total, 1) if total <= expected_bytes else _PIECE


@dataclass(frozen=True, slots=True)
class _Rules:
    ceiling: int
    settle_ns: int
    final: bool  # the last attempt: doubtful bytes are better than none
    ours: tuple[int, int] | None  # device and inode of the file that may have a second name


def _attempt(root: Root, path: bytes, rules: _Rules) -> Reading | _Again:
    with root.parent(path) as (folder, name):
        # Before opening: to open a device can already do something to it.
        found = _not_readable(os.stat(name, dir_fd=folder, follow_symlinks=False), rules)
        if found is not None:
            return found
        fd = open_name(folder, name, path)
    try:
        before = _wait_for_tick(fd)
        return _not_readable(before, rules) or _read_between(root, path, fd, before, rules)
    finally:
        os.close(fd)


def _read_between(root: Root, path: bytes, fd: int, before: os.stat_result, rules: _Rules) -> Reading | _Again:
    """Read an open file between two probes for writers and two looks at it."""
    writing = has_writer(root, fd)
    if writing and not rules.final:
        return _Again(stat_of(before))
    content = read_fd_limited(fd, rules.ceiling, before.st_size)
    if content is None:
        return Unread(Reason.TOO_LARGE, stat_of(os.fstat(fd)))
    if not _still(root, path, fd, before, content):
        return _Again(stat_of(before))
    after = has_writer(root, fd)
    if writing or after:
        return _Again(stat_of(before), content)
    sure = writing is False and after is False
    if not sure and time.time_ns() - before.st_ctime_ns < rules.settle_ns:
        # Too fresh to be sure of, and a writer may only be pausing: at least let two reads agree.
        _sleep(_AGAIN_NS)
        again = read_fd_limited(fd, rules.ceiling, before.st_size)
        unchanged = again == content and _still(root, path, fd, before, content)
        return Whole(content, stat_of(before), sure=False) if unchanged else _Again(stat_of(before))
    return Whole(content, stat_of(before), sure=True)


def _not_readable(found: os.stat_result, rules: _Rules) -> Reading | None:
    if bits.S_ISREG(found.st_mode) and (found.st_nlink == 1 or (found.st_dev, found.st_ino) == rules.ours):
        return Unread(Reason.TOO_LARGE, stat_of(found)) if found.st_size > rules.ceiling else None
    if bits.S_ISREG(found.st_mode) or bits.S_ISLNK(found.st_mode):
        return Linked(stat_of(found))
    return Unread(Reason.UNSTORABLE, stat_of(found))


def _wait_for_tick(fd: int) -> os.stat_result:
    """Look at an open file, and where its last change is younger than a tick look again after it."""
    found = os.fstat(fd)
    age = time.time_ns() - found.st_ctime_ns
    if 0 <= age < TICK_NS:
        _sleep(TICK_NS - age)
        found = os.fstat(fd)
    return found


def _still(root: Root, path: bytes, fd: int, before: os.stat_result, content: bytes) -> bool:
    if len(content) != before.st_size or trace_of(os.fstat(fd)) != trace_of(before):
        return False
    now = root.lstat(path)
    return now is not None and trace_of(now) == trace_of(before)


def _blocked(blocked: Blocked) -> Reading:
    if blocked.why == "link":
        return Linked(None)
    if blocked.why == "not-a-directory":
        return Gone()
    if blocked.why == "mount":
        return Unread(Reason.OUTSIDE_WORKSPACE, None)
    raise blocked


def _look(root: Root, path: bytes) -> Stat | None:
    try:
        return root.stat(path)
    except (OSError, Blocked):
        return None


def _sleep(duration_ns: int) -> None:
    time.sleep(duration_ns / SECOND)
