"""Take up what an interrupted rewind left, before anything else is done with its workspace."""

from collections.abc import Callable
from dataclasses import replace

from sidecar import errors
from sidecar.attach import owner
from sidecar.attach.settings import Settings
from sidecar.clock import Clock
from sidecar.fs.places import Places
from sidecar.model import Kind, Row, Stat, State
from sidecar.rewind.recover import recover
from sidecar.store.workspace import Workspace


def put_in_order(workspace: Workspace, places: Places, settings: Settings) -> None:
    """Finish a rewind that died; one that is being carried out is left alone."""
    if workspace.rewinds.journal() is None:
        return
    try:
        lock = owner.own_rewind(workspace)
    except errors.Busy:
        return
    with lock:
        recover(workspace, places, saver(workspace, settings.clock))


def saver(workspace: Workspace, clock: Clock) -> Callable[[bytes, bytes, Stat], None]:
    """Make what keeps displaced bytes that the store does not have, as the path's newest version."""

    def save(path: bytes, content: bytes, stat: Stat) -> None:
        now = clock.now()
        with workspace.blobs.writing(), workspace.database.transaction():
            state = State(Kind.FILE, workspace.blobs.put(content), len(content), stat.mode)
            known = workspace.ledger.known(path)
            start = now if known is None else max(now, known.row.from_at + 1)
            rows = [Row(state, start, None, start, start)]
            if known is not None:
                rows.insert(0, replace(known.row, to_at=start))
            workspace.ledger.replace(path, known, rows, None, now)
            workspace.blobs.drop_unused()

    return save
