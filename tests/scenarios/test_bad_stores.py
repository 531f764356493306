"""A store that is not ours, too new, damaged, or has no room: refused in one sentence, and left as it was."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.probe import assert_sentence, hash_of, opened, settle, workspace_folder
from tests.builders.stage import Stage


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.message = stage.session.prompt("there before anybody looked")
    stage.session.say()
    return stage


def commands(stage: Stage, message: str) -> list[list[str]]:
    return [
        ["watch"],
        ["attach", str(stage.session.transcript), "--once"],
        ["status"],
        ["log"],
        ["show", message],
        ["rewind", message, "--yes"],
        ["rewind", message, "--dry-run"],
        ["undo", "--yes"],
        ["pin", message],
        ["mark", "x"],
    ]


def assert_all_refused(stage: Stage, message: str, code: str, word: str) -> None:
    before = hash_of(stage.directory)
    for words in commands(stage, message):
        told = stage.run(*words, "--json")
        sentence = assert_sentence(told)
        assert word in sentence, (words, sentence)
        last = told.out.splitlines()[-1]
        assert f'"code": "{code}"' in last, (words, told.out)
        assert hash_of(stage.directory) == before, words


def test_a_directory_with_other_files_is_never_made_a_store(stage, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "thesis.txt").write_text("years of work\n")
    (store / "workspaces").mkdir()
    assert_all_refused(stage, "abcd1234", "not-our-store", str(store))
    assert_sentence(stage.run("check", "--repair"))
    assert sorted(os.listdir(store)) == ["thesis.txt", "workspaces"]


def test_a_store_that_is_a_file(stage, tmp_path):
    (tmp_path / "store").write_text("not a directory\n")
    answer = stage.run("attach", str(stage.session.transcript), "--once")
    assert str(tmp_path / "store") in assert_sentence(answer)
    assert_sentence(stage.run("log"))
    assert (tmp_path / "store").read_text() == "not a directory\n"


def kept(stage: Stage) -> str:
    with stage.watching() as watcher:
        message = stage.session.prompt("hello")
        watcher.checkpoint(message)
        stage.write("a.txt", "two\n")
        stage.session.say()
        settle(stage)
    return message


def test_a_store_of_a_newer_sidecar(stage, tmp_path):
    message = kept(stage)
    with opened(stage, write=True) as database:
        database.execute("PRAGMA user_version = 4711")
    assert_all_refused(stage, message, "store-too-new", "4711")
    before = hash_of(stage.directory)
    told = stage.json("check", "--repair", code=1)
    assert (told["ok"], [one["code"] for one in told["findings"]]) == (False, ["store-too-new"])
    assert hash_of(stage.directory) == before
    with opened(stage, write=True) as database:
        database.execute("PRAGMA user_version = 1")
    assert stage.json("rewind", message, "--yes")["restored"] == ["a.txt"]
    (tmp_path / "store" / "sidecar-store").write_text("99\n")
    answer = stage.run("log")
    assert "99" in assert_sentence(answer)
    assert stage.json("rewind", message, "--yes", code=1)["code"] == "store-too-new"
    assert (tmp_path / "store" / "sidecar-store").read_text() == "99\n"


@pytest.mark.parametrize("kind", ["garbage", "empty", "foreign", "torn"])
def test_a_database_that_is_not_ours(stage, kind):
    message = kept(stage)
    path = workspace_folder(stage) / "store.db"
    match kind:
        case "garbage":
            path.write_bytes(os.urandom(50_000))
        case "empty":
            path.write_bytes(b"")
        case "foreign":
            path.unlink()
            with sqlite3.connect(path) as database:
                database.execute("CREATE TABLE thesis (text)")
            database.close()
        case "torn":
            path.write_bytes(path.read_bytes()[:5000])
    before = path.read_bytes()
    for words in (["attach", str(stage.session.transcript), "--once"], ["log"], ["rewind", message, "--yes"]):
        told = stage.run(*words, "--json")
        assert str(path.parent) in assert_sentence(told), (words, told)
        assert '"code": "not-our-store"' in told.out, (words, told)
        assert path.read_bytes() == before
    found = stage.json("check", "--repair", code=1)["findings"]
    assert [one["code"] for one in found] == ["database-damaged"]
    assert path.read_bytes() == before
    assert (stage.project / "a.txt").read_text() == "two\n"


def test_a_broken_timeline_does_not_keep_others_from_their_own(stage, tmp_path):
    """What happened to one workspace is said there; another one's messages come back all the same."""
    kept(stage)
    broken = workspace_folder(stage) / "store.db"
    second = Stage(tmp_path / "second")
    second.write("a.txt", "one\n")
    environ = {"SIDECAR_HOME": str(tmp_path / "store")}
    prompts = [second.session.prompt("hello")]
    second.session.edit("a.txt", b"two\n")
    second.session.say()
    answer = second.run("attach", str(second.session.transcript), "--once", environ=environ)
    assert answer.code == 0, answer
    broken.write_bytes(b"garbage" * 1000)
    answer = second.run("rewind", prompts[0], "--yes", "--all", environ=environ)
    assert answer.code == 0, answer
    assert (second.project / "a.txt").read_text() == "one\n"
    assert second.run("log", environ=environ).code == 0
    named = second.run("log", "--session", second.session.session, environ=environ)
    assert named.code == 0, named
    assert [one["session"] for one in second.run("status", "--json", environ=environ).json["sessions"]] == [
        second.session.session
    ]
    told = second.run("check", "--json", environ=environ)
    assert (told.code, [one["code"] for one in told.json["findings"]]) == (1, ["database-damaged"])
    # An id that may belong to the broken one is not called unknown where nobody can know.
    assert str(broken.parent) in assert_sentence(second.run("show", "abcd1234", cwd=tmp_path, environ=environ))


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """Give a file system of 1 MiB."""
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", where], check=True)
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def fill(disk: Path, left_bytes: int = 0) -> None:
    """Leave no more than so much room, to the page."""
    free = os.statvfs(disk)
    size = max(0, free.f_bavail * free.f_frsize - left_bytes)
    with open(disk / "ballast", "wb") as file:
        file.write(b"x" * size)


@pytest.mark.root
@pytest.mark.parametrize("left_bytes", [0, 4096, 65536, 131072])
def test_a_disk_that_is_full_at_the_start(stage, small_disk, left_bytes):
    fill(small_disk, left_bytes)
    environ = {"SIDECAR_HOME": str(small_disk / "store")}
    stage.write("big.bin", os.urandom(400_000))
    tree = stage.tree()
    for words in (["attach", str(stage.session.transcript), "--once"], ["watch"]):
        answer = stage.run(*words, "--json", environ=environ)
        assert str(small_disk) in assert_sentence(answer), answer
        assert "checkpoint" not in answer.out.replace("no-checkpoint", "")
    assert stage.tree() == tree
    # With room again it begins as if nothing had been.
    (small_disk / "ballast").unlink()
    shutil.rmtree(stage.project)
    stage.project.mkdir()
    stage.write("a.txt", "one\n")
    answer = stage.run("attach", str(stage.session.transcript), "--once", environ=environ)
    assert answer.code == 0, answer
    assert stage.run("check", environ=environ).code == 0
