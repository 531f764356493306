"""What came and went before anybody could read it is unknown; what stood at a message stays, whatever follows it."""

import os
import shutil
import time
from collections.abc import Callable

import pytest

from tests.builders.claude import agent_write
from tests.builders.probe import settle
from tests.builders.stage import Stage
from tests.builders.truth import Truth


def by_two_renames(stage: Stage) -> None:
    os.rename(stage.project / "dist", stage.project / "old")
    os.rename(stage.project / "dist.new", stage.project / "dist")


def by_removal_and_rename(stage: Stage) -> None:
    shutil.rmtree(stage.project / "dist")
    os.rename(stage.project / "dist.new", stage.project / "dist")


def by_shell(stage: Stage) -> None:
    stage.shell("mv dist old && mv dist.new dist && rm -r old")


@pytest.mark.parametrize("replace", [by_two_renames, by_removal_and_rename, by_shell], ids=lambda way: way.__name__)
def test_a_folder_that_replaces_another_changes_no_earlier_checkpoint(tmp_path, replace: Callable[[Stage], None]):
    """Its files keep the stamps that they had: older than the message, and than what lay there."""
    stage = Stage(tmp_path)
    for name in ("f", "sub/g"):
        stage.write(f"dist/{name}", "old\n")
        stage.write(f"dist.new/{name}", "new\n")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("build"))
        stage.write("dist/f", "old, second edition\n")
        stage.write("dist/sub/g", "old, second edition\n")
        stage.session.say()
        settle(stage)
        message = stage.session.prompt("build again")
        watcher.checkpoint(message)
        before = stage.tree()
        settle(stage)
        replace(stage)
        stage.session.say()
        settle(stage)
        watcher.checkpoint(stage.session.prompt("and now?"))
        stage.session.say()
        assert stage.run("show", f"{message}:dist/f").out == "old, second edition\n"
        told = stage.json("rewind", message, "--yes")
        assert stage.tree() == before, told["kept"]


def test_a_folder_that_replaces_another_while_nobody_watches_was_not_there_before(tmp_path):
    stage = Stage(tmp_path)
    stage.write("dist/f", "old\n")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("build"))
    stage.write("dist.new/f", "new\n")
    time.sleep(0.05)
    message = stage.session.prompt("build again")
    time.sleep(0.05)
    os.rename(stage.project / "dist", stage.project / "old")
    os.rename(stage.project / "dist.new", stage.project / "dist")
    stage.session.say()
    stage.attach_once()
    told = stage.json("rewind", message, "--all", "--yes")
    assert {"path": "dist/f", "reason": "unknown-then"} in told["kept"]
    assert (stage.project / "dist/f").read_bytes() == b"new\n"


def in_place(stage: Stage) -> None:
    stage.write("t", "new, unread\n")


def atomically(stage: Stage) -> None:
    agent_write(stage.project / "t", b"new, unread\n")


def unlink(stage: Stage) -> None:
    os.unlink(stage.project / "t")


def overwrite(stage: Stage) -> None:
    stage.write("t", "a third time\n")


def into_a_folder(stage: Stage) -> None:
    os.unlink(stage.project / "t")
    stage.write("t/u", "a folder now\n")


@pytest.mark.parametrize("wait_s", [0, 0.003])
@pytest.mark.parametrize("take", [unlink, overwrite, into_a_folder], ids=lambda way: way.__name__)
@pytest.mark.parametrize("write", [in_place, atomically], ids=lambda way: way.__name__)
def test_bytes_that_nobody_could_read_in_time_are_not_said_to_be_older_ones(
    tmp_path, write: Callable[[Stage], None], take: Callable[[Stage], None], wait_s: float
):
    stage = Stage(tmp_path)
    stage.write("t", "first\n")
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        time.sleep(0.1)
        write(stage)
        time.sleep(wait_s)
        message = truth.prompt("go on")
        time.sleep(wait_s)
        take(stage)
        watcher.checkpoint(message)
        watcher.checkpoint(truth.prompt("the last one"))
        truth.prove()


@pytest.mark.parametrize("wait_s", [0, 0.003])
def test_what_a_folder_held_when_it_went_is_not_said_to_be_older(tmp_path, wait_s: float):
    stage = Stage(tmp_path)
    stage.write("a/f", "first\n")
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        time.sleep(0.1)
        stage.write("a/f", "new, unread\n")
        time.sleep(wait_s)
        message = truth.prompt("go on")
        time.sleep(wait_s)
        os.rename(stage.project / "a", stage.project / "z")
        watcher.checkpoint(message)
        assert truth.prove([message]) in ([], [f"{message} a/f"])
