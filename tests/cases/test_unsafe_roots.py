"""Roots too wide to be captured as a tree: only what tool calls name is kept, and nothing else is claimed (C13)."""

import os
import time
from pathlib import Path

import pytest

from sidecar.attach.settings import load_settings
from sidecar.attach.wide import unsafe_root
from tests.builders.acting import kept, pause, read, turn
from tests.builders.stage import Json, Stage, Watcher

TWO_TICKS_S = 1.2  # what no event tells of is looked at in between


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def at_home(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A person who started the agent in the home folder."""
    monkeypatch.setenv("HOME", str(stage.project))
    return stage


def limit(monkeypatch: pytest.MonkeyPatch, stage: Stage, numbers: str) -> None:
    """Lay a policy of one's own over the shipped one."""
    folder = stage.directory / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "checkpoints.toml").write_text(f"[limits]\n{numbers}\n")
    monkeypatch.setenv("SIDECAR_POLICIES", str(folder))


def warnings(watcher: Watcher) -> list[Json]:
    return [event for event in watcher.events if event["event"] == "warning"]


def status(stage: Stage) -> Json:
    """Give what is said of the one workspace and its one session; `narrow`: that its tree is not captured."""
    answer = stage.json("status", str(stage.project))
    [session] = answer["sessions"]
    return {**answer, **session, "narrow": any("is not captured" in warning for warning in answer["warnings"])}


def test_at_home_only_what_the_agent_edits_is_kept(at_home: Stage) -> None:
    stage = at_home
    stage.write("notes.txt", "mine\n")
    stage.write("mine.txt", "made by hand\n")
    stage.write("photos/big.raw", b"\x00" * 100_000)
    with stage.watching() as watcher:
        stage.session.prompt("hello")
        watcher.wait("warning", code="unsafe-root")
        assert watcher.wait("ready")["files"] == 0
        before = turn(
            stage,
            watcher,
            lambda: stage.session.edit("notes.txt", b"the agent's\n"),
            lambda: stage.session.shell("x", lambda: stage.shell("echo made > by-shell.txt; echo more >> mine.txt")),
        )
        later = turn(stage, watcher, lambda: stage.session.edit("notes.txt", b"twice\n"))
        newest = turn(stage, watcher, lambda: stage.session.edit("new/file.txt", b"new\n"))
        now = status(stage)
        assert (now["narrow"], now["protected"], now["linked"]) == (True, False, 0)
        assert now["bytes"] < 1000
        assert "tool calls name" in now["why"]
        assert "not captured" in stage.run("status", str(stage.project)).out
        answer = stage.json("rewind", newest, "--yes")
        assert not answer["scanned"]  # whoever captures answers for it
        assert (answer["restored"], answer["removed"], answer["failed"]) == ([], ["new/file.txt"], [])
        answer = stage.json("rewind", later, "--yes")
        assert (answer["restored"], answer["removed"], answer["failed"]) == (["notes.txt"], [], [])
        assert read(stage, "notes.txt") == "the agent's\n"
        answer = stage.json("rewind", before, "--yes", "--all")
        assert (answer["restored"], answer["removed"]) == (["notes.txt"], [])
        assert kept(answer) == {"new/file.txt": "unknown-then"}  # nobody had named it by then
        assert read(stage, "notes.txt") == "mine\n"
        assert read(stage, "by-shell.txt") == "made\n"
        assert read(stage, "mine.txt") == "made by hand\nmore\n"
        stage.json("undo", "--yes")
        assert read(stage, "notes.txt") == "the agent's\n"
        assert [one["code"] for one in warnings(watcher)] == ["unsafe-root"]
    assert (stage.project / "photos/big.raw").read_bytes() == b"\x00" * 100_000
    assert stage.json("check")["ok"]


