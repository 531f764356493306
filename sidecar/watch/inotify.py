"""The watcher for Linux: one inotify descriptor for all places, so that everything it says has one order.

The reader's thread only queues (`descriptor`); the queue is worked off, and watches are added, by whoever calls `take`
(`watches`). What is on its way out waits in `_out`.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from watchdog.observers.inotify_c import InotifyConstants as In

from sidecar.clock import Clock
from sidecar.watch import Event, Lost, Place, Timing, What, Why, identity
from sidecar.watch.cookie import CookieJar
from sidecar.watch.descriptor import Descriptor, Proof, Queue, Record
from sidecar.watch.folders import UNWATCHED, Folder, Tree
from sidecar.watch.watches import Watches, When, open_root

_REST = 4  # folders without a watch are told of anew after so many times what the last telling cost the caller
_ROOT_GONE = In.IN_DELETE_SELF | In.IN_MOVE_SELF | In.IN_UNMOUNT | In.IN_IGNORED


class InotifyWatcher:
    """See `sidecar.watch.Watcher`. Raises OSError where inotify or `/proc` cannot be had."""

    kind = "inotify"
    ordered = True

    def __init__(self, cookie_folder: bytes, timing: Timing, clock: Clock) -> None:
        self.drained_at = 0
        self._timing = timing
        self._clock = clock
        self._queue: Queue = SimpleQueue()
        self._positions = itertools.count(1)
        self._places = itertools.count(1)
        self._jar = CookieJar(cookie_folder, clock)
        self._trees: dict[int, Tree] = {}
        self._out: list[Event | Lost] = []
        self._position = 0  # of what was worked off last
        self._closed = False
        self._next_check = 0.0
        self._next_unwatched: float | None = None
        self._left = time.monotonic()  # when the caller went to work
        self._away_s = 0.0  # the longest that it was at work since it was told of folders without a watch
        self._start()

    def add_tree(self, root_path: bytes, prune: Callable[[bytes], bool]) -> Place:
        return self._add(Place(next(self._places), root_path, True), prune, modify=False)

    def add_folder(self, path: bytes, *, modify: bool) -> Place:
        return self._add(Place(next(self._places), path, False), lambda _path: True, modify=modify)

    def drop(self, place: Place) -> None:
        tree = self._trees.pop(place.number, None)
        if tree is not None:
            self._watches.forget(tree.root)
            self._out = [each for each in self._out if each.place != place]

    def barrier(self, deadline_s: float) -> bool:
        return self._jar.wait(deadline_s, self._timing.cookie_retry_s, self._alive)

    def take(self, timeout_s: float) -> list[Event | Lost]:
        now = time.monotonic()
        give_up = now + timeout_s
        self._away_s = max(self._away_s, now - self._left)
        while True:
            self._look_after()
            wait_s = 0.0 if self._out else max(0.0, min(give_up - time.monotonic(), self._timing.check_s))
            came = self._drain(wait_s)
            if self._out or came or time.monotonic() >= give_up:
                out, self._out = self._out, []
                self._left = time.monotonic()
                return out

    def watched(self) -> int:
        return self._descriptor.count()

    def unwatched(self) -> list[bytes]:
        return [os.path.join(each.tree.place.path, each.path()) for each in self._watches.folders.unwatched]

    def wake(self) -> None:
        self._queue.put(None)  # SimpleQueue.put may be entered again by a signal handler; an Event's set may not

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._descriptor.close()
            self._jar.close()

    # Starting, and starting again.

    def _start(self) -> None:
        self._descriptor = Descriptor(self._queue, self._positions, self._jar, self._clock)
        self._watches = Watches(self._descriptor, self._now, self._out_later)
        try:
            self._descriptor.add_cookies(self._jar.folder)
        except OSError:
            self._descriptor.close()
            raise
        self._cookie_identity = identity(self._jar.folder)

    def _add(self, place: Place, prune: Callable[[bytes], bool], *, modify: bool) -> Place:
        handle, found = open_root(place.path)
        tree = Tree(place, found, modify, prune)
        self._trees[place.number] = tree
        self._watches.begin(tree, handle, None)
        return place

    def _alive(self) -> bool:
        return not self._closed and self._descriptor.alive()

    def _now(self) -> When:
        return When(self._position, self._clock.now())

    def _out_later(self, item: Event | Lost) -> None:
        self._out.append(item)

    def _rebuild(self) -> None:
        """Bring every watch in line with what is there, before the caller hears that something was lost."""
        for tree in list(self._trees.values()):
            if not tree.lost:
                self._watches.again(tree.root, None)

    def _look_after(self) -> None:
        """See from time to time whether reader, roots and cookies are there, and try folders without a watch again."""
        now = time.monotonic()
        if now < self._next_check or self._closed:
            return
        self._next_check = now + self._timing.check_s
        if not self._descriptor.alive():
            self._restart()
        for tree in list(self._trees.values()):
            if not tree.lost and identity(tree.place.path) != tree.identity:
                self._lose(tree, self._now())
        found = identity(self._jar.folder)
        if found is not None and not (found == self._cookie_identity and self._descriptor.hears_cookies()):
            with contextlib.suppress(OSError):  # barriers fail until it works, which sends their callers to a scan
                self._descriptor.add_cookies(self._jar.folder)
                self._cookie_identity = found
        self._poll_unwatched(now)

    def _restart(self) -> None:
        while self._drain(0.0):
            pass  # what the old reader left, with the old watch numbers
        self._out.append(Lost(*self._now(), None, Why.DIED))
        self._descriptor.close()
        try:
            self._start()
        except OSError:
            return  # again at the next check, with another Lost: until then the caller polls by that
        for tree in self._trees.values():
            tree.root = Folder(tree, b"", None)
        self._rebuild()

    def _poll_unwatched(self, now: float) -> None:
        """Say FOLDER of every folder that has no watch, each time that the period is over, and try to watch it."""
        unwatched = self._watches.unwatched()
        if not unwatched or self._next_unwatched is None:
            self._next_unwatched = now + self._timing.unwatched_s if unwatched else None
            return
        if now < self._next_unwatched + self._away_s * _REST:
            return
        self._next_unwatched = now + self._timing.unwatched_s
        self._away_s = 0.0
        without = self._watches.folders.unwatched
        for folder in [each for each in unwatched if each.parent not in without]:
            if folder in without:
                self._watches.again(folder, self._now())

    # What the kernel said.

    def _drain(self, wait_s: float) -> bool:
        """Work off all that is queued; tell whether anything was, a wake included."""
        try:
            items = [self._queue.get(timeout=wait_s)]
        except Empty:
            return False
        items += [self._queue.get() for _ in range(self._queue.qsize())]
        overflow = False
        for item in items:
            if isinstance(item, Proof):
                if (
                    not self._watches.folders.unwatched
                ):  # of what lies in those nothing was queued, so nothing is proved
                    self.drained_at = max(self.drained_at, item.at)
            elif item is not None:
                self._position = item.position
                if item.mask & In.IN_Q_OVERFLOW:
                    overflow = True
                    self._out.append(Lost(item.position, item.read_at, None, Why.OVERFLOW))
                else:
                    self._record(item)
        if overflow:
            self._rebuild()
        return True

    def _record(self, record: Record) -> None:
        if record.mask & In.IN_IGNORED:
            self._descriptor.ended(record.wd)
        when = When(record.position, record.read_at)
        for folder in self._watches.folders.find(record.wd):
            if record.name:
                self._entry(folder, record, when)
            else:
                self._itself(folder, record.mask, when)

    def _itself(self, folder: Folder, mask: int, when: When) -> None:
        """Take what a watched directory says of itself; its parent says the rest."""
        if folder.parent is None:
            if mask & _ROOT_GONE:
                self._lose(folder.tree, when)
            elif mask & In.IN_ATTRIB:
                self._out.append(Event(*when, folder.tree.place, b"", What.CHANGED, True))
        elif mask & In.IN_IGNORED:
            self._watches.ended(folder)
            self._watches.look(folder.parent, folder.name, when, again=False)
        elif mask & In.IN_MOVE_SELF:
            # Comes after both halves of the rename: what is not under its name by now has left the tree.
            self._watches.look(folder.parent, folder.name, when, again=False)

    def _entry(self, folder: Folder, record: Record, when: When) -> None:
        """Take what a watched directory says of a name in it."""
        tree, mask, name = folder.tree, record.mask, record.name
        directory = bool(mask & In.IN_ISDIR)
        what = What.CHANGED
        look = directory  # a directory that came, or whose mode may let us in now
        if mask & In.IN_MODIFY and not tree.modify:
            return  # asked for by another place that holds the same directory
        if mask & In.IN_DELETE:
            what = What.REMOVED
            look = name in folder.children
        elif mask & In.IN_MOVED_FROM:
            what = What.MOVED_AWAY
            child = folder.children.get(name)
            look = child is not None and child.wd == UNWATCHED  # else its own MOVE_SELF follows
        elif mask & In.IN_MOVED_TO:
            what = What.MOVED_HERE
        growth = record.growth if tree.modify else None
        self._out.append(Event(*when, tree.place, folder.path(name), what, directory, record.cookie, growth))
        if look:
            self._watches.look(folder, name, when, again=what is What.MOVED_HERE)

    def _lose(self, tree: Tree, when: When) -> None:
        tree.lost = True
        self._watches.forget(tree.root)
        self._out.append(Lost(*when, tree.place, Why.ROOT_REPLACED))
