"""Nothing is replaced or lost on its way in or out of the staging folder."""

import contextlib
import errno
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.fs import native
from sidecar.fs.beneath import Blocked, Root
from sidecar.fs.read import Whole, read_whole
from sidecar.fs.scan import is_staging_name, scan
from sidecar.fs.write import DISPLACED_SUFFIX, Displaced, Staging, fresh_name, fresh_staging_name
from sidecar.model import Kind


@pytest.fixture
def staging(root: Root) -> Staging:
    return Staging.create(root)


def test_the_folder_is_private_and_has_a_name_of_its_own(root: Root, work: Path) -> None:
    old = os.umask(0o022)
    try:
        staging = Staging.create(root)
    finally:
        os.umask(old)
    folder = work / os.fsdecode(staging.name)
    assert is_staging_name(staging.name)
    assert folder.stat().st_mode & 0o7777 == 0o700
    assert staging.close()
    assert not folder.exists()
    assert os.listdir(work) == []


def test_only_names_of_ours_are_made_or_adopted(root: Root, work: Path) -> None:
    (work / "src").mkdir()
    for name in (b"src", b".sidecar-notes", b"../x", b".sidecar-" + b"0" * 31, b".sidecar-" + b"0" * 32 + b"/.."):
        with pytest.raises(ValueError):
            Staging.adopt(root, name)
        with pytest.raises(ValueError):
            Staging.create(root, name)
    name = fresh_staging_name()
    with pytest.raises(FileNotFoundError):
        Staging.adopt(root, name)
    Staging.create(root, name)
    with pytest.raises(FileExistsError):
        Staging.create(root, name)


def test_a_folder_is_found_again_after_a_crash(root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"mine")
    crashed = Staging.create(root)
    name = crashed.park(b"file", fresh_name())
    adopted = Staging.adopt(root, crashed.name)
    assert adopted.names() == [name]
    assert adopted.read(name) == b"mine"
    adopted.unpark(name, b"file")
    assert adopted.close()
    assert (work / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(3 << 20)])
def test_a_staged_file_is_exact(staging: Staging, content: bytes) -> None:
    old = os.umask(0o077)
    try:
        name = staging.stage(content, 0o2754)
    finally:
        os.umask(old)
    found = staging.stat(name)
    assert found is not None
    assert (found.kind, found.mode, found.size_bytes) == (Kind.FILE, 0o2754, len(content))
    assert staging.read(name) == content


