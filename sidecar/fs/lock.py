"""Locks between our own processes, released by the kernel when their holder dies.

Rule: a lock is a flock on a file that is never unlinked, and counts only while that file is still the one at the path.
What is written in it tells people and other commands who holds it; it is never what decides.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from dataclasses import dataclass
from typing import Self

from sidecar.clock import MS, SECOND

_RETRIES = 5  # of a lock that is busy: whoever only asks for its owner holds it for microseconds
_PAUSE_NS = 2 * MS
_LONGEST_NOTE = 4096  # bytes


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock, since when (UTC nanoseconds), and in which run of the machine (empty where it has no name)."""

    pid: int
    since: int
    boot: str


class FileLock:
    """A lock that is held, until `release` or the end of the process."""

    def __init__(self, fd: int, *, shared: bool) -> None:
        """Take over a locked handle. Use `acquire`."""
        self._fd = fd
        self._shared = shared

    @classmethod
    def acquire(cls, path: str | bytes, *, blocking: bool = False, shared: bool = False) -> Self | None:
        """Take the lock, exclusively or with others; None where another process holds it and we do not wait.

        The folder must be there. Raises OSError where the file cannot be made, or is a link.

        *Survives:* the death of its holder, at any instant: the next one gets it. *Does not survive:* somebody who
        unlinks the file: then two may hold "it", each one of their own.
        """
        retries = 0
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if os.fstat(fd).st_mode & 0o7777 != 0o600:  # too open, or closed to ourselves by the umask
                    with contextlib.suppress(PermissionError):
                        os.fchmod(fd, 0o600)
                how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if blocking else fcntl.LOCK_NB)
                fcntl.flock(fd, how)
                if _is_at(fd, path):
                    if not shared:
                        _note(fd)
                    return cls(fd, shared=shared)
                os.close(fd)  # it was replaced while we waited: that lock is nobody's
            except BlockingIOError:
                os.close(fd)
                if retries >= _RETRIES:
                    return None
                retries += 1
                time.sleep(_PAUSE_NS / SECOND)
            except BaseException:
                os.close(fd)
                raise

    @property
    def held(self) -> bool:
        """Tell whether it was not released yet."""
        return self._fd >= 0

    def release(self) -> None:
        """Give the lock back; once more does nothing."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            if not self._shared:
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def read_owner(path: str | bytes) -> Owner | None:
    """Say who holds a lock exclusively; None if nobody does, or it cannot be read who."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        owner = _parse(os.pread(fd, _LONGEST_NOTE, 0))
        if owner is None:
            return None  # free: a lock given back has no note, and we need not disturb those who want it by asking
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return owner
        return None  # the note is of one who died
    finally:
        os.close(fd)


def boot_id() -> str:
    """Name this run of the machine; empty where it has no name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _is_at(fd: int, path: str | bytes) -> bool:
    try:
        found = os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    mine = os.fstat(fd)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


def _note(fd: int) -> None:
    text = json.dumps({"pid": os.getpid(), "since": time.time_ns(), "boot": boot_id()}).encode() + b"\n"
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, text, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # a full disk takes the note, not the lock
            raise


def _parse(text: bytes) -> Owner | None:
    try:
        note = json.loads(text)
        owner = Owner(pid=note["pid"], since=note["since"], boot=note["boot"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if type(owner.pid) is int and type(owner.since) is int and type(owner.boot) is str:
        return owner
    return None
