"""Read the agent's own backups: regular files only, never through a link, and only whole."""

import contextlib
import os
import stat as bits
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackupContent:
    """The bytes of one backup, and the permission bits that the agent copied with them."""

    content: bytes
    mode: int


def read_backup(directory: str, name: str, *, limit_bytes: int | None = None) -> BackupContent | None:
    """Read one backup by its name; None where there is none that can be trusted to be whole.

    Hard links are allowed (a forked session links its parent's backups). A larger file than `limit_bytes` is left.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return None
    with contextlib.ExitStack() as stack:
        try:
            folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            fd = os.open(name, flags, dir_fd=folder)
            stack.callback(os.close, fd)
            before = os.fstat(fd)
            if not bits.S_ISREG(before.st_mode) or (limit_bytes is not None and before.st_size > limit_bytes):
                return None
            content = _read_all(fd, before.st_size)
            after = os.fstat(fd)
        except (OSError, ValueError):
            return None
    unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    if not unchanged or len(content) != before.st_size:  # the agent writes them in place: it is writing now
        return None
    return BackupContent(content, bits.S_IMODE(before.st_mode))


def _read_all(fd: int, size: int) -> bytes:
    pieces: list[bytes] = []
    read = 0
    while read <= size and (piece := os.read(fd, min(size + 1 - read, 1 << 20))):
        pieces.append(piece)
        read += len(piece)
    return b"".join(pieces)
