"""Walk below one directory and never leave it.

Rule: a link, a mount or a `..` on the way is `Blocked`, never followed, whatever is swapped under us meanwhile: each
call walks again from the root's own handle, one component at a time or by openat2, and what it does it does on the
handle that the walk gave. Handles are not kept between calls: a kept one would follow a folder that was moved away.
"""

import builtins
import contextlib
import errno
import os
import re
import stat as bits
from collections.abc import Iterator
from typing import Literal, Self

from sidecar.errors import NoWorkspace, describe
from sidecar.fs import native
from sidecar.model import Kind, Stat

Why = Literal["link", "not-a-directory", "mount", "escape"]
Entries = list[tuple[bytes, Stat]]
Trace = tuple[int, int, int, int, int, int, int]

# A handle that names a directory without the right to list it is enough to walk; only Linux has one.
_HAS_O_PATH = hasattr(os, "O_PATH")
_PASS = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_LIST = os.O_DIRECTORY | os.O_RDONLY
_NAME = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
_READ = os.O_RDONLY | os.O_NONBLOCK
_NOATIME = getattr(os, "O_NOATIME", 0)
_MALFORMED = re.compile(rb"(?:\A|/)\.{0,2}(?:/|\Z)|\0")  # an empty component, `.` or `..`; a NUL
_PATIENCE = 8  # times that a component may change its kind between two looks at it


class Blocked(Exception):
    """The way to a path leads through something that is not entered."""

    def __init__(self, path: bytes, why: Why) -> None:
        super().__init__(f"{os.fsdecode(path)}: {why}")
        self.path = path
        self.why: Why = why

    def as_fault(self) -> OSError:
        """Say it as the operating system would."""
        numbers = {"link": errno.ELOOP, "not-a-directory": errno.ENOTDIR, "mount": errno.EXDEV, "escape": errno.EINVAL}
        number = numbers[self.why]
        return OSError(number, os.strerror(number), os.fsdecode(self.path))


def stat_of(result: os.stat_result) -> Stat:
    """Turn what lstat or fstat said into our own word for it."""
    kind = bits.S_IFMT(result.st_mode)
    return Stat(
        kind=_KINDS.get(kind, Kind.UNKNOWN),
        mode=result.st_mode & 0o7777,
        device=result.st_dev,
        inode=result.st_ino,
        size_bytes=result.st_size,
        mtime_ns=result.st_mtime_ns,
        ctime_ns=result.st_ctime_ns,
        links=result.st_nlink,
        uid=result.st_uid,
        gid=result.st_gid,
    )


