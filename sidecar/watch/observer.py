"""The watcher for systems without inotify: watchdog's own Observer behind the same contract, with weaker promises.

Each place has a stream of its own, so nothing tells which of two places changed first, and no cookie proves what
another stream has delivered: `ordered` is false, `drained_at` stays 0, a barrier is a good guess, and the caller scans
where it needs to know. Pruning filters what was delivered. The handler runs in watchdog's thread; it only queues and
never raises.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

from watchdog import events as seen
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from sidecar.clock import Clock
from sidecar.watch import Event, Lost, Place, Timing, What, Why, identity
from sidecar.watch.cookie import CookieJar

# Not the openings: listing the tree would be an event for each folder in it.
_FILTER: list[type[FileSystemEvent]] = [
    seen.FileCreatedEvent,
    seen.FileModifiedEvent,
    seen.FileAttribEvent,
    seen.FileClosedEvent,
    seen.FileDeletedEvent,
    seen.FileMovedEvent,
    seen.DirCreatedEvent,
    seen.DirModifiedEvent,
    seen.DirAttribEvent,
    seen.DirDeletedEvent,
    seen.DirMovedEvent,
]


class _Record(NamedTuple):
    position: int
    read_at: int
    number: int  # of the place
    event: FileSystemEvent


@dataclass(slots=True, eq=False)
class _Watched:
    place: Place
    real: bytes  # what events spell the place as
    identity: tuple[int, int] | None
    prune: Callable[[bytes], bool]
    handler: FileSystemEventHandler
    watch: ObservedWatch | None = None  # None: lost

    def relative(self, path: bytes | str) -> bytes | None:
        """Spell an event's path relative to the place; None if it is not in it, or below a pruned folder."""
        raw = os.fsencode(path)
        if raw == self.real:
            return b""
        start = os.path.join(self.real, b"")
        if not raw.startswith(start):
            return None
        names = raw[len(start) :].split(b"/")
        if not self.place.recursive:
            return names[0] if len(names) == 1 else None
        if any(self.prune(b"/".join(names[:depth])) for depth in range(1, len(names))):
            return None
        return b"/".join(names)


