"""Follow one session: its main transcript and its subagents', as events with the way they came to us."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sidecar.agents import Agent
from sidecar.attach.digest import News
from sidecar.checkpoint.plan import Reading
from sidecar.clock import Clock, parse_iso
from sidecar.fs.lock import FileLock
from sidecar.model import SessionFound, ToolEdit, TurnEnd
from sidecar.transcript.tail import Tail, TailRead
from sidecar.watch import Event as FileEvent
from sidecar.watch import Growth, What


@dataclass
class _Source:
    """One transcript of the session."""

    tail: Tail
    subagent: bool
    previous_read_at: int | None = None
    newest_time: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """When a record was appended: the positions of the events between which, and the kernel's stamp."""

    first: int | None = None  # None: no event can tell
    last: int | None = None
    appended_at: int | None = None  # the file's ctime after the append, or after a later one
    exact: bool = False  # it is that of the append itself


@dataclass
class Follower:
    """A session that is being followed."""

    agent: Agent
    found: SessionFound
    clock: Clock
    warn: Callable[[str, str], None]
    lock: FileLock | None = None
    heard_from: int | None = None  # every append of the main transcript beyond this offset has been heard of
    appends: list[tuple[int, Growth]] = field(default_factory=list)  # heard of, by position; not read yet

    def __post_init__(self) -> None:
        self.reader = self.agent.reader(self.found)
        self.sources: dict[str, _Source] = {}
        self.edits: list[ToolEdit] = []
        self._alive = self.found.pid  # the agent's process, as long as we see it
        self._faults: set[str] = set()

    @property
    def session(self) -> str:
        """The session's id."""
        return self.found.session

    def directories(self) -> set[str]:
        """Give the directories whose changes are to be heard of."""
        return {os.path.dirname(path) for path in self.agent.transcripts_of(self.found)}

    def poll(self) -> list[News]:
        """Read what was appended to any of the session's transcripts, to the last newline of each."""
        news: list[News] = []
        for path in self.agent.transcripts_of(self.found):
            source = self.sources.get(path)
            if source is None:
                source = self.sources[path] = _Source(Tail(path), subagent=path != self.found.transcript)
            news.extend(self._read(path, source))
        return news + self._death()

    def _death(self) -> list[News]:
        """Tell of the end of a process that was seen alive: whatever turn it was in ended no later than now."""
        before, self._alive = self._alive, self.agent.live_pid(self.found)
        if before is None or before == self._alive:
            return []
        now = self.clock.now()
        return [News(TurnEnd(self.session, now), Reading(now, None, None, None), subagent=False)]

    def begin_again(self) -> None:
        """Forget what was read: the next reading gives all of it, as history."""
        self.reader = self.agent.reader(self.found)
        self.sources.clear()
        self.edits.clear()

    def hear_from_now(self) -> None:
        """Note that from here on every append of the main transcript is heard of."""
        try:
            self.heard_from = os.stat(self.found.transcript).st_size
        except OSError:
            self.heard_from = 0 if not os.path.lexists(self.found.transcript) else None

    def hear(self, event: FileEvent) -> None:
        """Take note of an event of the main transcript: that it was written to, or closed, moved or removed."""
        if self.heard_from is None:
            return
        growth = event.growth
        if event.what is not What.CHANGED or (growth is not None and growth.size_bytes < 0):
            self.hear_no_more()
        elif growth is not None:
            self.appends.append((event.position, growth))

    def hear_no_more(self) -> None:
        """Note that appends may have been missed."""
        self.heard_from = None
        self.appends = []

    def window_of(self, offset: int) -> Window:
        """Say between which events the record at an offset was appended to the main transcript."""
        if self.heard_from is None or offset < self.heard_from:
            return Window()
        reached = [(position, growth) for position, growth in self.appends if growth.size_bytes > offset]
        if not reached:
            return Window()
        begin = reached[0][1]
        batches = (begin.batch,) if begin.last else (begin.batch, begin.batch + 1)
        mine = [position for position, growth in reached if growth.batch in batches]
        return Window(mine[0], mine[-1], begin.ctime_ns, exact=begin.last and len(mine) == 1)

    def forget_appends(self) -> None:
        """Forget the appends that were read; those heard of later may be of records not read yet."""
        source = self.sources.get(self.found.transcript)
        read = source.tail.offset if source is not None else 0
        self.appends = [(position, growth) for position, growth in self.appends if growth.size_bytes > read]

    def _read(self, path: str, source: _Source) -> list[News]:
        read_at = self.clock.now()
        news: list[News] = []
        more = True
        while more:
            read = source.tail.poll()
            more = read.more
            news.extend(self._events(path, source, read, read_at))
        source.previous_read_at = read_at
        return news

    def _events(self, path: str, source: _Source, read: TailRead, read_at: int) -> Iterator[News]:
        if read.fault is not None and path not in self._faults:
            self._faults.add(path)
            self.warn("unprotected", f"The transcript {path} cannot be read: {read.fault}")
        if read.restarted:
            source.previous_read_at = None  # what it holds now was not appended while we looked
            if not source.subagent:
                self.hear_no_more()
        for record in read.records:
            for event in self.reader.events(record, subagent=source.subagent):
                newest = record is read.records[-1] and not read.more
                written_by = read.at_eof_ctime_ns
                reading = Reading(read_at, source.previous_read_at, written_by, source.newest_time, newest)
                yield News(event, reading, source.subagent)
            source.newest_time = max(source.newest_time or 0, parse_iso(record.value.get("timestamp")) or 0) or None
