"""The verbs that stay: `watch` and `attach`."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from sidecar import errors
from sidecar.agents import registry
from sidecar.agents.base import Agent
from sidecar.attach.loop import Sidecar
from sidecar.attach.settings import Settings, require_enabled
from sidecar.cli.output import one_line, print_json, say, warn
from sidecar.clock import SECOND
from sidecar.fs.read import ignore_sigio
from sidecar.model import SessionFound

EMPTY: dict[str, Any] = {verb: {"event": "error"} for verb in ("watch", "attach")}
SWITCH_S = 0.0005  # the thread that hears events waits no longer for the one that works: their order depends on it
DISCOVER_NS = 5 * SECOND  # new sessions are looked for at least this often


def watch(args: argparse.Namespace, settings: Settings) -> int:
    """Follow every session of a workspace, those that start later too."""
    require_enabled(settings)
    directory = _existing(args.directory)
    agents = _agents(args.agent)
    sidecar = Sidecar(settings, _announcer(args), cap=settings.cap(args.profile))
    stop = _stop_on_signals(sidecar)
    try:
        sidecar.enter(directory, _progress(args))
        refused: set[str] = set()

        def discover() -> None:
            for agent in agents:
                sidecar.expect(agent.nurseries(settings.environ))
                for found in agent.find_sessions(settings.environ):
                    if found.workspace is not None and _lies_in(found.workspace, directory):
                        _follow(sidecar, agent, found, found.workspace, refused)

        discover()
        _refuse_if_all_busy(sidecar, refused)
        sidecar.run(stop, _when_expected(sidecar, settings, discover))
    finally:
        sidecar.close()
    return 0


def attach(args: argparse.Namespace, settings: Settings) -> int:
    """Follow given sessions, from any directory."""
    require_enabled(settings)
    cap = settings.cap(args.profile)
    found = _targets(args.target, settings)
    if args.once and not found:
        raise errors.NoTranscript(path=args.target, why="it holds no transcript")
    sidecar = Sidecar(settings, _announcer(args), cap=cap, watching=not args.once)
    stop = _stop_on_signals(sidecar)
    try:
        for agent, session in found:
            sidecar.attach(agent, session, _workspace_of(session, args.workspace))
        if args.once:
            return 0
        refused: set[str] = set()

        def discover() -> None:
            for agent in registry().values():
                sidecar.expect(agent.nurseries(settings.environ))
            for agent, session in _targets(args.target, settings):
                place = args.workspace or session.workspace
                if place is not None:
                    _follow(sidecar, agent, session, place, refused)

        sidecar.run(stop, _when_expected(sidecar, settings, discover))
    finally:
        sidecar.close()
    return 0


def _follow(sidecar: Sidecar, agent: Agent, found: SessionFound, directory: str, refused: set[str]) -> None:
    """Attach a session that is not followed yet; one that cannot be is told of once and left."""
    if found.session in refused or any(found.session in room.followers for room in sidecar.rooms.values()):
        return
    try:
        sidecar.attach(agent, found, directory)
    except errors.Refusal as refusal:
        refused.add(found.session)
        sidecar.warn("owner" if isinstance(refusal, errors.Busy) else "unprotected", str(refusal))


def _refuse_if_all_busy(sidecar: Sidecar, refused: set[str]) -> None:
    if refused and not any(room.followers for room in sidecar.rooms.values()):
        raise errors.Busy(what=f"Session {sorted(refused)[0]}", pid="(another)")


def _targets(text: str, settings: Settings) -> list[tuple[Agent, SessionFound]]:
    """Find the sessions that a TARGET means: a path of any agent's, or an id."""
    agents = list(registry().values())
    if os.path.sep in text or os.path.lexists(text):
        if not os.path.lexists(text):
            raise errors.NoTranscript(path=text, why="there is nothing")
        return [(agent, found) for agent in agents for found in agent.find_in(text)]
    refusals: list[errors.Refusal] = []
    for agent in agents:
        try:
            return [(agent, agent.find_by_id(text, settings.environ))]
        except errors.NoSession as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _workspace_of(found: SessionFound, given: str | None) -> str:
    place = given or found.workspace
    if place is None:
        raise errors.NoTranscript(path=found.transcript, why="no record says where the session works; pass --workspace")
    return _existing(place)


def _existing(directory: str) -> str:
    path = os.path.realpath(directory)
    if not os.path.isdir(path):
        why = "it is not a directory" if os.path.lexists(path) else "it is not there"
        raise errors.NoWorkspace(path=directory, why=why)
    return path


def _lies_in(place: str, directory: str) -> bool:
    real = os.path.realpath(place)
    return real == directory or real.startswith(directory.rstrip("/") + "/")


def _agents(name: str | None) -> list[Agent]:
    known = registry()
    if name is None:
        return list(known.values())
    if name not in known:
        raise errors.UsageError(what=f"There is no agent {name}; known are {', '.join(sorted(known))}")
    return [known[name]]


def _when_expected(sidecar: Sidecar, settings: Settings, action: Callable[[], None]) -> Callable[[], None]:
    """Look for new sessions when something happened where they show themselves, and now and then all the same."""
    due = settings.clock.now() + DISCOVER_NS

    def maybe() -> None:
        nonlocal due
        if sidecar.expecting or settings.clock.now() >= due:
            sidecar.expecting = False
            action()
            due = settings.clock.now() + DISCOVER_NS

    return maybe


def _stop_on_signals(sidecar: Sidecar) -> Callable[[], bool]:
    ignore_sigio()
    sys.setswitchinterval(SWITCH_S)
    stopped = threading.Event()

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        if sidecar.watcher is not None:
            sidecar.watcher.wake()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped.is_set


def _announcer(args: argparse.Namespace) -> Callable[[dict[str, Any]], None]:
    return print_json if args.json else _tell


def _tell(event: dict[str, Any]) -> None:
    match event["event"]:
        case "attached":
            say(f"Following {event['session']} ({event['agent']}) in {one_line(event['workspace'])}")
        case "ready":
            say(f"Ready: {event['files']} files, {event['bytes']} bytes known after {event['ms']} ms")
        case "checkpoint":
            unsure = f", {event['unstable']} not sure" if event["unstable"] else ""
            say(f"Checkpoint {event['message']}: {event['files']} files changed{unsure}")
        case "evicted":
            say(f"Dropped {event['message']}: {event['blobs']} contents, {event['bytes']} bytes given back")
        case "warning":
            warn(f"Warning ({event['code']}): {event['text']}")
    sys.stdout.flush()


def _progress(args: argparse.Namespace) -> Callable[[int], None]:
    if args.json or not sys.stdout.isatty():
        return lambda _files: None
    from rich.console import Console  # noqa: PLC0415 - only where somebody is looking

    status = Console().status("Looking at the workspace")
    status.start()

    def progress(files: int) -> None:
        status.update(f"Looking at the workspace: {files} files")

    import atexit  # noqa: PLC0415

    atexit.register(status.stop)
    return progress
