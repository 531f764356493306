"""List a tree, top down, with the instants between which each directory was looked at.

Rule: a listing without `fault` that is `steady` is evidence of absence, and no other is. A directory that changed while
it was listed is listed again, since a file renamed meanwhile can be missed under both of its names.
"""

import contextlib
import errno
import os
import re
import stat as bits
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sidecar.clock import SECOND
from sidecar.fs.beneath import Blocked, Root, stat_of
from sidecar.fs.read import TICK_NS
from sidecar.model import Kind, Stat

STAGING_PREFIX = b".sidecar-"

_STAGING = re.compile(re.escape(STAGING_PREFIX) + rb"[0-9a-f]{32}")
_LISTINGS = 3  # of one directory, while it changes


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory as it was at some instant between `listed_at` and `done_at` (UTC nanoseconds).

    With a `fault` the entries are not all (or none); unless `steady`, entries came or went meanwhile. Entries on
    another device are shown and not descended into; staging folders are not shown.
    """

    path: bytes
    stat: Stat
    listed_at: int
    done_at: int
    entries: tuple[tuple[bytes, os.stat_result], ...]  # in the system's own words: few of them are looked at closer
    fault: OSError | None
    steady: bool


def is_staging_name(name: bytes) -> bool:
    """Tell whether a name is one that we give to staging folders, and nobody else."""
    return _STAGING.fullmatch(name) is not None


def scan(root: Root, start: bytes, enter: Callable[[bytes, Stat], bool]) -> Iterator[Listing]:
    """Yield each directory from `start` down once, parents first; `enter` decides about each one below.

    Never enters a link, another mount or a staging folder. A directory that cannot be opened, or is gone by then, is
    yielded with its fault. Yields nothing where `start` is absent or no directory; raises Blocked where the way to it
    is blocked, and OSError where it cannot be looked at.
    """
    first = root.stat(start)
    if first is None or first.kind is not Kind.DIRECTORY:
        return
    waiting = [(start, first)]
    while waiting:
        path, seen = waiting.pop()
        listing = list_directory(root, path, seen)
        yield listing
        below = [
            (child, stat)
            for child, stat in (
                (join(path, name), stat_of(found))
                for name, found in listing.entries
                if bits.S_ISDIR(found.st_mode) and found.st_dev == root.device
            )
            if enter(child, stat)
        ]
        waiting.extend(reversed(below))


def list_directory(root: Root, path: bytes, seen: Stat) -> Listing:
    """List one directory; `seen` is what is shown of it where it cannot be opened."""
    listed_at = time.time_ns()
    try:
        fd = root.open_directory(path)
    except Blocked as blocked:
        return Listing(path, seen, listed_at, time.time_ns(), (), blocked.as_fault(), steady=False)
    except OSError as error:
        return Listing(path, seen, listed_at, time.time_ns(), (), error, steady=False)
    try:
        for attempt in range(_LISTINGS):
            if attempt:
                time.sleep(TICK_NS / SECOND)
                os.lseek(fd, 0, os.SEEK_SET)
            listing = _list_once(fd, path)
            if listing.steady or listing.fault is not None:
                break
        return listing
    finally:
        os.close(fd)


def join(folder: bytes, name: bytes) -> bytes:
    """Put a name below a folder; the root's own path is empty."""
    return folder + b"/" + name if folder else name


def _list_once(fd: int, path: bytes) -> Listing:
    listed_at = time.time_ns()
    before = os.fstat(fd)
    entries: list[tuple[bytes, os.stat_result]] = []
    fault: OSError | None = None
    try:
        for text in os.listdir(fd):
            name = os.fsencode(text)
            if name.startswith(STAGING_PREFIX) and is_staging_name(name):
                continue
            with contextlib.suppress(FileNotFoundError):
                entries.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
    except OSError as error:
        fault = error
    after = os.fstat(fd)
    if fault is None and after.st_nlink == 0:
        fault = OSError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))  # removed while we held it
    # Within one tick a second change leaves the stamps of the first: only an older stamp shows that nothing happened.
    steady = (
        fault is None
        and (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        and not 0 <= listed_at - before.st_ctime_ns < TICK_NS
    )
    return Listing(path, stat_of(after), listed_at, time.time_ns(), tuple(entries), fault, steady)
