"""The few system calls that Python has no name for, and how to do without them.

Rule: every function here either does exactly what it says or answers that the system cannot (`Unsupported`, or None);
none falls back to something weaker. The flags below are switched off for good when the kernel says that it lacks a
call, and by tests that walk the other way.
"""

import ctypes
import errno
import fcntl
import functools
import os
import platform
import sys

OPENAT2 = sys.platform == "linux"
RENAME_FLAGS = sys.platform in ("linux", "darwin")

_SYS_OPENAT2 = 437  # the same on every architecture but one that nobody runs
_SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "armv7l": 382, "ppc64le": 357, "s390x": 347}
_RESOLVE = 0x01 | 0x04 | 0x08  # no other mount, no symbolic link, nothing above
_NOT_AT_ALL = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
# Writers on other machines (or in the daemon behind FUSE) are unknown to this kernel's leases, and NFS answers EAGAIN
# to every probe. Magic numbers as in statfs(2).
_NOT_LOCAL = frozenset(
    {
        0x6969,  # NFS
        0x517B,  # SMB
        0xFF534D42,  # CIFS
        0xFE534D42,  # SMB2
        0x01021997,  # 9P
        0x65735546,  # FUSE, virtiofs, sshfs
        0x786F4256,  # VirtualBox
        0x5346414F,  # AFS
        0x6B414653,  # kAFS
        0x00C36400,  # Ceph
        0x73757245,  # Coda
        0x47504653,  # GPFS
        0x0BD00BD0,  # Lustre
        0x01161970,  # GFS2
        0x7461636F,  # OCFS2
    }
)

_libc = ctypes.CDLL(None, use_errno=True)


class Unsupported(Exception):
    """This system or this file system cannot do that."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _how(flags: int) -> _OpenHow:
    return _OpenHow(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _RESOLVE)


def open_beneath(dir_fd: int, path: bytes, flags: int) -> int | None:
    """Open a path of any depth below a directory, through no link and into no other mount.

    None: this kernel cannot, or would not this time; walk instead. OSError: EXDEV for another mount, ELOOP for a link,
    else as open(2).
    """
    global OPENAT2  # noqa: PLW0603  learnt once for the process
    if not OPENAT2:
        return None
    how = _how(flags)
    result: int = _libc.syscall(
        ctypes.c_long(_SYS_OPENAT2),
        ctypes.c_int(dir_fd),
        ctypes.c_char_p(path),
        ctypes.byref(how),
        ctypes.c_size_t(24),  # of the structure
    )
    if result >= 0:
        return result
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        OPENAT2 = False
    # EPERM is also what a container's filter says of a call that it does not know; open(2) will tell.
    if number in (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN, errno.EINTR, errno.ENAMETOOLONG):
        return None
    raise OSError(number, os.strerror(number), os.fsdecode(path))


def rename_no_replace(from_fd: int, source: bytes, to_fd: int, target: bytes) -> None:
    """Rename, and fail with FileExistsError where anything is at the target. Unsupported: nothing was done."""
    _rename(from_fd, source, to_fd, target, linux=1, darwin=4)


def rename_exchange(from_fd: int, source: bytes, to_fd: int, target: bytes) -> None:
    """Swap what two names hold, in one step. Unsupported: nothing was done."""
    _rename(from_fd, source, to_fd, target, linux=2, darwin=2)


def _rename(from_fd: int, source: bytes, to_fd: int, target: bytes, *, linux: int, darwin: int) -> None:
    if not RENAME_FLAGS:
        raise Unsupported
    numbers = (ctypes.c_int(from_fd), ctypes.c_char_p(source), ctypes.c_int(to_fd), ctypes.c_char_p(target))
    if sys.platform == "darwin":
        result: int = _libc.renameatx_np(*numbers, ctypes.c_uint(darwin))
    elif hasattr(_libc, "renameat2"):
        result = _libc.renameat2(*numbers, ctypes.c_uint(linux))
    elif platform.machine() in _SYS_RENAMEAT2:
        call = ctypes.c_long(_SYS_RENAMEAT2[platform.machine()])
        result = _libc.syscall(call, *numbers, ctypes.c_uint(linux))
    else:
        raise Unsupported
    if result == 0:
        return
    number = ctypes.get_errno()
    if number in _NOT_AT_ALL:
        raise Unsupported
    raise OSError(number, os.strerror(number), os.fsdecode(source), None, os.fsdecode(target))


def is_local(fd: int) -> bool:
    """Tell whether this kernel sees every writer of the file system and stamps its times."""
    if sys.platform != "linux":
        return True
    room = ctypes.create_string_buffer(512)
    if _libc.fstatfs(ctypes.c_int(fd), room) != 0:
        return False
    magic = ctypes.c_ulong.from_buffer(room).value & 0xFFFFFFFF
    return magic not in _NOT_LOCAL


def flush(fd: int) -> None:
    """Bring a file or directory to the disk itself.

    *Survives:* a power cut from here on. *Does not survive:* a disk that lies.
    """
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError:
            pass  # not every file system there knows it
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no such thing for a directory
            raise
