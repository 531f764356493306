"""Rewinds: the stack that `undo` walks, and the journal of the one that is being carried out.

Every method that writes belongs inside a transaction.
"""

from dataclasses import dataclass

from sidecar.store.database import Database


@dataclass(frozen=True, slots=True)
class RewindRow:
    """A rewind that was carried out."""

    id: int
    session: str
    message: str  # the target
    before: str  # checkpoint of the state just before
    redo: str | None  # checkpoint of the state just before it was undone
    state: str  # done, undone or cleared


@dataclass(frozen=True, slots=True)
class Journal:
    """The rewind that is being carried out, or died while it was."""

    staging: str
    session: str
    message: str
    before: str
    pid: int
    at: int


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a rewind, written down before it is made."""

    path: bytes
    staged: str
    step: str  # create, exchange or park


class Rewinds:
    """The rewinds of one workspace."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def push(self, session: str, message: str, before: str, at: int) -> int:
        """Put a new rewind on the session's stack; what could be redone no longer can."""
        self.database.execute("UPDATE rewind SET state = 'cleared' WHERE session = ? AND state = 'undone'", (session,))
        cursor = self.database.execute(
            "INSERT INTO rewind (session, message, before, state, at) VALUES (?, ?, ?, 'done', ?)",
            (session, message, before, at),
        )
        return int(cursor.lastrowid or 0)

    def last_done(self, session: str) -> RewindRow | None:
        """Give the newest rewind not yet undone."""
        return self._one("session = ? AND state = 'done' ORDER BY id DESC", session)

    def last_undone(self, session: str) -> RewindRow | None:
        """Give the rewind that was undone last."""
        return self._one("session = ? AND state = 'undone' ORDER BY id ASC", session)

    def mark_undone(self, number: int, redo: str, at: int) -> None:
        """Move a rewind to the redo side."""
        self.database.execute("UPDATE rewind SET state = 'undone', redo = ?, at = ? WHERE id = ?", (redo, at, number))

    def mark_redone(self, number: int, before: str, at: int) -> None:
        """Move a rewind back; undoing it again leads to the state just before it was redone."""
        self.database.execute(
            "UPDATE rewind SET state = 'done', before = ?, redo = NULL, at = ? WHERE id = ?", (before, at, number)
        )

    def newest_session(self, state: str) -> str | None:
        """Give the session of the rewind that was done, or undone, last."""
        row = self.database.one("SELECT session FROM rewind WHERE state = ? ORDER BY at DESC, id DESC LIMIT 1", state)
        return None if row is None else str(row[0])

    def _one(self, where: str, *values: object) -> RewindRow | None:
        row = self.database.one(
            f"SELECT id, session, message, before, redo, state FROM rewind WHERE {where} LIMIT 1", *values
        )
        return None if row is None else RewindRow(*row)

    # The journal ----------------------------------------------------------------------------------------------------

    def open_journal(self, journal: Journal) -> None:
        """Write down that a rewind begins."""
        self.database.execute(
            "INSERT INTO journal (id, staging, session, message, before, pid, at) VALUES (1, ?, ?, ?, ?, ?, ?)",
            (journal.staging, journal.session, journal.message, journal.before, journal.pid, journal.at),
        )

    def journal(self) -> Journal | None:
        """Give the rewind that is being carried out."""
        row = self.database.one("SELECT staging, session, message, before, pid, at FROM journal")
        return None if row is None else Journal(*row)

    def add_steps(self, steps: list[Step]) -> None:
        """Write down moves that are about to be made."""
        for step in steps:
            self.database.execute(
                "INSERT OR REPLACE INTO journal_step (path, staged, step) VALUES (?, ?, ?)",
                (step.path, step.staged, step.step),
            )

    def steps(self) -> list[Step]:
        """Give the moves of the open rewind."""
        rows = self.database.all("SELECT path, staged, step FROM journal_step ORDER BY path")
        return [Step(bytes(path), staged, step) for path, staged, step in rows]

    def journal_paths(self) -> set[bytes]:
        """Give the paths that nobody may capture now."""
        return {bytes(path) for (path,) in self.database.all("SELECT path FROM journal_step")}

    def close_journal(self) -> None:
        """Write down that the rewind is over."""
        self.database.execute("DELETE FROM journal_step")
        self.database.execute("DELETE FROM journal")
