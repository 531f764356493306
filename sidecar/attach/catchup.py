"""Bring a workspace's timeline up to now without a watcher: the transcripts to their end, then the whole tree."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from sidecar.agents import registry
from sidecar.agents.finding import home_of
from sidecar.attach.digest import Digest, DigestOutcome, News
from sidecar.attach.follower import Follower, Window
from sidecar.attach.history import import_history
from sidecar.attach.settings import Settings
from sidecar.attach.station import Station
from sidecar.attach.wide import remember_mode, remembered_mode, unsafe_root
from sidecar.capture.apply import Capturer
from sidecar.capture.ignore import IgnoreRules, Verdict, excluded_within, outer_files
from sidecar.capture.named import NamedCapturer
from sidecar.capture.place import Mark
from sidecar.errors import NoTranscript, NoWorkspace
from sidecar.fs.beneath import Blocked, Root
from sidecar.fs.places import Places
from sidecar.fs.read import Whole, read_whole
from sidecar.model import SessionFound, ToolEdit, UserMessage
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace


def make_capturer(workspace: Workspace, places: Places, settings: Settings) -> Capturer:
    """Make the one that reads a workspace's files, with the rules of what it leaves out.

    Where the workspace is remembered as too wide it reads only what tool calls name.
    """
    ceiling, root = settings.ignore.limits.ignore_file_bytes, places.root.path

    def read(path: bytes) -> bytes | None:
        try:
            found = read_whole(places.root, path, ceiling_bytes=ceiling, attempts=2)
        except (OSError, Blocked):
            return None
        return found.content if isinstance(found, Whole) else None

    def read_above(path: bytes) -> bytes | None:
        folder, _, name = path.rpartition(b"/")
        try:
            with Root.open(folder or b"/") as above:
                found = read_whole(above, name, ceiling_bytes=ceiling, attempts=2)
        except (OSError, Blocked, NoWorkspace):
            return None
        return found.content if isinstance(found, Whole) else None

    excluded = never_captured(workspace, places, settings)
    rules = IgnoreRules(settings.ignore, read, excluded, outer_files(root, read_above))
    kind = Capturer if remembered_mode(workspace) is None else NamedCapturer
    capturer = kind(workspace, places, rules, settings.checkpoints, settings.clock)
    capturer.named.update(workspace.turns.edits())
    return capturer


def never_captured(workspace: Workspace, places: Places, settings: Settings) -> frozenset[bytes]:
    """Give the private places in the words of the workspace's ignore rules."""
    return excluded_within(places.root.path, private_places(workspace, settings))


def private_places(workspace: Workspace, settings: Settings) -> set[bytes]:
    """Give the directories that are never part of a workspace: the store, the agents', the transcripts (case C14)."""
    places = {workspace.home}
    for agent in registry().values():
        places.update(agent.private_places(settings.environ))
    root = os.path.realpath(workspace.root)
    for row in workspace.instants.sessions():
        folder = os.path.realpath(os.path.dirname(row.transcript))
        known = registry().get(row.agent)
        if folder != root:
            places.add(folder)
        else:  # only what is the session's own: its transcript, and the directory that goes with it
            stem = os.path.splitext(row.transcript)[0]
            companion = known.table.store.companion if known is not None else ""
            places.add(row.transcript)
            places.update([os.path.join(folder, companion.format(session=os.path.basename(stem)))] if companion else [])
        # An agent's home that the environment does not name, but that the transcript lies in.
        home = home_of(row.transcript, known.table.store.transcripts) if known is not None else None
        places.update({home} if home is not None and os.path.realpath(home) != root else ())
    return {os.fsencode(os.path.realpath(place)) for place in places}


def found_again(row: SessionRow) -> SessionFound | None:
    """Find a session that was attached before, by its transcript."""
    agent = registry().get(row.agent)
    if agent is None:
        return None
    try:
        return next((found for found in agent.find_in(row.transcript) if found.session == row.session), None)
    except NoTranscript:
        return None  # something else lies there now: what is known stands without it


def digest_news(
    station: Station, digest: Digest, follower: Follower, news: Sequence[News], *, evict: bool = True
) -> Callable[[], DigestOutcome]:
    """Work out the messages among news, mark their instants, and give what writes all of it down."""
    workspace, rules = station.workspace, station.capturer.rules
    told = import_history(workspace, digest, follower, news, rules, station.policy.batch.bytes)
    messages = digest.messages([_as_heard(item, follower) for item in news], lambda uuid: uuid in told)
    for new in messages:
        if new.standing.timeline:
            window, reading = follower.window_of(new.message.offset), new.reading
            mark = Mark(new.at, window.first, window.last, reading.written_by, reading.newest)
            station.add_mark(digest.session.session, new.message.uuid, mark)
    for item in news:
        if isinstance(item.event, ToolEdit):
            path = digest.place_path(item.event.path)
            if rules.verdict(path, is_directory=False) is not Verdict.NEVER:
                station.name(path)
    return lambda: digest.write(news, messages, evict=evict)


def _as_heard(item: News, follower: Follower) -> News:
    """Let the moment at which a message's append was heard of say when it was written."""
    stamp = follower.window_of(item.event.offset) if isinstance(item.event, UserMessage) else Window()
    if stamp.appended_at is None:
        return item
    by = min(stamp.appended_at, item.reading.written_by or stamp.appended_at)
    reading = replace(item.reading, written_by=by, newest=item.reading.newest or stamp.exact, heard=True)
    return replace(item, reading=reading)


def catch_up(workspace: Workspace, places: Places, settings: Settings, *, evict: bool = True) -> None:
    """Read every known session's transcript to its end and compare the whole tree with what is known.

    Of a workspace that is too wide: only the paths that tool calls name.
    Not `evict`: newer messages drop no older one yet, which may be what somebody is about to go back to.
    """
    why = unsafe_root(workspace.root, settings)
    if why is not None:
        remember_mode(workspace, why, settings.clock.now())
    station = Station(workspace, make_capturer(workspace, places, settings), settings.checkpoints, settings.clock)
    station.budget.free = True
    now = settings.clock.now()
    writers = []
    for row in workspace.instants.sessions():
        found = found_again(row)
        if found is None:
            continue
        follower = Follower(registry()[row.agent], found, settings.clock, lambda _code, _text: None)
        digest = Digest(workspace, row, settings.checkpoints)
        writers.append(digest_news(station, digest, follower, follower.poll(), evict=evict))

    def finish() -> None:
        for write in writers:
            write()

    last = workspace.ledger.coverage_end()
    station.survey(covered=last is None, proved_until=now if last is None else last, finish=finish)
    station.begin_coverage(now)
