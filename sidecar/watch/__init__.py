"""Watching folders: which paths may have changed, in which order, and when that cannot be known.

This room gives hints and never truth: an event makes a path a suspect, lstat beneath the root says what it is. Its rule
is that nothing is missed in silence: either an event for the path comes, or a `Lost`, after which the caller looks at
everything again. Three watchers keep the same contract: `inotify` (Linux), `observer` (watchdog's own, elsewhere) and
`poll` (no events at all).

What a suspect is: the path of every event, and
* FOLDER: each name in that folder, not below it (a FOLDER of its own comes for each folder found below);
* REMOVED, MOVED_AWAY of a directory: everything known under that path;
* MOVED_HERE of a directory: nothing more, its FOLDERs follow.
An event may come twice, or for a path whose folder has been renamed since; it never names a path inside a pruned
folder.

Order: positions never decrease. Where `ordered` is true they are the kernel's own order over every place of the
watcher, so a transcript's append (a place with `modify`) can be compared with a file's change; equal positions stem
from one event. A path found only by listing a FOLDER has no order of its own. Two equal events with nothing between
them may be one.

Threads: `wake` and `barrier` may be called from any thread, `wake` also from a signal handler; all else from one.
"""

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sidecar.clock import Clock


class What(StrEnum):
    """What an event says of its path."""

    CHANGED = "changed"  # created, written, closed, or its attributes changed
    REMOVED = "removed"
    MOVED_AWAY = "moved-away"
    MOVED_HERE = "moved-here"
    FOLDER = "folder"  # a directory whose names must be listed


class Why(StrEnum):
    """Why events may have been missed."""

    OVERFLOW = "overflow"  # the kernel's queue was full
    WATCH_LIMIT = "watch-limit"  # some folders have no watch; FOLDER comes for each of them every `unwatched_s`
    INSTANCE_LIMIT = "instance-limit"  # no watcher could be had at all: this one polls
    ROOT_REPLACED = "root-replaced"  # the place is gone or another folder has its name; nothing more comes from it
    DIED = "died"  # the reader ended; it was started again if that was possible
    POLL = "poll"  # there are no events here: look at everything


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that somebody asked to have watched."""

    number: int
    path: bytes  # as it was given
    recursive: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a file had grown when an event of its writing was read: at least to where that writing ended.

    What was written up to there has its event in this reading (`batch`) or an earlier one, or, unless this was the
    `last` one waiting, in the next.
    """

    size_bytes: int  # -1: the file could not be looked at any more
    ctime_ns: int
    batch: int
    last: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A path that may have changed."""

    position: int
    read_at: int  # UTC nanoseconds: when the event was read, a little after the change
    place: Place
    path: bytes  # relative to the place; b"" for the place itself
    what: What
    is_directory: bool
    cookie: int = 0  # pairs MOVED_AWAY and MOVED_HERE of one rename; 0 for none
    growth: Growth | None = None  # of a file that was written to, in a place with `modify`, where that is known


@dataclass(frozen=True, slots=True)
class Lost:
    """Events may have been missed: look at everything in the place again."""

    position: int
    read_at: int
    place: Place | None  # None: every place
    why: Why
    path: bytes = b""  # the first folder without a watch, relative to the place; WATCH_LIMIT only


@dataclass(frozen=True, slots=True)
class Timing:
    """The numbers of this room; they come from `policies/watch.toml`."""

    check_s: float  # how often a waiting take looks whether roots and reader are still there
    unwatched_s: float  # how often folders without a watch are tried again and reported as FOLDER
    cookie_retry_s: float  # how long a barrier waits for one cookie before it makes another
    observer_grace_s: float  # what a barrier adds where events of two places have no common order
    poll_s: float  # how often the polling watcher asks for a look at everything


class Watcher(Protocol):
    """Something that tells which paths of some places may have changed."""

    kind: str  # "inotify", "observer", "poll"
    ordered: bool  # positions are the true order, and a barrier is a proof
    # All changes made before this instant were returned by take, or declared Lost. 0 where unprovable; stands still
    # while any folder has no watch. The clock's instant, which is ahead of the file system's stamps by up to a tick.
    drained_at: int

    def add_tree(self, root_path: bytes, prune: Callable[[bytes], bool]) -> Place:
        """Watch a folder and every folder below it that `prune` (given its relative path) does not refuse.

        Watches are in place when this returns: scan afterwards. No FOLDER comes for what is there already.
        Raises OSError if the root cannot be opened.
        """

    def add_folder(self, path: bytes, *, modify: bool) -> Place:
        """Watch one folder and nothing below it; with `modify` each write is an event, not only the closing."""

    def drop(self, place: Place) -> None:
        """Watch a place no longer; queued events of it are not delivered."""

    def barrier(self, deadline_s: float) -> bool:
        """Wait until all that was done before this call is queued for `take`; False if that is not proved in time."""

    def take(self, timeout_s: float) -> list[Event | Lost]:
        """Return all that is queued, in order; wait up to `timeout_s` for the first. May return [] early."""

    def watched(self) -> int:
        """Count the kernel's watches that are held, the cookie folder's included."""

    def unwatched(self) -> list[bytes]:
        """List the folders (place's path joined) that have no watch because of a limit."""

    def wake(self) -> None:
        """Make a waiting take return now, or the next one at once."""

    def close(self) -> None:
        """Give everything back. May be called twice."""


def open_watcher(cookie_folder: bytes, *, timing: Timing, clock: Clock, force: str | None = None) -> Watcher:
    """Open the best watcher that works here; `force` names one ("inotify", "observer", "poll") and then faults raise.

    `cookie_folder` is a private folder of ours for the barrier's files; nothing in it is ever delivered.
    A limit that leaves no watcher gives a polling one whose first Lost says so. Raises OSError without a cookie folder.
    """
    # The imports wait until here because each module needs this one, and watchdog's fails where there is no inotify.
    from sidecar.watch.poll import PollWatcher  # noqa: PLC0415

    if force == "poll":
        return PollWatcher(timing, clock)
    try:
        if force == "inotify" or (force is None and sys.platform == "linux"):
            from sidecar.watch.inotify import InotifyWatcher  # noqa: PLC0415

            return InotifyWatcher(cookie_folder, timing, clock)
        from sidecar.watch.observer import ObserverWatcher  # noqa: PLC0415

        return ObserverWatcher(cookie_folder, timing, clock)
    except OSError as error:
        if force is not None or error.errno not in _NO_WATCHER:
            raise
        return PollWatcher(timing, clock, first=Why.WATCH_LIMIT if error.errno == errno.ENOSPC else Why.INSTANCE_LIMIT)


# No more instances, watches, handles or memory, or a system without.
_NO_WATCHER = {errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.ENOSYS}


def identity(path: bytes) -> tuple[int, int] | None:
    """Tell which folder a path leads to now (device, inode); None for none. Valid while the machine runs."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
