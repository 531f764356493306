"""Contents, each stored once: small ones in the database, large ones as files beside it.

XXH3-128 finds a content; equal bytes prove it, compared inside the transaction that takes the reference. A stored copy
that turns out damaged is healed with the good bytes at hand. Compression is whole-content (zstd, level 1), never a
difference to another content (SPEC A1).

The choice between rows and files is made here alone, so that it can be made again on numbers.
"""

import contextlib
import fcntl
import os
import re
import secrets
import sqlite3
import sys
import threading
from collections.abc import Iterator

import xxhash

from sidecar import errors
from sidecar.fs import private
from sidecar.store.database import Database
from sidecar.store.home import TEMPORARY

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INCOMPRESSIBLE = 0.9  # a content that shrinks by less than a tenth is kept as it is
MINIMUM_BYTES = 128  # below this a frame's header costs more than it saves
LOCK = "lock"
_of_thread = threading.local()
NAME = re.compile(r"[0-9a-f]{32}")  # of a content's file; nothing else in the folder is ours to remove


class Damaged(Exception):
    """A stored content is missing or is not what was stored: a finding, never passed on as bytes."""


class Missing(Damaged):
    """A stored content is not there at all."""


def key_of(content: bytes) -> bytes:
    """Give the lookup key of a content."""
    return xxhash.xxh3_128_digest(content)


