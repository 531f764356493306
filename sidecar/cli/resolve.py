"""From what a person typed to a workspace, a session and a checkpoint."""

import os
import re
from dataclasses import dataclass

from sidecar import errors
from sidecar.attach.settings import Settings
from sidecar.model import Checkpoint
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace, every_workspace, open_by_key, open_containing

SHORTEST_PREFIX = 4
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]*")
LATEST, BASELINE = "latest", "baseline"


@dataclass(frozen=True, slots=True)
class Found:
    """A workspace that is open, and the session that was meant."""

    workspace: Workspace
    session: SessionRow


def find_session(settings: Settings, text: str | None, directory: str) -> Found:
    """Open the workspace of a session: of the one that was named, else of the newest one of the directory."""
    if text is None:
        workspace = open_containing(directory, settings.checkpoints)
        sessions = workspace.instants.sessions() if workspace is not None else []
        if workspace is None or not sessions:
            if workspace is not None:
                workspace.close()
            raise errors.NoSession(session=f"(none is known for {directory})")
        return Found(workspace, sessions[0])
    transcript = os.path.realpath(text) if os.path.sep in text or text.endswith(".jsonl") else None
    if transcript is None and not _ID.fullmatch(text):
        raise errors.MalformedId(what="A session", text=text)
    hits: list[tuple[str, SessionRow]] = []
    with every_workspace(settings.checkpoints) as workspaces:
        for workspace in workspaces:
            for row in workspace.instants.sessions():
                mine = os.path.realpath(row.transcript) == transcript if transcript else row.session.startswith(text)
                if mine:
                    hits.append((workspace.key, row))
    exact = [hit for hit in hits if hit[1].session == text]
    hits = exact or hits
    if len({row.session for _, row in hits}) > 1:
        names = ", ".join(sorted(row.session for _, row in hits))
        raise errors.AmbiguousId(text=text, what="session", candidates=names)
    if not hits:
        raise errors.NoSession(session=text)
    key, row = hits[0]
    return Found(open_by_key(key, settings.checkpoints), row)


def find_checkpoint(settings: Settings, text: str, session: str | None, directory: str) -> tuple[Found, Checkpoint]:
    """Open the workspace of a message and give its checkpoint.

    A message is looked for in the named session, else in the directory's workspace, else everywhere; one that two
    sessions share (a fork keeps its ids) asks for `--session`.
    """
    if session is not None or text in (LATEST, BASELINE):
        found = find_session(settings, session, directory)
        return found, _in_session(found, text)
    here = open_containing(directory, settings.checkpoints)
    if here is not None:
        pinned = here.instants.pinned(text)
        if pinned is not None:
            row = here.instants.session(pinned.session)
            assert row is not None
            return Found(here, row), pinned
    _check_form(text)
    if here is not None:
        hits = here.instants.find(text)
        if hits:
            return _one(here, text, hits)
        here.close()
    keys = []
    with every_workspace(settings.checkpoints) as workspaces:
        for workspace in workspaces:
            if workspace.instants.find(text) or workspace.instants.pinned(text):
                keys.append(workspace.key)
    if len(keys) > 1:
        raise errors.AmbiguousId(text=text, what="workspace", candidates="pass --session")
    if not keys:
        raise errors.NoCheckpoint(reason="unknown")
    workspace = open_by_key(keys[0], settings.checkpoints)
    return _one(workspace, text, workspace.instants.find(text))


def _check_form(text: str) -> None:
    if not _ID.fullmatch(text) or len(text) < SHORTEST_PREFIX:
        raise errors.MalformedId(what="A message", text=text)


def _one(workspace: Workspace, text: str, hits: list[tuple[str, str]]) -> tuple[Found, Checkpoint]:
    if len({uuid for _, uuid in hits}) > 1:
        raise errors.AmbiguousId(text=text, what="message", candidates=", ".join(sorted(uuid for _, uuid in hits)))
    if len(hits) > 1:
        sessions = ", ".join(sorted(session for session, _ in hits))
        raise errors.AmbiguousId(text=text, what="session, so pass --session", candidates=sessions)
    session, uuid = hits[0]
    row = workspace.instants.session(session)
    assert row is not None
    return Found(workspace, row), _restorable(workspace, session, uuid)


def _in_session(found: Found, text: str) -> Checkpoint:
    instants, session = found.workspace.instants, found.session.session
    if text == LATEST:
        latest = instants.latest(session)
        if latest is None:
            raise errors.NoCheckpoint(reason="unknown")
        return latest
    if text == BASELINE:
        return _restorable(found.workspace, session, BASELINE)
    pinned = instants.pinned(text)
    if pinned is not None and pinned.session == session:
        return pinned
    _check_form(text)
    hits = instants.find(text, session)
    if len(hits) > 1:
        raise errors.AmbiguousId(text=text, what="message", candidates=", ".join(sorted(uuid for _, uuid in hits)))
    if not hits:
        raise errors.NoCheckpoint(reason="unknown")
    return _restorable(found.workspace, *hits[0])


def _restorable(workspace: Workspace, session: str, uuid: str) -> Checkpoint:
    checkpoint = workspace.instants.get(session, uuid)
    if checkpoint is None:
        raise errors.NoCheckpoint(reason=workspace.instants.state_of(session, uuid) or "unknown")
    return checkpoint
