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

APPLICATION = 0x53444352  # "SDCR"
FORMAT = 1
BUSY_S = 20.0
RECLAIM_BUSY_MS = 250  # a dry run may read for seconds; nobody waits for it to give space back


class Database:
    """An open timeline."""

    def __init__(self, directory: str, connection: sqlite3.Connection) -> None:
        self.directory = directory
        self.connection = connection
        self._depth = 0

    @property
    def blobs(self) -> str:
        """The directory of contents too large for the database."""
        return os.path.join(self.directory, "blobs")

    @property
    def asks(self) -> str:
        """The directory where other processes ask the live capturer for something."""
        return os.path.join(self.directory, "asks")

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement. Refuses (StoreFault) where SQLite cannot."""
        try:
            return self.connection.execute(sql, tuple(values))
        except sqlite3.Error as error:
            raise errors.StoreFault(path=self.directory, why=errors.describe(error)) from error

    def one(self, sql: str, *values: Any) -> Any:
        """Give the first row, or None."""
        with translated(self.directory):
            return self.connection.execute(sql, values).fetchone()

    def all(self, sql: str, *values: Any) -> list[Any]:
        """Give all rows."""
        with translated(self.directory):
            return self.connection.execute(sql, values).fetchall()

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
            except sqlite3.Error:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def reclaim(self) -> None:
        """Give the space of forgotten contents back to the disk, or leave it to the next call if a reader is at work.

        `executescript`, because `execute` steps the pragma once, which frees a single page; the truncating checkpoint,
        because pages that were freed show on the disk only after it.
        """
        if self._depth or not self.one("PRAGMA freelist_count")[0]:
            return
        with translated(self.directory):
            try:
                self.connection.executescript(f"PRAGMA busy_timeout={RECLAIM_BUSY_MS}; PRAGMA incremental_vacuum;")
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                self.connection.execute(f"PRAGMA busy_timeout={int(BUSY_S * 1000)}")

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the database."""
        self.connection.close()


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
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.executescript("PRAGMA synchronous=FULL; PRAGMA cache_size=-8192; PRAGMA temp_store=MEMORY;")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(directory: str, path: str) -> None:
    """Build the database under another name and rename it into place: it is there whole, or not at all."""
    temporary = f"{path}.{os.getpid()}.new"
    schema = resources.files("sidecar.store").joinpath("schema.sql").read_text(encoding="utf-8")
    try:
        for folder in (os.path.dirname(directory), directory, os.path.join(directory, "blobs")):
            private.private_directory(folder)
        private.private_directory(os.path.join(directory, "asks"))
        os.close(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC, 0o600))
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
        try:
            os.link(temporary, path)  # unlike a rename, never over a database that another process just made
        except FileExistsError:
            return
        private.sync_directory(directory)
    except (OSError, sqlite3.Error) as error:
        raise errors.StoreFault(path=directory, why=errors.describe(error)) from error
    finally:
        for name in (temporary, f"{temporary}-wal", f"{temporary}-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
