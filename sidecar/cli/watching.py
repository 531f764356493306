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
from sidecar.attach import owner
from sidecar.attach.loop import Sidecar
from sidecar.attach.settings import Settings, require_enabled
from sidecar.cli.output import one_line, print_json, say, warn
from sidecar.clock import SECOND
from sidecar.fs.read import ignore_sigio
from sidecar.model import SessionFound
from sidecar.store.home import open_home

EMPTY: dict[str, Any] = {verb: {"event": "error"} for verb in ("watch", "attach")}
SWITCH_S = 0.0005  # the thread that hears events waits no longer for the one that works: their order depends on it
DISCOVER_NS = 5 * SECOND  # new sessions are looked for at least this often


def watch(args: argparse.Namespace, settings: Settings) -> int:
    """Follow every session of a workspace, those that start later too."""
    require_enabled(settings)
    directory = _existing(args.directory)
    agents = _agents(args.agent)
    cap = settings.cap(args.profile)

    def sessions() -> list[tuple[Agent, SessionFound, str]]:
        return [
            (agent, found, found.workspace)
            for agent in agents
            for found in agent.find_sessions(settings.environ)
            if found.workspace is not None and _lies_in(found.workspace, directory)
        ]

    _refuse_if_all_owned([found for _, found, _ in sessions()])
    sidecar = Sidecar(settings, _announcer(args), cap=cap)
    stop = _stop_on_signals(sidecar)
    try:
        sidecar.enter(directory, _progress(args))
        _follow_all(sidecar, settings, agents, sessions, stop)
    finally:
        sidecar.close()
    return 0


def attach(args: argparse.Namespace, settings: Settings) -> int:
    """Follow given sessions, from any directory."""
    require_enabled(settings)
    cap = settings.cap(args.profile)

    def sessions() -> list[tuple[Agent, SessionFound, str]]:
        try:
            return _placed(_targets(args, settings), args)
        except errors.Refusal:
            return []  # it is not there now: it may come back

    first = _placed(_targets(args, settings), args)
    for _, _, place in first:
        _existing(place)
    _refuse_if_all_owned([session for _, session, _ in first])
    sidecar = Sidecar(settings, _announcer(args), cap=cap, watching=not args.once)
    stop = _stop_on_signals(sidecar)
    try:
        left = _follow_each(sidecar, first, {})
        if left and not _follows_any(sidecar):
            raise left[min(left)]
        if not args.once:
            _follow_all(sidecar, settings, list(registry().values()), sessions, stop)
    finally:
        sidecar.close()
    return 0


def _follow_all(
    sidecar: Sidecar,
    settings: Settings,
    agents: list[Agent],
    sessions: Callable[[], list[tuple[Agent, SessionFound, str]]],
    stop: Callable[[], bool],
) -> None:
    """Follow what there is, and go on with it and with what comes later until told to stop."""
    left: dict[str, errors.Refusal] = {}

    def discover() -> None:
        for agent in agents:
            sidecar.expect(agent.nurseries(settings.environ))
        _follow_each(sidecar, sessions(), left)

    discover()
    if left and not _follows_any(sidecar) and all(isinstance(refusal, errors.Busy) for refusal in left.values()):
        raise left[min(left)]
    sidecar.run(stop, _when_expected(sidecar, settings, discover))


def _follow_each(
    sidecar: Sidecar, sessions: list[tuple[Agent, SessionFound, str]], left: dict[str, errors.Refusal]
) -> dict[str, errors.Refusal]:
    """Attach the sessions that are not followed yet, and those of others once these are gone; give the rest.

    `left`: the ones refused before, each told of once.
    """
    for agent, found, directory in sessions:
        before = left.get(found.session)
        if any(found.session in room.followers for room in sidecar.rooms.values()):
            continue
        if before is not None and (not isinstance(before, errors.Busy) or _is_owned(found)):
            continue
        try:
            sidecar.attach(agent, found, directory)
            left.pop(found.session, None)
        except errors.Refusal as refused:
            left[found.session] = refused
    if _follows_any(sidecar):
        for refusal in left.values():
            sidecar.warn("owner" if isinstance(refusal, errors.Busy) else "unprotected", str(refusal))
    return left


def _follows_any(sidecar: Sidecar) -> bool:
    return any(room.followers for room in sidecar.rooms.values())


def _is_owned(found: SessionFound) -> bool:
    home = open_home(create=False)
    return home is not None and owner.session_owner(home, found.session) is not None


def _refuse_if_all_owned(sessions: list[SessionFound]) -> None:
    """Refuse (Busy) before anything is opened or scanned; whoever slips in between is met later."""
    home = open_home(create=False)
    owners = [owner.session_owner(home, found.session) if home is not None else None for found in sessions]
    if owners and all(owners) and owners[0] is not None:
        raise errors.Busy(what=f"Session {sessions[0].session}", pid=owners[0].pid)


def _targets(args: argparse.Namespace, settings: Settings) -> list[tuple[Agent, SessionFound]]:
    """Find the sessions that a TARGET means: a path of any agent's, or an id.

    Refuses what can never be followed, and with `--once` what cannot be followed now.
    """
    text, agents = args.target, list(registry().values())
    if os.path.sep in text or os.path.lexists(text):
        try:
            os.stat(text)
        except OSError as error:
            raise errors.NoTranscript(path=text, why=errors.describe(error)) from error
        targets = [(agent, found) for agent in agents for found in agent.find_in(text)]
    else:
        targets = [_by_id(text, agents, settings)]
    if args.once and not targets:
        raise errors.NoTranscript(path=text, why="it holds no transcript")
    good, refused = [], []
    for agent, found in targets:
        why = _why_not(agent, found, args)
        if why is None:
            good.append((agent, found))
        else:
            refused.append(errors.NoTranscript(path=found.transcript, why=why))
    if refused and not good:
        raise refused[0]
    return good


def _placed(
    targets: list[tuple[Agent, SessionFound]], args: argparse.Namespace
) -> list[tuple[Agent, SessionFound, str]]:
    """Give the sessions of which it is known where they work; the others have written nothing yet."""
    placed = [(agent, found, args.workspace or found.workspace) for agent, found in targets]
    return [(agent, found, place) for agent, found, place in placed if place is not None]


def _by_id(text: str, agents: list[Agent], settings: Settings) -> tuple[Agent, SessionFound]:
    refusals: list[errors.Refusal] = []
    for agent in agents:
        try:
            return agent, agent.find_by_id(text, settings.environ)
        except errors.NoSession as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _why_not(agent: Agent, found: SessionFound, args: argparse.Namespace) -> str | None:
    """Say why a transcript cannot be followed; one that is still to be written is waited for."""
    try:
        with open(found.transcript, "rb") as file:
            empty = not file.read(1)
    except FileNotFoundError:
        empty = True
    except OSError as error:
        return errors.describe(error)
    if empty:
        return "nothing is written in it yet" if args.once else None
    if not agent.holds_records(found.transcript):
        return "it holds no record of a session"
    if found.workspace is None and args.workspace is None:
        return "no record says where the session works; pass --workspace"
    return None


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