def trace_of(found: os.stat_result) -> Trace:
    """Give all of what lstat says that a change of a file's bytes, mode or identity must touch."""
    return (
        found.st_mode,
        found.st_dev,
        found.st_ino,
        found.st_nlink,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


_KINDS = {bits.S_IFREG: Kind.FILE, bits.S_IFDIR: Kind.DIRECTORY, bits.S_IFLNK: Kind.LINK}


def components(path: bytes) -> builtins.list[bytes]:
    """Split a relative path; the root itself has none. Raises Blocked("escape") for anything malformed."""
    if not path:
        return []
    if _MALFORMED.search(path):
        raise Blocked(path, "escape")
    return path.split(b"/")


class Root:
    """A directory that was opened once, and all that may be done below it.

    `path` is where it was found (absolute, resolved); `fd` is the truth. Methods raise OSError as the system call
    would, and Blocked for a way that is not walked. Safe to use from several threads.
    """

    def __init__(self, fd: int, path: bytes) -> None:
        """Take over an open directory. Use `open` or `beneath`."""
        found = os.fstat(fd)
        self.fd = fd
        self.path = path
        self.device = found.st_dev
        self.inode = found.st_ino
        self.local = native.is_local(fd)

    @classmethod
    def open(cls, path: str | bytes) -> Self:
        """Open a workspace; the way to it may lead through links. Raises NoWorkspace."""
        try:
            real = os.path.realpath(os.fsencode(path), strict=True)
            fd = os.open(real, _LIST | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.stat(b".", dir_fd=fd)  # the right to list is not yet the right to enter
                return cls(fd, real)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise NoWorkspace(path=os.fsdecode(path), why=describe(error)) from error
        except ValueError as error:
            raise NoWorkspace(path=os.fsdecode(path), why=str(error)) from error

    def beneath(self, path: bytes) -> "Root":
        """Open a directory below as a root of its own."""
        return Root(self._directory(path, _LIST), os.path.join(self.path, path) if path else self.path)

    def close(self) -> None:
        """Let go of the directory."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def same_place(self) -> bool:
        """Tell whether the path still leads to this very directory."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)

    def stat(self, path: bytes) -> Stat | None:
        """Look at a path without following it; None where it, or a directory on the way, is absent.

        A mount point is shown as what is mounted: its `device` is not the root's.
        """
        found = self.lstat(path)
        return None if found is None else stat_of(found)

    def lstat(self, path: bytes) -> os.stat_result | None:
        """Do that in the operating system's own words: many files are looked at, and few looks are kept."""
        if not path:
            return os.fstat(self.fd)
        try:
            with self.parent(path) as (fd, name):
                return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # no such name can exist here
                return None
            raise

    @contextlib.contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Give the directory that holds a path, as a handle that lives as long as the block, and the last name.

        The handle serves to reach names in the directory, not to list or flush it.
        """
        parts = components(path)
        if not parts:
            raise Blocked(path, "escape")
        if len(parts) == 1:
            yield self.fd, parts[0]
            return
        fd = self._directory(path[: -len(parts[-1]) - 1], _PASS)
        try:
            yield fd, parts[-1]
        finally:
            os.close(fd)

    def open_read(self, path: bytes) -> int:
        """Open for reading; never blocks, never through a link (ELOOP). The caller closes it and looks what it is."""
        with self.parent(path) as (fd, name):
            return open_name(fd, name, path)

    def open_directory(self, path: bytes) -> int:
        """Open a directory for listing and flushing. The caller closes it."""
        return self._directory(path, _LIST)

    def make_directory(self, path: bytes, mode: int) -> None:
        """Make one directory with exactly this mode. FileExistsError where anything is.

        *Survives:* nothing yet: flush the parent. *Does not survive:* a crash before its mode is set leaves it 0700.
        """
        with self.parent(path) as (fd, name):
            os.mkdir(name, 0o700, dir_fd=fd)
        self.chmod(path, mode)

    def remove_directory(self, path: bytes) -> bool:
        """Remove an empty directory; False where it is not empty, not there, or not a directory.

        *Survives:* nothing yet: flush the parent.
        """
        try:
            with self.parent(path) as (fd, name):
                os.rmdir(name, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
                return False
            raise
        return True

    def chmod(self, path: bytes, mode: int) -> None:
        """Set the mode of a directory, or of a file with one name. ELOOP for a link, EMLINK for a second name.

        *Survives:* nothing yet: flush the file.
        """
        with self.parent(path) as (fd, name):
            held = _step(fd, name, _NAME, path)
        try:
            found = stat_of(os.fstat(held))
            if found.kind is Kind.LINK:
                raise Blocked(path, "link").as_fault()
            if found.kind is Kind.FILE and found.links > 1:
                raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), os.fsdecode(path))
            if found.kind not in (Kind.FILE, Kind.DIRECTORY):
                raise OSError(errno.EINVAL, "neither a file nor a directory", os.fsdecode(path))
            if found.kind is Kind.DIRECTORY and found.device != self.device:
                raise Blocked(path, "mount")
            if not _HAS_O_PATH:
                os.fchmod(held, mode)
            else:
                # A name-only handle works for a file that its owner may not read; this way leads to it and no other.
                os.chmod(b"/proc/self/fd/%d" % held, mode)
        finally:
            os.close(held)

    def path_is_mountpoint(self, path: bytes) -> bool:
        """Tell whether another file system, or another part of this one, is mounted exactly here."""
        with self.parent(path) as (fd, name):
            try:
                os.close(_step(fd, name, _NAME, path))
            except Blocked:
                return True
            return os.stat(name, dir_fd=fd, follow_symlinks=False).st_dev != os.fstat(fd).st_dev

    def _directory(self, path: bytes, flags: int) -> int:
        parts = components(path)
        if not parts:
            return os.open(b".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            fd = native.open_beneath(self.fd, path, flags)  # the whole way in one call
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise Blocked(path, "mount") from error
            fd = None  # walk, to learn where and why
        if fd is None:
            return self._walk(path, parts, flags)
        return self._same_device(fd, path)

    def _walk(self, path: bytes, parts: builtins.list[bytes], flags: int) -> int:
        here = os.dup(self.fd)
        try:
            for number, part in enumerate(parts, start=1):
                below = self._same_device(_enter(here, part, flags if number == len(parts) else _PASS, path), path)
                os.close(here)
                here = below
        except BaseException:
            os.close(here)
            raise
        return here

    def _same_device(self, fd: int, path: bytes) -> int:
        """Pass a handle on, unless it left the file system: some change device without any mount (subvolumes)."""
        if os.fstat(fd).st_dev == self.device:
            return fd
        os.close(fd)
        raise Blocked(path, "mount")

    def list(self, path: bytes) -> Entries:
        """List a directory with what lstat says of each entry; entries that vanish meanwhile are left out.

        Raises Blocked also where the path itself is a link or a mount point.
        """
        fd = self._directory(path, _LIST)
        try:
            return list_fd(fd)
        finally:
            os.close(fd)


def open_name(dir_fd: int, name: bytes, path: bytes) -> int:
    """Open a name in an open directory, as `Root.open_read` does; `path` is what an error calls it."""
    if _NOATIME:
        try:
            return _step(dir_fd, name, _READ | _NOATIME, path)
        except PermissionError:
            pass  # only the owner may ask for that
    return _step(dir_fd, name, _READ, path)


def list_fd(fd: int) -> Entries:
    """List an open directory."""
    entries: Entries = []
    for text in os.listdir(fd):
        name = os.fsencode(text)
        with contextlib.suppress(FileNotFoundError):
            entries.append((name, stat_of(os.stat(name, dir_fd=fd, follow_symlinks=False))))
    return entries


def _enter(here: int, part: bytes, flags: int, path: bytes) -> int:
    """Open one directory of the way; say what is there instead where it is none."""
    for _ in range(_PATIENCE):
        try:
            return _step(here, part, flags, path)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        found = stat_of(os.stat(part, dir_fd=here, follow_symlinks=False))
        if found.kind is Kind.LINK:
            raise Blocked(path, "link")
        if found.kind is not Kind.DIRECTORY:
            raise Blocked(path, "not-a-directory")
    raise Blocked(path, "link")  # it is swapped to and fro: whoever does that gets nothing


def _step(dir_fd: int, name: bytes, flags: int, path: bytes) -> int:
    try:
        fd = native.open_beneath(dir_fd, name, flags)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise Blocked(path, "mount") from error
        raise
    if fd is not None:
        return fd
    fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    if os.fstat(fd).st_dev != os.fstat(dir_fd).st_dev:
        os.close(fd)
        raise Blocked(path, "mount")
    return fd
