"""From what a person typed to a workspace, a session and a checkpoint."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar import errors
from sidecar.attach.settings import Settings
from sidecar.attach.unseen import reason_unseen
from sidecar.attach.upto import ask
from sidecar.ids import BASELINE, LATEST, may_be_message, may_be_session
from sidecar.model import Checkpoint
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace, every_workspace, open_by_key, open_containing


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
    if transcript is None and not may_be_session(text):
        raise errors.MalformedId(what="session ID", text=text)
    hits: list[tuple[str, SessionRow]] = []
    broken: list[errors.Refusal] = []
    with every_workspace(settings.checkpoints, broken) as workspaces:
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
        raise broken[0] if broken else errors.NoSession(session=text)
    key, row = hits[0]
    return Found(open_by_key(key, settings.checkpoints), row)


def find_checkpoint(settings: Settings, text: str, session: str | None, directory: str) -> tuple[Found, Checkpoint]:
    """Open the workspace of a message and give its checkpoint.

    A message is looked for in the named session, else in the directory's workspace, else everywhere; one that two
    sessions share (a fork keeps its ids) asks for `--session`.
    """
    if session is not None or text in (LATEST, BASELINE):
        found = find_session(settings, session, directory)
        with _closed_if_refused(found.workspace):
            return found, _in_session(found, text, settings)
    reasons = set()
    here = open_containing(directory, settings.checkpoints)
    if here is not None:
        with _closed_if_refused(here):
            hit = _in_workspace(here, text)
            if hit is None and may_be_message(text) and ask(here, settings):
                hit = _in_workspace(here, text)
            if hit is not None:
                return hit
            reasons.add(reason_unseen(here, text) if may_be_message(text) else "unknown")
            here.close()
    keys = []
    broken: list[errors.Refusal] = []
    with every_workspace(settings.checkpoints, broken) as workspaces:
        for workspace in workspaces:
            if workspace.instants.pinned(text) or (may_be_message(text) and workspace.instants.find(text)):
                keys.append(workspace.key)
            elif here is None and may_be_message(text):
                reasons.add(reason_unseen(workspace, text))
    if len(keys) > 1:
        raise errors.AmbiguousId(text=text, what="workspace", candidates="pass --session")
    if not keys:
        _check_form(text)
        if broken and here is None:
            raise broken[0]
        raise errors.NoCheckpoint(reason=min(reasons - {"unknown"}, default="unknown"))
    workspace = open_by_key(keys[0], settings.checkpoints)
    with _closed_if_refused(workspace):
        hit = _in_workspace(workspace, text)
        if hit is None:  # it went while we looked
            raise errors.NoCheckpoint(reason="unknown")
        return hit


def find_in(found: Found, text: str, session: str | None, settings: Settings) -> Checkpoint:
    """Give a message's checkpoint from a workspace that is open already."""
    if session is not None or text in (LATEST, BASELINE):
        return _in_session(found, text, settings)
    hit = _in_workspace(found.workspace, text)
    if hit is None:
        raise errors.NoCheckpoint(reason="unprotected")
    return hit[1]


def _in_workspace(workspace: Workspace, text: str) -> tuple[Found, Checkpoint] | None:
    pinned = workspace.instants.pinned(text)
    hits = workspace.instants.find(text) if may_be_message(text) else []
    if pinned is not None:
        _require_only(pinned, text, hits)
        row = workspace.instants.session(pinned.session)
        assert row is not None
        return Found(workspace, row), pinned
    return _one(workspace, text, hits) if hits else None


@contextlib.contextmanager
def _closed_if_refused(workspace: Workspace) -> Iterator[None]:
    try:
        yield
    except errors.Refusal:
        workspace.close()
        raise


def _check_form(text: str) -> None:
    if not may_be_message(text):
        raise errors.MalformedId(what="message id", text=text)


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


def _require_only(pinned: Checkpoint, text: str, hits: list[tuple[str, str]]) -> None:
    """Refuse a pin's name with which other messages' ids begin by now: nobody knows which was meant."""
    others = {uuid for _, uuid in hits} - {pinned.message}
    if others:
        candidates = ", ".join(sorted({pinned.message, *others}))
        raise errors.AmbiguousId(text=text, what="message", candidates=candidates)


def _in_session(found: Found, text: str, settings: Settings) -> Checkpoint:
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
        _require_only(pinned, text, instants.find(text, session) if may_be_message(text) else [])
        return pinned
    _check_form(text)
    hits = instants.find(text, session)
    if not hits and ask(found.workspace, settings):
        hits = instants.find(text, session)
    if len(hits) > 1:
        raise errors.AmbiguousId(text=text, what="message", candidates=", ".join(sorted(uuid for _, uuid in hits)))
    if not hits:
        raise errors.NoCheckpoint(reason=reason_unseen(found.workspace, text, session))
    return _restorable(found.workspace, *hits[0])


def _restorable(workspace: Workspace, session: str, uuid: str) -> Checkpoint:
    checkpoint = workspace.instants.get(session, uuid)
    if checkpoint is None:
        raise errors.NoCheckpoint(reason=workspace.instants.state_of(session, uuid) or "unknown")
    return checkpoint
