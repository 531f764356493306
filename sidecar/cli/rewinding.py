"""The verbs that bring files back: `rewind`, `undo`, and `diff`, which only shows."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from sidecar import errors
from sidecar.attach.rewinding import Done, Prepared, Request, Rewinding, is_partial
from sidecar.attach.settings import Settings, require_enabled
from sidecar.cli.output import is_terminal, one_line, print_json, say, show_path, warn
from sidecar.cli.resolve import Found, find_checkpoint, find_in, find_session
from sidecar.model import Checkpoint
from sidecar.rewind.apply import RewindOutcome
from sidecar.rewind.diff import patch
from sidecar.rewind.plan import RewindPlan
from sidecar.store.blobs import Damaged
from sidecar.store.rewinds import RewindRow

NOTHING_DONE: dict[str, Any] = {
    "canRewind": False,
    "message": None,
    "session": None,
    "dryRun": False,
    "filesChanged": [],
    "insertions": 0,
    "deletions": 0,
    "skippedLinks": [],
    "restored": [],
    "removed": [],
    "kept": [],
    "failed": [],
    "conversation": None,
    "undo": None,
    "scanned": False,
    "reason": None,
    "error": None,
    "code": None,
}
EMPTY: dict[str, Any] = dict.fromkeys(("rewind", "undo", "diff"), NOTHING_DONE)
NOT_UNDONE = "Only files are rewound: pushes, messages, databases, running processes and linked paths are as they were."
CONVERSATION = "The conversation still contains the later messages."


def rewind(args: argparse.Namespace, settings: Settings) -> int:
    """Bring the files of a message back."""
    require_enabled(settings)
    found, checkpoint = _find(args, settings)
    with found.workspace.opened():
        if args.dry_run:
            return _show_only(Rewinding(found.workspace, settings), _asked(args, settings, found, checkpoint), args)
        assert checkpoint is not None
        _require_consent(args)
        request = Request(checkpoint, _only(args.paths, found), args.all, args.outside)

        def note(done: Done) -> None:
            if done.undo is not None:
                now = settings.clock.now()
                found.workspace.rewinds.push(checkpoint.session, checkpoint.message, done.undo, now)

        return _carry_out(Rewinding(found.workspace, settings), request, args, note)


def undo(args: argparse.Namespace, settings: Settings) -> int:
    """Go back to the state before the newest rewind not yet undone, or forward again."""
    require_enabled(settings)
    found = find_session(settings, args.session, os.getcwd())
    with found.workspace.opened():
        row = _on_the_stack(found, args)
        target = row.redo if args.redo else row.before
        checkpoint = found.workspace.instants.get(row.session, target or "")
        if checkpoint is None:
            raise errors.NoCheckpoint(reason="evicted")
        request = Request(checkpoint)
        if args.dry_run:
            return _show_only(Rewinding(found.workspace, settings), lambda: request, args)
        _require_consent(args)

        def note(done: Done) -> None:
            rewinds, state, now = found.workspace.rewinds, done.undo or checkpoint.message, settings.clock.now()
            if args.redo:
                rewinds.mark_redone(row.id, state, now)
            else:
                rewinds.mark_undone(row.id, state, now)

        return _carry_out(Rewinding(found.workspace, settings), request, args, note)


def diff(args: argparse.Namespace, settings: Settings) -> int:
    """Show what a rewind would change now."""
    require_enabled(settings)
    args.dry_run, args.all, args.outside = True, True, True
    found, checkpoint = _find(args, settings)
    with found.workspace.opened():
        return _show_only(Rewinding(found.workspace, settings), _asked(args, settings, found, checkpoint), args)


def _find(args: argparse.Namespace, settings: Settings) -> tuple[Found, Checkpoint | None]:
    """Find what is to be brought back. None, in a dry run: a prompt of which nobody took note yet."""
    try:
        return find_checkpoint(settings, args.message, args.session, os.getcwd())
    except errors.NoCheckpoint as refusal:
        if refusal.parts["reason"] != "unprotected":
            raise
        try:
            found = find_session(settings, args.session, os.getcwd())
        except errors.NoSession:
            raise refusal from None
    if args.dry_run:
        return found, None
    with found.workspace.opened():
        _require_consent(args)
        Rewinding(found.workspace, settings).look()  # a rewind would, and then the prompt is known
    return find_checkpoint(settings, args.message, args.session, os.getcwd())


def _asked(
    args: argparse.Namespace, settings: Settings, found: Found, checkpoint: Checkpoint | None
) -> Callable[[], Request]:
    """Give what makes the request, once everything was looked at."""

    def asked() -> Request:
        target = checkpoint or find_in(found, args.message, args.session, settings)
        return Request(target, _only(args.paths, found), args.all, args.outside)

    return asked


def _on_the_stack(found: Found, args: argparse.Namespace) -> RewindRow:
    rewinds = found.workspace.rewinds
    session = found.session.session if args.session else rewinds.newest_session("undone" if args.redo else "done")
    row = None
    if session is not None:
        row = rewinds.last_undone(session) if args.redo else rewinds.last_done(session)
    if row is None:
        raise errors.NothingToUndo(what="redo" if args.redo else "undo")
    return row


def _only(paths: list[str], found: Found) -> tuple[bytes, ...]:
    """Give path arguments relative to the workspace; they are spelled relative to the current directory."""
    root = os.fsencode(found.workspace.root)
    here = os.fsencode(os.path.realpath(os.getcwd()))
    base = here if here == root or here.startswith(root.rstrip(b"/") + b"/") else root
    named = []
    if "" in paths:  # a variable that was never set: it is not the whole workspace that was meant
        raise errors.UsageError(what="An empty path names nothing")
    for path in paths:
        absolute = os.path.normpath(os.path.join(base, os.fsencode(path)))
        if absolute == root:
            named.append(b"")
        elif absolute.startswith(root.rstrip(b"/") + b"/"):
            named.append(absolute[len(root.rstrip(b"/")) + 1 :])
        else:
            named.append(absolute)
    return tuple(named)


def _require_consent(args: argparse.Namespace) -> None:
    if not args.yes and (args.json or not is_terminal()):
        raise errors.NeedsYes


def _show_only(rewinding: Rewinding, asked: Callable[[], Request], args: argparse.Namespace) -> int:
    patches: list[str] = []

    def show(prepared: Prepared) -> None:
        if getattr(args, "patch", False):
            for action in prepared.plan.actions:
                try:
                    now, then = rewinding.content(action.now), rewinding.content(action.then)
                except Damaged as damaged:
                    patches.append(f"{one_line(show_path(action.path))}: {damaged}\n")
                    continue
                if now != then:
                    patches.append(patch(now, then, show_path(action.path)))

    request, prepared = rewinding.rehearse(asked, show)
    if args.json:
        print_json(_as_json(request.checkpoint, prepared, _of_plan(prepared.plan), dry=True, undo=None))
    elif patches:
        say("".join(patches).rstrip("\n"))
    else:
        _print_plan(prepared, request.checkpoint)
    return 3 if is_partial(_of_plan(prepared.plan)) else 0


def _carry_out(rewinding: Rewinding, request: Request, args: argparse.Namespace, note: Any) -> int:
    def confirm(prepared: Prepared) -> bool:
        if args.yes:
            return True
        _print_plan(prepared, request.checkpoint)
        try:
            return input("Go ahead? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    done = rewinding.carry_out(request, note, confirm)
    if done is None:
        say("Nothing was changed.")
        return 1
    checkpoint, outcome = request.checkpoint, done.outcome
    code = 3 if is_partial(outcome) else 0
    if args.json:
        print_json(_as_json(checkpoint, done.prepared, outcome, dry=False, undo=done.undo))
        return code
    if code == 0:
        say(f"Files rewound to state at message {checkpoint.message}")
    _print_outcome(done, outcome)
    return code


def _of_plan(plan: RewindPlan) -> RewindOutcome:
    return RewindOutcome(list(plan.restored), list(plan.removed), list(plan.kept))


def _as_json(
    checkpoint: Checkpoint, prepared: Prepared, outcome: RewindOutcome, *, dry: bool, undo: str | None
) -> dict[str, Any]:
    changed = {*outcome.restored, *outcome.removed}
    return {
        **NOTHING_DONE,
        "canRewind": True,
        "message": checkpoint.message,
        "session": checkpoint.session,
        "dryRun": dry,
        "filesChanged": [show_path(path) for path in prepared.plan.files_changed if path in changed],
        "insertions": prepared.insertions,
        "deletions": prepared.deletions,
        "skippedLinks": [show_path(path) for path in prepared.plan.skipped_links],
        "restored": sorted(show_path(path) for path in outcome.restored),
        "removed": sorted(show_path(path) for path in outcome.removed),
        "kept": [{"path": show_path(path), "reason": str(reason)} for path, reason in sorted(outcome.kept)],
        "failed": [{"path": show_path(path), "error": error} for path, error in sorted(outcome.failed)],
        "undo": undo,
        "scanned": prepared.scanned,
    }


def _print_plan(prepared: Prepared, checkpoint: Checkpoint) -> None:
    plan = prepared.plan
    say(f"Going back to {checkpoint.message} ({one_line(checkpoint.prompt) or checkpoint.kind}) would:")
    for path in plan.restored:
        say(f"  restore  {one_line(show_path(path))}")
    for path in plan.removed:
        say(f"  remove   {one_line(show_path(path))}")
    _print_left(list(plan.kept), plan.skipped_links)
    say(
        f"  {len(plan.files_changed)} files, {prepared.insertions} lines added, {prepared.deletions} taken away. "
        "The conversation is not changed."
    )


def _print_left(kept: list[tuple[bytes, Any]], links: tuple[bytes, ...]) -> None:
    for path, reason in sorted(kept):
        say(f"  keep     {one_line(show_path(path))}  ({reason})")
    for path in links:
        say(f"  skip     {one_line(show_path(path))}  (link)")


def _print_outcome(done: Done, outcome: RewindOutcome) -> None:
    if done.prepared.recovered is not None:
        warn(f"An interrupted rewind was put in order first ({done.prepared.recovered} paths put back).")
    say(f"{len(outcome.restored)} restored, {len(outcome.removed)} removed. {CONVERSATION}")
    _print_left(outcome.kept, done.prepared.plan.skipped_links)
    for path, error in sorted(outcome.failed):
        warn(f"{one_line(show_path(path))}: {error}")
    say(NOT_UNDONE)
    if done.undo is not None:
        say("`sidecar undo` takes this back.")
