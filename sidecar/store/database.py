"""One timeline's database: opening, migrations, transactions.

Every transaction is IMMEDIATE, so that what it read is what it writes upon; none is open while anything is printed,
asked or read from the workspace. The pragmas are those of `sidecar.store`: full synchronisation, because a WAL with
less loses every recent commit in a power cut.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

from sidecar import errors
from sidecar.fs import private
from sidecar.fs.lock import FileLock

APPLICATION = 0x53444352  # "SDCR"
FORMAT = 1
BUSY_S = 20.0
RECLAIM_BUSY_MS = 250  # a dry run may read for seconds; nobody waits for it to give space back
RECLAIM_PAGES = 1024  # given back in one transaction: 8 MiB, so that others wait for it no longer than for a batch
LOG_BYTES = 4 * 1024 * 1024  # what the log may keep of the disk once its content is in the database
SMALLEST, LARGEST = -(2**63), 2**63 - 1


class Database:
    """An open timeline."""

    def __init__(self, directory: str, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self.connection = connection
        self._depth = 0
        self.in_doubt = False  # a commit failed in a way that a crash may yet turn into a success

    @property
    def blobs(self) -> str:
        """The directory of contents too large for the database."""
        return os.path.join(self.directory, "blobs")

    @property
    def asks(self) -> str:
        """The directory where other processes ask the live capturer for something."""
        return os.path.join(self.directory, "asks")

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement. Refuses (StoreFault) where SQLite cannot.

        Transcripts may hold what SQLite does not take: an instant of the year 9999 becomes the last one that there is,
        a lone surrogate U+FFFD.
        """
        given = tuple(values)
        if self._depth and not self.connection.in_transaction:  # SQLite ends it by itself on a full disk, for one
            raise errors.StoreFault(path=self.directory, why="the transaction was rolled back")
        try:  # not by `translated`: a context manager costs as much as most statements
            try:
                return self.connection.execute(sql, given)
            except (OverflowError, UnicodeEncodeError):
                return self.connection.execute(sql, tuple(map(_fitting, given)))
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _fault(self, error: sqlite3.Error) -> errors.StoreFault:
        return errors.StoreFault(path=self.directory, why=errors.describe(error))

    def one(self, sql: str, *values: Any) -> Any:
        """Give the first row, or None."""
        try:
            return self.execute(sql, values).fetchone()
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def all(self, sql: str, *values: Any) -> list[Any]:
        """Give all rows."""
        try:
            return self.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def rows(self, sql: str, *values: Any) -> Iterator[Any]:
        """Give the rows one by one; for more than should be in memory at once."""
        with translated(self.directory):
            yield from self.execute(sql, values)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the store, whatever others commit meanwhile. Briefly: until it ends the log only grows."""
        if self._depth:
            yield
            return
        self.execute("BEGIN")
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0
            with contextlib.suppress(sqlite3.Error):  # nothing was written that could be lost
                self.connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is done inside, or nothing of it. Nested uses join the outermost."""
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        with translated(self.directory):
            self.connection.execute("BEGIN IMMEDIATE")
        self._depth = 1
        try:
            yield
        except BaseException:
            self._depth = 0
            with contextlib.suppress(sqlite3.Error):  # the cause matters more; an open transaction dies with us
                self.connection.execute("ROLLBACK")
            raise
        self._depth = 0
        with translated(self.directory):
            try:
                self.connection.execute("COMMIT")
            except sqlite3.Error as error:
                # A log that could not be synced may be read back whole after a crash, this commit with it.
                self.in_doubt = error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        self.in_doubt = False

    def reclaim(self) -> None:
        """Give the space of forgotten contents back to the disk, or leave it to the next call if a reader is at work.

        `executescript`, because `execute` steps the pragma once, which frees a single page; the truncating checkpoint,
        because pages that were freed show on the disk only after it. In steps, because moving pages writes the log:
        on a full disk there is room for few.
        """
        if self._depth:
            return
        free = self._free_pages()
        if not free and not self._is_cut_in_the_log():
            return
        with translated(self.directory):
            self.connection.execute(f"PRAGMA busy_timeout={RECLAIM_BUSY_MS}")
            try:
                step = RECLAIM_PAGES
                while step and self._reclaim_step(step):
                    before, free = free, self._free_pages()
                    if not free:
                        return
                    if free >= before:
                        step //= 4
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                self.connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")

    def _reclaim_step(self, pages: int) -> bool:
        """Give up to so many pages back, or none where the disk is too full; False: a reader is at work."""
        with _unless_full():
            self.connection.executescript(f"PRAGMA incremental_vacuum({pages});")
        with _unless_full():
            return not self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return True

    def _free_pages(self) -> int:
        return int(self.one("PRAGMA freelist_count")[0])

    def _is_cut_in_the_log(self) -> bool:
        """Tell whether a reader kept pages that were given back from being cut off the file: only the log says it."""
        pages, size = self.one("PRAGMA page_count")[0], self.one("PRAGMA page_size")[0]
        with contextlib.suppress(OSError):
            return bool(os.stat(os.path.join(self.directory, "store.db")).st_size > pages * size)
        return False

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the database."""
        self.connection.close()


@contextlib.contextmanager
def _unless_full() -> Iterator[None]:
    """Go on where the disk is too full for it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_FULL:
            raise


