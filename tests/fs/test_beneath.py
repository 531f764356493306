"""The walk stays below its root, whatever lies on the way."""

import contextlib
import errno
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import NoWorkspace
from sidecar.fs.beneath import Blocked, Root, components
from sidecar.fs.read import Gone, Linked, Unread, Whole, read_whole
from sidecar.fs.write import Staging
from sidecar.model import Kind

ODD = b"\xff\xfe\n.txt"


def test_a_root_is_found_through_links_and_knows_itself(work: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(work)
    with Root.open(str(tmp_path / "way")) as root:
        assert root.path == os.fsencode(work.resolve())
        assert (root.device, root.inode) == (work.stat().st_dev, work.stat().st_ino)
        assert root.same_place()
        work.rename(tmp_path / "moved")
        assert not root.same_place()
        work.mkdir()
        assert not root.same_place()  # another directory under the same name
        work.rmdir()
        work.symlink_to(tmp_path / "moved")
        assert not root.same_place()  # a link to it is not it


@pytest.mark.parametrize("what", ["absent", "file", "loop", "nul"])
def test_what_is_no_workspace_is_refused(tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = os.fsencode(tmp_path / what) if what != "nul" else b"a\0b"
    with pytest.raises(NoWorkspace):
        Root.open(path)


@pytest.mark.parametrize("path", [b"/etc/passwd", b"..", b"a/../b", b".", b"a/./b", b"a//b", b"a/", b"a\0b", b"/"])
def test_malformed_paths_escape_nothing(root: Root, work: Path, path: bytes) -> None:
    (work / "a").mkdir()
    (work / "a/b").write_bytes(b"x")
    for call in (root.stat, root.list, root.open_read, root.remove_directory, lambda p: root.make_directory(p, 0o755)):
        with pytest.raises(Blocked) as caught:
            call(path)
        assert caught.value.why == "escape"
        assert caught.value.path == path


@pytest.mark.parametrize("make", ["parent", "remove_directory", "make_directory"])
def test_the_root_itself_has_no_parent(root: Root, make: str) -> None:
    with pytest.raises(Blocked, match="escape"):
        if make == "parent":
            with root.parent(b""):
                pass
        elif make == "remove_directory":
            root.remove_directory(b"")
        else:
            root.make_directory(b"", 0o755)


@pytest.mark.usefixtures("both_walks")
def test_stat_says_what_is_there(root: Root, work: Path) -> None:
    (work / "a/b").mkdir(parents=True)
    (work / "a/b/file").write_bytes(b"12345")
    (work / "a/b/file").chmod(0o640)
    os.link(work / "a/b/file", work / "second")
    (work / "link").symlink_to("a")
    os.mkfifo(work / "fifo")
    found = root.stat(b"a/b/file")
    assert found is not None
    real = (work / "a/b/file").lstat()
    assert (found.kind, found.mode, found.size_bytes, found.links) == (Kind.FILE, 0o640, 5, 2)
    assert (found.inode, found.mtime_ns, found.ctime_ns) == (real.st_ino, real.st_mtime_ns, real.st_ctime_ns)
    for path, kind in ((b"", Kind.DIRECTORY), (b"a", Kind.DIRECTORY), (b"link", Kind.LINK), (b"fifo", Kind.UNKNOWN)):
        seen = root.stat(path)
        assert seen is not None and seen.kind is kind
    assert root.stat(b"none") is None
    assert root.stat(b"none/below") is None
    assert root.stat(b"a/" + b"n" * 300) is None


@pytest.mark.usefixtures("both_walks")
def test_no_call_goes_through_a_link_or_a_file(root: Root, work: Path, outside: Path) -> None:
    (work / "link").symlink_to(outside)
    (work / "in").mkdir()
    (work / "in/link").symlink_to("..")
    (work / "file").write_bytes(b"x")
    calls: list[Callable[[bytes], object]] = [
        root.stat,
        root.open_read,
        root.list,
        root.remove_directory,
        lambda path: root.make_directory(path, 0o755),
        lambda path: root.chmod(path, 0o777),
    ]
    before = outside.stat().st_mode
    for call in calls:
        for path, why in ((b"link/secret", "link"), (b"in/link/file", "link"), (b"file/x", "not-a-directory")):
            with pytest.raises(Blocked) as caught:
                call(path)
            assert caught.value.why == why
    with pytest.raises(Blocked, match="link"):
        root.list(b"link")
    with pytest.raises(OSError) as failed:
        root.open_read(b"link")
    assert failed.value.errno == errno.ELOOP
    with pytest.raises(OSError) as failed:
        root.chmod(b"link", 0o777)
    assert failed.value.errno == errno.ELOOP
    assert not root.remove_directory(b"link")
    assert (outside / "secret").read_bytes() == b"secret"
    assert outside.stat().st_mode == before
    assert os.listdir(outside) == ["secret"]


@pytest.mark.usefixtures("both_walks")
def test_odd_names_go_in_and_out_as_bytes(root: Root, work: Path) -> None:
    folder = os.fsencode(work)
    os.mkdir(folder + b"/\xff dir")
    with open(folder + b"/\xff dir/" + ODD, "wb") as file:
        file.write(b"odd")
    assert [name for name, _ in root.list(b"")] == [b"\xff dir"]
    assert [name for name, _ in root.list(b"\xff dir")] == [ODD]
    outcome = read_whole(root, b"\xff dir/" + ODD, ceiling_bytes=10, attempts=3)
    assert isinstance(outcome, Whole) and outcome.content == b"odd"


@pytest.mark.usefixtures("both_walks")
def test_a_tree_deeper_than_any_path_may_be(root: Root) -> None:
    path = b""
    for level in range(60):
        path = (path + b"/" if path else b"") + b"%02d" % level + b"n" * 198
        root.make_directory(path, 0o750)
    found = root.stat(path)
    assert found is not None and found.kind is Kind.DIRECTORY and found.mode == 0o750
    assert len(path) > 12_000


def test_directories_get_the_mode_asked_for_whatever_the_umask(root: Root, work: Path) -> None:
    old = os.umask(0o077)
    try:
        root.make_directory(b"open", 0o1777)
    finally:
        os.umask(old)
    assert (work / "open").stat().st_mode & 0o7777 == 0o1777
    with pytest.raises(FileExistsError):
        root.make_directory(b"open", 0o700)
    assert (work / "open").stat().st_mode & 0o7777 == 0o1777


def test_only_empty_directories_are_removed(root: Root, work: Path) -> None:
    (work / "full").mkdir()
    (work / "full/file").write_bytes(b"x")
    (work / "empty").mkdir()
    assert root.remove_directory(b"empty") is True
    assert root.remove_directory(b"empty") is False
    assert root.remove_directory(b"none/below") is False
    assert root.remove_directory(b"full") is False
    assert root.remove_directory(b"full/file") is False
    assert (work / "full/file").read_bytes() == b"x"


@pytest.mark.usefixtures("both_walks")
def test_modes_are_set_on_files_and_directories_and_nothing_else(root: Root, work: Path) -> None:
    (work / "dir").mkdir()
    (work / "file").write_bytes(b"x")
    (work / "twin").write_bytes(b"x")
    os.link(work / "twin", work / "second")
    os.mkfifo(work / "fifo", 0o600)
    root.chmod(b"dir", 0o711)
    root.chmod(b"file", 0o4755)
    assert (work / "dir").stat().st_mode & 0o7777 == 0o711
    assert (work / "file").stat().st_mode & 0o7777 == 0o4755
    with pytest.raises(OSError) as caught:
        root.chmod(b"twin", 0o777)
    assert caught.value.errno == errno.EMLINK
    with pytest.raises(OSError):
        root.chmod(b"fifo", 0o777)
    assert (work / "twin").stat().st_mode & 0o777 != 0o777
    assert (work / "fifo").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("both_walks")
def test_opening_a_fifo_or_a_socket_never_blocks(root: Root, work: Path) -> None:
    os.mkfifo(work / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(work)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        started = time.monotonic()
        os.close(root.open_read(b"fifo"))
        with pytest.raises(OSError):
            root.open_read(b"socket")
        assert time.monotonic() - started < 1


@pytest.mark.root
@pytest.mark.usefixtures("both_walks")
def test_another_mount_is_seen_and_not_entered(root: Root, work: Path, mount: Callable[..., None]) -> None:
    (work / "in/mnt").mkdir(parents=True)
    mount("-t", "tmpfs", "none", str(work / "in/mnt"))
    (work / "in/mnt/dir").mkdir()
    (work / "in/mnt/file").write_bytes(b"x")
    seen = root.stat(b"in/mnt")
    assert seen is not None and seen.device != root.device
    assert root.path_is_mountpoint(b"in/mnt")
    assert not root.path_is_mountpoint(b"in")
    calls: list[Callable[[], object]] = [
        lambda: root.stat(b"in/mnt/file"),
        lambda: root.open_read(b"in/mnt/file"),
        lambda: root.list(b"in/mnt"),
        lambda: root.list(b"in/mnt/dir"),
        lambda: root.make_directory(b"in/mnt/new", 0o700),
        lambda: root.remove_directory(b"in/mnt/dir"),
        lambda: root.chmod(b"in/mnt", 0o700),
        lambda: root.beneath(b"in/mnt"),
    ]
    for call in calls:
        with pytest.raises(Blocked, match="mount"):
            call()
    assert sorted(os.listdir(work / "in/mnt")) == ["dir", "file"]


@pytest.mark.root
def test_a_part_of_the_same_file_system_mounted_inside_is_a_mount_too(
    root: Root, work: Path, outside: Path, mount: Callable[..., None]
) -> None:
    (work / "bound").mkdir()
    (work / "one").write_bytes(b"")
    mount("--bind", str(outside), str(work / "bound"))
    mount("--bind", str(outside / "secret"), str(work / "one"))
    assert (work / "bound").stat().st_dev == root.device  # st_dev alone would not tell
    assert root.path_is_mountpoint(b"bound")
    for call in (lambda: root.list(b"bound"), lambda: root.stat(b"bound/secret"), lambda: root.open_read(b"one")):
        with pytest.raises(Blocked, match="mount"):
            call()


@pytest.mark.root
@pytest.mark.usefixtures("both_walks")
def test_a_file_of_another_file_system_mounted_over_ours_is_not_opened(
    root: Root, work: Path, tmp_path: Path, mount: Callable[..., None]
) -> None:
    (tmp_path / "other").mkdir()
    mount("-t", "tmpfs", "none", str(tmp_path / "other"))
    (tmp_path / "other/file").write_bytes(b"other")
    (work / "file").write_bytes(b"ours")
    mount("--bind", str(tmp_path / "other/file"), str(work / "file"))
    with pytest.raises(Blocked, match="mount"):
        root.open_read(b"file")
    with pytest.raises(Blocked, match="mount"):
        root.chmod(b"file", 0o777)
    assert root.path_is_mountpoint(b"file")


@pytest.mark.usefixtures("both_walks")
def test_another_device_without_a_mount_is_not_entered(root: Root, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a subvolume is: the kernel sees no mount there, only the device number differs."""
    (work / "sub/in").mkdir(parents=True)
    monkeypatch.setattr(root, "device", root.device + 1)
    before = len(os.listdir("/proc/self/fd"))
    for path in (b"sub", b"sub/in"):
        with pytest.raises(Blocked, match="mount"):
            root.list(path)
    with pytest.raises(Blocked, match="mount"):
        root.chmod(b"sub", 0o777)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_an_owner_without_rights_of_root(work: Path) -> None:
    """Walk through a folder that may be entered and not listed, and set the mode of a file that may not be read."""
    (work / "pass/in").mkdir(parents=True)
    (work / "pass/in/file").write_bytes(b"x")
    (work / "shut").write_bytes(b"x")
    (work / "closed").mkdir()
    (work / "work2").mkdir(mode=0o700)
    program = """
import os, sys
from sidecar.errors import NoWorkspace
from sidecar.fs.beneath import Root
from sidecar.fs.read import Unread, Whole, has_writer, read_whole
from sidecar.fs.scan import scan
from sidecar.fs.write import Staging
from sidecar.model import Reason
# Only now: an interpreter in root's home could not be started by anybody else.
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
root = Root.open(sys.argv[1])
os.chmod(sys.argv[1] + "/pass", 0o311)
os.chmod(sys.argv[1] + "/shut", 0)
os.chmod(sys.argv[1] + "/closed", 0)
assert root.stat(b"pass/in/file").size_bytes == 1
assert read_whole(root, b"pass/in/file", ceiling_bytes=9, attempts=3).sure
shut = read_whole(root, b"shut", ceiling_bytes=9, attempts=3)
assert isinstance(shut, Unread) and shut.reason is Reason.UNSTORABLE and shut.stat.size_bytes == 1
listings = {one.path: one for one in scan(root, b"", lambda path, stat: True)}
assert listings[b"pass"].fault.errno == 13 and listings[b"closed"].fault.errno == 13, listings
assert listings[b""].fault is None and {n for n, _ in listings[b""].entries} >= {b"pass", b"shut", b"closed"}
assert b"pass/in" not in listings
root.chmod(b"shut", 0o640)
assert root.stat(b"shut").mode == 0o640
# a folder that cannot be flushed by itself, and a file of somebody else
staging = Staging.create(root)
name = staging.stage(b"new", 0o4755, root.stat(b"foreign"), like_path=b"foreign")
assert staging.stat(name).mode == 0o755, oct(staging.stat(name).mode)  # not set-id for another owner
staging.place(name, b"pass/new")
assert staging.close()
fd = root.open_read(b"foreign")
assert has_writer(root, fd) is None
fresh = read_whole(root, b"foreign", ceiling_bytes=9, attempts=3, settle_ns=3600 * 10**9)
assert isinstance(fresh, Whole) and not fresh.sure
old = read_whole(root, b"foreign", ceiling_bytes=9, attempts=3, settle_ns=1)
assert isinstance(old, Whole) and old.sure
try:
    Root.open(sys.argv[1] + "/work2")
except NoWorkspace as error:
    print("refused", error)
"""
    for path in [work, *work.rglob("*")]:
        os.chown(path, 65534, 65534)
    (work / "foreign").write_bytes(b"foreign")
    os.chown(work / "foreign", 65533, 65533)
    (work / "foreign").chmod(0o644)
    os.chown(work / "work2", 0, 0)
    for folder in work.parents:
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", program, str(work)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused")
    assert (work / "pass/new").read_bytes() == b"new"


def _swap(folder: str, outside: str, stop: Event) -> None:
    real, aside = os.path.join(folder, "dir"), os.path.join(folder, "aside")
    while not stop.is_set():
        os.rename(real, aside)
        os.symlink(outside, real)
        os.unlink(real)
        os.rename(aside, real)
        if random.random() < 0.1:  # a busy machine's reader is to come through, too
            time.sleep(0.001)


@pytest.mark.slow
def test_an_attacker_who_swaps_a_folder_for_a_link_gains_nothing(
    root: Root, work: Path, outside: Path, both_walks: str
) -> None:
    (work / "dir/deep").mkdir(parents=True)
    (work / "dir/secret").write_bytes(b"inside")
    (outside / "deep").mkdir()
    before = (outside / "secret").stat()
    processes = multiprocessing.get_context("fork")
    stop = processes.Event()
    attacker = processes.Process(target=_swap, args=(str(work), str(outside), stop))
    attacker.start()
    reads = blocked = writes = 0
    staging = Staging.create(root)
    began = time.monotonic()
    while (time.monotonic() < began + 2 or not (reads and blocked and writes)) and time.monotonic() < began + 60:
        outcome = read_whole(root, b"dir/secret", ceiling_bytes=100, attempts=1)
        if isinstance(outcome, Whole):
            assert outcome.content in (b"inside", b"written")
            reads += 1
        else:
            assert isinstance(outcome, Linked | Gone | Unread), outcome
            blocked += 1
        name = staging.stage(b"written", 0o600)
        try:
            staging.exchange(name, b"dir/secret")
            assert staging.read(name) in (b"inside", b"written")
            writes += 1
        except (Blocked, FileNotFoundError):
            pass
        for call in (lambda: root.make_directory(b"dir/deep/made", 0o700), lambda: root.chmod(b"dir/secret", 0o644)):
            with contextlib.suppress(Blocked, FileNotFoundError, FileExistsError):
                call()
    stop.set()
    attacker.join()
    assert attacker.exitcode == 0
    assert reads and blocked and writes
    after = (outside / "secret").stat()
    assert (outside / "secret").read_bytes() == b"secret"
    assert (before.st_mode, before.st_ctime_ns) == (after.st_mode, after.st_ctime_ns)
    assert os.listdir(outside / "deep") == []
    assert sorted(os.listdir(outside)) == ["deep", "secret"]


@pytest.mark.parametrize("path", [b"...", b"..a", b"a..", b".git/.x", b"a/...", b"-", b"\n", b"a\n", b"~", b" "])
def test_names_that_only_look_odd_are_names(root: Root, path: bytes) -> None:
    assert components(path) == path.split(b"/")
    assert root.stat(path) is None


@given(st.lists(st.sampled_from([b"", b".", b"..", b"...", b"a", b"\n", b".\n", b"\0", b"\xff"]), min_size=1))
def test_a_path_is_its_components_or_escapes(parts: list[bytes]) -> None:
    path = b"/".join(parts)
    if path == b"":
        assert components(path) == []
    elif any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        with pytest.raises(Blocked):
            components(path)
    else:
        assert components(path) == parts
