"""What only the inotify watcher promises: true order, proofs, and exactly the watches that are needed."""

import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.fs.native import Unsupported, rename_exchange
from sidecar.watch import What, Why

from .conftest import Caller, prune, write


def at(root: bytes, *names: bytes) -> bytes:
    return os.path.join(root, *names)


def folders_of(root: bytes) -> int:
    """Count the folders that need a watch."""
    count = 0
    for _folder, folders, _files in os.walk(root):
        folders[:] = [each for each in folders if not prune(each)]
        count += 1
    return count


def exchange(first: bytes, second: bytes) -> None:
    here = os.open(os.path.dirname(first), os.O_RDONLY)
    there = os.open(os.path.dirname(second), os.O_RDONLY)
    try:
        rename_exchange(here, os.path.basename(first), there, os.path.basename(second))
    finally:
        os.close(here)
        os.close(there)


def until(caller: Caller, met: Callable[[], bool], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < give_up
        caller.take(0.05)


def test_appends_and_writes_come_in_their_true_order(linux: Caller, root: bytes, outside: bytes) -> None:
    chance = random.Random(3)
    linux.tree(root)
    transcripts = linux.folder(outside, modify=True)
    with open(at(outside, b"t.jsonl"), "ab", buffering=0) as transcript:
        linux.drain()
        for number in range(200):
            linux.items.clear()
            done = []
            for step in range(chance.randrange(2, 12)):
                if chance.random() < 0.5:
                    transcript.write(b"{}\n")
                    done.append(b"append")
                else:
                    name = b"%d-%d" % (number, step)
                    write(at(root, name))
                    done.append(name)
            linux.drain()
            last = {each.path: each.position for each in linux.events() if each.place != transcripts}
            appends = [each.position for each in linux.events() if each.place == transcripts]
            heard = sorted(
                [(position, path) for path, position in last.items()] + [(each, b"append") for each in appends]
            )
            # Equal appends in a row may be one event, of a place the order within is not asked.
            expected = [each for i, each in enumerate(done) if each != b"append" or done[i - 1 : i] != [b"append"]]
            found = [
                each for i, (_, each) in enumerate(heard) if each != b"append" or [heard[i - 1][1]] * bool(i) != [each]
            ]
            assert found == expected


def test_a_proof_counts_when_it_was_taken(linux: Caller, root: bytes) -> None:
    linux.tree(root)
    before = time.time_ns()
    assert linux.watcher.drained_at == 0
    assert linux.watcher.barrier(5.0)
    assert linux.watcher.drained_at == 0
    linux.take(1.0)
    assert before <= linux.watcher.drained_at <= time.time_ns()


def test_looking_makes_no_events(linux: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"a/b"))
    write(at(root, b"a/b/f"))
    linux.tree(root)
    linux.drain()
    for _folder, _folders, _files in os.walk(root):
        pass
    with open(at(root, b"a/b/f"), "rb") as file:
        file.read()
    assert linux.drain() == set()


def test_pruned_folders_have_no_watch(linux: Caller, root: bytes) -> None:
    for number in range(600):
        os.makedirs(at(root, b"node_modules/%d/x" % number))
    os.makedirs(at(root, b"src/node_modules/y"))
    linux.tree(root)
    assert linux.watcher.watched() == 2 + 1  # the root, src, and the cookies
    os.makedirs(at(root, b"new/node_modules/z"))
    linux.drain()
    assert linux.watcher.watched() == 3 + 1
    os.rename(at(root, b"new"), at(root, b"src/.git"))  # pruned by its new name
    linux.drain()
    assert linux.watcher.watched() == 2 + 1


def test_a_tree_that_moved_out_is_silent(linux: Caller, root: bytes, outside: bytes) -> None:
    os.makedirs(at(root, b"d/e"))
    linux.tree(root)
    os.rename(at(root, b"d"), at(outside, b"d"))
    linux.drain()
    assert linux.watcher.watched() == 1 + 1
    write(at(outside, b"d/e/f"))
    assert linux.drain() == set()