@contextlib.contextmanager
def translated(directory: str) -> Iterator[None]:
    """Turn SQLite's errors into a refusal that names the store."""
    try:
        yield
    except sqlite3.Error as error:
        raise errors.StoreFault(path=directory, why=errors.describe(error)) from error


def open_database(directory: str, *, create: bool) -> Database:
    """Open a timeline's database, making it if asked.

    Refuses one that is not ours or comes from a newer sidecar; neither is written to.
    """
    path = os.path.join(directory, "store.db")
    if not os.path.exists(path):
        if not create:
            raise errors.NotOurStore(path=directory, why="it holds no timeline")
        _make(directory, path)
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        raise _unreadable(directory, error) from error
    try:
        with translated(directory):
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise errors.NotOurStore(path=directory, why="its database was made by another program")
        if version < 1:
            raise errors.NotOurStore(path=directory, why="its database has no format")
        if version > FORMAT:
            raise errors.StoreTooNew(path=directory, found=version, known=FORMAT)
    except errors.Refusal as refusal:
        connection.close()
        if isinstance(refusal.__cause__, sqlite3.Error):
            raise _unreadable(directory, refusal.__cause__) from refusal
        raise
    return Database(directory, connection)


def _unreadable(directory: str, error: sqlite3.Error) -> errors.Refusal:
    """Tell a file that is no database of SQLite's from one that cannot be read just now."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return errors.NotOurStore(path=directory, why="its database cannot be read")
    return errors.StoreFault(path=directory, why=errors.describe(error))


def _connect(path: str) -> sqlite3.Connection:
    # As a URI, because only so can it be told not to make a database where there is none any more.
    quoted = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in os.fsencode(path))
    connection = sqlite3.connect(
        f"file:{quoted}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    try:
        # Foreign keys: a content cannot go while a row names it, whatever its counter says. Secure deletion: what was
        # forgotten is overwritten where that costs no further page (C40).
        connection.executescript(
            "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA recursive_triggers=ON; PRAGMA cache_size=-8192;"
            f"PRAGMA temp_store=MEMORY; PRAGMA secure_delete=FAST; PRAGMA journal_size_limit={LOG_BYTES};"
        )
    except BaseException:
        connection.close()
        raise
    return connection


_PLAIN = frozenset(b"/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _make(directory: str, path: str) -> None:
    """Build the database under another name and rename it into place: it is there whole, or not at all."""
    try:
        for folder in (os.path.dirname(directory), directory, os.path.join(directory, "blobs")):
            private.private_directory(folder)
        private.private_directory(os.path.join(directory, "asks"))
        with FileLock.acquire(os.path.join(directory, "lock"), blocking=True) or contextlib.nullcontext():
            if not os.path.exists(path):  # else another process was faster
                _refuse_remains(directory, path)
                _build(f"{path}.new", path)
                private.sync_directory(directory)
    except (OSError, sqlite3.Error) as error:
        raise errors.StoreFault(path=directory, why=errors.describe(error)) from error


def _refuse_remains(directory: str, path: str) -> None:
    """Refuse to begin anew over the contents of a database that is gone: the next start would remove them as strays.

    An old log would even be read into a new database of the same name.
    """
    log = f"{path}-wal"
    if set(os.listdir(os.path.join(directory, "blobs"))) - {"lock"} or (os.path.exists(log) and os.path.getsize(log)):
        why = "its database is missing; what is left was not touched, and has to be moved away to begin anew"
        raise errors.StoreFault(path=directory, why=why)


def _build(temporary: str, path: str) -> None:
    schema = resources.files("sidecar.store").joinpath("schema.sql").read_text(encoding="utf-8")
    try:
        _unlink_all(temporary)  # of a process that died here
        os.close(private.open_private(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR))  # its log takes its mode
        connection = sqlite3.connect(temporary, isolation_level=None)
        try:
            connection.executescript(
                "PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL;"
                f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={FORMAT};"
                f"BEGIN; {schema} COMMIT; PRAGMA wal_checkpoint(TRUNCATE);"
            )
        finally:
            connection.close()
        private.sync_file(temporary)
        os.rename(temporary, path)
    finally:
        _unlink_all(temporary)


def _unlink_all(database: str) -> None:
    for name in (database, f"{database}-wal", f"{database}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _fitting(value: Any) -> Any:
    if isinstance(value, int):
        return min(max(value, SMALLEST), LARGEST)
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value