class Blobs:
    """The contents of one timeline."""

    def __init__(self, database: Database, *, inline_bytes: int) -> None:
        self.database = database
        self.inline_bytes = inline_bytes
        self.rehearsing = False  # in a transaction that will be rolled back: no file may be written for it
        self._written: list[str] | None = None  # files of this `writing`

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keep a cleaner from taking files that are written but not yet committed for stale ones.

        Around the transaction. Where that fails its files go at once: on a full disk it is tried again and again.
        """
        if self._written is not None:
            yield
            return
        with self.folder_lock(fcntl.LOCK_SH):
            self._written = []
            try:
                yield
            except BaseException:
                self._take_back(self._written)
                raise
            finally:
                self._written = None

    def _take_back(self, names: list[str]) -> None:
        """Unlink files that were written for a transaction that is no more; where that is not sure they stay."""
        if self.database.in_doubt or self.database.connection.in_transaction:
            return
        with contextlib.suppress(errors.StoreFault, OSError):  # what stays is removed as a stray
            for name in names:
                if self.database.one("SELECT 1 FROM blob WHERE file = ?", name) is None:
                    os.unlink(os.path.join(self.database.blobs, name))

    def put(self, content: bytes) -> int:
        """Store a content, or find it, and give its number. Inside a transaction and `writing`.

        The number has no reference yet: a row must take one before the transaction ends, see `drop_unused`.

        Survives: a crash before the commit (a file without a row is removed later).
        Does not survive: a commit that names it without `writing` being held.
        """
        key = key_of(content)
        for number in self._alike(key, content):
            try:
                if self.get(number) == content:
                    return number
            except Damaged:
                self._heal(number, content)
                return number
        codec, stored = _encode(content)
        inline = self.rehearsing or len(stored) <= self.inline_bytes
        name = None if inline else self._write_file(stored)
        cursor = self.database.execute(
            "INSERT INTO blob (key, size_bytes, stored_bytes, codec, file) VALUES (?, ?, ?, ?, ?)",
            (key, len(content), len(stored), codec, name),
        )
        number = int(cursor.lastrowid or 0)
        if inline:
            self.database.execute("INSERT INTO blob_data (blob, data) VALUES (?, ?)", (number, stored))
        return number

    def get(self, number: int) -> bytes:
        """Give a content's bytes, proved by size and key; raises Damaged if they are not there or not whole."""
        row = self.database.one("SELECT key, size_bytes, codec, file FROM blob WHERE id = ?", number)
        if row is None:
            raise Missing(f"content {number} is not in the store")
        key, size, codec, file = row
        stored = self._read(number, file)
        try:
            content = _decode(codec, stored, size)
        except zstd.ZstdError as error:
            raise Damaged(f"content {number} does not unpack") from error
        if len(content) != size or key_of(content) != key:
            raise Damaged(f"content {number} is not what was stored")
        return content

    def is_whole(self, number: int) -> bool:
        """Tell whether a content's bytes are there as they were stored."""
        try:
            self.get(number)
        except Damaged:
            return False
        return True

    def tally(self) -> tuple[int, int]:
        """Give the number of contents and their bytes as they are stored."""
        blobs, stored = self.database.one("SELECT blobs, bytes FROM tally")
        return int(blobs), int(stored)

    def find(self, content: bytes) -> int | None:
        """Give the number of a content that is stored whole."""
        for number in self._alike(key_of(content), content):
            with contextlib.suppress(Damaged):
                if self.get(number) == content:
                    return number
        return None

    def _alike(self, key: bytes, content: bytes) -> list[int]:
        rows = self.database.all("SELECT id FROM blob WHERE key = ? AND size_bytes = ?", key, len(content))
        return [int(number) for (number,) in rows]

    def drop_unused(self) -> None:
        """Forget contents that no row took after all."""
        self.database.execute("DELETE FROM blob WHERE refs = 0")

    def bury(self) -> tuple[int, int]:
        """Unlink the files of contents whose forgetting is committed; give their number and bytes.

        Nothing inside a transaction: it may yet be rolled back, and what it forgot is there again.

        Survives: a crash in between; what is left is taken up by the next call.
        """
        count = freed = 0
        gone: list[str] = []
        if self.database.connection.in_transaction:
            return count, freed
        for (name,) in self.database.all("SELECT file FROM doomed"):
            path = os.path.join(self.database.blobs, name)
            try:
                if NAME.fullmatch(name):
                    size = os.lstat(path).st_size
                    os.unlink(path)
                    count, freed = count + 1, freed + size
            except FileNotFoundError:
                pass  # another process was faster, or died before it said so
            except OSError:
                continue  # it stays doomed
            gone.append(name)
        if gone:
            with self.database.transaction():
                for name in gone:
                    self.database.execute("DELETE FROM doomed WHERE file = ?", (name,))
        return count, freed

    def remove_strays(self) -> int:
        """Remove files that no row names, left by a process that died before its commit; give their number."""
        with self.folder_lock(fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
            removed = 0
            for name in self.strays() if held else ():
                with contextlib.suppress(OSError):  # it is found again
                    os.unlink(os.path.join(self.database.blobs, name))
                    removed += 1
            return removed

    def strays(self) -> Iterator[str]:
        """Give the files of ours that no row names. While the folder lock is held exclusively: else some are new."""
        try:
            with os.scandir(self.database.blobs) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False) and self._is_stray(entry.name):
                        yield entry.name
        except OSError as error:
            raise errors.StoreFault(path=self.database.blobs, why=errors.describe(error)) from error

    def is_name(self, name: str) -> bool:
        """Tell whether a file in the folder has a name that we give."""
        return NAME.fullmatch(name) is not None or TEMPORARY.fullmatch(name) is not None

    def _is_stray(self, name: str) -> bool:
        if TEMPORARY.fullmatch(name):
            return True
        named = "SELECT 1 FROM blob WHERE file = ?1 UNION ALL SELECT 1 FROM doomed WHERE file = ?1"
        return NAME.fullmatch(name) is not None and self.database.one(named, name) is None

    @contextlib.contextmanager
    def folder_lock(self, mode: int) -> Iterator[bool]:
        """Hold the lock of the folder of contents: shared by who writes there, exclusively by who cleans up."""
        try:
            handle = private.open_private(os.path.join(self.database.blobs, LOCK))
        except OSError as error:
            raise errors.StoreFault(path=self.database.blobs, why=errors.describe(error)) from error
        try:
            try:
                fcntl.flock(handle, mode)
                held = True
            except BlockingIOError:
                held = False
            yield held
        finally:
            os.close(handle)

    def _read(self, number: int, file: str | None) -> bytes:
        if file is None:
            row = self.database.one("SELECT data FROM blob_data WHERE blob = ?", number)
            if row is None:
                raise Missing(f"content {number} has no bytes")
            if not isinstance(row[0], bytes):
                raise Damaged(f"content {number} is no bytes")
            return row[0]
        if not NAME.fullmatch(file):
            raise Damaged(f"content {number} names a file that is not ours")
        try:
            handle = os.open(os.path.join(self.database.blobs, file), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as opened:
                return opened.read()
        except FileNotFoundError as error:
            raise Missing(f"content {number} has lost its file") from error
        except OSError as error:
            raise Damaged(f"content {number} cannot be read: {errors.describe(error)}") from error

    def _write_file(self, stored: bytes) -> str:
        assert self._written is not None, "a file is written inside `writing` alone"
        name = secrets.token_hex(16)
        try:
            private.write_private(os.path.join(self.database.blobs, name), stored)
        except OSError as error:
            raise errors.StoreFault(path=self.database.blobs, why=errors.describe(error)) from error
        self._written.append(name)
        return name

    def _heal(self, number: int, content: bytes) -> None:
        codec, stored = _encode(content)
        old = self.database.one("SELECT file FROM blob WHERE id = ?", number)[0]
        inline = self.rehearsing or len(stored) <= self.inline_bytes
        name = None if inline else self._write_file(stored)
        self.database.execute(
            "UPDATE blob SET codec = ?, stored_bytes = ?, file = ? WHERE id = ?", (codec, len(stored), name, number)
        )
        self.database.execute("DELETE FROM blob_data WHERE blob = ?", (number,))
        if name is None:
            self.database.execute("INSERT INTO blob_data (blob, data) VALUES (?, ?)", (number, sqlite3.Binary(stored)))
        if old is not None:
            self.database.execute("INSERT OR IGNORE INTO doomed VALUES (?)", (old,))


def _compress(content: bytes) -> bytes:
    """Pack a content with this thread's compressor: making one costs more than packing a small content."""
    compressor = _of_thread.__dict__.pop("compressor", None) or zstd.ZstdCompressor(level=1)
    packed: bytes = compressor.compress(content, zstd.ZstdCompressor.FLUSH_FRAME)
    _of_thread.compressor = compressor  # one that failed half-way is not used again
    return packed


def _encode(content: bytes) -> tuple[str, bytes]:
    if len(content) >= MINIMUM_BYTES:
        packed = _compress(content)
        if len(packed) < len(content) * INCOMPRESSIBLE:
            return "zstd", packed
    return "raw", content


def _decode(codec: str, stored: bytes, size: int) -> bytes:
    if codec != "zstd":
        return stored
    told = zstd.get_frame_info(stored).decompressed_size
    if told is not None and told != size:  # a damaged header may ask for all memory
        raise zstd.ZstdError("another size")
    return zstd.decompress(stored)
