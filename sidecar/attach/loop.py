"""The running sidecar: one loop that joins what the watcher hears with what the transcripts say.

    take events -> barrier, take -> read transcripts -> barrier, take -> look at suspects -> commit -> announce

After the second barrier every change made before the transcripts were read has been heard of, so a message's state is
complete when it is committed. Nothing is announced before it is committed.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from sidecar import errors
from sidecar.agents import Agent
from sidecar.attach import owner
from sidecar.attach.asking import answer, cookie_folder, questions
from sidecar.attach.catchup import digest_news
from sidecar.attach.digest import Digest, DigestOutcome, News
from sidecar.attach.follower import Follower
from sidecar.attach.room import Room, open_room, refuse_private
from sidecar.attach.settings import Settings
from sidecar.attach.station import EXTEND_AFTER
from sidecar.attach.wide import EDITED_ONLY
from sidecar.capture.ignore import is_rule_file
from sidecar.checkpoint.apply import enforce_caps, remember_state
from sidecar.clock import MS, format_iso
from sidecar.ids import BASELINE
from sidecar.model import CheckpointKind, SessionFound, UserMessage
from sidecar.store.home import identify, open_home
from sidecar.store.instants import SessionRow
from sidecar.store.workspace import Workspace
from sidecar.watch import Event, Lost, Place, Timing, Watcher, Why, open_watcher

Announce = Callable[[dict[str, Any]], None]


def _run_all(writers: list[Callable[[], DigestOutcome]], outcomes: list[DigestOutcome]) -> None:
    outcomes.extend(write() for write in writers)


class Sidecar:
    """Follows sessions until it is told to stop."""

    def __init__(self, settings: Settings, announce: Announce, *, cap: int, watching: bool = True) -> None:
        self.settings = settings
        self.clock = settings.clock
        self.cap = cap
        self._announce = announce
        self.rooms: dict[str, Room] = {}
        self.watcher: Watcher | None = None
        self._watching = watching
        self._cookies = ""
        self._transcripts: dict[bytes, Place] = {}
        self._nurseries: dict[bytes, Place] = {}  # folders where new sessions show themselves
        self.expecting = True  # something happened there since sessions were last looked for
        self._told: set[tuple[str, str]] = set()

    def announce(self, event: str, **parts: object) -> None:
        """Tell what happened, with the instant."""
        self._announce({"event": event, **parts, "at": format_iso(self.clock.now())})

    def warn(self, code: str, text: str) -> None:
        """Tell of something that is not as it should be, once."""
        if (code, text) not in self._told:
            self._told.add((code, text))
            self.announce("warning", code=code, text=text)

    # Entering -------------------------------------------------------------------------------------------------------

    def enter(
        self,
        directory: str,
        progress: Callable[[int], None] = lambda _files: None,
        prepare: Callable[[Workspace], None] = lambda _workspace: None,
    ) -> Room:
        """Open the timeline of a workspace and, unless another process does, begin to capture it.

        `prepare` writes down who is to be followed, first of all.
        """
        key = self._key_of(directory)
        if key in self.rooms:
            room = self.rooms[key]
            prepare(room.workspace)
            room.leave_out()
            return room
        room = open_room(directory, self.settings, prepare)
        self.rooms[room.workspace.key] = room
        if room.lock is not None:
            self._begin_capture(room, progress)
        else:
            self._warn_if_wide(room)
        return room

    def _key_of(self, directory: str) -> str | None:
        try:
            return identify(directory).key
        except OSError:
            return None  # said by whoever opens it

    def _begin_capture(self, room: Room, progress: Callable[[int], None]) -> None:
        started = time.monotonic_ns()
        watcher = self._open_watcher(room.workspace.home) if self._watching else None
        room.begin_capture(watcher, progress)
        self._warn_if_wide(room)
        self._warn_if_over_budget(room)
        if self.watcher is not None:
            self._round([], 0.0)
        self._announce_ready(room, started)

    def _warn_if_wide(self, room: Room) -> None:
        if room.wide is not None:
            self.warn("unsafe-root", f"The tree {room.workspace.root} is not captured: {room.wide}. {EDITED_ONLY}")

    def _warn_if_over_budget(self, room: Room) -> None:
        for text in room.station.budget.warnings:
            self.warn("over-budget", text)

    def _announce_ready(self, room: Room, started: int) -> None:
        files, size = room.workspace.ledger.count_files()
        milliseconds = (time.monotonic_ns() - started) // MS
        self.announce("ready", workspace=room.workspace.root, files=files, bytes=size, ms=milliseconds)

    def _open_watcher(self, home: str) -> Watcher:
        if self.watcher is None:
            self._cookies = cookie_folder(home)
            watch = self.settings.watch
            timing = Timing(
                check_s=self.settings.checkpoints.time.tick_ms / 1000,
                unwatched_s=watch.rescan.degraded_period_s,
                cookie_retry_s=watch.cookie.retry_ms / 1000,
                observer_grace_s=watch.cookie.observer_grace_ms / 1000,
                poll_s=watch.rescan.degraded_period_s,
            )
            self.watcher = open_watcher(os.fsencode(self._cookies), timing=timing, clock=self.clock)
        return self.watcher

    def attach(self, agent: Agent, found: SessionFound, directory: str) -> Follower:
        """Follow a session: read its past, import what the agent kept of it, and go on from here.

        Refuses (Busy) where another process follows it.
        """
        refuse_private(directory, self.settings)
        home = open_home(create=True)
        lock = owner.own_session(home or "", found.session)
        self.announce("attached", session=found.session, workspace=os.path.realpath(directory), agent=found.agent)
        rows: list[SessionRow] = []
        try:
            room = self.enter(
                directory, prepare=lambda opened: rows.append(self._write_session(opened, found, directory))
            )
        except errors.Refusal:
            lock.release()
            raise
        [row] = rows
        follower = Follower(agent, found, self.clock, self.warn, lock)
        workspace = room.workspace
        room.followers[found.session] = follower
        room.digests[found.session] = Digest(workspace, row, self.settings.checkpoints)
        self._listen(follower)
        self._round([room], 0.0)
        with workspace.database.transaction():
            if not workspace.instants.seen(found.session, BASELINE):
                # Of a session that began before our eyes it is the state before its first message; else that of now.
                since = workspace.ledger.watched_since()
                begun = workspace.instants.first_since(found.session, since) if since is not None else None
                at = begun if begun is not None else self.clock.now()
                remember_state(workspace, found.session, BASELINE, at, CheckpointKind.BASELINE)
            evicted = enforce_caps(
                workspace, found.session, cap=self.cap, before_rewinds=self.settings.checkpoints.limits.before_rewind
            )
        self._announce_evicted(evicted)
        workspace.give_back()
        return follower

    def _write_session(self, workspace: Workspace, found: SessionFound, directory: str) -> SessionRow:
        with workspace.database.transaction():
            return workspace.instants.attach(
                found.session,
                agent=found.agent,
                transcript=found.transcript,
                cwd=found.workspace or directory,
                cap=self.cap,
                at=self.clock.now(),
            )

    def _listen(self, follower: Follower) -> None:
        """Watch a session's transcripts; those whose folder is not there yet are looked at on every tick."""
        watcher = self.watcher
        if watcher is None:
            return
        for folder in map(os.fsencode, follower.directories()):
            if folder not in self._transcripts:
                with contextlib.suppress(OSError):
                    self._transcripts[folder] = watcher.add_folder(folder, modify=True)
        heard = os.fsencode(os.path.dirname(follower.found.transcript)) in self._transcripts
        if watcher.ordered and heard and follower.heard_from is None:
            follower.hear_from_now()

    def expect(self, folders: Iterable[str]) -> None:
        """Watch folders in which new sessions show themselves."""
        if self.watcher is None:
            return
        for folder in map(os.fsencode, folders):
            if folder not in self._nurseries and folder not in self._transcripts:
                with contextlib.suppress(OSError):
                    self._nurseries[folder] = self.watcher.add_folder(folder, modify=False)

    # The loop -------------------------------------------------------------------------------------------------------

    def run(self, stop: Callable[[], bool], discover: Callable[[], None] = lambda: None) -> None:
        """Go on until told to stop."""
        tick_s = self.settings.checkpoints.time.tick_ms / 1000
        watcher = self._open_watcher(next(iter(self.rooms.values())).workspace.home) if self.rooms else None
        while not stop():
            if watcher is None and self.rooms:
                watcher = self._open_watcher(next(iter(self.rooms.values())).workspace.home)
            if watcher is None:
                time.sleep(tick_s)
            else:
                self.step(tick_s)
            discover()
        self._round(list(self.rooms.values()), 0.0, everything=True)

    def step(self, timeout_s: float = 0.0) -> None:
        """Wait up to so long for something to happen, and do everything once."""
        if self.watcher is not None:
            before = self.watcher.drained_at
            self._hear(self.watcher.take(timeout_s), before)
        self._round(list(self.rooms.values()), 0.0)

    def _round(self, rooms: Iterable[Room], timeout_s: float, *, everything: bool = False) -> None:
        """Do everything once: hear, read, write down, announce; `everything`: also what is not due yet."""
        rooms = list(rooms) or list(self.rooms.values())
        for room in rooms:
            self._take_over(room)
        asked = {room.workspace.key: questions(room.workspace) for room in rooms if room.lock is not None}
        self._drain(timeout_s, needed=any(asked.values()))
        rooms = [room for room in rooms if not room.held]
        news = {follower.session: follower.poll() for room in rooms for follower in room.followers.values()}
        if any(news.values()):
            self._drain(0.0, needed=True)
        self._write(rooms, news, {key for key in asked if everything or asked[key]})
        for room in rooms:
            for follower in room.followers.values():
                if follower.heard_from is None:
                    self._listen(follower)
            if not room.held:
                answer(asked.get(room.workspace.key, []))
            self._or_hold_back(room, room.look_if_due)

    def _take_over(self, room: Room) -> None:
        if room.was_replaced():
            self._leave(room)
        started = time.monotonic_ns()
        if room.take_over(self.watcher):
            self.warn("owner", f"The capturer of {room.workspace.root} ended; this process takes over.")
            self._warn_if_wide(room)
            self._announce_ready(room, started)

    def _drain(self, timeout_s: float, *, needed: bool) -> None:
        """Hear of everything that was done before this; `needed` also where that means looking at the whole tree."""
        watcher = self.watcher
        if watcher is None:
            return
        if watcher.kind == "poll" and not needed:
            self._hear(watcher.take(timeout_s), 0)
            return
        before = watcher.drained_at
        if not watcher.barrier(self.settings.watch.cookie.deadline_ms / 1000):
            self.warn("lost", "The watcher did not answer in time; the tree is looked at again.")
            for room in self.rooms.values():
                room.lose()
        self._hear(watcher.take(timeout_s), before)
        for room in self.rooms.values():
            if room.lock is not None and not room.lost and room.place is not None:
                prove = partial(room.station.prove, watcher.drained_at, extend_after=EXTEND_AFTER)
                self._or_hold_back(room, prove)

    def _hear(self, events: list[Event | Lost], proved_until: int) -> None:
        for event in events:
            if isinstance(event, Lost):
                self._hear_lost(event)
                continue
            if event.place.path in self._nurseries or event.place.path in self._transcripts:
                self.expecting = True
            for room in self.rooms.values():
                if room.place is not None and event.place.number == room.place.number:
                    self._hear_event(room, event, max(proved_until, room.station.proved_until))
                for follower in room.followers.values():
                    folder, name = os.path.split(os.fsencode(follower.found.transcript))
                    if event.path == name and event.place.path == folder:
                        follower.hear(event)

    def _hear_event(self, room: Room, event: Event, proved_until: int) -> None:
        if is_rule_file(event.path):
            room.station.capturer.rules.forget(event.path)
            room.rules_changed = True
        room.station.note(event, proved_until)

    def _hear_lost(self, lost: Lost) -> None:
        for room in self.rooms.values():
            for follower in room.followers.values():
                folder = os.fsencode(os.path.dirname(follower.found.transcript))
                if lost.place is None or lost.place.path == folder:
                    follower.hear_no_more()
            if room.place is None or (lost.place is not None and lost.place.number != room.place.number):
                continue
            if lost.why is Why.ROOT_REPLACED:
                self._leave(room)
                continue
            code = {Why.WATCH_LIMIT: "watch-limit", Why.INSTANCE_LIMIT: "watch-limit"}.get(lost.why, "lost")
            if lost.why is not Why.POLL:
                self.warn(code, f"Events of {room.workspace.root} were lost ({lost.why}); it is looked at again.")
            room.lose(at_once=lost.why is Why.POLL)

    def _leave(self, room: Room) -> None:
        room.leave()
        self.warn("root-replaced", f"The workspace {room.workspace.root} was removed or replaced.")

    def _write(self, rooms: Iterable[Room], news: dict[str, list[News]], asked: set[str]) -> None:
        for room in rooms:
            started = time.monotonic_ns()
            try:
                outcomes = self._write_room(room, news, asked=room.workspace.key in asked)
            except errors.StoreFault as fault:
                self._hold_back(room, fault)
                continue
            milliseconds = (time.monotonic_ns() - started) // MS
            self._warn_if_over_budget(room)
            if any(outcome.evicted for outcome in outcomes):
                room.workspace.give_back()
            for outcome in outcomes:
                for closed in outcome.closed:
                    self.announce(
                        "checkpoint",
                        session=closed.session,
                        message=closed.message,
                        files=closed.files,
                        unstable=closed.unstable,
                        ms=milliseconds,
                    )
                self._announce_evicted(outcome.evicted)

    def _write_room(self, room: Room, news: dict[str, list[News]], *, asked: bool) -> list[DigestOutcome]:
        mine = {session: news.get(session, []) for session in room.followers}
        outcomes: list[DigestOutcome] = []
        has_message = any(isinstance(item.event, UserMessage) for items in mine.values() for item in items)
        writers = []
        for session, items in mine.items():
            follower = room.followers[session]
            if items:
                writers.append(digest_news(room.station, room.digests[session], follower, items))
            follower.forget_appends()
        finish = partial(_run_all, writers, outcomes) if writers else None
        room.write(finish, has_message=has_message, asked=asked, watcher=self.watcher)
        return outcomes

    def _or_hold_back(self, room: Room, action: Callable[[], None]) -> None:
        try:
            action()
        except errors.StoreFault as fault:
            self._hold_back(room, fault)

    def _hold_back(self, room: Room, fault: errors.StoreFault) -> None:
        """Nothing was written: say so, and begin again with what is there when there is room for it.

        What the transcripts said is read anew, because it was not written either; the first write that goes through
        says nothing of the time between.
        """
        self.warn("no-space" if "space" in str(fault) or "full" in str(fault) else "store", str(fault))
        room.hold_back()
        for follower in room.followers.values():
            follower.begin_again()

    def _announce_evicted(self, evicted: Iterable[Any]) -> None:
        for one in evicted:
            self.announce("evicted", message=one.message, blobs=one.blobs, bytes=one.bytes)

    def close(self) -> None:
        """Write down how far watching reached, and give everything back."""
        for room in self.rooms.values():
            room.close()
        if self.watcher is not None:
            self.watcher.close()
            with contextlib.suppress(OSError):  # the next start removes what is left
                os.rmdir(self._cookies)
        self.announce("detached")
