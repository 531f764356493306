"""The verbs that only look: `status`, `log`, `show`."""

import argparse
import os
import sys
from typing import Any

from sidecar import errors
from sidecar.attach.people import people_of
from sidecar.attach.settings import Settings
from sidecar.attach.status import Standing, standing_of
from sidecar.cli.output import one_line, print_json, say, show_path
from sidecar.cli.resolve import find_checkpoint, find_session
from sidecar.clock import format_iso
from sidecar.model import Checkpoint, CheckpointKind, Kind, Origin, Row, State
from sidecar.rewind.origin import origin_of
from sidecar.store.blobs import Damaged
from sidecar.store.outage import unwatched_since, was_perhaps_there
from sidecar.store.workspace import Workspace, every_workspace, open_containing

EMPTY: dict[str, Any] = {
    "status": {"sessions": [], "bytes": 0, "rescans": 0, "linked": 0, "warnings": []},
    "log": {},
    "show": {"message": None, "session": None, "files": []},
}


def status(args: argparse.Namespace, settings: Settings) -> int:
    """Tell what is followed, by whom, and what is protected."""
    standings: list[Standing] = []
    broken: list[errors.Refusal] = []
    if args.directory is not None:
        workspace = open_containing(args.directory, settings.checkpoints)
        if workspace is not None:
            with workspace.opened():
                standings.append(standing_of(workspace, settings))
    else:
        with every_workspace(settings.checkpoints, broken) as workspaces:
            standings.extend(standing_of(workspace, settings) for workspace in workspaces)
    if broken and not standings:
        raise broken[0]
    if args.json:
        print_json(
            {
                "sessions": [
                    {
                        "session": one.session,
                        "agent": one.agent,
                        "workspace": one.workspace,
                        "pid": one.pid,
                        "since": None if one.since is None else format_iso(one.since),
                        "protected": one.protected,
                        "why": one.why,
                        "checkpoints": one.checkpoints,
                    }
                    for standing in standings
                    for one in standing.sessions
                ],
                "bytes": sum(standing.bytes for standing in standings),
                "rescans": sum(standing.rescans for standing in standings),
                "linked": sum(standing.linked for standing in standings),
                "warnings": [*(warning for one in standings for warning in one.warnings), *map(str, broken)],
            }
        )
        return 0
    if not standings:
        say("Nothing is known here yet: `sidecar watch` begins.")
    for standing in standings:
        say(
            f"{one_line(standing.root)}: {standing.bytes} bytes kept, {standing.linked} linked paths not protected, "
            f"{standing.rescans} rescans"
        )
        for one in standing.sessions:
            by = f"followed by process {one.pid}" if one.pid is not None else "not followed"
            shield = "protected" if one.protected else f"UNPROTECTED ({one.why})"
            say(f"  {one.session} ({one.agent}): {one.checkpoints} checkpoints, {by}, {shield}")
        for warning in standing.warnings:
            say(f"  warning: {one_line(warning)}")
    for refusal in broken:
        say(f"warning: {one_line(str(refusal))}")
    return 0


def log(args: argparse.Namespace, settings: Settings) -> int:
    """List checkpoints, newest first."""
    found = find_session(settings, args.session, os.getcwd())
    with found.workspace.opened():
        checkpoints = found.workspace.instants.checkpoints(found.session.session, all_kinds=args.all)
    if args.json:
        print_json([_logged(one) for one in checkpoints])
        return 0
    known = {one.message for one in checkpoints}
    for one in checkpoints:
        unsure = f" ({one.unstable} not sure)" if one.unstable else ""
        pin = f" [{one.pin}]" if one.pin else ""
        kind = "" if one.kind is CheckpointKind.MESSAGE else f" {one.kind}"
        say(f"{one.message}  {format_iso(one.at)}{kind}{pin}  {one.files} files{unsure}  {one_line(one.prompt)}")
        if args.graph:
            say(
                f"    after {one.parent}"
                if one.parent in known
                else f"    after {one.parent or 'nothing'} (not listed)"
            )
    return 0


