"""Our own files are for their owner alone, and appear whole or not at all."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.fs import private
from sidecar.fs.private import open_private, private_directory, sync_directory, sync_file, write_all, write_private


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277])
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


@pytest.mark.usefixtures("umask")
def test_directories_are_made_with_those_above(tmp_path: Path) -> None:
    before = mode(tmp_path)
    private_directory(str(tmp_path / "a/b/c"))
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert mode(tmp_path) == before
    private_directory(os.fsencode(tmp_path / "a/b/c"))


def test_one_that_is_there_is_tightened_only_where_it_is_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, start, end in (("wide", 0o755, 0o700), ("sticky", 0o1777, 0o1777)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(start)
        private_directory(str(tmp_path / name), tighten=False)
        assert mode(tmp_path / name) == start
        private_directory(str(tmp_path / name))
        assert mode(tmp_path / name) == end
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    private_directory(str(home))
    private_directory(str(home / "store"))
    assert mode(home) == 0o755
    assert mode(home / "store") == 0o700


@pytest.mark.root
def test_the_directory_of_another_owner_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o755)
    os.chown(tmp_path / "theirs", 65534, 65534)
    private_directory(str(tmp_path / "theirs"))
    assert mode(tmp_path / "theirs") == 0o755


def test_anything_else_there_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    for path in ("file", "file/below", "dangling", "dangling/below"):
        with pytest.raises(OSError):
            private_directory(str(tmp_path / path))
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.usefixtures("umask")
def test_a_file_replaces_another_whole_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private(str(path), b"one")
    write_private(os.fsencode(path), b"two" * 100_000)
    assert path.read_bytes() == b"two" * 100_000
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_at_the_path_is_replaced_and_its_target_left(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "file").symlink_to(tmp_path / "target")
    write_private(str(tmp_path / "file"), b"ours")
    assert (tmp_path / "target").read_bytes() == b"mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("fault", ["write", "flush", "rename"])
def test_a_fault_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    (tmp_path / "file").write_bytes(b"old")
    if fault == "flush":
        monkeypatch.setattr(private, "flush", fail)
    else:
        monkeypatch.setattr(os, fault, fail)
    with pytest.raises(OSError):
        write_private(str(tmp_path / "file"), b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_order_is_file_rename_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real = os.rename

    def rename(source: bytes, target: bytes) -> None:
        steps.append("rename")
        real(source, target)

    def flush(fd: int) -> None:
        steps.append("directory" if os.fstat(fd).st_ino == tmp_path.stat().st_ino else "file")

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(private, "flush", flush)
    write_private(str(tmp_path / "file"), b"x")
    assert steps == ["file", "rename", "directory"]


@pytest.mark.usefixtures("umask")
def test_opened_files_are_private_and_never_links(tmp_path: Path) -> None:
    path = tmp_path / "db"
    os.close(open_private(str(path)))
    assert mode(path) == 0o600
    path.chmod(0o644)
    fd = open_private(os.fsencode(path), os.O_RDONLY)
    assert mode(path) == 0o600
    assert not os.get_inheritable(fd)
    os.close(fd)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "fifo").chmod(0o644)
    for name in ("link", "fifo"):
        with pytest.raises(OSError):
            open_private(str(tmp_path / name))
    assert mode(tmp_path / "fifo") == 0o644


def test_a_system_that_writes_nothing_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = open_private(str(tmp_path / "file"))
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(OSError):
        write_all(fd, b"x")
    os.close(fd)


def test_files_and_directories_are_brought_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: flushed.append(os.fstat(fd).st_ino))
    sync_file(str(tmp_path / "file"))
    sync_directory(os.fsencode(tmp_path))
    assert flushed == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]
    with pytest.raises(NotADirectoryError):
        sync_directory(str(tmp_path / "file"))
