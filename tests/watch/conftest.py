"""Watchers of every kind on real folders, and a caller that does with their events what sidecar does."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.watch import Event, Lost, Place, Timing, Watcher, What, open_watcher

TIMING = Timing(check_s=0.05, unwatched_s=0.2, cookie_retry_s=0.25, observer_grace_s=0.2, poll_s=0.3)


def prune(path: bytes) -> bool:
    """Refuse what no tree of a test wants to hear of."""
    return os.path.basename(path) in (b"node_modules", b".git")


def write(path: bytes, text: bytes = b"x") -> None:
    """Write a file and close it."""
    with open(path, "wb") as file:
        file.write(text)


class Caller:
    """Takes from one watcher and keeps the suspects of each place, as absolute paths."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.items: list[Event | Lost] = []
        self.suspects: set[bytes] = set()
        self._roots: list[tuple[Place, bytes]] = []
        self._known: set[bytes] = set()

    def tree(self, root: bytes, refuse: Callable[[bytes], bool] = prune) -> Place:
        place = self.watcher.add_tree(root, refuse)
        self._roots.append((place, root))
        suspects = set(self.suspects)
        self._scan(place)
        self.suspects = suspects  # what was there before is none
        return place

    def folder(self, path: bytes, *, modify: bool = False) -> Place:
        return self.watcher.add_folder(path, modify=modify)

    def take(self, timeout_s: float = 0.0) -> list[Event | Lost]:
        """Take once and find out the suspects."""
        items = self.watcher.take(timeout_s)
        for item in items:
            self._follow(item)
        self.items += items
        return items

    def drain(self) -> set[bytes]:
        """Return the suspects of all that was done up to now, and begin anew."""
        assert self.watcher.barrier(10.0)
        while self.take():
            pass
        suspects, self.suspects = self.suspects, set()
        return suspects

    def events(self) -> list[Event]:
        return [each for each in self.items if isinstance(each, Event)]

    def lost(self) -> list[Lost]:
        return [each for each in self.items if isinstance(each, Lost)]

    def _follow(self, item: Event | Lost) -> None:
        if isinstance(item, Lost):
            for place, _root in self._roots:
                if item.place in (None, place):
                    self._scan(place)
            return
        path = os.path.join(item.place.path, item.path)
        self.suspects.add(path)
        if item.what is What.FOLDER:
            with contextlib.suppress(OSError):
                self.suspects.update(os.path.join(path, name) for name in os.listdir(path))
        elif item.is_directory and item.what in (What.REMOVED, What.MOVED_AWAY):
            self.suspects.update(each for each in self._known if each.startswith(path + b"/"))
        self._known |= self.suspects

    def _scan(self, place: Place) -> None:
        """Look at everything: all that is there or was known is a suspect."""
        for folder, folders, files in os.walk(place.path):
            folders[:] = [each for each in folders if not prune(each)]
            self._known.update(os.path.join(folder, each) for each in folders + files)
        self.suspects |= {each for each in self._known if each.startswith(place.path)}


@pytest.fixture
def cookies(tmp_path: Path) -> bytes:
    folder = tmp_path / "cookies"
    folder.mkdir()
    return os.fsencode(folder)


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    folder = tmp_path / "root"
    folder.mkdir()
    return os.fsencode(folder)


@pytest.fixture
def outside(tmp_path: Path) -> bytes:
    folder = tmp_path / "outside"
    folder.mkdir()
    return os.fsencode(folder)


@pytest.fixture
def opener(cookies: bytes) -> Iterator[Callable[[str], Caller]]:
    """Open watchers; they are closed at the end."""
    opened: list[Watcher] = []

    def open_one(kind: str) -> Caller:
        opened.append(open_watcher(cookies, timing=TIMING, clock=SystemClock(), force=kind))
        return Caller(opened[-1])

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture(params=["inotify", "observer", "poll"])
def caller(request: pytest.FixtureRequest, opener: Callable[[str], Caller]) -> Caller:
    """Give each kind of watcher in turn."""
    return opener(request.param)


@pytest.fixture
def linux(opener: Callable[[str], Caller]) -> Caller:
    """Give the inotify watcher."""
    return opener("inotify")
