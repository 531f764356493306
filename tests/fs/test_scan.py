"""A listing says when it was made, what it could not see, and whether it may be believed."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.fs.beneath import Blocked, Root, stat_of
from sidecar.fs.read import TICK_NS
from sidecar.fs.scan import Listing, is_staging_name, join, scan
from sidecar.fs.write import Staging
from sidecar.model import Kind, Stat


def everything(_path: bytes, _stat: Stat) -> bool:
    return True


def listed(root: Root, start: bytes = b"") -> dict[bytes, Listing]:
    found: dict[bytes, Listing] = {}
    for listing in scan(root, start, everything):
        assert listing.path not in found
        found[listing.path] = listing
    return found


def names(listing: Listing) -> set[bytes]:
    return {name for name, _ in listing.entries}


@pytest.mark.usefixtures("both_walks")
def test_each_directory_is_listed_once_parents_first(root: Root, work: Path) -> None:
    for path in ("a/b/c", "a/d", "e"):
        (work / path).mkdir(parents=True)
    (work / "a/b/file").write_bytes(b"123")
    os.mkfifo(work / "e/fifo")
    seen: list[bytes] = []
    for listing in scan(root, b"", everything):
        assert listing.path.rpartition(b"/")[0] in (*seen, b"")
        assert listing.fault is None and listing.steady
        assert listing.stat.kind is Kind.DIRECTORY
        for name, stat in listing.entries:
            assert stat_of(stat) == root.stat(join(listing.path, name))
        seen.append(listing.path)
    assert sorted(seen) == [b"", b"a", b"a/b", b"a/b/c", b"a/d", b"e"]
    found = listed(root)
    assert names(found[b"a/b"]) == {b"c", b"file"}
    assert names(found[b"e"]) == {b"fifo"}
    assert set(listed(root, b"a/b")) == {b"a/b", b"a/b/c"}


def test_the_caller_decides_where_to_go(root: Root, work: Path) -> None:
    (work / "node_modules/deep").mkdir(parents=True)
    (work / "src/in").mkdir(parents=True)
    asked: list[bytes] = []

    def enter(path: bytes, stat: Stat) -> bool:
        assert stat.kind is Kind.DIRECTORY
        asked.append(path)
        return path != b"node_modules"

    assert {one.path for one in scan(root, b"", enter)} == {b"", b"src", b"src/in"}
    assert sorted(asked) == [b"node_modules", b"src", b"src/in"]


def test_links_and_staging_folders_are_not_entered(root: Root, work: Path, outside: Path) -> None:
    (work / "link").symlink_to(outside)
    (work / "sub").mkdir()
    (work / ".sidecar-notes").mkdir()  # not ours: only the full form is
    staging = Staging.create(root)
    with Root.open(str(work / "sub")) as below:
        nested = Staging.create(below)
    staging.stage(b"x", 0o600)
    found = listed(root)
    assert set(found) == {b"", b"sub", b".sidecar-notes"}
    assert names(found[b""]) == {b"link", b"sub", b".sidecar-notes"}
    assert found[b"sub"].entries == ()
    assert is_staging_name(nested.name)
    assert staging.name in dict(root.list(b""))  # recovery must find it


def test_an_instant_lies_before_the_listing_and_one_after(root: Root, work: Path) -> None:
    (work / "a").mkdir()
    before = time.time_ns()
    found = listed(root)
    after = time.time_ns()
    for listing in found.values():
        assert before <= listing.listed_at <= listing.done_at <= after


def test_a_start_that_is_no_directory_lists_nothing_and_one_behind_a_link_is_blocked(
    root: Root, work: Path, outside: Path
) -> None:
    (work / "file").write_bytes(b"x")
    (work / "link").symlink_to(outside)
    (outside / "dir").mkdir()
    assert listed(root, b"none") == {}
    assert listed(root, b"file") == {}
    assert listed(root, b"link") == {}
    with pytest.raises(Blocked, match="link"):
        listed(root, b"link/dir")


@pytest.mark.parametrize("swap", ["gone", "link", "file"])
def test_a_directory_swapped_after_it_was_seen_is_a_fault(root: Root, work: Path, outside: Path, swap: str) -> None:
    (work / "dir").mkdir()
    (work / "dir/file").write_bytes(b"x")

    def enter(path: bytes, _stat: Stat) -> bool:
        shutil.rmtree(work / "dir")
        if swap == "link":
            (work / "dir").symlink_to(outside)
        elif swap == "file":
            (work / "dir").write_bytes(b"x")
        return True

    listings = {one.path: one for one in scan(root, b"", enter)}
    fault = listings[b"dir"].fault
    assert fault is not None
    assert fault.errno == {"gone": errno.ENOENT, "link": errno.ELOOP, "file": errno.ENOTDIR}[swap]
    assert listings[b"dir"].entries == ()
    assert not listings[b"dir"].steady


@pytest.mark.root
@pytest.mark.usefixtures("both_walks")
def test_other_mounts_are_shown_and_not_entered(root: Root, work: Path, mount: Callable[..., None]) -> None:
    (work / "mnt").mkdir()
    mount("-t", "tmpfs", "none", str(work / "mnt"))
    (work / "mnt/dir").mkdir()
    asked: list[bytes] = []

    def enter(path: bytes, _stat: Stat) -> bool:
        asked.append(path)
        return True

    listings = list(scan(root, b"", enter))
    assert [one.path for one in listings] == [b""]
    assert dict(listings[0].entries)[b"mnt"].st_dev != root.device
    assert asked == []


@pytest.mark.root
def test_a_part_of_the_same_file_system_mounted_inside_is_a_fault(
    root: Root, work: Path, outside: Path, mount: Callable[..., None]
) -> None:
    (work / "bound").mkdir()
    mount("--bind", str(outside), str(work / "bound"))
    fault = listed(root)[b"bound"].fault
    assert fault is not None and fault.errno == errno.EXDEV


def test_a_failed_look_at_an_entry_is_a_fault_and_a_vanished_entry_is_not(
    root: Root, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "bad").write_bytes(b"x")
    (work / "good").write_bytes(b"x")
    real = os.stat

    def failing(number: int) -> Callable[..., os.stat_result]:
        def look(path: bytes, **keywords: object) -> os.stat_result:
            if path == b"bad":
                raise OSError(number, os.strerror(number))
            return real(path, **keywords)  # type: ignore[arg-type]

        return look

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing(errno.EIO))
        listing = listed(root)[b""]
    assert listing.fault is not None and listing.fault.errno == errno.EIO and not listing.steady
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", failing(errno.ENOENT))
        listing = listed(root)[b""]
    assert listing.fault is None
    assert names(listing) == {b"good"}


def test_a_directory_that_changes_while_listed_is_listed_again(
    root: Root, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a rename hides from one listing, the next one sees; what never rests is said to be unsteady."""
    (work / "old").write_bytes(b"x")
    time.sleep(0.02)
    real = os.listdir
    changes: list[int] = []
    limit = 1

    def hide(fd: int) -> list[str]:
        found = real(fd)
        if len(changes) < limit:
            changes.append(1)
            (work / "old").rename(work / "new")
            (work / "new").rename(work / "old")
            return [name for name in found if name != "old"]
        return found

    monkeypatch.setattr(os, "listdir", hide)
    listing = listed(root)[b""]
    assert names(listing) == {b"old"}
    assert listing.steady
    changes.clear()
    limit = 99
    listing = listed(root)[b""]
    assert not listing.steady
    assert len(changes) == 3


