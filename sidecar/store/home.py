"""Where the store lies, and which of its workspaces a directory is.

A workspace is its root's inode, birth time and file-system id: inodes are reused at once and device numbers change at
reboot, but the three together name one directory. Its path is a label. A directory that takes another's path is a new
timeline; one that is moved keeps its own.
"""

import ctypes
import os
import struct
from dataclasses import dataclass

import xxhash

from sidecar import errors
from sidecar.fs import private

MARKER = "sidecar-store"
FORMAT = "1\n"


def home_directory() -> str:
    """Give the store's directory: `SIDECAR_HOME`, else the platform's place for a user's data."""
    chosen = os.environ.get("SIDECAR_HOME")
    if chosen:
        return os.path.abspath(chosen)
    import platformdirs  # noqa: PLC0415 - costs start-up time, and most callers set nothing

    return platformdirs.user_data_dir("sidecar", appauthor=False)


def open_home(*, create: bool) -> str | None:
    """Prove that the store is ours and give its path; None if there is none and it is not to be made.

    Refuses a directory that holds something else, that another user owns, or that a newer sidecar made.
    """
    path = home_directory()
    marker = os.path.join(path, MARKER)
    try:
        with open(marker, encoding="ascii") as file:
            found = file.read(64)
    except FileNotFoundError:
        if not create and not os.path.lexists(path):
            return None
        _refuse_foreign(path)
        if not create:
            return None
        try:
            private.private_directory(path)
            private.write_private(marker, FORMAT.encode())
        except OSError as error:
            raise errors.StoreFault(path=path, why=errors.describe(error)) from error
        return path
    except (OSError, UnicodeDecodeError) as error:
        why = errors.describe(error) if isinstance(error, OSError) else "its marker is not text"
        raise errors.NotOurStore(path=path, why=why) from error
    if os.stat(path).st_uid != os.geteuid() and os.geteuid() != 0:
        raise errors.NotOurStore(path=path, why="another user owns it")
    if found != FORMAT:
        if found.strip().isdigit() and int(found) > int(FORMAT):
            raise errors.StoreTooNew(path=path, found=found.strip(), known=FORMAT.strip())
        raise errors.NotOurStore(path=path, why="its marker is unknown")
    return path


def _refuse_foreign(path: str) -> None:
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.NotOurStore(path=path, why=errors.describe(error)) from error
    if names:
        raise errors.NotOurStore(path=path, why="it holds other files")


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a directory the one it is."""

    file_system: int
    inode: int
    born_ns: int  # 0 where the file system does not tell

    @property
    def key(self) -> str:
        """Name this identity in 32 hexadecimal digits."""
        return xxhash.xxh3_128_hexdigest(struct.pack("<QQq", self.file_system, self.inode, self.born_ns))


def identify(path: str | bytes) -> Identity:
    """Read a directory's identity, following links in the path that leads to it. Raises OSError."""
    status = os.stat(path)
    file_system = os.statvfs(path).f_fsid & 0xFFFF_FFFF_FFFF_FFFF
    return Identity(file_system or status.st_dev, status.st_ino, _born_ns(path, status))


def _born_ns(path: str | bytes, status: os.stat_result) -> int:
    told: float | None = getattr(status, "st_birthtime", None)
    if told is not None:
        return int(told * 1_000_000_000)
    buffer = ctypes.create_string_buffer(256)
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return 0
    if statx(-100, os.fsencode(path), 0, 0x800, buffer) != 0:  # AT_FDCWD, STATX_BTIME (statx(2))
        return 0
    mask = struct.unpack_from("<I", buffer, 0)[0]
    if not mask & 0x800:
        return 0
    seconds, nanoseconds = struct.unpack_from("<qI", buffer, 0x50)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)


def workspace_directory(home: str, key: str) -> str:
    """Give the directory of a workspace's timeline."""
    return os.path.join(home, "workspaces", key)


def known_workspaces(home: str) -> list[str]:
    """List the keys of all timelines in the store."""
    try:
        names = os.listdir(os.path.join(home, "workspaces"))
    except FileNotFoundError:
        return []
    return sorted(name for name in names if os.path.isfile(os.path.join(home, "workspaces", name, "store.db")))