def test_what_changed_in_a_tree_after_it_moved_out_is_not_told_of_its_old_path(
    linux: Caller, root: bytes, outside: bytes
) -> None:
    """The caller was slow: both are in the queue already."""
    os.makedirs(at(root, b"d/e"))
    linux.tree(root)
    os.rename(at(root, b"d"), at(outside, b"d"))
    write(at(outside, b"d/e/f"))
    assert at(root, b"d/e/f") not in linux.drain()


def test_both_halves_of_a_rename_have_one_cookie(linux: Caller, root: bytes) -> None:
    write(at(root, b"a"))
    linux.tree(root)
    os.rename(at(root, b"a"), at(root, b"b"))
    linux.drain()
    away, here = linux.events()
    assert (away.what, away.path, here.what, here.path) == (What.MOVED_AWAY, b"a", What.MOVED_HERE, b"b")
    assert away.cookie == here.cookie != 0


@pytest.mark.parametrize("depth", [b"", b"/deeper"])
def test_folders_that_change_places(linux: Caller, root: bytes, depth: bytes) -> None:
    os.makedirs(at(root, b"a/x"))
    os.makedirs(at(root, b"b%s/y" % depth))
    linux.tree(root)
    exchange(at(root, b"a"), at(root, b"b" + depth))
    linux.drain()
    assert linux.watcher.watched() == folders_of(root) + 1
    for path in (b"a/y/f", b"b%s/x/f" % depth, b"a/g", b"b%s/g" % depth):
        write(at(root, path))
        assert at(root, path) in linux.drain()


def test_a_folder_renamed_over_and_over_before_anybody_looked(linux: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"0/x"))
    linux.tree(root)
    for number in range(50):
        os.rename(at(root, b"%d" % number), at(root, b"%d" % (number + 1)))
        os.mkdir(at(root, b"%d" % number))  # the name is taken again at once
        os.mkdir(at(root, b"%d/y" % number))
    linux.drain()
    assert linux.watcher.watched() == folders_of(root) + 1
    paths = {at(root, b"50/x/f")} | {at(root, b"%d/y/f" % number) for number in range(50)}
    for path in paths:
        write(path)
    assert paths <= linux.drain()


def test_a_folder_that_becomes_a_link_is_not_followed(linux: Caller, root: bytes, outside: bytes) -> None:
    os.makedirs(at(root, b"d/e"))
    os.makedirs(at(outside, b"e"))
    linux.tree(root)
    shutil.rmtree(at(root, b"d"))
    os.symlink(outside, at(root, b"d"))
    assert at(root, b"d") in linux.drain()
    write(at(outside, b"e/f"))
    write(at(outside, b"g"))
    assert linux.drain() == set()
    assert linux.watcher.watched() == 1 + 1


