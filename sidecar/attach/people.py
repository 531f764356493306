"""Who was at work in a workspace: the sessions that live in it, in one that contains it, or in one below it."""

import os

from sidecar.attach.paths import relative_to
from sidecar.attach.settings import Settings
from sidecar.clock import SECOND
from sidecar.model import Turn
from sidecar.rewind.plan import People
from sidecar.store.workspace import Workspace, every_workspace


def people_of(workspace: Workspace, settings: Settings) -> People:
    """Give all turns that may have changed a workspace's files, and the paths that their tool calls named."""
    now, timeout = settings.clock.now(), settings.checkpoints.time.turn_timeout_s * SECOND
    turns: list[Turn] = workspace.turns.all(now=now, timeout=timeout)
    edits = workspace.turns.edits()
    root = os.fsencode(workspace.root)
    with every_workspace(settings.checkpoints, []) as others:  # of a broken one nothing is known: its work is idle
        for other in others:
            theirs = os.fsencode(other.root)
            if other.key == workspace.key or not _related(theirs, root):
                continue
            turns += other.turns.all(now=now, timeout=timeout)
            for path, named in other.turns.edits().items():
                here = _here(path, theirs, root)
                edits.setdefault(here, []).extend(named)
    return People(turns, edits)


def _related(one: bytes, other: bytes) -> bool:
    return (one + b"/").startswith(other + b"/") or (other + b"/").startswith(one + b"/")


def _here(path: bytes, theirs: bytes, root: bytes) -> bytes:
    """Spell a path of another workspace as this one does."""
    absolute = path if path.startswith(b"/") else theirs + b"/" + path
    return relative_to(absolute, cwd=root, root=root)
