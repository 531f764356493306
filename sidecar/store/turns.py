"""Turns, and the paths that tool calls named: who was at work when.

A turn runs from a user message to the agent's own sign of its end. One without an end has ended when its session wrote
nothing for the policy's time-out; until then it is open. Every method that writes belongs inside a transaction.
"""

import sys

from sidecar.clock import MS
from sidecar.model import Turn
from sidecar.store.database import Database

_OF_INSTANT = "session = ? AND start_at = (SELECT max(start_at) FROM turn WHERE session = ? AND start_at <= ?)"


class Turns:
    """The turns of one workspace's sessions."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def begin(self, session: str, at: int) -> None:
        """Record that a turn begins; one still open ends where it begins.

        If it comes late it ends where a later one begins, or where the one that it lies in is known to have ended.
        """
        self.database.execute(
            "UPDATE turn SET end_at = max(start_at, ?) WHERE session = ? AND end_at IS NULL AND start_at < ?",
            (at, session, at),
        )
        self.database.execute(
            "INSERT OR IGNORE INTO turn (session, start_at, end_at, last_at) VALUES (?1, ?2, (SELECT min(ended) FROM ("
            "SELECT min(start_at) AS ended FROM turn WHERE session = ?1 AND start_at > ?2 UNION ALL "
            "SELECT max(end_at) FROM turn WHERE session = ?1 AND start_at < ?2 AND end_at > ?2)), ?2)",
            (session, at),
        )

    def end(self, session: str, at: int, offset: int | None = None) -> bool:
        """Record that the turn of an instant ended, unless it is known to have; tell whether it was open.

        Times are cut to milliseconds: of the turns that began in this one it is the last whose message stands before
        `offset`, where the record that says so begins.
        """
        done = self.database.execute(
            "UPDATE turn SET end_at = max(start_at, ?2), last_at = max(last_at, ?2) "
            "WHERE end_at IS NULL AND session = ?1 AND start_at = (SELECT max(t.start_at) FROM turn t "
            "WHERE t.session = ?1 AND (t.start_at < ?2 OR (t.start_at < ?3 AND NOT EXISTS (SELECT 1 FROM message m "
            "WHERE m.session = ?1 AND m.at = t.start_at AND m.kind IN ('message', 'imported') AND m.offset > ?4))))",
            (session, at, at + MS, sys.maxsize if offset is None else offset),
        )
        return done.rowcount > 0

    def touch(self, session: str, at: int) -> None:
        """Record a sign of life in the turn of an instant."""
        self.database.execute(
            f"UPDATE turn SET last_at = max(last_at, ?) WHERE {_OF_INSTANT}", (at, session, session, at)
        )

    def go_on(self, session: str, at: int) -> None:
        """Record that the agent is at work: in its turn, or in one of its own if that had ended (a task woke it)."""
        ended = self.database.one(f"SELECT end_at FROM turn WHERE {_OF_INSTANT}", session, session, at)
        if ended is not None and ended[0] is not None and ended[0] < at:
            self.begin(session, at)
        else:
            self.touch(session, at)

    def prolong(self, session: str, at: int) -> None:
        """Record work in the turn of an instant: it lasted at least until then, whatever was said before."""
        self.database.execute(
            f"UPDATE turn SET last_at = max(last_at, ?), end_at = max(end_at, ?) WHERE {_OF_INSTANT}",
            (at, at, session, session, at),
        )

    def named(self, session: str, path: int, at: int) -> None:
        """Record that a tool call of the session named a path."""
        self.database.execute("INSERT OR IGNORE INTO edit (session, path, at) VALUES (?, ?, ?)", (session, path, at))

    def all(self, *, now: int, timeout: int) -> list[Turn]:
        """Give all turns, ended by the time-out where nothing else ended them; nanoseconds."""
        rows = self.database.all(
            "SELECT t.session, t.start_at, t.end_at, t.last_at, min(m.uuid) FROM turn t LEFT JOIN message m "
            "ON m.session = t.session AND m.at = t.start_at AND m.kind IN ('message', 'imported') "
            "GROUP BY t.session, t.start_at ORDER BY t.start_at"
        )
        return [
            Turn(session, start, last + timeout if end is None and last + timeout < now else end, message)
            for session, start, end, last, message in rows
        ]

    def edits(self) -> dict[bytes, list[tuple[str, int]]]:
        """Give the sessions and instants at which tool calls named each path."""
        found: dict[bytes, list[tuple[str, int]]] = {}
        for name, session, at in self.database.rows(
            "SELECT p.name, e.session, e.at FROM edit e JOIN path p ON p.id = e.path"
        ):
            found.setdefault(bytes(name), []).append((session, at))
        return found