def _logged(one: Checkpoint) -> dict[str, Any]:
    return {
        "message": one.message,
        "session": one.session,
        "at": format_iso(one.at),
        "prompt": one.prompt,
        "files": one.files,
        "unstable": one.unstable,
        "kind": str(one.kind),
        "pin": one.pin,
        "parent": one.parent,
    }


def show(args: argparse.Namespace, settings: Settings) -> int:
    """Show what a checkpoint changed, or the bytes of one file at it."""
    message, colon, path = args.message.partition(":")
    found, checkpoint = find_checkpoint(settings, message, args.session, os.getcwd())
    with found.workspace.opened():
        if colon:
            return _show_file(found.workspace, checkpoint, os.fsencode(path))
        files = _changed(found.workspace, checkpoint, settings)
    if args.json:
        print_json({"message": checkpoint.message, "session": checkpoint.session, "files": files})
        return 0
    say(f"{checkpoint.message}  {format_iso(checkpoint.at)}  {one_line(checkpoint.prompt)}")
    for file in files:
        say(f"  {file['change']:8}  {one_line(file['path'])}  ({file['origin']}, {file['state']})")
    return 0


def _show_file(workspace: Workspace, checkpoint: Checkpoint, path: bytes) -> int:
    state = state_then(workspace, checkpoint, path)
    if state is None or state.kind is Kind.UNKNOWN:
        raise errors.Fault(path=show_path(path), why="nobody knows what it was at this message")
    if state.kind is not Kind.FILE or state.blob is None:
        raise errors.Fault(path=show_path(path), why=f"it was no file at this message but {state.kind}")
    try:
        content = workspace.blobs.get(state.blob)
    except Damaged as damaged:
        raise errors.Fault(path=show_path(path), why=f"its bytes are lost: {damaged}") from damaged
    sys.stdout.buffer.write(content)
    sys.stdout.flush()
    return 0


def state_then(workspace: Workspace, checkpoint: Checkpoint, path: bytes) -> State | None:
    """Give what a path was at a checkpoint, from the timeline or else from the agent's own history."""
    if checkpoint.timeline:
        row = workspace.ledger.row_at(path, checkpoint.at)
        gone = row is not None and workspace.ledger.gone_about(path, checkpoint.at)
        perhaps = was_perhaps_there(row, unwatched_since(workspace, checkpoint))
        if row is not None and row.state.kind is not Kind.UNKNOWN and not gone and not perhaps:
            return row.state
    told = {one.path: one.state for one in workspace.instants.imported(checkpoint.session, checkpoint.message)}
    return told.get(path)


def _changed(workspace: Workspace, checkpoint: Checkpoint, settings: Settings) -> list[dict[str, Any]]:
    """Give what changed since the checkpoint before, each path once with its last change."""
    if not checkpoint.timeline:
        return [
            {
                "path": show_path(one.path),
                "change": "imported",
                "origin": "tool",
                "size": one.state.size_bytes,
                "mode": oct(one.state.mode),
                "state": str(one.state.reason or one.state.kind),
            }
            for one in workspace.instants.imported(checkpoint.session, checkpoint.message)
        ]
    before = workspace.instants.previous(checkpoint.session, checkpoint.at)
    if before is None:
        return []
    people = people_of(workspace, settings)
    last: dict[bytes, Row] = dict(workspace.ledger.changed_between(before, checkpoint.at))
    files = []
    for path, row in sorted(last.items()):
        if row.ends_knowledge:
            continue
        old = workspace.ledger.state_at(path, before)
        origin = origin_of(
            row, after=-1, session=checkpoint.session, turns=people.turns, edits=people.edits.get(path, ())
        )
        files.append(
            {
                "path": show_path(path),
                "change": _change(old, row.state),
                "origin": str(origin if origin is not Origin.BEFORE else Origin.REWIND),
                "size": row.state.size_bytes,
                "mode": oct(row.state.mode),
                "state": str(row.state.reason or row.state.kind),
            }
        )
    return files


def _change(old: State | None, new: State) -> str:
    if new.kind is Kind.ABSENT:
        return "removed"
    if old is None or old.kind is Kind.ABSENT:
        return "created"
    return "changed"
