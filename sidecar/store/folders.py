"""Since when there was no directory at a path: what lay below it then is known, too: nothing."""

from sidecar.model import Kind
from sidecar.store.ledger import Ledger


def no_folder_since(ledger: Ledger, path: bytes, at: int) -> int:
    """Tell since when a path was no directory, up to the row that begins at an instant: absent, or a file."""
    while True:
        row = ledger.database.one(
            "SELECT v.from_at FROM version v JOIN path p ON p.id = v.path "
            "WHERE p.name = ? AND v.to_at = ? AND v.kind IN ('absent', 'file')",
            path,
            at,
        )
        if row is None:
            return at
        at = int(row[0])


def no_folder_before(ledger: Ledger, path: bytes, at: int) -> tuple[int, int] | None:
    """Give the stretch before a directory's row, that begins at an instant, in which there surely was none."""
    state = ledger.state_at(path, at - 1)
    until = at
    if state is not None and state.kind is Kind.UNKNOWN:
        row = ledger.database.one(
            "SELECT v.from_at FROM version v JOIN path p ON p.id = v.path WHERE p.name = ? AND v.to_at = ?", path, at
        )
        until = int(row[0]) if row is not None else at
    since = no_folder_since(ledger, path, until)
    return (since, until) if since < until else None
