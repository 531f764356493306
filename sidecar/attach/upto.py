"""Bring a timeline up to now from another process: ask the one that captures, or look at everything."""

import contextlib
from collections.abc import Iterator

from sidecar import errors
from sidecar.attach import owner
from sidecar.attach.asking import ask_capturer
from sidecar.attach.catchup import catch_up
from sidecar.attach.settings import Settings
from sidecar.fs.beneath import Root
from sidecar.fs.places import Places
from sidecar.store.home import identify
from sidecar.store.workspace import Workspace


@contextlib.contextmanager
def opened_places(workspace: Workspace) -> Iterator[Places]:
    """Open a workspace's root; refuses where another directory has taken its place."""
    root = workspace.root
    places = Places(Root.open(root))
    try:
        if identify(places.root.path).key != workspace.key:
            raise errors.NoWorkspace(path=root, why="another directory has taken its place")
        yield places
    finally:
        places.close()


def ask(workspace: Workspace, settings: Settings) -> bool:
    """Ask the live capturer to write down all that happened; False if there is none that answers."""
    if owner.capturer(workspace) is None:
        return False
    return ask_capturer(workspace, answer_ms=settings.checkpoints.time.capture_answer_ms)


def bring_up_to_now(workspace: Workspace, places: Places, settings: Settings, *, evict: bool = True) -> bool:
    """Make the timeline true as of now; tell whether the whole tree had to be looked at. `evict`: see `catch_up`."""
    if ask(workspace, settings):
        return False
    lock = owner.own_capture(workspace)  # None: one is alive that does not answer; its rows are respected
    try:
        catch_up(workspace, places, settings, evict=evict)
    finally:
        if lock is not None:
            lock.release()
    return True
