"""Put files in place and take them away, through one folder of our own, without ever replacing or losing a byte.

Rule: nothing goes to a path but by a rename that refuses to replace or an exchange; nothing leaves one but into the
staging folder, whole; only names inside that folder are unlinked. So at each instant every byte that was in the
workspace is at its path or in the folder, and the folder's name is in the journal before it is made.

The folder is a root of its own (`inside`): `read_whole(staging.inside, name, …)` and `scan(staging.inside, name, …)`
read what was displaced. A caller that must find a parked entry again after a crash gives the name itself
(`fresh_name()`, into the journal first).
"""

import contextlib
import errno
import os
import secrets
import sys
from typing import Self

from sidecar.fs import native
from sidecar.fs.beneath import Blocked, Root, stat_of
from sidecar.fs.private import write_all
from sidecar.fs.scan import STAGING_PREFIX, is_staging_name
from sidecar.model import Kind, Stat

# What an exchange without the system call holds on the way, under the staged name with this behind it.
DISPLACED_SUFFIX = b".displaced"

# These speak of the old content, or give it a power: a kernel takes them away from a file that is written to.
_OF_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
_SET_ID = 0o6000


class Displaced(FileExistsError):
    """Something new came to the path in the middle of an exchange; what was there before is kept in staging.

    `held` is its name there. Only without the exchange system call.
    """

    def __init__(self, path: bytes, held: bytes) -> None:
        super().__init__(errno.EEXIST, "something came to the path meanwhile", os.fsdecode(path))
        self.held = held


def fresh_staging_name() -> bytes:
    """Make the name of a staging folder that is nowhere yet."""
    return STAGING_PREFIX + secrets.token_hex(16).encode()


def fresh_name() -> bytes:
    """Make a name for an entry of a staging folder."""
    return secrets.token_hex(16).encode()


