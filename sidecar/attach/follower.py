"""Follow one session: its main transcript and its subagents', as events with the way they came to us."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sidecar.agents import Agent
from sidecar.attach.digest import News
from sidecar.checkpoint.plan import Reading
from sidecar.clock import Clock, parse_iso
from sidecar.fs.lock import FileLock
from sidecar.model import SessionFound, ToolEdit
from sidecar.transcript.tail import Tail, TailRead


@dataclass
class _Source:
    """One transcript of the session."""

    tail: Tail
    subagent: bool
    previous_read_at: int | None = None
    newest_time: int | None = None


@dataclass
class Follower:
    """A session that is being followed."""

    agent: Agent
    found: SessionFound
    clock: Clock
    warn: Callable[[str, str], None]
    lock: FileLock | None = None
    positions: list[int] = field(default_factory=list)  # of the main transcript's events since it was last read

    def __post_init__(self) -> None:
        self.reader = self.agent.reader(self.found)
        self.sources: dict[str, _Source] = {}
        self.edits: list[ToolEdit] = []
        self._faults: set[str] = set()
        self._polled_from = 0

    @property
    def session(self) -> str:
        """The session's id."""
        return self.found.session

    def directories(self) -> set[str]:
        """Give the directories whose changes are to be heard of."""
        return {os.path.dirname(path) for path in self.agent.transcripts_of(self.found)}

    def poll(self) -> list[News]:
        """Read what was appended to any of the session's transcripts, to the last newline of each."""
        self._polled_from = len(self.positions)
        news: list[News] = []
        for path in self.agent.transcripts_of(self.found):
            source = self.sources.get(path)
            if source is None:
                source = self.sources[path] = _Source(Tail(path), subagent=path != self.found.transcript)
            news.extend(self._read(path, source))
        return news

    def forget_positions(self) -> None:
        """Forget the events heard of before the last reading; the ones after it may be of records not yet read."""
        self.positions = self.positions[self._polled_from :]

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
        for record in read.records:
            for event in self.reader.events(record, subagent=source.subagent):
                newest = record is read.records[-1] and not read.more
                written_by = read.at_eof_ctime_ns
                reading = Reading(read_at, source.previous_read_at, written_by, source.newest_time, newest)
                yield News(event, reading, source.subagent)
            source.newest_time = max(source.newest_time or 0, parse_iso(record.value.get("timestamp")) or 0) or None
