"""Where the store lies, and which of its workspaces a directory is.

A workspace is its root's inode, birth time and file-system id: inodes are reused at once and device numbers change at
reboot, but the three together name one directory. Its path is a label. A directory that takes another's path is a new
timeline; one that is moved keeps its own.
"""

import ctypes
import os
import re
import struct
from dataclasses import dataclass

import xxhash

from sidecar import errors
from sidecar.fs import private

MARKER = "sidecar-store"
FORMAT = "1\n"
TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{16}")  # of `private.write_private`
_64_BITS = 0xFFFF_FFFF_FFFF_FFFF


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
    found = _read_marker(path)
    if found is None and _is_foreign(path):
        found = _read_marker(path)  # another process may have made it just now
        if found is None:
            raise errors.NotOurStore(path=path, why="it holds other files")
    if found is None:
        if not create:
            return None
        try:
            private.private_directory(path)
            private.write_private(os.path.join(path, MARKER), FORMAT.encode())
        except OSError as error:
            raise errors.StoreFault(path=path, why=errors.describe(error)) from error
        return path
    if os.stat(path).st_uid != os.geteuid() and os.geteuid() != 0:
        raise errors.NotOurStore(path=path, why="another user owns it")
    if found != FORMAT:
        if re.fullmatch(r"[0-9]{1,9}\n?", found) and int(found) > int(FORMAT):
            raise errors.StoreTooNew(path=path, found=found.strip(), known=FORMAT.strip())
        raise errors.NotOurStore(path=path, why="its marker is unknown")
    if create:
        with errors.at_path(path):
            private.private_directory(path)  # a copy, or a backup that was played back, may be open to others
    return path


def _read_marker(path: str) -> str | None:
    """Read what marks a directory as ours; None: nothing does."""
    try:
        handle = os.open(
            os.path.join(path, MARKER), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # never wait for a FIFO
        with os.fdopen(handle, encoding="ascii") as file:
            return file.read(64)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = errors.describe(error) if isinstance(error, OSError) else "its marker is not text"
        raise errors.NotOurStore(path=path, why=why) from error


def _is_foreign(path: str) -> bool:
    """Tell whether a directory holds anything; a temporary file of ours is what a death in `open_home` leaves."""
    try:
        return any(not TEMPORARY.fullmatch(name) for name in os.listdir(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise errors.NotOurStore(path=path, why=errors.describe(error)) from error


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes a directory the one it is."""

    file_system: int
    inode: int
    born_ns: int  # 0 where the file system does not tell

    @property
    def key(self) -> str:
        """Name this identity in 32 hexadecimal digits."""
        return xxhash.xxh3_128_hexdigest(struct.pack("<QQQ", self.file_system, self.inode, self.born_ns & _64_BITS))


def identify(path: str | bytes) -> Identity:
    """Read a directory's identity, following links in the path that leads to it. Raises OSError."""
    status = os.stat(path)
    file_system = os.statvfs(path).f_fsid & _64_BITS
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