class Staging:
    """One 0700 folder of a random name in the workspace's root, never captured."""

    def __init__(self, root: Root, name: bytes, inside: Root) -> None:
        """Take over an open folder. Use `create` or `adopt`."""
        self.root = root
        self.name = name
        self.inside = inside
        self._touched: set[bytes] = {b""}  # directories of the workspace that have something to flush

    @classmethod
    def create(cls, root: Root, name: bytes | None = None) -> Self:
        """Make the folder; FileExistsError if the name is taken, ValueError if it is not one of ours.

        *Survives:* nothing yet: `sync`. *Does not survive:* a crash leaves the folder, for `adopt`.
        """
        name = fresh_staging_name() if name is None else _ours(name)
        try:
            root.make_directory(name, 0o700)
        except PermissionError:
            if root.stat(name) is None:  # else it was made, and this file system has modes of its own
                raise
        return cls(root, name, root.beneath(name))

    @classmethod
    def adopt(cls, root: Root, name: bytes) -> Self:
        """Open a folder that a crash left behind; FileNotFoundError if it left none."""
        return cls(root, name, root.beneath(_ours(name)))

    def stage(
        self,
        content: bytes,
        mode: int,
        like: Stat | None = None,
        *,
        like_path: bytes | None = None,
        name: bytes | None = None,
    ) -> bytes:
        """Write a file into the folder, all of it on the disk, and give its name there.

        It takes owner and group of `like`, and ACL and attributes of the file at `like_path`, as far as permitted.
        Where the owner of a set-id file could not be given, the set-id bits are left out. Raises OSError, and leaves
        nothing.

        *Survives:* a power cut, once `sync` was called too. *Does not survive:* a crash in between leaves part of it
        here, where it is in nobody's way.
        """
        name = fresh_name() if name is None else name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self.inside.fd)
        try:
            try:
                write_all(fd, content)
                if os.fstat(fd).st_size != len(content):
                    raise OSError(errno.EIO, "the staged file is not as long as its content", os.fsdecode(name))
                if like is not None:
                    mode = _own_like(fd, like, mode)
                if like_path is not None:
                    self._copy_attributes(fd, like_path)
                os.fchmod(fd, mode)  # last: a change of owner clears set-id bits, an ACL brings a mask of its own
                native.flush(fd)
            finally:
                os.close(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.inside.fd)
            raise
        return name

    def place(self, name: bytes, path: bytes) -> None:
        """Move a staged entry to a path where nothing is; FileExistsError where anything is.

        *Survives:* a crash: it is here or there (for an instant both, without the system call). *Does not survive:* a
        power cut before `sync` may bring it back here.
        """
        with self.root.parent(path) as (fd, last):
            self._touch(path)
            try:
                native.rename_no_replace(self.inside.fd, name, fd, last)
            except native.Unsupported:
                self._place_by_link(name, fd, last)

    def exchange(self, name: bytes, path: bytes) -> None:
        """Swap a staged entry with whatever is at the path; FileNotFoundError where nothing is.

        Afterwards `name` holds what was displaced: file, link or tree. Again, and all is as before.

        *Survives:* a crash: one of the two orders. Without the system call, a crash (or `Displaced`) in the middle
        leaves the path empty and its entry here as `name` + DISPLACED_SUFFIX. *Does not survive:* a power cut before
        `sync` may bring the old order back.
        """
        with self.root.parent(path) as (fd, last):
            self._touch(path)
            try:
                native.rename_exchange(self.inside.fd, name, fd, last)
                return
            except native.Unsupported:
                pass
            held = name + DISPLACED_SUFFIX
            os.stat(name, dir_fd=self.inside.fd, follow_symlinks=False)  # before the path is emptied for nothing
            self._take(fd, last, held)
            try:
                self._place_by_link(name, fd, last)
            except OSError as error:
                try:
                    self._place_by_link(held, fd, last)
                except FileExistsError as taken:
                    raise Displaced(path, held) from taken
                if isinstance(error, FileExistsError):  # came and went: a reader should try again
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), os.fsdecode(path)) from error
                raise
            os.rename(held, name, src_dir_fd=self.inside.fd, dst_dir_fd=self.inside.fd)

    def park(self, path: bytes, name: bytes | None = None) -> bytes:
        """Move what is at a path (a file, a link, a whole tree) into the folder, and give its name there.

        *Survives:* a crash: it is here or there. *Does not survive:* a power cut before `sync` may bring it back there.
        """
        name = fresh_name() if name is None else name
        with self.root.parent(path) as (fd, last):
            self._touch(path)
            self._take(fd, last, name)
        return name

    def unpark(self, name: bytes, path: bytes) -> None:
        """Move a parked entry back to a path where nothing is; FileExistsError where anything is.

        *Survives:* and *Does not survive:* as `place`.
        """
        self.place(name, path)

    def read(self, name: bytes) -> bytes:
        """Read a regular file of the folder, with no regard to writers: `read_whole(staging.inside, …)` has that."""
        fd = self.inside.open_read(name)
        with os.fdopen(fd, "rb") as file:
            if stat_of(os.fstat(fd)).kind is not Kind.FILE:
                raise OSError(errno.EINVAL, "not a regular file", os.fsdecode(name))
            return file.read()

    def stat(self, name: bytes) -> Stat | None:
        """Look at an entry of the folder."""
        return self.inside.stat(name)

    def discard(self, name: bytes) -> None:
        """Unlink a regular file or a link of the folder, or (a/b) of a tree parked in it; OSError for anything else.

        *Does not survive:* anything: its bytes are gone.
        """
        with self.inside.parent(name) as (fd, last):
            kind = stat_of(os.stat(last, dir_fd=fd, follow_symlinks=False)).kind
            if kind not in (Kind.FILE, Kind.LINK):
                raise OSError(errno.EPERM, "neither a file nor a link", os.fsdecode(name))
            os.unlink(last, dir_fd=fd)

    def discard_empty_directory(self, name: bytes) -> bool:
        """Remove an empty directory of the folder; False where it is not empty, not there, or not a directory."""
        return self.inside.remove_directory(name)

    def names(self) -> list[bytes]:
        """Give the names of the folder's entries, in order."""
        return sorted(os.fsencode(name) for name in os.listdir(self.inside.fd))

    def sync(self) -> None:
        """Bring every rename so far to the disk.

        The folder goes first, so that what was taken from a path is safe here before its absence there is; then the
        directories of the paths, deepest first; then the root.

        *Survives:* a power cut from here on.
        """
        native.flush(self.inside.fd)
        for path in sorted(self._touched, key=lambda path: (-path.count(b"/"), path == b"", path)):
            self._flush_directory(path)
        self._touched.clear()

    def close(self) -> bool:
        """Flush what was done and remove the folder; False, and it stays, where anything is left in it.

        *Survives:* a power cut from here on. *Does not survive:* a crash in between leaves an empty folder.
        """
        self.sync()
        try:
            found = self.root.stat(self.name)
            if found is None or (found.device, found.inode) != (self.inside.device, self.inside.inode):
                return False  # somebody moved it: what is there now is not ours
            if not self.root.remove_directory(self.name):
                return False
            native.flush(self.root.fd)
            return True
        finally:
            self.inside.close()

    def _touch(self, path: bytes) -> None:
        self._touched.add(path.rpartition(b"/")[0])

    def _flush_directory(self, path: bytes) -> None:
        try:
            fd = self.root.open_directory(path)
        except (OSError, Blocked):
            os.sync()  # it was moved, or may be entered and not listed: then everything
            return
        try:
            native.flush(fd)
        finally:
            os.close(fd)

    def _take(self, fd: int, last: bytes, name: bytes) -> None:
        try:
            native.rename_no_replace(fd, last, self.inside.fd, name)
        except native.Unsupported:
            # To link and unlink would unlink whatever took the place in between. Nobody else makes names in here.
            with contextlib.suppress(FileNotFoundError):
                os.stat(name, dir_fd=self.inside.fd, follow_symlinks=False)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(name)) from None
            os.rename(last, name, src_dir_fd=fd, dst_dir_fd=self.inside.fd)

    def _place_by_link(self, name: bytes, fd: int, last: bytes) -> None:
        """Move without replacing where no system call does: a second name, then not the first.

        A directory has no second name: an empty one is made, and the rename replaces that or fails.
        """
        found = stat_of(os.stat(name, dir_fd=self.inside.fd, follow_symlinks=False))
        if found.kind is Kind.DIRECTORY:
            os.mkdir(last, 0o700, dir_fd=fd)
            try:
                os.rename(name, last, src_dir_fd=self.inside.fd, dst_dir_fd=fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(last, dir_fd=fd)
                raise
            return
        os.link(name, last, src_dir_fd=self.inside.fd, dst_dir_fd=fd, follow_symlinks=False)
        os.unlink(name, dir_fd=self.inside.fd)

    def _copy_attributes(self, fd: int, like_path: bytes) -> None:
        if sys.platform != "linux":
            return
        with contextlib.suppress(OSError, Blocked):
            source = self.root.open_read(like_path)
            try:
                if stat_of(os.fstat(source)).kind is not Kind.FILE:
                    return
                for attribute in os.listxattr(source):
                    if attribute not in _OF_CONTENT:
                        with contextlib.suppress(OSError):
                            os.setxattr(fd, attribute, os.getxattr(source, attribute))
            finally:
                os.close(source)


def _own_like(fd: int, like: Stat, mode: int) -> int:
    for owner, group in ((like.uid, like.gid), (-1, like.gid)):
        with contextlib.suppress(OSError):
            os.fchown(fd, owner, group)
            break
    now = os.fstat(fd)
    return mode if (now.st_uid, now.st_gid) == (like.uid, like.gid) else mode & ~_SET_ID


def _ours(name: bytes) -> bytes:
    if not is_staging_name(name):
        raise ValueError(f"not the name of a staging folder: {os.fsdecode(name)}")
    return name
