"""One inotify descriptor with its reader's thread: what the kernel says, numbered and queued in the kernel's order.

One floor below watchdog's Observer: `InotifyFD` with a callback of our own. The callback runs in the reader's thread,
only numbers and queues, and must never raise (that would end the thread). `tests/watch/test_watchdog.py` holds what is
relied on here, for the module is not a documented interface.
"""

import contextlib
import errno
import fcntl
import itertools
import logging
import os
import sys
import termios
from collections.abc import Iterator
from queue import SimpleQueue
from typing import NamedTuple

from watchdog.observers.inotify_c import (
    DEFAULT_EVENT_BUFFER_SIZE,
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from sidecar.clock import Clock
from sidecar.watch import Growth
from sidecar.watch.cookie import CookieJar
from sidecar.watch.folders import UNWATCHED

# watchdog logs overflows; they are ours to tell, and Python would print them for want of a handler.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

# No OPEN and no CLOSE_NOWRITE: listing the tree would flood our own queue. No MODIFY: the closing says enough, except
# of transcripts. MASK_ADD: a directory that lies in two places must not lose what the first one asked for. DONT_FOLLOW
# is absent because watches go through an open handle (see `add`), which was opened without following.
MASK_TREE = (
    InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_EXCL_UNLINK
    | InotifyConstants.IN_MASK_ADD
)
MASK_MODIFY = MASK_TREE | InotifyConstants.IN_MODIFY
MASK_COOKIE = (
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_MASK_ADD
)


class Record(NamedTuple):
    """One thing that the kernel said. An overflow has mask IN_Q_OVERFLOW, a watch that ended IN_IGNORED."""

    position: int
    read_at: int
    wd: int
    mask: int
    cookie: int
    name: bytes
    growth: Growth | None = None


class Proof(NamedTuple):
    """A cookie's event was read: all changes made before `at` are ahead of this in the queue."""

    at: int


# None wakes the taker.
Queue = SimpleQueue[Record | Proof | None]


class Descriptor:
    """A running inotify instance. Raises OSError where there are no more (EMFILE) or no `/proc`."""

    def __init__(self, queue: Queue, positions: Iterator[int], jar: CookieJar, clock: Clock) -> None:
        if not os.path.isdir(b"/proc/self/fd"):
            raise OSError(errno.ENOSYS, "no /proc")
        self._ids = itertools.count(1)
        self._held: dict[int, int] = {}
        self._cookie_wd = UNWATCHED
        self._fd = _Reader()
        self._sink = _Sink(queue, positions, jar, clock, self._fd)
        self._fd.start()

    def add(self, handle: int, mask: int, measured: bytes | None = None) -> int:
        """Watch the directory that is open as `handle`; return its number, UNWATCHED if it may not be read.

        `measured`: its path, if the files in it are to be measured whenever one is written to.

        Raises OSError, ENOSPC for the limit. Going through the handle makes sure that the directory watched is the one
        opened and listed, whatever its path leads to by now, and lets paths be longer than PATH_MAX.
        """
        number = CallbackId(next(self._ids))
        wd = self._fd.add_callback(b"/proc/self/fd/%d" % handle, Mask(mask), self._sink, number)
        if measured is not None and wd >= 0:
            self._fd.measured[wd] = measured
        if wd < 0 or wd in self._held:
            # Never two callbacks on one watch, and none on the -1 that watchdog records for EACCES.
            self._fd.remove_callbacks([(wd, number)])
            return max(wd, UNWATCHED)
        self._held[wd] = number
        return wd

    def add_cookies(self, folder: bytes) -> None:
        """Watch the folder of cookies (again, if it was replaced). Raises OSError."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._cookie_wd = self.add(handle, MASK_COOKIE)
        finally:
            os.close(handle)
        if not self.hears_cookies():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)

    def remove(self, wd: int) -> None:
        """Watch a directory no longer."""
        if wd == self._cookie_wd or wd not in self._held:
            return
        number = self._held.pop(wd)
        self._fd.measured.pop(wd, None)
        with contextlib.suppress(OSError):  # the kernel may have removed it already
            self._fd.remove_callbacks([(WatchDescriptor(wd), CallbackId(number))])

    def ended(self, wd: int) -> None:
        """Take note that the kernel removed a watch by itself."""
        self._held.pop(wd, None)
        self._fd.measured.pop(wd, None)
        if wd == self._cookie_wd:
            self._cookie_wd = UNWATCHED

    def hears_cookies(self) -> bool:
        """Tell whether the folder of cookies is watched still. A new one under its name may have its very inode."""
        return self._cookie_wd != UNWATCHED

    def count(self) -> int:
        """Count the watches held."""
        return len(self._held)

    def alive(self) -> bool:
        """Tell whether the reader's thread runs."""
        return self._fd.is_alive()

    def close(self) -> None:
        """End the thread and give the descriptor back."""
        self._sink.closed = True
        self._fd.stop()
        self._fd.join()


class _Reader(InotifyFD):
    """The reader's thread; it measures followed files at once, whatever else this process is busy with."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: dict[int, bytes] = {}  # folders whose files are measured when they are written to
        self.growths: dict[tuple[int, bytes], Growth] = {}  # what the events being handled told of
        self._batch = 0

    def read_events(self, *, event_buffer_size: int = DEFAULT_EVENT_BUFFER_SIZE) -> list[InotifyEvent]:
        events = super().read_events(event_buffer_size=event_buffer_size)
        self._batch += 1
        written = {(e.wd, e.name) for e in events if e.mask & InotifyConstants.IN_MODIFY and e.wd in self.measured}
        self.growths = dict(self._measure(written)) if written else {}
        return events

    def _measure(self, written: set[tuple[WatchDescriptor, bytes]]) -> Iterator[tuple[tuple[int, bytes], Growth]]:
        found: list[tuple[tuple[int, bytes], os.stat_result | None]] = []
        for wd, name in written:
            try:
                found.append(((wd, name), os.stat(os.path.join(self.measured[wd], name))))
            except OSError:
                found.append(((wd, name), None))
            except KeyError:  # watched no longer
                pass
        try:
            waiting = bool(int.from_bytes(fcntl.ioctl(self._inotify_fd, termios.FIONREAD, b"\0" * 4), sys.byteorder))
        except OSError:  # being closed
            waiting = True
        for key, stat in found:
            size, ctime = (-1, 0) if stat is None else (stat.st_size, stat.st_ctime_ns)
            yield key, Growth(size, ctime, self._batch, last=not waiting)


class _Sink:
    """The callback of every watch."""

    def __init__(self, queue: Queue, positions: Iterator[int], jar: CookieJar, clock: Clock, reader: _Reader) -> None:
        self._reader = reader
        self._queue = queue
        self._positions = positions
        self._jar = jar
        self._clock = clock
        self._last: InotifyEvent | None = None
        self.closed = False

    def on_event(self, event: InotifyEvent) -> None:
        if event is self._last:
            return  # a watch was just added a second time and has two callbacks for a moment
        self._last = event
        name = event.name
        if self._jar.ours(name):
            at = self._jar.recognise(name)
            if at is not None:
                self._queue.put(Proof(at))
                self._jar.release(name)
            return
        growth = self._reader.growths.get((event.wd, name)) if event.mask & InotifyConstants.IN_MODIFY else None
        self._put(event.wd, event.mask, event.cookie, name, growth)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        if not self.closed:
            self._put(wd, InotifyConstants.IN_IGNORED, 0, b"")

    def on_queue_overflow(self) -> None:
        self._put(-1, InotifyConstants.IN_Q_OVERFLOW, 0, b"")

    def _put(self, wd: int, mask: int, cookie: int, name: bytes, growth: Growth | None = None) -> None:
        self._queue.put(Record(next(self._positions), self._clock.now(), wd, mask, cookie, name, growth))
