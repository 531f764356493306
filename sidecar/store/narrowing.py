"""What becomes of a timeline whose tree is captured no longer, but only the files that tool calls name.

What was known stands for every instant until then. Inside `database.transaction()`.
"""

from sidecar.model import Reason
from sidecar.store.database import Database


def end_knowledge(database: Database, at: int) -> int:
    """Say that nobody knows since an instant what the paths are that no tool call named; give their number.

    Nor is it known any longer what lies in a directory: no path is absent because nobody saw it.
    """
    database.execute(
        "UPDATE version SET to_at = max(?, from_at + 1) WHERE to_at IS NULL AND kind <> 'unknown' "
        "AND (kind = 'directory' OR path NOT IN (SELECT path FROM edit))",
        (at,),
    )
    ended = database.execute(  # every path has a row that holds, but for those above
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind, reason) "
        "SELECT path, max(to_at), NULL, 0, 0, 'unknown', ? FROM version "
        "WHERE path NOT IN (SELECT path FROM version WHERE to_at IS NULL) GROUP BY path",
        (Reason.UNKNOWN_THEN,),
    ).rowcount
    database.execute("DELETE FROM stat WHERE path NOT IN (SELECT path FROM edit)")
    database.execute("DELETE FROM folder")
    database.execute("UPDATE meta SET value = min(value, ?) WHERE key = 'released'", (at - 1,))
    return int(ended)
