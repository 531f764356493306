"""Rows that were written before a message was known, and may be on the wrong side of its instant.

What was written down stands, for every other instant: only the one instant is cut out. Every function that writes
belongs inside `database.transaction()`.
"""

from sidecar.model import Reason
from sidecar.store.database import Database


def begun_between(database: Database, first: int, last: int) -> list[tuple[int, int]]:
    """Give (path's number, from) of the rows that begin in [first, last].

    But for unknown ones: until there the state before is proved, whatever a stamp says.
    """
    sql = "SELECT path, from_at FROM version WHERE from_at >= ? AND from_at <= ? AND kind <> 'unknown'"
    rows = database.all(sql, first, last)
    return [(int(path), int(from_at)) for path, from_at in rows]


def forget_instant(database: Database, path: int, at: int) -> None:
    """Say that nobody knows what a path was at one instant; before and after it, what was known stands."""
    row = database.one(
        "SELECT id, to_at FROM version WHERE path = ? AND from_at < ? AND (to_at IS NULL OR to_at > ?) "
        "AND kind <> 'unknown'",
        path,
        at,
        at,
    )
    if row is None:
        return
    number, ended = row
    database.execute("UPDATE version SET to_at = ? WHERE id = ?", (at, number))
    database.execute(
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind, reason) "
        "VALUES (?, ?, ?, ?, ?, 'unknown', ?)",
        (path, at, at + 1, at, at, Reason.UNSTABLE),
    )
    if ended is None or ended > at + 1:
        database.execute(
            "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind, blob, size_bytes, mode, reason, "
            "rewind) SELECT path, ?, ?, changed_lo, changed_at, kind, blob, size_bytes, mode, reason, rewind "
            "FROM version WHERE id = ?",
            (at + 1, ended, number),
        )
    database.execute("UPDATE meta SET value = min(value, ?) WHERE key = 'released'", (at - 1,))