class ObserverWatcher:
    """See `sidecar.watch.Watcher`."""

    kind = "observer"
    ordered = False
    drained_at = 0

    def __init__(self, cookie_folder: bytes, timing: Timing, clock: Clock) -> None:
        self._timing = timing
        self._clock = clock
        self._queue: SimpleQueue[_Record | None] = SimpleQueue()
        self._positions = itertools.count(1)
        self._numbers = itertools.count(1)
        self._cookies = itertools.count(1)
        self._jar = CookieJar(cookie_folder, clock)
        self._cookie_handler = _CookieHandler(self._jar)
        self._watched: dict[int, _Watched] = {}
        self._out: list[Event | Lost] = []
        self._position = 0
        self._next_check = 0.0
        self._closed = False
        self._start()

    def add_tree(self, root_path: bytes, prune: Callable[[bytes], bool]) -> Place:
        return self._add(Place(next(self._numbers), root_path, True), prune)

    def add_folder(self, path: bytes, *, modify: bool) -> Place:  # noqa: ARG002 (writes are always events here)
        return self._add(Place(next(self._numbers), path, False), lambda _path: False)

    def drop(self, place: Place) -> None:
        watched = self._watched.pop(place.number, None)
        if watched is not None:
            self._unschedule(watched)
            self._out = [each for each in self._out if each.place != place]

    def barrier(self, deadline_s: float) -> bool:
        if not self._jar.wait(deadline_s, self._timing.cookie_retry_s, self._observer.is_alive):
            return False
        time.sleep(self._timing.observer_grace_s)  # the other streams are about as quick as the cookie's
        return True

    def take(self, timeout_s: float) -> list[Event | Lost]:
        give_up = time.monotonic() + timeout_s
        while True:
            self._look_after()
            wait_s = 0.0 if self._out else max(0.0, min(give_up - time.monotonic(), self._timing.check_s))
            came = self._drain(wait_s)
            if self._out or came or time.monotonic() >= give_up:
                out, self._out = self._out, []
                return out

    def watched(self) -> int:
        return 1 + sum(each.watch is not None for each in self._watched.values())

    def unwatched(self) -> list[bytes]:
        return []

    def wake(self) -> None:
        self._queue.put(None)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._observer.stop()
            self._observer.join()
            self._jar.close()

    def _start(self) -> None:
        self._observer: BaseObserver = Observer()
        self._observer.start()
        self._observer.schedule(self._cookie_handler, os.fsdecode(os.path.realpath(self._jar.folder)))

    def _add(self, place: Place, prune: Callable[[bytes], bool]) -> Place:
        os.close(os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        handler = _Handler(self._queue, self._positions, place.number, self._clock)
        watched = _Watched(place, os.path.realpath(place.path), identity(place.path), prune, handler)
        self._schedule(watched)
        self._watched[place.number] = watched
        return place

    def _schedule(self, watched: _Watched) -> None:
        real, recursive = os.fsdecode(watched.real), watched.place.recursive
        watched.watch = self._observer.schedule(watched.handler, real, recursive=recursive, event_filter=_FILTER)

    def _unschedule(self, watched: _Watched) -> None:
        watch, watched.watch = watched.watch, None
        if watch is None:
            return
        # Two places with one path share what watchdog has scheduled.
        if any(each.watch == watch for each in self._watched.values() if each is not watched):
            self._observer.remove_handler_for_watch(watched.handler, watch)
            return
        with contextlib.suppress(KeyError, OSError):  # it may have ended by itself when its folder went
            self._observer.unschedule(watch)

    def _look_after(self) -> None:
        """See from time to time whether roots and watchdog's threads are there still."""
        now = time.monotonic()
        if now < self._next_check or self._closed:
            return
        self._next_check = now + self._timing.check_s
        for watched in self._watched.values():
            if watched.watch is not None and identity(watched.place.path) != watched.identity:
                self._unschedule(watched)
                self._out.append(Lost(self._position, self._clock.now(), watched.place, Why.ROOT_REPLACED))
        if not self._observer.is_alive() or not all(each.is_alive() for each in self._observer.emitters):
            self._restart()

    def _restart(self) -> None:
        self._out.append(Lost(self._position, self._clock.now(), None, Why.DIED))
        self._observer.stop()
        with contextlib.suppress(OSError):  # again at the next check, with another Lost
            self._start()
            for watched in self._watched.values():
                if watched.watch is not None:
                    self._schedule(watched)

    def _drain(self, wait_s: float) -> bool:
        try:
            records = [self._queue.get(timeout=wait_s)]
        except Empty:
            return False
        records += [self._queue.get() for _ in range(self._queue.qsize())]
        for record in records:
            if record is not None and record.number in self._watched:
                self._position = record.position
                for event in self._translate(self._watched[record.number], record):
                    if not self._jar.ours(os.path.basename(event.path)):
                        self._out.append(event)
        return True

    def _translate(self, watched: _Watched, record: _Record) -> Iterator[Event]:
        event = record.event
        directory = event.is_directory
        path = watched.relative(event.src_path)
        kind = event.event_type

        def say(path: bytes, what: What, cookie: int = 0) -> Event:
            is_directory = directory or what is What.FOLDER
            return Event(record.position, record.read_at, watched.place, path, what, is_directory, cookie)

        if path is not None and kind == seen.EVENT_TYPE_DELETED:
            yield say(path, What.REMOVED)
        elif kind == seen.EVENT_TYPE_MOVED:
            cookie = next(self._cookies)
            if path is not None:
                yield say(path, What.MOVED_AWAY, cookie)
            target = watched.relative(event.dest_path)
            if target is not None:
                yield say(target, What.MOVED_HERE, cookie)
                if directory:
                    yield from (say(each, What.FOLDER) for each in self._folders(watched, target))
        elif path is not None:
            yield say(path, What.CHANGED)
            if directory and kind == seen.EVENT_TYPE_CREATED:
                yield from (say(each, What.FOLDER) for each in self._folders(watched, path))
            elif directory and not (path and watched.prune(path)):
                yield say(path, What.FOLDER)

    def _folders(self, watched: _Watched, top: bytes) -> Iterator[bytes]:
        """Name a folder that appeared and those in it that are not pruned."""
        stack = [top]
        while stack:
            path = stack.pop()
            if path and watched.prune(path):
                continue
            yield path
            if not watched.place.recursive:
                continue
            with contextlib.suppress(OSError), os.scandir(os.path.join(watched.real, path)) as entries:
                stack += [os.path.join(path, each.name) for each in entries if each.is_dir(follow_symlinks=False)]


class _Handler(FileSystemEventHandler):
    """Queues what happens in one place."""

    def __init__(self, queue: SimpleQueue[_Record | None], positions: Iterator[int], number: int, clock: Clock) -> None:
        self._queue = queue
        self._positions = positions
        self._number = number
        self._clock = clock

    def dispatch(self, event: FileSystemEvent) -> None:
        self._queue.put(_Record(next(self._positions), self._clock.now(), self._number, event))


class _CookieHandler(FileSystemEventHandler):
    """Lets barriers go on."""

    def __init__(self, jar: CookieJar) -> None:
        self._jar = jar

    def dispatch(self, event: FileSystemEvent) -> None:
        for path in (event.src_path, event.dest_path):
            self._jar.release(os.path.basename(os.fsencode(path)))
