"""The kernel's limits, reached for real: nothing is missed in silence (RELIABILITY T10, T11)."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.watch import Why, open_watcher

from .conftest import TIMING, Caller, prune, write

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.xdist_group("sysctl")]

LIMITS = Path("/proc/sys/fs/inotify")


@pytest.fixture
def limit() -> Iterator[Callable[[str, int], None]]:
    """Set limits of the machine; they are put back at the end."""
    before = {each: each.read_text() for each in LIMITS.iterdir()}

    def put(name: str, number: int) -> None:
        (LIMITS / name).write_text(str(number))

    yield put
    for each, text in before.items():
        each.write_text(text)


def test_an_overflow_is_told_and_later_files_are_seen(
    limit: Callable[[str, int], None],
    opener: Callable[[str], Caller],
    root: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit("max_queued_events", 64)
    caller = opener("inotify")
    caller.tree(root)
    busy = threading.Event()
    jar = caller.watcher._jar  # type: ignore[attr-defined]
    recognise = jar.ours
    monkeypatch.setattr(jar, "ours", lambda name: busy.wait(60) and recognise(name))  # the reader stands still
    for number in range(100):
        os.makedirs(os.path.join(root, b"%d/x" % number))
        for each in range(30):
            write(os.path.join(root, b"%d/x/%d" % (number, each)))
    busy.set()
    suspects = caller.drain()
    assert Why.OVERFLOW in [each.why for each in caller.lost()]
    assert {os.path.join(root, b"%d/x/%d" % (number, each)) for number in range(100) for each in range(30)} <= suspects
    positions = [each.position for each in caller.items]
    assert positions == sorted(positions)
    while caller.take(0.05):
        pass
    assert caller.watcher.watched() == 201 + 1
    caller.items.clear()
    later = {os.path.join(root, b"%d/x/later" % number) for number in range(0, 100, 9)}
    for path in later:
        write(path)
        time.sleep(0.01)
        caller.take()
    assert later <= caller.drain()
    assert caller.lost() == []


def test_a_watch_limit_is_told_and_the_rest_is_listed_in_turn(
    limit: Callable[[str, int], None], opener: Callable[[str], Caller], root: bytes
) -> None:
    for number in range(2000):
        os.makedirs(os.path.join(root, b"%d" % number))
    caller = opener("inotify")
    limit("max_user_watches", 500)
    caller.tree(root)
    held = caller.watcher.watched()
    assert held <= 500
    unwatched = caller.watcher.unwatched()
    assert len(unwatched) == 2001 + 1 - held
    caller.take()
    assert [each.why for each in caller.lost()] == [Why.WATCH_LIMIT]
    # Watched folders are heard at once, the others in their turn, and so are folders new in those.
    watched = next(each for each in (os.path.join(root, b"%d" % n) for n in range(2000)) if each not in set(unwatched))
    write(os.path.join(watched, b"f"))
    assert os.path.join(watched, b"f") in caller.drain()
    assert caller.watcher.drained_at == 0  # nothing is proved of the others
    os.makedirs(os.path.join(unwatched[-1], b"new"))
    write(os.path.join(unwatched[-1], b"new/f"))
    give_up = time.monotonic() + 10
    while os.path.join(unwatched[-1], b"new/f") not in caller.suspects:
        assert time.monotonic() < give_up
        caller.take(0.05)
    assert len(caller.lost()) == 1
    # With room again, everything is watched.
    limit("max_user_watches", 100_000)
    give_up = time.monotonic() + 10
    while caller.watcher.unwatched():
        assert time.monotonic() < give_up
        caller.take(0.05)
    assert caller.watcher.watched() == 2002 + 1
    caller.drain()
    assert caller.watcher.drained_at > 0


def test_without_instances_it_polls_and_says_so(limit: Callable[[str, int], None], cookies: bytes, root: bytes) -> None:
    limit("max_user_instances", 0)
    watcher = open_watcher(cookies, timing=TIMING, clock=SystemClock())
    watcher.add_tree(root, prune)
    assert watcher.kind == "poll"
    assert [getattr(each, "why", None) for each in watcher.take(1.0)] == [Why.INSTANCE_LIMIT]
    with pytest.raises(OSError, match="instance limit"):
        open_watcher(cookies, timing=TIMING, clock=SystemClock(), force="inotify")


def test_without_a_single_watch_it_polls_and_says_so(
    limit: Callable[[str, int], None], cookies: bytes, root: bytes
) -> None:
    limit("max_user_watches", 0)
    watcher = open_watcher(cookies, timing=TIMING, clock=SystemClock())
    assert [getattr(each, "why", None) for each in watcher.take(1.0)] == [Why.WATCH_LIMIT]