def test_what_the_shell_does_to_a_named_path_is_kept_too(at_home: Stage) -> None:
    stage = at_home
    with stage.watching() as watcher:
        turn(stage, watcher, lambda: stage.session.edit("a.txt", b"1\n"), lambda: stage.session.edit("b.txt", b"1\n"))
        second = turn(stage, watcher, lambda: stage.shell("echo 2 > a.txt; rm b.txt"))
        third = turn(stage, watcher, lambda: stage.shell("echo 3 > a.txt; mkdir b.txt; echo x > b.txt/inside"))
        answer = stage.json("rewind", third, "--yes")
        assert answer["restored"] == ["a.txt"]
        assert kept(answer) == {"b.txt": "unstorable"}  # nobody knows what lies in it
        assert (read(stage, "a.txt"), read(stage, "b.txt/inside")) == ("2\n", "x\n")
        stage.shell("rm -r b.txt")
        pause()
        assert stage.json("rewind", second, "--yes", "--all")["restored"] == ["a.txt", "b.txt"]
        assert (read(stage, "a.txt"), read(stage, "b.txt")) == ("1\n", "1\n")
    assert stage.json("check")["ok"]


def test_a_rewind_beside_nobody_looks_at_no_tree_either(at_home: Stage) -> None:
    stage = at_home
    stage.write("old.txt", "old\n")
    stage.session.prompt("hello")
    stage.attach_once()
    message = stage.session.prompt("change")
    pause()
    stage.session.edit("old.txt", b"new\n")
    stage.shell("echo made > by-shell.txt")
    stage.session.say()
    answer = stage.json("rewind", message, "--yes")
    assert (answer["restored"], answer["removed"], answer["kept"]) == (["old.txt"], [], [])
    assert (read(stage, "old.txt"), read(stage, "by-shell.txt")) == ("old\n", "made\n")
    assert status(stage)["bytes"] < 1000


def test_too_many_files_are_not_captured(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, stage, "tree_files = 20")
    for number in range(30):
        stage.write(f"many/{number}", f"{number}\n")
    with stage.watching() as watcher:
        [warning] = warnings(watcher)
        assert (warning["code"], "more than 20 files" in warning["text"]) == ("unsafe-root", True)
        message = turn(
            stage, watcher, lambda: stage.session.edit("many/3", b"agent\n"), lambda: stage.shell("rm many/4")
        )
        assert stage.json("rewind", message, "--yes")["restored"] == ["many/3"]
        assert (read(stage, "many/3"), read(stage, "many/4")) == ("3\n", None)
        assert status(stage)["narrow"]


def test_too_many_bytes_are_not_captured_and_what_is_ignored_does_not_count(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, stage, "tree_bytes = 100000\nfile_bytes = 90000\nsmall_ignored_bytes = 10")
    stage.write("too-large", b"x" * 95_000)
    stage.write("one", b"x" * 60_000)
    stage.write("ignored.bin", b"x" * 60_000)
    stage.write(".gitignore", "*.bin\n")
    stage.session.prompt("hello")
    stage.attach_once()
    assert not status(stage)["narrow"]
    stage.write("two", b"x" * 60_000)
    stage.attach_once()
    assert status(stage)["narrow"]


def test_what_was_known_of_a_tree_that_became_too_wide_ends_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write("here.txt", "1\n")
    stage.write("unchanged.txt", "1\n")
    stage.write("edited/by-agent.txt", "1\n")
    with stage.watching() as watcher:
        first = turn(
            stage,
            watcher,
            lambda: stage.shell("echo 2 > here.txt; echo new > new.txt"),
            lambda: stage.session.edit("edited/by-agent.txt", b"2\n"),
        )
        second = turn(stage, watcher, lambda: stage.shell("chmod 700 edited"))
    limit(monkeypatch, stage, "tree_files = 3")
    stage.shell("rm here.txt")
    with stage.watching() as watcher:
        watcher.wait("warning", code="unsafe-root")
        third = turn(stage, watcher, lambda: stage.session.edit("edited/by-agent.txt", b"3\n"))
        assert watcher.checkpoint(third)["files"] == 1  # `edited` itself, before nobody looked at it any more
        stage.write("new2.txt", "by hand\n")
        for message in (second, first):
            answer = stage.json("rewind", message, "--yes", "--all")
            assert (answer["restored"], answer["removed"]) == (["edited/by-agent.txt"], [])
        assert kept(answer) == dict.fromkeys(("edited", "here.txt", "new.txt"), "unknown-then")
        assert (read(stage, "edited/by-agent.txt"), read(stage, "here.txt")) == ("1\n", None)
        assert kept(stage.json("rewind", first, "unchanged.txt", "--yes")) == {"unchanged.txt": "unknown-then"}
        shown = stage.run("show", f"{third}:unchanged.txt")
        assert (shown.code, "nobody knows" in shown.err) == (1, True)
        assert stage.run("show", f"{second}:unchanged.txt").out == "1\n"
        assert stage.run("show", f"{second}:here.txt").out == "2\n"
    assert stage.json("check")["ok"]
    limit(monkeypatch, stage, "tree_files = 1000")
    with stage.watching() as watcher:
        assert not status(stage)["narrow"]
        fourth = turn(stage, watcher, lambda: stage.shell("echo 4 > unchanged.txt; rm new.txt new2.txt"))
        answer = stage.json("rewind", fourth, "--yes")
        assert answer["restored"] == ["new.txt", "new2.txt", "unchanged.txt"]
        answer = stage.json("rewind", third, "--yes", "--all")
        assert (answer["restored"], answer["removed"]) == (["edited/by-agent.txt"], [])
        assert kept(answer)["new2.txt"] == "unknown-then"
    assert stage.json("check")["ok"]


