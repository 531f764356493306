"""A timeline to test on: what a capture and a message write, without looking at any workspace."""

import os
from dataclasses import replace

from sidecar.model import ABSENT, CheckpointKind, Kind, Row, State
from sidecar.policy.load import checkpoint_policy
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store.database import open_database
from sidecar.store.workspace import Workspace

INLINE = 64  # bytes: everything larger is a file, so that small contents test both


def small_policy(**limits: int) -> CheckpointPolicy:
    """Give the policy with contents of a few bytes stored as files."""
    policy = checkpoint_policy()
    return replace(policy, limits=replace(policy.limits, **{"inline_bytes": INLINE, **limits}))


def open_timeline(directory: str, policy: CheckpointPolicy | None = None) -> Workspace:
    """Open a timeline in a directory of its own, `home/workspaces/key` within it."""
    database = open_database(os.path.join(directory, "workspaces", "key"), create=True)
    os.makedirs(os.path.join(directory, "locks"), mode=0o700, exist_ok=True)
    return Workspace(database, "key", directory, policy or small_policy())


def change(workspace: Workspace, path: bytes, content: bytes | None, at: int) -> None:
    """Write that a path holds other bytes, or is gone (None), since an instant."""
    with workspace.blobs.writing(), workspace.database.transaction():
        put(workspace, path, content, at)


def put(workspace: Workspace, path: bytes, content: bytes | None, at: int) -> None:
    """Do that inside a transaction and `writing`."""
    known = workspace.ledger.known(path)
    state = ABSENT if content is None else State(Kind.FILE, workspace.blobs.put(content), len(content), 0o644)
    rows = [Row(state, at, None, at, at)]
    if known is not None:
        rows.insert(0, replace(known.row, to_at=at))
    workspace.ledger.replace(path, known, rows, None, at)
    workspace.blobs.drop_unused()


def attach(workspace: Workspace, session: str, cap: int, at: int) -> None:
    """Write that a session is followed from now on."""
    with workspace.database.transaction():
        workspace.instants.attach(session, agent="test", transcript="/t", cwd="/w", cap=cap, at=at)


def message(
    workspace: Workspace, session: str, uuid: str, at: int, kind: CheckpointKind = CheckpointKind.MESSAGE
) -> None:
    """Remember an instant of the timeline."""
    with workspace.database.transaction():
        workspace.instants.add(session, uuid, at=at, kind=kind, timeline=True)


def content_at(workspace: Workspace, path: bytes, at: int) -> bytes | str | None:
    """Give the bytes at an instant; None: there was no file; "unknown": no row says."""
    state = workspace.ledger.state_at(path, at)
    if state is None:
        return "unknown"
    return None if state == ABSENT else workspace.blobs.get(state.blob or 0)


def files_of(workspace: Workspace) -> set[str]:
    """Name the files of contents on the disk."""
    return set(os.listdir(workspace.database.blobs)) - {"lock"}


def named_files(workspace: Workspace) -> set[str]:
    """Name the files of contents that rows know."""
    return {name for (name,) in workspace.database.all("SELECT file FROM blob WHERE file IS NOT NULL")}


def disk_bytes(directory: str) -> int:
    """Give what a directory takes on the disk."""
    found = 0
    for folder, _, names in os.walk(directory):
        found += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)
    return found
