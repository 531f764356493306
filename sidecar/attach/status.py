"""What can be said of a workspace from outside: who follows it, and what of it is protected."""

import os
from dataclasses import dataclass

from sidecar.agents import registry
from sidecar.attach import owner
from sidecar.attach.pace import OWED, UNHEARD
from sidecar.attach.settings import Settings
from sidecar.attach.wide import EDITED_ONLY, remembered_mode
from sidecar.capture.budget import count_refused
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SessionStanding:
    """One session."""

    session: str
    agent: str
    workspace: str
    pid: int | None  # of the sidecar that follows it
    since: int | None
    protected: bool
    why: str | None
    checkpoints: int


@dataclass(frozen=True, slots=True)
class Standing:
    """One workspace."""

    root: str
    sessions: tuple[SessionStanding, ...]
    bytes: int
    rescans: int
    linked: int
    warnings: tuple[str, ...]


def standing_of(workspace: Workspace, settings: Settings) -> Standing:
    """Describe a workspace; changes nothing."""
    capturing = owner.capturer(workspace)
    linked = int(
        workspace.database.one(
            "SELECT count(*) FROM version v LEFT JOIN stat s ON s.path = v.path WHERE v.to_at IS NULL "
            "AND (v.kind = 'link' OR (v.kind = 'file' AND s.links > 1))"
        )[0]
    )
    _, stored = workspace.blobs.tally()
    rescans = workspace.meta("rescans")
    wide = remembered_mode(workspace)
    sessions = []
    for row in workspace.instants.sessions():
        follower = owner.session_owner(workspace.home, row.session)
        why = _why_not(settings, row.transcript, follower is not None, capturing is not None)
        if why is None and wide is not None:
            why = f"only the paths that tool calls name are captured: {wide}"
        count = len(workspace.instants.checkpoints(row.session))
        sessions.append(
            SessionStanding(
                row.session,
                row.agent,
                workspace.root,
                follower.pid if follower is not None else None,
                follower.since if follower is not None else None,
                why is None,
                why,
                count,
            )
        )
    return Standing(
        workspace.root,
        tuple(sessions),
        stored,
        rescans if isinstance(rescans, int) else 0,
        linked,
        tuple(_warnings(workspace, settings, capturing is not None)),
    )


def _why_not(settings: Settings, transcript: str, followed: bool, captured: bool) -> str | None:
    if not settings.enabled:
        return "switched off"
    if not os.path.exists(transcript):
        return "it has no transcript: there is nothing to tie checkpoints to"
    if not followed:
        return "no sidecar follows it: what happens now is not recorded"
    if not captured:
        return "nobody captures its workspace"
    return None


def _warnings(workspace: Workspace, settings: Settings, captured: bool) -> list[str]:
    warnings = []
    wide = remembered_mode(workspace)
    if wide is not None:
        warnings.append(f"The tree {workspace.root} is not captured: {wide}. {EDITED_ONLY}")
    refused = count_refused(workspace, settings.checkpoints.limits)
    if refused:
        warnings.append(f"{refused} files of {workspace.root} are not kept: there is no room for them in the budgets.")
    if captured and workspace.meta(OWED):
        most = settings.watch.rescan.longest_pause_s
        warnings.append(
            "Events were lost: a rescan of the whole tree is owed, by the next message or rewind and in "
            f"{most} seconds at most; until then nothing is claimed of what changed."
        )
    if captured and workspace.meta(UNHEARD):
        warnings.append(
            f"Not every folder of {workspace.root} can be watched, because of a limit of this machine: those are "
            "looked at now and then, and at each message and rewind (on Linux: sysctl fs.inotify.max_user_watches)."
        )
    if workspace.rewinds.journal() is not None:
        warnings.append("A rewind was interrupted; the next rewind or undo puts it in order.")
    if not os.path.isdir(workspace.root):
        warnings.append(f"The workspace {workspace.root} is not there.")
    for name, agent in registry().items():
        for found in agent.find_sessions(settings.environ):
            here = found.workspace is not None and os.path.realpath(found.workspace) == workspace.root
            if here and found.pid is not None and not os.path.exists(found.transcript):
                warnings.append(
                    f"Process {found.pid} ({name}) has written no transcript of session {found.session}: "
                    "if it keeps none, there is nothing to tie checkpoints to."
                )
    return warnings
