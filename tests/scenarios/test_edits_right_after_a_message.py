"""However soon after a message the agent changes files, its checkpoint holds what was there before (must show 4)."""

import os
import random
import time
from collections.abc import Callable

import pytest

from tests.builders.claude import agent_write
from tests.builders.stage import Stage
from tests.builders.truth import Truth

KEPT = 8


def prepare(stage: Stage) -> None:
    for number in range(KEPT):
        stage.write(f"in-place-{number}.txt", f"first {number}\n")
        stage.write(f"renamed-{number}.txt", f"first {number}\n")
        stage.write(f"folder/deep-{number}.txt", f"first {number}\n")
        stage.write(f"untouched-{number}.txt", f"first {number}\n")


def in_place(stage: Stage, turn: int) -> None:
    stage.write(f"in-place-{turn % KEPT}.txt", f"written in turn {turn}\n")


def atomically(stage: Stage, turn: int) -> None:
    agent_write(stage.project / f"renamed-{turn % KEPT}.txt", f"renamed in turn {turn}\n".encode())


def create(stage: Stage, turn: int) -> None:
    stage.write(f"made-{turn}.txt", f"made in turn {turn}\n")


def create_in_folder(stage: Stage, turn: int) -> None:
    stage.write(f"new-{turn}/made.txt", f"made in turn {turn}\n")


def delete(stage: Stage, turn: int) -> None:
    name = stage.project / f"folder/deep-{turn % KEPT}.txt"
    if name.exists():
        name.unlink()
    else:
        stage.write(name.name, f"back in turn {turn}\n")


def move(stage: Stage, turn: int) -> None:
    source, target = stage.project / "moving.txt", stage.project / "moved.txt"
    if target.exists():
        os.rename(target, source)
    elif source.exists():
        os.rename(source, target)
    else:
        stage.write("moving.txt", f"moving since turn {turn}\n")


def twice(stage: Stage, turn: int) -> None:
    stage.write("twice.txt", f"once in turn {turn}\n")
    stage.write("twice.txt", f"twice in turn {turn}, longer\n")


def by_tool(stage: Stage, turn: int) -> None:
    stage.session.edit(f"tool-{turn % KEPT}.txt", f"by the tool in turn {turn}\n".encode())


def by_shell(stage: Stage, turn: int) -> None:
    stage.shell(
        f"echo shell {turn} > shell.txt; echo {turn} >> in-place-0.txt; rm -f shell-old.txt; cp shell.txt shell-old.txt"
    )


WAYS: list[Callable[[Stage, int], None]] = [
    in_place,
    atomically,
    create,
    create_in_folder,
    delete,
    move,
    twice,
    by_tool,
    by_shell,
]


def play(
    stage: Stage, truth: Truth, turns: int, *, after_s: Callable[[], float], between_s: float, saying: bool = True
) -> list[str]:
    """Send messages; the agent changes files so long after each, and the next message comes so long after that."""
    messages = []
    for turn in range(turns):
        messages.append(truth.prompt(f"message {turn}"))
        delay = after_s()
        if delay:
            time.sleep(delay)
        WAYS[turn % len(WAYS)](stage, turn)
        in_place(stage, turn)
        atomically(stage, turn)
        if saying:
            stage.session.say()
        if between_s:
            time.sleep(between_s)
    messages.append(truth.prompt("the last one"))
    return messages


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_edit_five_milliseconds_after_a_message_is_not_in_its_checkpoint(tmp_path, way):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        for turn in range(5):
            truth.prompt(f"message {turn}")
            time.sleep(0.005)
            way(stage, turn)
            stage.session.say()
            time.sleep(0.05)
        watcher.checkpoint(truth.prompt("the last one"))
        assert truth.prove() == []


def test_fifty_messages_with_edits_at_once_and_pauses_between_are_all_sure(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    dice = random.Random(4)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))  # the sidecar finds the session by its first message
        messages = play(stage, truth, 50, after_s=lambda: dice.uniform(0, 0.005), between_s=0.05)
        watcher.checkpoint(messages[-1])
        assert truth.prove() == []
        assert stage.json("log")[0]["unstable"] == 0


@pytest.mark.slow
def test_two_hundred_messages_with_edits_at_any_moment_never_have_a_wrong_byte(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    dice = random.Random(200)
    with stage.watching("watch", "--profile", "long") as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        messages = []
        for between_s in (0.0, 0.005, 0.02, 0.05):
            messages += play(stage, truth, 50, after_s=lambda: dice.uniform(0, 0.005), between_s=between_s)
        for message in messages:
            watcher.checkpoint(message)
        assert len(messages) >= 200
        truth.prove()


def test_with_a_pause_before_and_after_each_edit_nothing_is_unsure(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))  # the sidecar finds the session by its first message
        messages = play(stage, truth, 10, after_s=lambda: 0.05, between_s=0.05)
        watcher.checkpoint(messages[-1])
        assert truth.prove() == []


@pytest.mark.parametrize("saying", [True, False], ids=["with-ends", "without-ends"])
def test_ten_messages_with_edits_and_no_pause_at_all_say_nothing_wrong(tmp_path, saying):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))  # the sidecar finds the session by its first message
        messages = play(stage, truth, 10, after_s=lambda: 0.0, between_s=0.0, saying=saying)
        watcher.checkpoint(messages[-1])
        unsure = truth.prove()
        told = {one["message"]: one["unstable"] for one in stage.json("log")}
    for message in messages:  # what is not known is counted, each path once
        mine = [one for one in unsure if one.startswith(message)]
        assert len(mine) <= told[message]
    assert not [one for one in unsure if "untouched" in one]


def test_a_rewind_after_a_burst_leaves_what_is_unsure_and_says_so(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))  # the sidecar finds the session by its first message
        messages = play(stage, truth, 6, after_s=lambda: 0.0, between_s=0.0)
        watcher.checkpoint(messages[-1])
        present = truth.files()
        answer = stage.json("rewind", messages[2], "--yes")
        unsure = {one["path"] for one in answer["kept"]}
        # A file that may have been made before its turn is not removed either.
        assert {one["reason"] for one in answer["kept"]} <= {"unstable", "created-outside-turns"}
        now = truth.files()
        for path in set(now) | set(truth.then[messages[2]]):
            expected = present if os.fsdecode(path) in unsure else truth.then[messages[2]]
            # A removal that nobody can order counts as not made yet: creating a file again destroys nothing.
            again = path not in expected and now.get(path) in [files.get(path) for files in truth.then.values()]
            assert again or now.get(path) == expected.get(path), path
