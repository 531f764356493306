"""C19: what is a link, or has a second name, is neither followed nor replaced: it is skipped and reported."""

import os
from pathlib import Path

import pytest

from tests.builders.stage import Stage


def identity(path: Path) -> tuple[object, ...]:
    status = path.lstat()
    content = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return status.st_ino, status.st_nlink, status.st_mode, content


def test_case_C19_links_keep_their_targets_and_their_names(tmp_path):
    stage = Stage(tmp_path)
    outside = tmp_path / "outside.txt"
    outside.write_text("outside\n")
    stage.write("real", "old\n")
    stage.write("h", "old\n")
    stage.write("plain", "old\n")
    os.link(stage.project / "h", stage.project / "h2")
    for name, target in [("l", "real"), ("gone", "nowhere"), ("out", str(outside)), ("folder", "/etc")]:
        (stage.project / name).symlink_to(target)
    with stage.watching() as watcher:
        assert stage.json("status")["linked"] == 6
        first = stage.session.prompt("change real and h")
        watcher.checkpoint(first)
        stage.shell("echo new > l; echo new > h; echo new > plain; echo new > out")
        stage.session.say()
        links = {name: identity(stage.project / name) for name in ("l", "gone", "out", "folder", "h", "h2")}

        dry = stage.json("rewind", first, "--dry-run")
        answer = stage.json("rewind", first, "--all", "--yes")
        assert answer["restored"] == ["plain", "real"]
        assert answer["skippedLinks"] == dry["skippedLinks"] == ["h", "h2"]
        assert answer["removed"] == answer["kept"] == answer["failed"] == []
        assert {name: identity(stage.project / name) for name in links} == links
        assert (stage.project / "real").read_text() == "old\n"
        assert (stage.project / "h").read_text() == "new\n"
        assert outside.read_text() == "new\n"
        assert "h2" in stage.run("rewind", first, "--yes").out


