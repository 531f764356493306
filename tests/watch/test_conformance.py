"""What every watcher must do: after a barrier, each path that changed is a suspect."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.watch import Lost, Why, open_watcher

from .conftest import TIMING, Caller, write


def at(root: bytes, *names: bytes) -> bytes:
    return os.path.join(root, *names)


def test_a_new_file(caller: Caller, root: bytes) -> None:
    caller.tree(root)
    write(at(root, b"a"))
    assert at(root, b"a") in caller.drain()


def test_a_write_a_chmod_and_a_removal(caller: Caller, root: bytes) -> None:
    path = at(root, b"a")
    write(path)
    caller.tree(root)
    caller.drain()
    write(path, b"other")
    assert path in caller.drain()
    os.chmod(path, 0o600)
    assert path in caller.drain()
    os.unlink(path)
    assert path in caller.drain()


@pytest.mark.parametrize("where", ["beside", "outside"])
def test_an_atomic_save(caller: Caller, root: bytes, outside: bytes, where: str) -> None:
    path = at(root, b"a")
    write(path)
    caller.tree(root)
    caller.drain()
    temporary = at(root if where == "beside" else outside, b".a.tmp")
    write(temporary, b"other")
    os.rename(temporary, path)
    assert path in caller.drain()


def test_a_renamed_file(caller: Caller, root: bytes) -> None:
    write(at(root, b"a"))
    caller.tree(root)
    caller.drain()
    os.rename(at(root, b"a"), at(root, b"b"))
    assert {at(root, b"a"), at(root, b"b")} <= caller.drain()


def test_a_renamed_folder_and_an_edit_in_it(caller: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"d/e"))
    write(at(root, b"d/e/f"))
    caller.tree(root)
    caller.drain()
    os.rename(at(root, b"d"), at(root, b"n"))
    assert {at(root, b"d/e/f"), at(root, b"n/e/f")} <= caller.drain()
    write(at(root, b"n/e/f"), b"other")
    assert at(root, b"n/e/f") in caller.drain()


def test_a_removed_folder(caller: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"d/e"))
    write(at(root, b"d/e/f"))
    caller.tree(root)
    caller.drain()
    os.unlink(at(root, b"d/e/f"))
    os.removedirs(at(root, b"d/e"))
    os.makedirs(root, exist_ok=True)  # removedirs goes as far up as it can
    suspects = caller.drain()
    assert at(root, b"d/e/f") in suspects or Why.ROOT_REPLACED in [each.why for each in caller.lost()]


def test_a_chain_of_new_folders(caller: Caller, root: bytes) -> None:
    """Each file is found though its folder was not watched yet when it came (C36)."""
    caller.tree(root)
    rounds = 200 if caller.watcher.kind == "inotify" else 20
    made = []
    for number in range(rounds):
        folder = at(root, b"%d" % number, b"b", b"c")
        os.makedirs(folder)
        write(at(folder, b"f"))
        made.append(at(folder, b"f"))
        if number % 3:
            caller.take()
    assert set(made) <= caller.drain()
    for path in made[::10]:
        write(path, b"later")
    assert set(made[::10]) <= caller.drain()


def test_a_tree_that_moves_in_and_an_edit_in_it(caller: Caller, root: bytes, outside: bytes) -> None:
    os.makedirs(at(outside, b"pkg/sub"))
    for number in range(30):
        write(at(outside, b"pkg/sub/%d" % number))
    caller.tree(root)
    caller.drain()
    os.rename(at(outside, b"pkg"), at(root, b"pkg"))
    assert {at(root, b"pkg/sub/%d" % number) for number in range(30)} <= caller.drain()
    write(at(root, b"pkg/sub/7"), b"other")
    assert at(root, b"pkg/sub/7") in caller.drain()


def test_nothing_is_heard_of_a_pruned_folder(caller: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"node_modules/a/b"))
    caller.tree(root)
    caller.drain()
    write(at(root, b"node_modules/a/b/f"))
    os.makedirs(at(root, b"node_modules/c"))
    write(at(root, b"node_modules/c/f"))
    os.makedirs(at(root, b"sub/node_modules/x"))
    write(at(root, b"sub/node_modules/x/f"))
    inside = [each for each in caller.drain() if b"node_modules/" in each]
    assert inside == []


def test_names_that_are_no_text(caller: Caller, root: bytes) -> None:
    folder, path = at(root, b"\xff\xfe"), at(root, b"\xff\xfe", b"a\n\x80")
    caller.tree(root)
    os.mkdir(folder)
    write(path)
    assert path in caller.drain()
    write(path, b"other")
    assert path in caller.drain()


def test_after_a_barrier_all_that_was_written_is_suspect(caller: Caller, root: bytes) -> None:
    chance = random.Random(7)
    folders = [at(root, b"%d" % number) for number in range(10)]
    for folder in folders:
        os.mkdir(folder)
    caller.tree(root)
    caller.drain()
    for _round in range(30 if caller.watcher.kind == "inotify" else 5):
        paths = {at(chance.choice(folders), b"f%d" % chance.randrange(1000)) for _ in range(chance.randrange(1, 60))}
        for path in paths:
            write(path, b"%d" % chance.random().__hash__())
        assert paths <= caller.drain()


def test_positions_never_decrease(caller: Caller, root: bytes) -> None:
    caller.tree(root)
    for number in range(20):
        os.makedirs(at(root, b"%d/x" % number))
        write(at(root, b"%d/x/f" % number))
        caller.take()
    caller.drain()
    positions = [each.position for each in caller.items]
    assert positions == sorted(positions)
    if caller.watcher.kind == "inotify":
        assert all(
            first.read_at <= second.read_at for first, second in zip(caller.items, caller.items[1:], strict=False)
        )


def test_a_folder_place_hears_of_its_own_names_only(caller: Caller, root: bytes) -> None:
    os.mkdir(at(root, b"sub"))
    place = caller.folder(root)
    write(at(root, b"sub/f"))
    write(at(root, b"g"))
    caller.drain()
    paths = {each.path for each in caller.events() if each.place == place}
    assert b"sub/f" not in paths
    assert b"g" in paths or caller.watcher.kind == "poll"


def test_a_dropped_place_is_silent_and_others_are_not(caller: Caller, root: bytes, outside: bytes) -> None:
    first, second = caller.tree(root), caller.tree(outside)
    write(at(root, b"a"))
    caller.watcher.drop(first)
    write(at(root, b"b"))
    write(at(outside, b"c"))
    suspects = caller.drain()
    assert not [each for each in caller.events() if each.place == first]
    assert at(outside, b"c") in suspects
    caller.watcher.drop(second)
    caller.watcher.drop(second)


def test_the_same_folder_in_two_places(caller: Caller, root: bytes) -> None:
    os.mkdir(at(root, b"sub"))
    first, second = caller.tree(root), caller.tree(root)
    inner = caller.folder(at(root, b"sub"), modify=True)
    caller.drain()
    caller.items.clear()
    write(at(root, b"sub/f"))
    caller.drain()
    if caller.watcher.kind == "poll":
        return
    assert {each.place for each in caller.events()} == {first, second, inner}
    caller.watcher.drop(first)
    caller.watcher.drop(inner)
    caller.items.clear()
    write(at(root, b"sub/g"))
    caller.drain()
    assert {each.place for each in caller.events()} == {second}


def test_the_cookie_folder_inside_the_tree_is_never_heard_of(caller: Caller, cookies: bytes) -> None:
    caller.tree(os.path.dirname(cookies))
    caller.drain()
    caller.items.clear()
    for _round in range(5):
        caller.drain()
    cookie_events = [each for each in caller.events() if b"cookie-" in each.path]
    assert cookie_events == []


@pytest.mark.parametrize("how", ["renamed", "removed", "parent"])
def test_a_root_that_goes_is_lost(opener: Callable[[str], Caller], tmp_path: Path, how: str) -> None:
    for kind in ("inotify", "observer"):
        parent = tmp_path / kind
        root = parent / "root"
        (root / "sub").mkdir(parents=True)
        caller = opener(kind)
        place = caller.tree(os.fsencode(root))
        if how == "renamed":
            root.rename(parent / "old")
            root.mkdir()
        elif how == "removed":
            (root / "sub").rmdir()
            root.rmdir()
        else:
            parent.rename(tmp_path / f"{kind}-old")
            root.mkdir(parents=True)
        give_up = time.monotonic() + 10
        while time.monotonic() < give_up and not caller.lost():
            caller.take(0.2)
        assert [(each.place, each.why) for each in caller.lost()] == [(place, Why.ROOT_REPLACED)]
        caller.take(0.2)
        assert len(caller.lost()) == 1
        caller.watcher.drop(place)
        if root.exists():
            caller.tree(os.fsencode(root))
            caller.drain()
            write(os.fsencode(root / "f"))
            assert os.fsencode(root / "f") in caller.drain()


def test_wake_ends_a_take(caller: Caller, root: bytes) -> None:
    caller.tree(root)
    while caller.take():
        pass
    threading.Timer(0.1, caller.watcher.wake).start()
    began = time.monotonic()
    caller.watcher.take(0.25 if caller.watcher.kind == "poll" else 20.0)
    assert time.monotonic() - began < 5
    caller.watcher.wake()
    began = time.monotonic()
    caller.watcher.take(20.0)
    assert time.monotonic() - began < 5


def test_wake_from_a_signal_handler(caller: Caller, root: bytes) -> None:
    caller.tree(root)
    while caller.take():
        pass
    before = signal.signal(signal.SIGALRM, lambda *_: caller.watcher.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.002)  # many, so that one hits every spot of take
        began = time.monotonic()
        while time.monotonic() - began < 0.5:
            caller.watcher.take(5.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_take_waits_no_longer_than_asked(caller: Caller, root: bytes) -> None:
    caller.tree(root)
    while caller.take():
        pass
    began = time.monotonic()
    caller.watcher.take(0.2)
    assert time.monotonic() - began < 2
    began = time.monotonic()
    caller.watcher.take(0.0)
    assert time.monotonic() - began < 0.1


def test_what_cannot_be_opened_is_a_fault(caller: Caller, root: bytes, cookies: bytes) -> None:
    with pytest.raises(FileNotFoundError):
        caller.watcher.add_tree(at(root, b"none"), lambda _path: False)
    with pytest.raises(NotADirectoryError):
        write(at(root, b"file"))
        caller.watcher.add_folder(at(root, b"file"), modify=False)
    with pytest.raises(FileNotFoundError):
        open_watcher(at(cookies, b"none"), timing=TIMING, clock=SystemClock())


def test_closing_twice_is_allowed_and_leaves_no_cookie(caller: Caller, root: bytes, cookies: bytes) -> None:
    caller.tree(root)
    caller.drain()
    caller.watcher.close()
    caller.watcher.close()
    assert os.listdir(cookies) == []


def test_polling_asks_for_a_look_each_period(opener: Callable[[str], Caller], root: bytes) -> None:
    caller = opener("poll")
    caller.tree(root)
    began = time.monotonic()
    while len(caller.lost()) < 4:
        assert all(isinstance(each, Lost) and each.why is Why.POLL for each in caller.take(5.0))
    assert 3 * TIMING.poll_s * 0.8 < time.monotonic() - began < 10
