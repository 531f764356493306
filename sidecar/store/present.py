"""What is known of every path of a workspace, in as few words as a full scan needs.

A scan of an unchanged tree asks the same of every path: is it what it was? Only where it is not, or where that cannot
be told from lstat alone, is the whole row read.
"""

import stat as bits

from sidecar.fs.beneath import Trace
from sidecar.model import Kind, Stat
from sidecar.store.database import Database

_FORMATS = {Kind.FILE.value: bits.S_IFREG, Kind.DIRECTORY.value: bits.S_IFDIR}


def folder_trace_of(stat: Stat) -> Trace:
    """Give what `trace_of` gives of a file; a directory's number of links only tells of the directories in it."""
    return (bits.S_IFDIR | stat.mode, stat.device, stat.inode, 0, stat.size_bytes, stat.mtime_ns, stat.ctime_ns)


def present_paths(database: Database, *, racy_ns: int) -> tuple[dict[bytes, Trace | None], set[bytes]]:
    """Give every path that is not known to be absent, with the trace that proves it unchanged; and the absent ones.

    No trace (None) where lstat cannot prove that: nothing was stored of the path, it has more than one name, or it had
    changed less than `racy_ns` before it was looked at. A directory's trace counts only if its names were all seen.
    """
    present: dict[bytes, Trace | None] = {}
    absent: set[bytes] = set()
    for name, kind, mode, form, told, device, inode, links, size, mtime, ctime, seen_at, listed in database.rows(
        "SELECT p.name, v.kind, v.mode, s.kind, s.mode, s.device, s.inode, s.links, s.size_bytes, s.mtime_ns, "
        "s.ctime_ns, s.seen_at, f.listed_at FROM version v JOIN path p ON p.id = v.path "
        "LEFT JOIN stat s ON s.path = v.path LEFT JOIN folder f ON f.path = v.path WHERE v.to_at IS NULL"
    ):
        if kind == "absent":
            absent.add(name)
            continue
        present[name] = None
        if kind != form or kind not in _FORMATS or mode != told or type(mtime) is not int or type(ctime) is not int:
            continue
        if kind == "file":
            if links == 1 and max(mtime, ctime) <= seen_at - racy_ns:
                present[name] = (bits.S_IFREG | mode, device & _ALL, inode & _ALL, 1, size, mtime, ctime)
        elif listed is not None:
            present[name] = (bits.S_IFDIR | mode, device & _ALL, inode & _ALL, 0, size, mtime, ctime)
    return present, absent


_ALL = 2**64 - 1  # SQLite's numbers are signed