def test_a_mount_point_and_the_listed_places_are_too_wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load_settings()
    monkeypatch.setenv("HOME", str(tmp_path))
    for wide in ("/", "/tmp", "/proc", str(tmp_path)):
        assert unsafe_root(wide, settings) is not None, wide
    (tmp_path / "project").mkdir()
    assert unsafe_root(str(tmp_path / "project"), settings) is None
    monkeypatch.setattr(os.path, "ismount", lambda _path: True)
    assert unsafe_root(str(tmp_path / "project"), settings) == "it is a mount point"
    (tmp_path / "project/.git").mkdir(parents=True)
    assert unsafe_root(str(tmp_path / "project"), settings) is None


def test_the_store_and_the_agents_own_directory_are_refused_as_ever(stage: Stage) -> None:
    stage.session.prompt("hello")
    stage.attach_once()
    for private in (stage.directory / "store", stage.home.root):
        answer = stage.run("watch", str(private))
        assert (answer.code, "nothing in it is captured" in answer.err) == (1, True)


def test_few_folders_are_watched_however_many_there_are(at_home: Stage) -> None:
    stage = at_home
    for number in range(200):
        stage.write(f"folder{number}/file", "mine\n")
    with stage.watching() as watcher:
        turn(stage, watcher, lambda: stage.session.edit("folder7/file", b"agent\n"))
        handles = Path(f"/proc/{watcher.process.pid}/fdinfo")
        if handles.is_dir():
            texts = [each.read_text() for each in handles.iterdir()]
            assert sum(text.count("inotify wd:") for text in texts) < 20


def test_another_folder_in_the_place_of_a_wide_root_is_not_taken_for_it(at_home: Stage) -> None:
    stage = at_home
    stage.write("a.txt", "1\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.session.edit("a.txt", b"2\n"))
        stage.project.rename(stage.directory / "moved")
        stage.project.mkdir()
        watcher.wait("warning", code="root-replaced")
        stage.write("a.txt", "another\n")
        answer = stage.run("rewind", message, "--yes", "--json")
        assert answer.code == 1, answer
    assert read(stage, "a.txt") == "another\n"
    stage.shell("rm a.txt")
    stage.project.rmdir()
    (stage.directory / "moved").rename(stage.project)
    assert stage.json("rewind", message, "--yes")["restored"] == ["a.txt"]
    assert read(stage, "a.txt") == "1\n"


def test_a_file_that_comes_with_its_folder_was_not_there_before(at_home: Stage) -> None:
    stage = at_home
    stage.write("other/a.txt", "of old\n")
    pause()
    with stage.watching() as watcher:
        turn(stage, watcher, lambda: stage.session.edit("folder/a.txt", b"agent\n"))
        second = turn(stage, watcher, lambda: stage.shell("rm folder/a.txt"))
        third = turn(stage, watcher)
        time.sleep(TWO_TICKS_S)
        stage.shell("rmdir folder; mv other folder")
        time.sleep(TWO_TICKS_S)
        fourth = turn(stage, watcher)
        assert stage.run("show", f"{fourth}:folder/a.txt").out == "of old\n"
        assert "absent" in stage.run("show", f"{third}:folder/a.txt").err
        assert stage.run("show", f"{second}:folder/a.txt").out == "agent\n"
    assert stage.json("check")["ok"]
