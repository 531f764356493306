"""A checkpoint by hand: the state of now, under an id of its own."""

from sidecar.attach.settings import Settings
from sidecar.attach.upto import bring_up_to_now, opened_places
from sidecar.checkpoint.apply import close_message, enforce_caps, remember_state
from sidecar.model import CheckpointKind
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace


def make_mark(workspace: Workspace, session: SessionRow, message: str, text: str, settings: Settings) -> None:
    """Write down everything that has happened so far and remember it."""
    with opened_places(workspace) as places:
        bring_up_to_now(workspace, places, settings)
    limits = settings.checkpoints.limits
    with workspace.database.transaction():
        at = settings.clock.now()
        prompt = text.splitlines()[0][: limits.prompt_characters] if text.strip() else ""
        remember_state(workspace, session.session, message, at, CheckpointKind.MARK, prompt=prompt)
        close_message(workspace, session.session, message, at, timeline=True)
        enforce_caps(workspace, session.session, cap=session.cap, before_rewinds=limits.before_rewind)
    workspace.give_back()
