"""The entry point: arguments in, an exit code out."""

import argparse
import contextlib
import importlib
import io
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from sidecar import __version__
from sidecar.cli.output import refuse
from sidecar.clock import format_iso
from sidecar.errors import Fault, Refusal, UsageError, describe

# Each verb's room is imported only when it is asked for: start-up matters (a test looks at sys.modules).
ROOMS = {
    "watch": "watching",
    "attach": "watching",
    "status": "looking",
    "log": "looking",
    "show": "looking",
    "diff": "rewinding",
    "rewind": "rewinding",
    "undo": "rewinding",
    "pin": "keeping",
    "unpin": "keeping",
    "mark": "keeping",
    "check": "keeping",
    "demo": "demo",
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and takes no option by its first letters: `--a` may be two things one day."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise UsageError(what=f"{message} (see `{self.prog} --help`)")


def parser() -> argparse.ArgumentParser:  # noqa: PLR0915 - a list
    """Describe the command line."""
    top = _Parser(
        prog="sidecar",
        description="Keeps a full-file checkpoint for every message you send to a coding agent, and brings any back.",
    )
    top.add_argument("--version", action="version", version=f"sidecar {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=text, description=text)
        made.add_argument("--json", action="store_true", help="answer in JSON")
        return made

    watch = verb("watch", "follow every session whose workspace is DIR or lies below it, until interrupted")
    watch.add_argument("directory", nargs="?", default=".", metavar="DIR")
    watch.add_argument("--agent", help="only sessions of this agent")
    watch.add_argument("--profile", default="default", help="how many checkpoints a session has: short, default, long")

    attach = verb("attach", "follow given sessions, from any directory")
    attach.add_argument("target", metavar="TARGET", help="a session's id, its transcript, or a session directory")
    attach.add_argument("--workspace", metavar="DIR", help="where the session's files are, if not where it says")
    attach.add_argument("--once", action="store_true", help="catch up, checkpoint, leave")
    attach.add_argument("--profile", default="default", help="short, default or long")

    status = verb("status", "what is followed, by whom, and what is protected")
    status.add_argument("directory", nargs="?", default=None, metavar="DIR")

    log = verb("log", "checkpoints, newest first")
    log.add_argument("--session", metavar="S")
    log.add_argument("--graph", action="store_true", help="show which message follows which")
    log.add_argument("--all", action="store_true", help="baselines and before-rewind states, too")

    show = verb("show", "what a checkpoint changed; or the bytes of one file at it (MESSAGE:PATH)")
    show.add_argument("message", metavar="MESSAGE[:PATH]")
    show.add_argument("--session", metavar="S")

    diff = verb("diff", "what a rewind to a message would change now")
    diff.add_argument("message", metavar="MESSAGE")
    diff.add_argument("paths", nargs="*", metavar="PATH")
    diff.add_argument("--session", metavar="S")
    how = diff.add_mutually_exclusive_group()
    how.add_argument("--stat", action="store_true", help="counts (the default)")
    how.add_argument("--patch", action="store_true", help="a unified diff")

    rewind = verb("rewind", "bring the files of a message back")
    rewind.add_argument("message", metavar="MESSAGE")
    rewind.add_argument("paths", nargs="*", metavar="PATH", help="only these")
    rewind.add_argument("--session", metavar="S")
    rewind.add_argument("--files", action="store_true", help="files only (the default)")
    rewind.add_argument("--dry-run", action="store_true", help="show what it would do, and change nothing")
    rewind.add_argument("--all", action="store_true", help="also what was changed outside the session's turns")
    rewind.add_argument("--outside", action="store_true", help="also files outside the workspace")
    rewind.add_argument("--yes", action="store_true", help="do not ask")

    undo = verb("undo", "back to the state before the newest rewind not yet undone")
    undo.add_argument("--redo", action="store_true", help="forward again")
    undo.add_argument("--session", metavar="S")
    undo.add_argument("--dry-run", action="store_true")
    undo.add_argument("--yes", action="store_true", help="do not ask")

    pin = verb("pin", "keep a checkpoint beside the cap")
    pin.add_argument("message", metavar="MESSAGE")
    pin.add_argument("name", nargs="?", metavar="NAME")
    pin.add_argument("--session", metavar="S")
    unpin = verb("unpin", "let a pinned checkpoint count again")
    unpin.add_argument("name", metavar="NAME")
    mark = verb("mark", "make a checkpoint by hand")
    mark.add_argument("text", nargs="?", default="", metavar="TEXT")
    mark.add_argument("--session", metavar="S")

    check = verb("check", "prove the store's rules")
    check.add_argument("--repair", action="store_true", help="mend what can be mended without losing anything")
    verb("demo", "play a small session in a temporary directory and rewind it")
    return top


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Read the words; paths and names may stand before options and after them, which argparse alone does not take."""
    top = parser()
    args, rest = top.parse_known_args(given)
    words = [word for at, word in enumerate(rest) if word != "--" or "--" in rest[:at]]
    foreign = [word for at, word in enumerate(rest) if word.startswith("-") and "--" not in rest[: at + 1]]
    if not foreign and "paths" in args:
        args.paths = [*args.paths, *words]
    elif not foreign and args.verb == "pin" and args.name is None and len(words) == 1:
        (args.name,) = words
    elif rest:
        top.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end a rewind halfway
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        args = _parsed(given)
    except UsageError as refusal:
        verb = next((word for word in given if word in ROOMS), None)
        return refuse(refusal, _nothing_done(verb, given) if verb else {}, as_json="--json" in given)
    room = importlib.import_module(f"sidecar.cli.{ROOMS[args.verb]}")
    try:
        try:
            from sidecar.attach.settings import load_settings  # noqa: PLC0415

            return int(getattr(room, args.verb)(args, load_settings()))
        except BrokenPipeError:
            raise
        except OSError as error:
            name = error.filename
            path = os.fsdecode(name) if isinstance(name, (str, bytes)) else "sidecar"
            raise Fault(path=path, why=describe(error)) from error
    except Refusal as refusal:
        return refuse(refusal, _nothing_done(args.verb, given), as_json=args.json)
    except BrokenPipeError:  # whoever read the answer has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _nothing_done(verb: str, given: Sequence[str]) -> dict[str, Any]:
    """Give a verb's answer with all its keys, for when it was refused."""
    room = importlib.import_module(f"sidecar.cli.{ROOMS[verb]}")
    answer: dict[str, Any] = dict(room.EMPTY[verb])
    if "dryRun" in answer:
        answer["dryRun"] = verb == "diff" or "--dry-run" in given
    if "event" in answer:  # one of a stream
        answer["at"] = format_iso(time.time_ns())
    return answer


if __name__ == "__main__":
    raise SystemExit(main())
