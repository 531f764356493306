"""The verbs that keep: `pin`, `unpin`, `mark`, `check`."""

import argparse
import os
import uuid
from typing import Any

from sidecar import errors
from sidecar.attach.marking import make_mark
from sidecar.attach.settings import Settings, require_enabled
from sidecar.checkpoint.apply import enforce_caps
from sidecar.cli.output import one_line, print_json, say
from sidecar.cli.resolve import find_checkpoint, find_session
from sidecar.ids import BASELINE, LATEST, may_be_message

EMPTY: dict[str, Any] = {
    "pin": {"message": None, "name": None},
    "unpin": {"message": None, "name": None},
    "mark": {"message": None, "name": None},
    "check": {"ok": False, "checkpoints": 0, "versions": 0, "blobs": 0, "bytes": 0, "findings": [], "repaired": []},
}


def pin(args: argparse.Namespace, settings: Settings) -> int:
    """Keep a checkpoint beside the cap, under a name."""
    found, checkpoint = find_checkpoint(settings, args.message, args.session, os.getcwd())
    with found.workspace.opened():
        name = args.name or checkpoint.message[:8]
        ids = {uuid for _, uuid in found.workspace.instants.find(name)} if may_be_message(name) else set()
        if not name.strip() or not name.isprintable() or name in (LATEST, BASELINE) or ids - {checkpoint.message}:
            raise errors.UsageError(what=f"{name!r} cannot name a pin")
        taken = found.workspace.instants.pinned(name)
        if taken is not None and (taken.session, taken.message) != (checkpoint.session, checkpoint.message):
            raise errors.UsageError(what=f"The pin {name} is on message {taken.message} already")
        with found.workspace.database.transaction():
            found.workspace.instants.pin(checkpoint.session, checkpoint.message, name)
    return _answer(args, checkpoint.message, name, f"Message {checkpoint.message} is kept as {name}.")


def unpin(args: argparse.Namespace, settings: Settings) -> int:
    """Let a pinned checkpoint count against the cap again; if it is beyond it, it goes."""
    found, checkpoint = find_checkpoint(settings, args.name, None, os.getcwd())
    with found.workspace.opened():
        if checkpoint.pin != args.name:
            raise errors.UsageError(what=f"There is no pin {args.name}")
        row = found.workspace.instants.session(checkpoint.session)
        with found.workspace.database.transaction():
            found.workspace.instants.pin(checkpoint.session, checkpoint.message, None)
            if row is not None:
                keep = settings.checkpoints.limits.before_rewind
                enforce_caps(found.workspace, checkpoint.session, cap=row.cap, before_rewinds=keep)
        found.workspace.give_back()
    return _answer(args, checkpoint.message, args.name, f"The pin {args.name} is gone.")


def mark(args: argparse.Namespace, settings: Settings) -> int:
    """Make a checkpoint by hand."""
    require_enabled(settings)
    found = find_session(settings, args.session, os.getcwd())
    with found.workspace.opened():
        message = str(uuid.uuid4())
        make_mark(found.workspace, found.session, message, args.text, settings)
    return _answer(args, message, args.text or None, f"Checkpoint {message}")


def check(args: argparse.Namespace, settings: Settings) -> int:
    """Prove the store's rules."""
    from sidecar.store.check import check_home  # noqa: PLC0415 - no other verb of this room needs it

    total: dict[str, Any] = {**EMPTY["check"], "ok": True, "findings": [], "repaired": []}
    for outcome in check_home(settings.checkpoints, repair=args.repair):
        total["ok"] = total["ok"] and outcome.ok
        for key in ("checkpoints", "versions", "blobs", "bytes"):
            total[key] += getattr(outcome, key)
        total["findings"] += [{"code": one.code, "what": one.what} for one in outcome.findings]
        total["repaired"] += list(outcome.repaired)
    if args.json:
        print_json(total)
    else:
        for finding in total["findings"]:
            say(f"{finding['code']}: {one_line(finding['what'])}")
        for repaired in total["repaired"]:
            say(f"mended: {one_line(repaired)}")
        state = "All is well" if total["ok"] else f"{len(total['findings'])} findings"
        say(f"{state}: {total['checkpoints']} checkpoints, {total['versions']} versions, {total['blobs']} contents")
    return 0 if total["ok"] else 1


def _answer(args: argparse.Namespace, message: str, name: str | None, text: str) -> int:
    if args.json:
        print_json({"message": message, "name": name})
    else:
        say(one_line(text))
    return 0
