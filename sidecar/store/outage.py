"""Messages that were sent while nobody watched: what is not known of them although a row says so.

That a path was absent is seen by looking, before such a message and after it, and by nothing that would tell if it had
come and gone in between (SPEC A2). A file's bytes have a ctime that tells.
"""

from sidecar.clock import MS
from sidecar.model import ABSENT, Checkpoint, CheckpointKind, Row
from sidecar.store.workspace import Workspace


def unwatched_since(workspace: Workspace, checkpoint: Checkpoint) -> int | None:
    """Give the last instant of watching before a message that nobody watched; None where somebody did.

    Instants that were not sent by anybody (marks, states before a rewind) are taken of the tree as it was looked at.
    """
    if checkpoint.kind is not CheckpointKind.MESSAGE or not checkpoint.timeline:
        return None
    slack = workspace.policy.time.before_slack_ms * MS  # a record's time may be a little ahead of the last proof
    begun = workspace.database.one("SELECT max(end_at) FROM coverage WHERE start_at <= ?", checkpoint.at)[0]
    return None if begun is None or begun + slack >= checkpoint.at else int(begun)


def was_perhaps_there(row: Row | None, unwatched: int | None) -> bool:
    """Tell whether a row says of such a message only that the path was absent before it and after it."""
    return row is not None and unwatched is not None and row.state == ABSENT and row.from_at <= unwatched
