"""What the records of one session mean for its workspace: messages, turns, named paths, the agent's own history.

`messages` is worked out before anything is written, because changes are placed among them; `write` belongs inside the
transaction that commits those changes.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.attach.paths import relative_to
from sidecar.checkpoint.apply import Evicted, close_message, enforce_caps, remember_message
from sidecar.checkpoint.plan import Reading, Standing, Watching, appended_live, instant_of, standing_of
from sidecar.clock import MS
from sidecar.model import Activity, Event, HistoryRecord, ToolEdit, TurnEnd, UserMessage
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class News:
    """One event of a transcript, and how it came to us."""

    event: Event
    reading: Reading
    subagent: bool


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A user message that was not known, and the instant it stands for."""

    message: UserMessage
    at: int
    standing: Standing
    reading: Reading


@dataclass(frozen=True, slots=True)
class Closed:
    """A checkpoint that is committed."""

    session: str
    message: str
    files: int
    unstable: int


@dataclass(frozen=True, slots=True)
class DigestOutcome:
    """What a batch of records led to."""

    closed: tuple[Closed, ...]
    evicted: tuple[Evicted, ...]


class Digest:
    """The meaning of one session's records."""

    def __init__(self, workspace: Workspace, session: SessionRow, policy: CheckpointPolicy) -> None:
        self.workspace = workspace
        self.session = session
        self.policy = policy
        self._cwd = os.fsencode(session.cwd)
        self._root = os.fsencode(workspace.root)
        self._last_instant: int | None = None
        self._unheeded: TurnEnd | None = None  # the last one that found no open turn
        self.unprotected = False  # nobody captures the workspace any more: messages are seen, and nothing else

    def place_path(self, path: bytes) -> bytes:
        """Give a path that the agent spelled as the workspace knows it."""
        return relative_to(path, cwd=self._cwd, root=self._root)

    def messages(self, news: Sequence[News], imported: Callable[[str], bool]) -> list[NewMessage]:
        """Give the user messages not seen before, each with its instant, in the order of their records."""
        found: dict[str, NewMessage] = {}
        ledger, grace = self.workspace.ledger, self.policy.time.record_grace_ms * MS
        for item in news:
            message = item.event
            if not isinstance(message, UserMessage) or message.uuid in found or self._seen(message):
                continue
            at = instant_of(message, item.reading, self._last_instant)
            self._last_instant = at
            watching = Watching(ledger.coverage_start(), imported(message.uuid))
            live = appended_live(at, item.reading, grace)
            standing = standing_of(at, live=live, watching=watching, captured=not self.unprotected)
            found[message.uuid] = NewMessage(message, at, standing, item.reading)
        return list(found.values())

    def _seen(self, message: UserMessage) -> bool:
        return self.workspace.instants.seen(self.session.session, message.uuid)

    def write(self, news: Sequence[News], messages: Sequence[NewMessage], *, evict: bool = True) -> DigestOutcome:
        """Write down what the records say, and drop what is now beyond the cap. Inside a transaction."""
        fresh = {new.message.uuid: new for new in messages}
        for new in messages:
            remember_message(self.workspace, new.message, new.at, new.standing)
        for item in news:
            self._write_turn(item, fresh)
        closed = []
        for new in messages:
            if new.standing.state == "live":
                files, unstable = close_message(
                    self.workspace, self.session.session, new.message.uuid, new.at, timeline=new.standing.timeline
                )
                closed.append(Closed(self.session.session, new.message.uuid, files, unstable))
        evicted = enforce_caps(
            self.workspace,
            self.session.session,
            cap=self.session.cap if evict else sys.maxsize,
            before_rewinds=self.policy.limits.before_rewind if evict else sys.maxsize,
        )
        gone = {(one.session, one.message) for one in evicted}
        return DigestOutcome(tuple(one for one in closed if (one.session, one.message) not in gone), tuple(evicted))

    def _write_turn(self, item: News, fresh: dict[str, NewMessage]) -> None:
        session, turns = self.session.session, self.workspace.turns
        match item.event:
            case UserMessage(uuid=uuid, at=at, queued=queued):
                new = fresh.get(uuid)
                start = new.at if new is not None else self.workspace.instants.instant_of(session, uuid) or at
                if start is not None and not queued:
                    turns.begin(session, start)
                    end = self._unheeded
                    if end is not None and end.at is not None and start <= end.at:
                        turns.end(session, end.at, end.offset)  # it was said before the turn was known
                elif start is not None:
                    turns.touch(session, start)
            case TurnEnd(at=at, offset=offset) as end:
                if not turns.end(session, at if at is not None else item.reading.read_at, offset):
                    self._unheeded = end
            case ToolEdit(path=path, at=at):
                when = at if at is not None else item.reading.read_at
                turns.named(session, self.workspace.ledger.path_id(self.place_path(path)), when)
                self._sign_of_life(when, subagent=item.subagent)
            case Activity(at=at, working=True) if at is not None and not item.subagent:
                turns.go_on(session, at)
            case Activity(at=at) if at is not None:
                self._sign_of_life(at, subagent=item.subagent)
            case HistoryRecord():
                pass

    def _sign_of_life(self, at: int, *, subagent: bool) -> None:
        if subagent:
            self.workspace.turns.prolong(self.session.session, at)
        else:
            self.workspace.turns.touch(self.session.session, at)
