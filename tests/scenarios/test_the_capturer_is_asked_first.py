"""A rewind brings the timeline up to now before it plans: what was done a moment before it is seen (must show 9)."""

import os
import time
from collections.abc import Callable

import pytest

from tests.builders.acting import pause, turn
from tests.builders.stage import Stage


def rename_over(stage: Stage) -> None:
    stage.write("g.txt", "a moment before\n")
    os.replace(stage.project / "g.txt", stage.project / "f.txt")


STEPS: dict[str, Callable[[Stage], object]] = {
    "created": lambda stage: stage.write("made.txt", "a moment before\n"),
    "edited": lambda stage: stage.write("f.txt", "a moment before\n"),
    "renamed-over": rename_over,
    "folder": lambda stage: stage.write("new/deep/made.txt", "a moment before\n"),
    "deleted": lambda stage: (stage.project / "f.txt").unlink(),
}


@pytest.mark.parametrize(
    ("step", "hot"),
    [(step, False) for step in STEPS] + [("edited", True), ("deleted", True)],
)
def test_what_was_done_five_milliseconds_before_a_rewind_is_taken_back_and_brought_again(tmp_path, step, hot):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        before = stage.tree()
        message = turn(stage, watcher, lambda: stage.write("f.txt", "v1\n"), ends=False)
        if hot:  # the path has had its share of captures: only the question makes its last change known
            for number in range(20):
                stage.write("f.txt", f"v{number}\n")
                time.sleep(0.01)
        pause()
        STEPS[step](stage)
        after = stage.tree()
        time.sleep(0.005)
        answer = stage.json("rewind", message, "--yes")
        assert (answer["kept"], answer["failed"], answer["scanned"]) == ([], [], False)
        assert stage.tree() == before
        assert stage.json("undo", "--yes")["failed"] == []
        assert stage.tree() == after
