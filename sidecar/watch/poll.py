"""The watcher of last resort: no events, only a request to look at everything again, every so often."""

import itertools
import os
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from sidecar.clock import Clock
from sidecar.watch import Event, Lost, Place, Timing, Why


class PollWatcher:
    """See `sidecar.watch.Watcher`. `first` says why nothing better could be had."""

    kind = "poll"
    ordered = False
    drained_at = 0

    def __init__(self, timing: Timing, clock: Clock, *, first: Why = Why.POLL) -> None:
        self._timing = timing
        self._clock = clock
        self._numbers = itertools.count(1)
        self._positions = itertools.count(1)
        self._queue: SimpleQueue[Why | None] = SimpleQueue()
        self._next = time.monotonic() + timing.poll_s
        self._queue.put(first)

    def add_tree(self, root_path: bytes, prune: Callable[[bytes], bool]) -> Place:  # noqa: ARG002
        return self._add(root_path, recursive=True)

    def add_folder(self, path: bytes, *, modify: bool) -> Place:  # noqa: ARG002
        return self._add(path, recursive=False)

    def drop(self, place: Place) -> None:
        pass

    def barrier(self, deadline_s: float) -> bool:  # noqa: ARG002
        """Ask for a look at everything: what that look sees is all that was done before."""
        self._queue.put(Why.POLL)
        return True

    def take(self, timeout_s: float) -> list[Event | Lost]:
        now = time.monotonic()
        due_s = max(0.0, self._next - now)
        whys: list[Why] = []
        try:
            items = [self._queue.get(timeout=max(0.0, min(timeout_s, due_s)))]
            items += [self._queue.get() for _ in range(self._queue.qsize())]
            whys = [each for each in dict.fromkeys(items) if each is not None]
        except Empty:
            if time.monotonic() >= self._next:
                whys = [Why.POLL]
        if whys:
            self._next = time.monotonic() + self._timing.poll_s
        return [Lost(next(self._positions), self._clock.now(), None, why) for why in whys]

    def watched(self) -> int:
        return 0

    def unwatched(self) -> list[bytes]:
        return []

    def wake(self) -> None:
        self._queue.put(None)

    def close(self) -> None:
        pass

    def _add(self, path: bytes, *, recursive: bool) -> Place:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        return Place(next(self._numbers), path, recursive)