def test_a_staged_file_is_hidden_until_it_is_done(
    staging: Staging, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = os.write

    def look(fd: int, data: bytes) -> int:
        modes.append(os.fstat(fd).st_mode & 0o7777)
        return real(fd, data[:2])  # and the system may write less than asked

    monkeypatch.setattr(os, "write", look)
    name = staging.stage(b"12345", 0o666)
    assert modes == [0o600] * 3
    assert staging.read(name) == b"12345"


@pytest.mark.parametrize("fault", ["zero", "short", "full", "flush", "mode"])
def test_a_fault_while_staging_is_raised_and_leaves_nothing(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    if fault == "zero":
        monkeypatch.setattr(os, "write", lambda *_: 0)
    elif fault == "short":
        monkeypatch.setattr(os, "write", lambda _, data: len(data))  # says yes and writes nothing
    elif fault == "full":
        monkeypatch.setattr(os, "write", fail)
    elif fault == "flush":
        monkeypatch.setattr(native, "flush", fail)
    else:
        monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OSError):
        staging.stage(b"content", 0o644)
    assert staging.names() == []


def test_a_file_is_flushed_with_its_final_mode(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    monkeypatch.setattr(native, "flush", lambda fd: modes.append(os.fstat(fd).st_mode & 0o7777))
    staging.stage(b"content", 0o640)
    assert modes == [0o640]


def test_attributes_and_acl_of_the_displaced_file_come_along(staging: Staging, root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"old")
    try:
        os.setxattr(work / "file", "user.note", b"kept")
    except OSError:
        pytest.skip("no attributes on this file system")
    name = staging.stage(b"new", 0o640, root.stat(b"file"), like_path=b"file")
    staging.exchange(name, b"file")
    assert os.getxattr(work / "file", "user.note") == b"kept"
    assert (work / "file").stat().st_mode & 0o7777 == 0o640
    for path in (b"none", b"none/below"):
        staging.stage(b"new", 0o640, like_path=path)  # best effort


@pytest.mark.root
def test_owner_and_group_of_the_displaced_file_come_along(staging: Staging, root: Root, work: Path) -> None:
    (work / "file").write_bytes(b"old")
    os.chown(work / "file", 65534, 65533)
    name = staging.stage(b"new", 0o4755, root.stat(b"file"))
    found = staging.stat(name)
    assert found is not None and (found.uid, found.gid, found.mode) == (65534, 65533, 0o4755)


@pytest.mark.root
def test_powers_of_the_old_content_do_not_come_along(staging: Staging, root: Root, work: Path) -> None:
    (work / "tool").write_bytes(b"old")
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    os.setxattr(work / "tool", "security.capability", capability)
    name = staging.stage(b"new", 0o755, root.stat(b"tool"), like_path=b"tool")
    assert "security.capability" not in os.listxattr(work / os.fsdecode(staging.name) / os.fsdecode(name))


@pytest.mark.parametrize("there", ["file", "empty", "dir", "link", "dangling", "fifo"])
@pytest.mark.usefixtures("both_renames")
def test_placing_replaces_nothing(staging: Staging, work: Path, there: str) -> None:
    _make(work / "there", there)
    before = (work / "there").lstat()
    name = staging.stage(b"new", 0o644)
    tree = _parked_tree(staging, work)
    for entry in (name, tree):
        with pytest.raises(FileExistsError):
            staging.place(entry, b"there")
    assert (work / "there").lstat().st_ino == before.st_ino
    assert (work / "there").lstat().st_mode == before.st_mode
    assert sorted(staging.names()) == sorted([name, tree])
    assert staging.read(name) == b"new"
    assert staging.read(tree + b"/inner") == b"tree"


@pytest.mark.usefixtures("both_renames", "both_walks")
def test_placing_puts_it_there_and_takes_it_from_staging(staging: Staging, root: Root, work: Path) -> None:
    (work / "a/b").mkdir(parents=True)
    name = staging.stage(b"new", 0o600)
    staging.place(name, b"a/b/\xff")
    found = root.stat(b"a/b/\xff")
    assert found is not None and (found.links, found.mode, found.size_bytes) == (1, 0o600, 3)
    assert staging.names() == []
    with pytest.raises(FileNotFoundError):
        staging.place(staging.stage(b"x", 0o600, name=b"x"), b"a/none/x")
    assert staging.names() == [b"x"]


@pytest.mark.parametrize("there", ["file", "empty", "dir", "link", "dangling", "fifo"])
@pytest.mark.usefixtures("both_renames")
def test_an_exchange_keeps_what_was_there_and_can_be_taken_back(staging: Staging, work: Path, there: str) -> None:
    _make(work / "there", there)
    before = (work / "there").lstat()
    name = staging.stage(b"new", 0o644)
    staging.exchange(name, b"there")
    assert (work / "there").read_bytes() == b"new"
    assert not (work / "there").is_symlink()
    held = staging.stat(name)
    assert held is not None and held.inode == before.st_ino
    assert staging.names() == [name]
    staging.exchange(name, b"there")
    assert (work / "there").lstat().st_ino == before.st_ino
    assert staging.read(name) == b"new"
    if there == "dir":
        assert (work / "there/inner").read_bytes() == b"tree"


@pytest.mark.usefixtures("both_renames")
def test_an_exchange_needs_both(staging: Staging, work: Path) -> None:
    name = staging.stage(b"new", 0o644)
    with pytest.raises(FileNotFoundError):
        staging.exchange(name, b"none")
    assert staging.read(name) == b"new"
    (work / "there").write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        staging.exchange(b"no-such-name", b"there")
    assert (work / "there").read_bytes() == b"old"
    assert set(os.listdir(work)) == {"there", os.fsdecode(staging.name)}


def test_an_exchange_without_the_call_puts_the_old_back_when_it_fails(
    staging: Staging, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "RENAME_FLAGS", False)
    (work / "there").write_bytes(b"old")
    name = staging.stage(b"new", 0o644)
    real = os.link
    calls: list[str] = []

    def fail_once(source: bytes, *arguments: object, **keywords: object) -> None:
        calls.append("link")
        if len(calls) == 1:
            raise OSError(errno.EIO, "no")
        real(source, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", fail_once)
    with pytest.raises(OSError) as caught:
        staging.exchange(name, b"there")
    assert caught.value.errno == errno.EIO
    assert (work / "there").read_bytes() == b"old"
    assert staging.names() == [name]


def test_an_exchange_without_the_call_never_replaces_a_newcomer(
    staging: Staging, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "RENAME_FLAGS", False)
    (work / "there").write_bytes(b"old")
    name = staging.stage(b"new", 0o644)
    real = os.rename

    def and_a_newcomer(source: bytes, target: bytes, **keywords: int) -> None:
        real(source, target, **keywords)
        if source == b"there":
            (work / "there").write_bytes(b"newcomer")

    monkeypatch.setattr(os, "rename", and_a_newcomer)
    with pytest.raises(Displaced) as caught:
        staging.exchange(name, b"there")
    assert caught.value.held == name + DISPLACED_SUFFIX
    assert (work / "there").read_bytes() == b"newcomer"
    assert staging.read(caught.value.held) == b"old"
    assert staging.read(name) == b"new"
    assert staging.close() is False


@pytest.mark.parametrize("there", ["file", "empty", "dir", "link", "dangling", "fifo"])
@pytest.mark.usefixtures("both_renames")
def test_parking_takes_anything_and_gives_it_back(staging: Staging, work: Path, there: str) -> None:
    (work / "in").mkdir()
    _make(work / "in/there", there)
    before = (work / "in/there").lstat()
    name = staging.park(b"in/there")
    assert not os.path.lexists(work / "in/there")
    held = staging.stat(name)
    assert held is not None and held.inode == before.st_ino
    _make(work / "in/there", "file")
    with pytest.raises(FileExistsError):
        staging.unpark(name, b"in/there")
    (work / "in/there").unlink()
    staging.unpark(name, b"in/there")
    assert (work / "in/there").lstat().st_ino == before.st_ino
    assert (work / "in/there").lstat().st_mode == before.st_mode
    if there == "dir":
        assert (work / "in/there/inner").read_bytes() == b"tree"


@pytest.mark.usefixtures("both_renames")
def test_parking_never_replaces_what_is_parked(staging: Staging, work: Path) -> None:
    (work / "one").write_bytes(b"one")
    (work / "two").write_bytes(b"two")
    staging.park(b"one", b"name")
    with pytest.raises(FileExistsError):
        staging.park(b"two", b"name")
    assert staging.read(b"name") == b"one"
    assert (work / "two").read_bytes() == b"two"
    with pytest.raises(FileNotFoundError):
        staging.park(b"none")
    with pytest.raises(Blocked):
        staging.park(b"")


@pytest.mark.usefixtures("both_renames", "both_walks")
def test_nothing_goes_through_a_link(staging: Staging, work: Path, outside: Path) -> None:
    (work / "way").symlink_to(outside)
    name = staging.stage(b"new", 0o644)
    calls: list[Callable[[bytes], object]] = [
        lambda path: staging.place(name, path),
        lambda path: staging.exchange(name, path),
        staging.park,
        lambda path: staging.unpark(name, path),
    ]
    for call in calls:
        for path in (b"way/secret", b"way/new", b"../outside/secret"):
            with pytest.raises(Blocked):
                call(path)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"
    assert staging.names() == [name]


def test_only_files_and_links_of_the_folder_are_discarded(staging: Staging, work: Path, outside: Path) -> None:
    (work / "keep").write_bytes(b"keep")
    (work / "link").symlink_to(outside / "secret")
    (work / "way").symlink_to(outside)
    os.mkfifo(work / "fifo")
    tree, link, way, fifo = _parked_tree(staging, work), *map(staging.park, (b"link", b"way", b"fifo"))
    for name in (b"../keep", b"", b".", way + b"/secret"):
        with pytest.raises(Blocked):
            staging.discard(name)
    for name in (tree, fifo):
        with pytest.raises(OSError) as caught:
            staging.discard(name)
        assert caught.value.errno == errno.EPERM
    assert not staging.discard_empty_directory(tree)
    assert not staging.discard_empty_directory(link)
    staging.discard(link)
    staging.discard(way)
    staging.discard(tree + b"/inner")
    assert staging.discard_empty_directory(tree)
    assert staging.names() == [fifo]
    assert (work / "keep").read_bytes() == b"keep"
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_folder_with_anything_in_it_stays(staging: Staging, work: Path) -> None:
    staging.stage(b"x", 0o644, name=b"x")
    assert staging.close() is False
    assert (work / os.fsdecode(staging.name) / "x").read_bytes() == b"x"


def test_a_folder_that_was_moved_away_is_not_removed_under_its_name(staging: Staging, work: Path) -> None:
    (work / os.fsdecode(staging.name)).rename(work / "elsewhere")
    (work / os.fsdecode(staging.name)).mkdir()
    assert staging.close() is False
    assert (work / os.fsdecode(staging.name)).is_dir()


def test_a_folder_that_was_removed_is_no_error(staging: Staging, work: Path) -> None:
    (work / os.fsdecode(staging.name)).rmdir()
    assert staging.close() is False


def test_what_is_parked_can_be_read_and_scanned_like_a_workspace(staging: Staging, work: Path) -> None:
    tree = _parked_tree(staging, work)
    outcome = read_whole(staging.inside, tree + b"/inner", ceiling_bytes=9, attempts=3)
    assert isinstance(outcome, Whole) and outcome.content == b"tree" and outcome.sure
    listings = list(scan(staging.inside, tree, lambda path, stat: True))
    assert [(one.path, [name for name, _ in one.entries]) for one in listings] == [(tree, [b"inner"])]


def test_sync_flushes_the_folder_first_and_the_root_last(
    staging: Staging, root: Root, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a/b").mkdir(parents=True)
    (work / "a/b/old").write_bytes(b"old")
    staging.place(staging.stage(b"1", 0o644), b"a/new")
    staging.park(b"a/b/old")
    flushed: list[int] = []
    monkeypatch.setattr(native, "flush", lambda fd: flushed.append(os.fstat(fd).st_ino))
    staging.sync()
    assert flushed == [
        staging.inside.inode,
        (work / "a/b").stat().st_ino,
        (work / "a").stat().st_ino,
        root.inode,
    ]
    flushed.clear()
    staging.sync()
    assert flushed == [staging.inside.inode]


def test_sync_flushes_everything_where_a_directory_moved_away(
    staging: Staging, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "a").mkdir()
    staging.place(staging.stage(b"1", 0o644), b"a/new")
    (work / "a").rename(work / "b")
    called: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: called.append("sync"))
    staging.sync()
    assert called == ["sync"]


def test_a_fault_of_a_flush_is_not_swallowed(staging: Staging, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError):
        staging.sync()


@pytest.mark.root
def test_a_full_disk_leaves_the_workspace_as_it_was(tmp_path: Path, mount: Callable[..., None]) -> None:
    where = tmp_path / "small"
    where.mkdir()
    mount("-t", "tmpfs", "-o", "size=256k", "none", str(where))
    (where / "file").write_bytes(b"old")
    with Root.open(str(where)) as root:
        staging = Staging.create(root)
        with pytest.raises(OSError) as caught:
            staging.stage(b"x" * 300_000, 0o644)
        assert caught.value.errno == errno.ENOSPC
        assert staging.names() == []
        assert staging.close()
    assert os.listdir(where) == ["file"]
    assert (where / "file").read_bytes() == b"old"


@pytest.mark.root
def test_nothing_is_moved_across_a_mount(staging: Staging, work: Path, mount: Callable[..., None]) -> None:
    (work / "mnt").mkdir()
    mount("-t", "tmpfs", "none", str(work / "mnt"))
    (work / "mnt/file").write_bytes(b"x")
    name = staging.stage(b"new", 0o644)
    for call in (lambda: staging.place(name, b"mnt/new"), lambda: staging.park(b"mnt/file")):
        with pytest.raises(Blocked, match="mount"):
            call()
    with pytest.raises(OSError):
        staging.park(b"mnt")
    with pytest.raises(OSError):
        staging.exchange(name, b"mnt")
    assert (work / "mnt/file").read_bytes() == b"x"
    assert staging.names() == [name]


@pytest.mark.root
def test_an_immutable_file_stays(staging: Staging, work: Path) -> None:
    (work / "file").write_bytes(b"old")
    if subprocess.run(["chattr", "+i", work / "file"], check=False, capture_output=True).returncode:
        pytest.skip("no immutable files here")
    try:
        name = staging.stage(b"new", 0o644)
        for call in (lambda: staging.exchange(name, b"file"), lambda: staging.park(b"file")):
            with pytest.raises(PermissionError):
                call()
    finally:
        subprocess.run(["chattr", "-i", work / "file"], check=True)
    assert (work / "file").read_bytes() == b"old"
    assert staging.names() == [name]


@pytest.mark.parametrize("how", ["place", "exchange", "park"])
@pytest.mark.usefixtures("both_renames")
def test_no_byte_of_a_racing_writer_is_lost(staging: Staging, work: Path, how: str) -> None:
    """A writer puts numbered contents at the path, by rename; each is at the path, replaced by it, or in staging."""
    stop = threading.Event()
    written: list[bytes] = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (work / "tmp").write_bytes(b"%d" % number)
            with contextlib.suppress(FileExistsError):
                os.link(work / "tmp", work / "there")  # never replaces: so nothing is lost but by us
                written.append(b"%d" % number)
            (work / "tmp").unlink()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(200):
            name = staging.stage(b"ours", 0o644)
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                if how == "place":
                    staging.place(name, b"there")
                elif how == "exchange":
                    staging.exchange(name, b"there")
            with contextlib.suppress(FileNotFoundError):
                staging.park(b"there")
    finally:
        stop.set()
        thread.join()
    kept = [staging.read(name) for name in staging.names()]
    if (work / "there").exists():
        kept.append((work / "there").read_bytes())
    assert sorted(set(kept) - {b"ours"}) == sorted(written)
    assert kept.count(b"ours") == 200
    assert written


def _make(path: Path, what: str) -> None:
    if what == "file":
        path.write_bytes(b"old")
    elif what == "empty":
        path.mkdir()
    elif what == "dir":
        path.mkdir()
        (path / "inner").write_bytes(b"tree")
    elif what == "link":
        (path.parent / "target").write_bytes(b"target")
        path.symlink_to("target")
    elif what == "dangling":
        path.symlink_to("nowhere")
    else:
        os.mkfifo(path)


def _parked_tree(staging: Staging, work: Path) -> bytes:
    _make(work / "tree", "dir")
    return staging.park(b"tree")