def test_case_C19_a_file_with_one_name_at_the_message_and_two_now(tmp_path):
    """Neither is the second name taken away, nor the first one's bytes replaced."""
    stage = Stage(tmp_path)
    stage.write("f", "old\n")
    stage.write("g", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("link them")
        watcher.checkpoint(first)
        stage.shell("echo new > f; ln f f2; ln g g2; mkdir d; ln f d/f3")
        stage.session.say()
        names = {name: identity(stage.project / name) for name in ("f", "f2", "g", "g2", "d/f3")}
        answer = stage.json("rewind", first, "--all", "--yes")
        assert {"f", "f2", "d/f3"} <= set(answer["skippedLinks"])
        assert answer["restored"] == answer["removed"] == []
        assert {name: identity(stage.project / name) for name in names} == names
        # Made single again, they come back.
        (stage.project / "f2").unlink()
        (stage.project / "d/f3").unlink()
        assert "f" in stage.json("rewind", first, "--all", "--yes")["restored"]
        assert (stage.project / "f").read_text() == "old\n"


@pytest.mark.parametrize("watched", [True, False])
def test_case_C19_what_is_written_through_a_second_name_changes_the_first(tmp_path, watched):
    stage = Stage(tmp_path)
    stage.write("f", "old\n")
    stage.write("deep/g", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("link them")
        watcher.checkpoint(first)
        stage.shell("ln f second; ln deep/g other")
        stage.run("mark")  # both names are known before the bytes change
        stage.shell("echo new > second; echo new > other")
        stage.session.say()
        if not watched:
            watcher.stop()
        answer = stage.json("rewind", first, "--yes")
        assert {"f", "deep/g", "second", "other"} <= set(answer["skippedLinks"])
        assert (stage.project / "f").read_text() == "new\n"
        (stage.project / "second").unlink()
        (stage.project / "other").unlink()
        answer = stage.json("rewind", first, "--all", "--yes")
        assert answer["restored"] == ["deep/g", "f"]
        assert (stage.project / "f").read_text() == (stage.project / "deep/g").read_text() == "old\n"
        stage.json("undo", "--yes")
        assert (stage.project / "f").read_text() == (stage.project / "deep/g").read_text() == "new\n"


def test_case_C19_links_made_since_are_left_and_reported(tmp_path):
    stage = Stage(tmp_path)
    outside = tmp_path / "victim"
    outside.mkdir()
    (outside / "f").write_text("not ours\n")
    stage.write("f", "old\n")
    stage.write("was/f", "old\n")
    stage.write("was/g", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("links")
        watcher.checkpoint(first)
        stage.shell(f"rm f; ln -s {outside}/f f; ln -s f fresh; rm -r was; ln -s {outside} was; mkdir n; ln -s .. n/up")
        stage.session.say()
        links = {name: identity(stage.project / name) for name in ("f", "fresh", "was", "n/up")}
        for more in ([], ["--all"], ["f", "was/f", "fresh"], ["."]):
            answer = stage.json("rewind", first, *more, "--yes")
            assert {"f", "was/f"} <= set(answer["skippedLinks"]), more
            assert answer["restored"] == answer["removed"] == answer["failed"] == [], more
        assert {"fresh", "n/up"} <= set(answer["skippedLinks"])
        assert {name: identity(stage.project / name) for name in links} == links
        assert (outside / "f").read_text() == "not ours\n"
        assert os.listdir(outside) == ["f"]


def test_case_C19_a_parent_that_became_a_link_inside_the_workspace(tmp_path):
    """The files moved; the old paths now lead through a link to the new ones."""
    stage = Stage(tmp_path)
    stage.write("src/a", "old\n")
    stage.write("src/deep/b", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("move")
        watcher.checkpoint(first)
        stage.shell("mv src lib; ln -s lib src; echo new > src/a; echo more > src/deep/c")
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert {"src/a", "src/deep/b"} <= set(answer["skippedLinks"])
        assert (stage.project / "src").is_symlink()
        assert os.readlink(stage.project / "src") == "lib"
        assert answer["failed"] == []
        # What was moved is still there under some name, or in the store: an undo brings it all back.
        stage.json("undo", "--yes")
        assert (stage.project / "lib/a").read_text() == "new\n"
        assert (stage.project / "lib/deep/b").read_text() == "old\n"
        assert (stage.project / "lib/deep/c").read_text() == "more\n"


def test_case_C19_a_tool_that_edits_through_a_link(tmp_path):
    stage = Stage(tmp_path)
    outside = tmp_path / "dotfiles"
    outside.mkdir()
    (outside / "rc").write_text("old\n")
    stage.write("real", "old\n")
    (stage.project / "l").symlink_to("real")
    (stage.project / "dots").symlink_to(outside)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit through links")
        watcher.checkpoint(first)
        for name in ("l", "dots/rc"):
            call = stage.session.tool("Edit", {"file_path": str(stage.project / name)})
            (stage.project / name).write_text("new\n")
            details = {"filePath": str(stage.project / name), "structuredPatch": [], "originalFile": "old\n"}
            stage.session.result(call, "The file has been updated.", details)
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert answer["restored"] == ["real"]
        assert answer["skippedLinks"] == ["dots/rc", "l"]
        assert (outside / "rc").read_text() == "new\n"
        assert os.readlink(stage.project / "l") == "real"


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_case_C19_removed_and_retargeted_links_are_reported_and_not_made_again(tmp_path, kind):
    stage = Stage(tmp_path)
    stage.write("a", "a\n")
    stage.write("b", "b\n")
    make = os.link if kind == "hard" else os.symlink
    here = os.getcwd()
    os.chdir(stage.project)
    try:
        make("a", "gone")
        make("a", "moved")
        with stage.watching() as watcher:
            first = stage.session.prompt("links")
            watcher.checkpoint(first)
            os.unlink("gone")
            os.unlink("moved")
            make("b", "moved")
            stage.session.say()
            answer = stage.json("rewind", first, "--yes")
            assert {"gone", "moved"} <= set(answer["skippedLinks"])
            assert not os.path.lexists("gone")
            assert Path("moved").read_text() == "b\n"
            assert answer["restored"] == answer["removed"] == []
    finally:
        os.chdir(here)