def test_a_directory_that_just_changed_is_believed_only_after_its_tick(root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"x")
    listing = listed(root)[b""]
    assert listing.steady
    assert listing.listed_at - listing.stat.ctime_ns >= TICK_NS


def test_a_directory_removed_while_listed_is_a_fault(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "dir").mkdir()
    real = os.listdir

    def remove(fd: int) -> list[str]:
        if (work / "dir").exists() and os.fstat(fd).st_ino == (work / "dir").stat().st_ino:
            (work / "dir").rmdir()
        return real(fd)

    monkeypatch.setattr(os, "listdir", remove)
    fault = listed(root)[b"dir"].fault
    assert fault is not None and fault.errno == errno.ENOENT


@pytest.mark.usefixtures("both_walks")
def test_a_tree_deeper_than_any_path_may_be(root: Root) -> None:
    path = b""
    for level in range(60):
        path = join(path, b"%02d" % level + b"n" * 198)
        root.make_directory(path, 0o755)
    staging = Staging.create(root)
    staging.place(staging.stage(b"deep", 0o644), join(path, b"file"))
    assert staging.close()
    found = listed(root)
    assert len(found) == 61
    assert names(found[path]) == {b"file"}
    assert all(one.fault is None for one in found.values())


def test_a_wide_and_odd_tree_is_scanned_fast(root: Root, work: Path) -> None:
    for number in range(500):
        folder = os.fsencode(work) + b"/\xff%d" % number
        os.mkdir(folder)
        for inner in range(20):
            os.close(os.open(folder + b"/%d" % inner, os.O_CREAT | os.O_WRONLY))
    taken: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        total = sum(len(one.entries) for one in scan(root, b"", everything))
        taken.append(time.perf_counter() - started)
        assert total == 500 * 21
    assert min(taken) < 0.3


def test_no_handle_is_left_open(root: Root, work: Path) -> None:
    (work / "a/b").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for listing in scan(root, b"", everything):
        assert listing.fault is None
        break
    listed(root)
    assert len(os.listdir("/proc/self/fd")) == before
