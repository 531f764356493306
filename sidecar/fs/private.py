"""Make the directories and files of our own store, for nobody but their owner, whatever the umask.

Rule: modes are set on handles, a file appears under its name only when all of it is on the disk, and a directory that
we did not make is made stricter only where the caller says that it is the store's.
"""

import contextlib
import errno
import os
import secrets
import stat as bits

from sidecar.fs.native import flush


def private_directory(path: str | bytes, *, tighten: bool = True) -> None:
    """Make a directory, and those above it that are missing, 0700.

    One that is there already is set to 0700 if it is ours, unless not `tighten`; never where everyone writes (sticky),
    nor the home folder, nor the root of the file system. Raises OSError (NotADirectoryError for anything else there).

    *Survives:* a power cut from here on. *Does not survive:* a crash in between leaves fewer directories, all 0700.
    """
    here = os.fsencode(os.path.abspath(path))
    missing: list[bytes] = []
    while not os.path.lexists(here):
        missing.append(here)
        here = os.path.dirname(here)
    if not missing:
        _tighten(here, tighten=tighten)
        return
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # another of our processes was faster
            _tighten(folder, tighten=False)
            continue
        os.chmod(folder, 0o700)  # the umask takes away, and a default ACL may give
        sync_directory(os.path.dirname(folder))


def write_private(path: str | bytes, content: bytes) -> None:
    """Put a file 0600 at a path, in place of what is there, all of it or nothing.

    *Survives:* a crash or power cut at any instant: the old content or the new. *Does not survive:* a crash may leave a
    `.tmp-…` beside it.
    """
    target = os.fsencode(path)
    folder = os.path.dirname(target) or b"."
    temporary = os.path.join(folder, b".tmp-" + secrets.token_hex(8).encode())
    fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            write_all(fd, content)
            flush(fd)
        finally:
            os.close(fd)
        os.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(folder)


def open_private(path: str | bytes, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a regular file, never through a link, and make sure that it is 0600. The caller closes it."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(fd)
        if not bits.S_ISREG(found.st_mode):
            raise FileExistsError(errno.EEXIST, "not a regular file", os.fsdecode(path))
        if found.st_mode & 0o7777 != 0o600 and found.st_uid == os.geteuid():
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_all(fd: int, content: bytes) -> None:
    """Write every byte from the handle's position on, or raise OSError."""
    rest = memoryview(content)
    while rest:
        written = os.write(fd, rest)
        if written <= 0:
            raise OSError(errno.EIO, "the system wrote nothing")
        rest = rest[written:]


def sync_file(path: str | bytes) -> None:
    """Bring a file that somebody else wrote (the database library) to the disk.

    *Survives:* a power cut from here on, if its name does: `sync_directory`.
    """
    _sync(path, 0)


def sync_directory(path: str | bytes) -> None:
    """Bring the names in a directory to the disk.

    *Survives:* a power cut from here on.
    """
    _sync(path, os.O_DIRECTORY)


def _sync(path: str | bytes, flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        flush(fd)
    finally:
        os.close(fd)


def _tighten(path: bytes, *, tighten: bool) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        mode = found.st_mode & 0o7777
        if not tighten or mode == 0o700 or found.st_uid != os.geteuid() or mode & bits.S_ISVTX:
            return
        home = os.fsencode(os.path.expanduser("~"))
        if any(os.path.exists(place) and os.path.samestat(found, os.stat(place)) for place in (b"/", home)):
            return
        os.fchmod(fd, 0o700)
    finally:
        os.close(fd)
