"""Follow a transcript that somebody else writes.

Rules: read to the last newline only, and leave a torn tail for the next time; a file that was replaced, truncated or
rewritten in place is read again from its beginning, and that is said (`restarted`); one poll reads one chunk at most,
so that memory follows neither the file nor the backlog, only the longest line. Nothing that can lie at the path makes
a poll raise or wait: a FIFO, a directory, a file that may not be read is a `fault` in the answer.
"""

import contextlib
import os
import stat as bits
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar.errors import describe
from sidecar.transcript.lines import Fragment, Line, Record, decode, split

CHUNK_BYTES = 8 * 1024 * 1024
PROBE_BYTES = 256


@dataclass(frozen=True, slots=True)
class TailState:
    """A place in a file that a later process can go on from: everything before `offset` was given out."""

    offset: int
    probe: bytes  # the last bytes before it, at most PROBE_BYTES
    inode: int | None  # None: no file was seen yet


@dataclass(frozen=True, slots=True)
class TailRead:
    """What one poll found."""

    records: list[Record]
    fragments: list[Fragment]
    end_offset: int  # everything before it was given out, by this poll or earlier ones
    restarted: bool = False  # the file is another one, or another content: read again from 0, records come again
    missing: bool = False
    more: bool = False  # poll again at once: a chunk was read, and there is more
    at_eof_ctime_ns: int | None = None  # the file's ctime, where all of it was given out
    fault: str | None = None  # why the file could not be read


class Tail:
    """One followed file. A link to a transcript is followed; what it leads to must be a regular file."""

    def __init__(self, path: str, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.path = path
        self._chunk_bytes = chunk_bytes
        self._inode: int | None = None
        self._device: int | None = None  # of this boot; a saved place does without
        self._offset = 0
        self._probe = b""
        self._torn: list[bytes] = []  # read, but no newline yet: kept, so that a long line is read once
        self._torn_bytes = 0

    @property
    def offset(self) -> int:
        """Where the next record will begin."""
        return self._offset

    def state(self) -> TailState:
        """Give the place from which `seek` goes on."""
        return TailState(self._offset, self._probe, self._inode)

    def seek(self, state: TailState) -> None:
        """Go on from a saved place. Whether the file is still the same is found out by the next poll."""
        self._offset, self._probe, self._inode = state.offset, state.probe, state.inode
        self._device = None
        self._torn, self._torn_bytes = [], 0

    def unfinished(self) -> bytes:
        """Give what follows the last newline, as far as it was read: a record in the making, or a torn one."""
        return b"".join(self._torn)

    def poll(self) -> TailRead:
        """Read on, at most one chunk. Never raises, never blocks on what is no regular file."""
        try:
            with _opened(self.path) as fd:
                return self._read(fd)
        except (FileNotFoundError, NotADirectoryError):
            return TailRead([], [], self._offset, missing=True)
        except OSError as error:
            return TailRead([], [], self._offset, fault=describe(error))

    def _read(self, fd: int) -> TailRead:
        found = os.fstat(fd)
        if not bits.S_ISREG(found.st_mode):
            return TailRead([], [], self._offset, fault="not a regular file")
        had_read = self._offset + self._torn_bytes > 0
        restarted = had_read and not self._is_same(fd, found)
        if restarted:
            self.seek(TailState(0, b"", None))
        self._inode, self._device = found.st_ino, found.st_dev
        chunk = _read_at(fd, self._offset + self._torn_bytes, self._chunk_bytes)
        lines = self._advance(chunk)
        after = os.fstat(fd)
        position = self._offset + self._torn_bytes
        records: list[Record] = []
        fragments: list[Fragment] = []
        for line in lines:
            for piece in decode(line):
                if isinstance(piece, Record):
                    records.append(piece)
                else:
                    fragments.append(piece)
        return TailRead(
            records,
            fragments,
            self._offset,
            restarted=restarted,
            more=bool(chunk) and after.st_size > position,
            at_eof_ctime_ns=after.st_ctime_ns if after.st_size == self._offset else None,
        )

    def _is_same(self, fd: int, found: os.stat_result) -> bool:
        if self._inode is not None and found.st_ino != self._inode:
            return False
        if self._device is not None and found.st_dev != self._device:
            return False
        position = self._offset + self._torn_bytes
        if found.st_size < position:
            return False
        expected = self._last_bytes()
        return _read_at(fd, position - len(expected), len(expected)) == expected

    def _last_bytes(self) -> bytes:
        """Give the newest bytes that were read, at most PROBE_BYTES."""
        last = b""
        for piece in [*reversed(self._torn), self._probe]:
            last = piece[-(PROBE_BYTES - len(last)) :] + last
            if len(last) >= PROBE_BYTES:
                break
        return last

    def _advance(self, chunk: bytes) -> list[Line]:
        """Take a chunk in and give the lines that it completes."""
        if b"\n" not in chunk:
            if chunk:
                self._torn.append(chunk)
                self._torn_bytes += len(chunk)
            return []
        lines, torn = split(b"".join([*self._torn, chunk]), self._offset)
        consumed = self._torn_bytes + len(chunk) - len(torn)
        end = lines[-1].raw[-PROBE_BYTES:] + b"\n"
        for line in reversed(lines[:-1]):
            if len(end) >= PROBE_BYTES:
                break
            end = line.raw[-PROBE_BYTES:] + b"\n" + end
        if len(end) < PROBE_BYTES:
            end = self._probe + end
        self._probe = end[-PROBE_BYTES:]
        self._offset += consumed
        self._torn, self._torn_bytes = ([torn], len(torn)) if torn else ([], 0)
        return lines


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _read_at(fd: int, offset: int, size: int) -> bytes:
    """Read up to `size` bytes at `offset`; fewer only at the end of the file."""
    pieces: list[bytes] = []
    while size > 0:
        piece = os.pread(fd, size, offset)
        if not piece:
            break
        pieces.append(piece)
        offset, size = offset + len(piece), size - len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