@pytest.mark.parametrize("seed", range(6))
def test_any_tangle_of_folders_ends_with_every_folder_watched(
    linux: Caller, root: bytes, outside: bytes, seed: int
) -> None:
    """Two writers make, move, swap and remove folders while somebody takes; then each folder must be heard."""
    linux.tree(root)
    stop = threading.Event()

    def tangle(chance: random.Random) -> None:
        def somewhere() -> bytes:
            base = root if chance.random() < 0.85 else outside
            return at(base, *(b"%d" % chance.randrange(4) for _ in range(chance.randrange(1, 5))))

        for _step in range(1500):
            try:
                what = chance.random()
                if what < 0.45:
                    os.makedirs(somewhere(), exist_ok=True)
                elif what < 0.7:
                    os.rename(somewhere(), somewhere())
                elif what < 0.8:
                    exchange(somewhere(), somewhere())
                elif what < 0.9:
                    shutil.rmtree(somewhere())
                else:
                    write(at(somewhere(), b"f"))
            except (OSError, Unsupported):  # a folder cannot go into itself
                continue

    def take() -> None:
        while not stop.is_set():
            linux.take(0.01)

    taker = threading.Thread(target=take)
    writers = [threading.Thread(target=tangle, args=(random.Random(seed * 2 + each),)) for each in range(2)]
    for thread in (taker, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    taker.join()
    linux.drain()
    assert linux.lost() == []
    assert linux.watcher.watched() == folders_of(root) + 1
    paths = {at(folder, b"last") for folder, _folders, _files in os.walk(root)}
    for path in paths:
        write(path)
    suspects = linux.drain()
    assert {each for each in suspects if each.endswith(b"last")} == paths


def test_paths_longer_than_a_path_may_be(linux: Caller, root: bytes) -> None:
    name = b"n" * 200
    here = os.open(root, os.O_RDONLY)
    for _level in range(30):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    linux.watcher.add_tree(root, prune)
    assert linux.watcher.watched() == 31 + 1
    os.mkdir(b"new", dir_fd=here)
    assert linux.watcher.barrier(5.0)
    linux.watcher.take(1.0)
    os.close(os.open(b"new/f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert linux.watcher.barrier(5.0)
    assert b"/".join([name] * 30 + [b"new", b"f"]) in [each.path for each in linux.watcher.take(1.0)]  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_reader_is_told_and_replaced(linux: Caller, root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(at(root, b"d"))
    linux.tree(root)
    descriptor = linux.watcher._descriptor  # type: ignore[attr-defined]
    monkeypatch.setattr(descriptor._sink, "on_event", lambda _event: 1 / 0)
    write(at(root, b"d/f"))
    until(linux, lambda: bool(linux.lost()))
    assert [each.why for each in linux.lost()] == [Why.DIED]
    assert linux.watcher.watched() == 2 + 1
    write(at(root, b"d/g"))
    assert at(root, b"d/g") in linux.drain()


def test_a_barrier_of_a_dead_or_closed_watcher_fails(linux: Caller) -> None:
    linux.watcher.close()
    began = time.monotonic()
    assert not linux.watcher.barrier(5.0)
    assert time.monotonic() - began < 1


def test_a_barrier_without_its_folder_fails_and_works_again_when_it_is_back(linux: Caller, cookies: bytes) -> None:
    assert linux.watcher.barrier(5.0)
    shutil.rmtree(cookies)
    assert not linux.watcher.barrier(0.1)
    os.mkdir(cookies)
    until(linux, lambda: linux.watcher.barrier(0.1))


def test_barriers_from_several_threads(linux: Caller, root: bytes) -> None:
    linux.tree(root)
    proved: list[bool] = []
    threads = [
        threading.Thread(target=lambda: proved.extend(linux.watcher.barrier(10.0) for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proved == [True] * 400


def test_another_watcher_may_clear_our_cookies_away(linux: Caller, opener: Callable[[str], Caller]) -> None:
    assert linux.watcher.barrier(5.0)
    other = opener("inotify")  # begins by removing what looks like the leavings of a crash
    assert other.watcher.barrier(5.0)
    assert linux.watcher.barrier(5.0)


def test_a_barrier_takes_little_time(linux: Caller) -> None:
    times = []
    for _round in range(200):
        began = time.perf_counter()
        assert linux.watcher.barrier(5.0)
        times.append(time.perf_counter() - began)
    assert sorted(times)[100] < 0.05


@pytest.fixture
def few_handles() -> Iterator[Callable[[int], None]]:
    """Lower the number of file handles that may be opened; put back at the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lower(more: int) -> None:
        highest = max(int(each) for each in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, before[1]))

    yield lower
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_too_few_handles_are_told_and_made_good(linux: Caller, root: bytes, few_handles: Callable[[int], None]) -> None:
    deep = at(root, *[b"d"] * 40)
    os.makedirs(deep)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)
    few_handles(15)
    linux.watcher.add_tree(root, prune)
    resource.setrlimit(resource.RLIMIT_NOFILE, soft)
    assert linux.watcher.unwatched()
    linux.take()
    assert Why.WATCH_LIMIT in [each.why for each in linux.lost()]
    assert linux.watcher.barrier(5.0)
    linux.take(0.05)
    until(linux, lambda: not linux.watcher.unwatched())
    assert linux.watcher.watched() == 41 + 1
    write(at(deep, b"f"))
    assert at(deep, b"f") in linux.drain()


UNREADABLE = """
import os, sys
from sidecar.clock import SystemClock
import sidecar.watch.inotify, sidecar.watch.poll  # as long as they may be read
from sidecar.watch import Timing, open_watcher
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
base = os.fsencode(sys.argv[1])
for name in (b"cookies", b"root", b"root/shut", b"root/shut/in"):
    os.mkdir(os.path.join(base, name))
os.chmod(base + b"/root/shut", 0o300)
timing = Timing(0.05, 0.2, 0.25, 0.2, 0.3)
watcher = open_watcher(base + b"/cookies", timing=timing, clock=SystemClock(), force="inotify")
watcher.add_tree(base + b"/root", lambda path: False)
print(watcher.watched(), watcher.unwatched())
os.chmod(base + b"/root/shut", 0o700)
assert watcher.barrier(5.0)
print([(each.path, str(each.what)) for each in watcher.take(1.0)], watcher.watched())
"""


@pytest.mark.root
def test_a_folder_that_may_not_be_read_is_watched_when_it_may(tmp_path: Path) -> None:
    base = Path("/tmp") / f"sidecar-unreadable-{os.getpid()}"
    base.mkdir()
    try:
        os.chown(base, 65534, 65534)
        command = [sys.executable, "-W", "error", "-c", UNREADABLE, str(base)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.stderr == b""
        lines = done.stdout.decode().splitlines()
        assert lines[0] == "2 []"
        assert "(b'root', " not in lines[1] and "(b'shut/in', 'folder')" in lines[1]
        assert lines[1].endswith(" 4")
    finally:
        shutil.rmtree(base)


@pytest.mark.root
def test_a_mount_that_loops_is_walked_once(linux: Caller, root: bytes) -> None:
    os.makedirs(at(root, b"a/b/c"))
    mounted = at(root, b"a/b/c")
    subprocess.run(["mount", "--bind", at(root, b"a"), mounted], check=True)
    try:
        linux.watcher.add_tree(root, prune)
        assert linux.watcher.watched() == 3 + 1
        write(at(root, b"a/b/f"))
        assert linux.watcher.barrier(5.0)
        assert b"a/b/f" in {each.path for each in linux.watcher.take(1.0)}  # type: ignore[union-attr]
    finally:
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.root
def test_a_file_system_that_goes_and_the_folder_beneath(linux: Caller, root: bytes) -> None:
    mounted = at(root, b"m")
    os.mkdir(mounted)
    subprocess.run(["mount", "-t", "tmpfs", "none", mounted], check=True)
    os.mkdir(at(mounted, b"in"))
    linux.watcher.add_tree(root, prune)
    assert linux.watcher.watched() == 3 + 1
    subprocess.run(["umount", mounted], check=True)
    linux.drain()
    assert linux.watcher.watched() == 2 + 1
    write(at(mounted, b"f"))
    assert at(mounted, b"f") in linux.drain()


@pytest.mark.root
def test_a_barrier_works_on_a_full_disk(cookies: bytes, opener: Callable[[str], Caller]) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=10", "none", cookies], check=True)
    try:
        caller = opener("inotify")
        assert caller.watcher.barrier(5.0)
        with pytest.raises(OSError, match="No space"):
            for number in range(20):
                os.close(os.open(at(cookies, b"%d" % number), os.O_CREAT | os.O_WRONLY))
        assert caller.watcher.barrier(5.0)
        caller.watcher.close()
    finally:
        subprocess.run(["umount", cookies], check=True)
