"""Remember an instant, and forget the ones beyond the cap in the same transaction.

Every function that writes belongs inside `database.transaction()`, beside the captures that the instant closes over:
an announced checkpoint is whole or was never there.
"""

from dataclasses import dataclass

from sidecar.checkpoint.plan import Standing
from sidecar.model import CheckpointKind, UserMessage
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Evicted:
    """A checkpoint that went, and what went with it."""

    session: str
    message: str
    blobs: int
    bytes: int


def remember_message(workspace: Workspace, message: UserMessage, at: int, standing: Standing) -> None:
    """Write a user message's checkpoint; `close_message` counts what it holds."""
    workspace.instants.add(
        message.session,
        message.uuid,
        at=at,
        kind=standing.kind,
        timeline=standing.timeline,
        state=standing.state,
        alias=message.alias,
        parent=message.parent,
        offset=message.offset,
        prompt=message.prompt,
    )


def close_message(workspace: Workspace, session: str, uuid: str, at: int, *, timeline: bool) -> tuple[int, int]:
    """Count the paths that changed since the session's checkpoint before, and those not sure, and write them down."""
    if not timeline:
        files, unstable = len(workspace.instants.imported(session, uuid)), 0
    else:
        before = workspace.instants.previous(session, at)
        changes = workspace.ledger.changed_between(before, at) if before is not None else []
        files = len({path for path, row in changes if not row.ends_knowledge})
        unstable = workspace.ledger.count_unstable(at)
    workspace.instants.close(session, uuid, files=files, unstable=unstable)
    return files, unstable


def remember_state(
    workspace: Workspace, session: str, uuid: str, at: int, kind: CheckpointKind, *, prompt: str = ""
) -> None:
    """Write an instant that no message made: a baseline, a mark, a before-rewind state."""
    parent = workspace.instants.latest(session)
    workspace.instants.add(
        session, uuid, at=at, kind=kind, timeline=True, parent=parent.message if parent else None, prompt=prompt
    )


def enforce_caps(workspace: Workspace, session: str, *, cap: int, before_rewinds: int) -> list[Evicted]:
    """Evict what is beyond the session's cap and the newest before-rewind states, oldest first (SPEC A3)."""
    instants = workspace.instants
    gone = instants.beyond_cap(session, cap) + instants.before_rewinds_beyond(before_rewinds)
    return [evict(workspace, checkpoint.session, checkpoint.message) for checkpoint in gone]


def evict(workspace: Workspace, session: str, uuid: str) -> Evicted:
    """Forget one checkpoint and all that only it kept."""
    checkpoint = workspace.instants.get(session, uuid)
    blobs, stored = workspace.blobs.tally()
    workspace.instants.evict(session, uuid)
    if checkpoint is not None and checkpoint.timeline:
        workspace.ledger.release_instant(checkpoint.at, workspace.instants.settled_until())
    blobs_after, stored_after = workspace.blobs.tally()
    return Evicted(session, uuid, blobs - blobs_after, stored - stored_after)
