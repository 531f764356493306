"""Contents, each stored once: small ones in the database, large ones as files beside it.

XXH3-128 finds a content; equal bytes prove it, compared inside the transaction that takes the reference. A stored copy
that turns out damaged is healed with the good bytes at hand. Compression is whole-content (zstd, level 1), never a
difference to another content (SPEC A1).

The choice between rows and files is made here alone, so that it can be made again on numbers.
"""

import contextlib
import fcntl
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterator

import xxhash

from sidecar.fs import private
from sidecar.store.database import Database

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

INCOMPRESSIBLE = 0.9  # a content that shrinks by less than a tenth is kept as it is
MINIMUM_BYTES = 128  # below this a frame's header costs more than it saves


class Damaged(Exception):
    """A stored content is missing or is not what was stored: a finding, never passed on as bytes."""


def key_of(content: bytes) -> bytes:
    """Give the lookup key of a content."""
    return xxhash.xxh3_128_digest(content)


class Blobs:
    """The contents of one timeline."""

    def __init__(self, database: Database, *, inline_bytes: int) -> None:
        self.database = database
        self.inline_bytes = inline_bytes
        self.rehearsing = False  # in a transaction that will be rolled back: no file may be written for it

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keep a cleaner from taking files that are written but not yet committed for stale ones."""
        with _folder_lock(self.database.blobs, fcntl.LOCK_SH):
            yield

    def put(self, content: bytes) -> int:
        """Store a content, or find it, and give its number. Inside a transaction and `writing`.

        The number has no reference yet: a row must take one before the transaction ends, see `drop_unused`.

        Survives: a crash before the commit (a file without a row is removed later).
        Does not survive: a commit that names it without `writing` being held.
        """
        for number in self._alike(content):
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
            (key_of(content), len(content), len(stored), codec, name),
        )
        number = int(cursor.lastrowid or 0)
        if inline:
            self.database.execute("INSERT INTO blob_data (blob, data) VALUES (?, ?)", (number, stored))
        return number

    def get(self, number: int) -> bytes:
        """Give a content's bytes, proved by size and key; raises Damaged if they are not there or not whole."""
        row = self.database.one("SELECT key, size_bytes, codec, file FROM blob WHERE id = ?", number)
        if row is None:
            raise Damaged(f"content {number} is not in the store")
        key, size, codec, file = row
        stored = self._read(number, file)
        try:
            content = zstd.decompress(stored) if codec == "zstd" else stored
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

    def find(self, content: bytes) -> int | None:
        """Give the number of a content that is stored whole."""
        for number in self._alike(content):
            with contextlib.suppress(Damaged):
                if self.get(number) == content:
                    return number
        return None

    def _alike(self, content: bytes) -> list[int]:
        rows = self.database.all("SELECT id FROM blob WHERE key = ? AND size_bytes = ?", key_of(content), len(content))
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
        if self.database.connection.in_transaction:
            return count, freed
        for (name,) in self.database.all("SELECT file FROM doomed"):
            path = os.path.join(self.database.blobs, name)
            with contextlib.suppress(FileNotFoundError):
                freed += os.stat(path).st_size
                os.unlink(path)
                count += 1
            with self.database.transaction():
                self.database.execute("DELETE FROM doomed WHERE file = ?", (name,))
        return count, freed

    def remove_strays(self) -> int:
        """Remove files that no row names, left by a process that died before its commit; give their number."""
        with _folder_lock(self.database.blobs, fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
            if not held:
                return 0
            named = {name for (name,) in self.database.all("SELECT file FROM blob WHERE file IS NOT NULL")}
            named.update(name for (name,) in self.database.all("SELECT file FROM doomed"))
            strays = [name for name in os.listdir(self.database.blobs) if name not in named and name != _LOCK]
            for name in strays:
                os.unlink(os.path.join(self.database.blobs, name))
            return len(strays)

    def _read(self, number: int, file: str | None) -> bytes:
        if file is None:
            row = self.database.one("SELECT data FROM blob_data WHERE blob = ?", number)
            if row is None:
                raise Damaged(f"content {number} has no bytes")
            return bytes(row[0])
        try:
            handle = os.open(os.path.join(self.database.blobs, file), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with os.fdopen(handle, "rb") as opened:
                return opened.read()
        except OSError as error:
            raise Damaged(f"content {number} cannot be read: {error.strerror}") from error

    def _write_file(self, stored: bytes) -> str:
        name = secrets.token_hex(16)
        private.write_private(os.path.join(self.database.blobs, name), stored)
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


_LOCK = "lock"


@contextlib.contextmanager
def _folder_lock(folder: str, mode: int) -> Iterator[bool]:
    handle = os.open(os.path.join(folder, _LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, mode)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def _encode(content: bytes) -> tuple[str, bytes]:
    if len(content) >= MINIMUM_BYTES:
        packed = zstd.compress(content, level=1)
        if len(packed) < len(content) * INCOMPRESSIBLE:
            return "zstd", packed
    return "raw", content
