"""The sidecar was stopped while the agent went on: nothing is offered that is not known to be true (must show 6)."""

import os
import time

import pytest

from tests.builders.stage import Stage
from tests.builders.truth import Truth, say

PAUSE_S = 0.03  # longer than the stretch in which a file's time is not compared with a message's


def before(stage: Stage, truth: Truth) -> str:
    """Play what the sidecar sees: one message, one edit."""
    stage.write("untouched.txt", "never changes\n")
    stage.write("seen.txt", "before the watching\n")
    for name in ("once.txt", "twice.txt", "tool.txt", "hand.txt", "deleted.txt", "renamed.txt", "again.txt", "touched"):
        stage.write(name, f"{name} as it was\n")
    stage.write("folder/inside.txt", "as it was\n")
    stage.write("kept/stays.txt", "never changes\n")
    stage.write("gone/deep/inside.txt", "as it was\n")
    with stage.watching() as watcher:
        message = truth.prompt("while it is watched")
        watcher.checkpoint(message)
        stage.write("seen.txt", "by the first turn\n")
        stage.session.say()
        time.sleep(PAUSE_S)
    return message


def outage(stage: Stage, truth: Truth) -> list[str]:
    """Play what nobody sees: three messages, edits of all kinds, and a hand edit."""
    messages = []

    def turn(*steps) -> None:
        messages.append(truth.prompt(f"unseen {len(messages)}"))
        time.sleep(PAUSE_S)
        for step in steps:
            step()
        time.sleep(PAUSE_S)
        stage.session.say()
        time.sleep(PAUSE_S)

    turn(
        lambda: stage.write("once.txt", "changed in the first unseen turn\n"),
        lambda: stage.write("twice.txt", "changed in the first unseen turn\n"),
        lambda: stage.session.edit("tool.txt", b"by the tool in the first unseen turn\n"),
        lambda: stage.shell("rm deleted.txt; mv renamed.txt other.txt; rm -r gone; rm again.txt; touch touched"),
        lambda: stage.write("made.txt", "made in the first unseen turn\n"),
        lambda: stage.write("brief.txt", "made in the first unseen turn\n"),
    )
    stage.write("hand.txt", "by hand, after the first unseen turn\n")
    stage.write("made-by-hand.txt", "by hand\n")
    time.sleep(PAUSE_S)
    turn(
        lambda: stage.write("twice.txt", "changed again in the second unseen turn\n"),
        lambda: stage.session.edit("tool.txt", b"by the tool in the second unseen turn\n"),
        lambda: stage.write("again.txt", "back in the second unseen turn\n"),
        lambda: stage.write("new/folder/made.txt", "made in the second unseen turn\n"),
        lambda: stage.shell("rm brief.txt; mv folder moved; chmod 600 once.txt"),
    )
    turn(lambda: stage.write("kept/last.txt", "made in the third unseen turn\n"))
    return messages


@pytest.mark.parametrize("history", [True, False], ids=["with-history", "without-history"])
def test_after_an_outage_no_path_is_offered_with_wrong_bytes(tmp_path, history):
    stage = Stage(tmp_path)
    stage.session = stage.home.session(stage.project, history=history)
    truth = Truth(stage)
    first = before(stage, truth)
    messages = outage(stage, truth)
    stage.attach_once()

    unsure = truth.prove()
    unsure = [one for one in unsure if not one.endswith(" brief.txt")]  # nobody ever saw that there was such a file
    assert not [one for one in unsure if one.startswith(first)]  # it was watched
    assert not [one for one in unsure if one.endswith((" untouched.txt", " seen.txt"))]
    second, third, last = messages
    known = {
        message: {path for path in truth.paths if f"{message} {os.fsdecode(path)}" not in unsure}
        for message in messages
    }
    # A time before the message and no later change is evidence: what the first unseen turn wrote is known from then on.
    assert {b"made.txt", b"other.txt", b"hand.txt", b"made-by-hand.txt"} <= known[third] & known[last]
    assert {b"once.txt", b"twice.txt", b"again.txt", b"new/folder/made.txt", b"tool.txt"} <= known[last]
    assert {b"deleted.txt", b"renamed.txt", b"gone/deep/inside.txt"} <= known[last]
    # What was there before the first unseen edit is anybody's guess, but for the agent's own backups.
    assert not {b"once.txt", b"twice.txt", b"deleted.txt", b"hand.txt", b"again.txt"} & known[second]
    assert (b"tool.txt" in known[second]) is history
    assert b"twice.txt" not in known[third]


@pytest.mark.parametrize("catching_up", [True, False], ids=["attach-first", "rewind-at-once"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_rewind_into_an_outage_keeps_what_nobody_knows(tmp_path, catching_up, which):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    before(stage, truth)
    messages = outage(stage, truth)
    present = truth.files()
    if catching_up:
        stage.attach_once()
    answer = stage.json("rewind", messages[which], "--yes", "--all")
    assert answer["scanned"] is True
    assert answer["failed"] == answer["skippedLinks"] == []
    kept = {one["path"]: one["reason"] for one in answer["kept"]}
    assert set(kept.values()) <= {"unknown-then"}
    target, now = dict(truth.then[messages[which]]), truth.files()
    target.pop(b"brief.txt", None)  # made and removed while nobody looked
    for path in set(target) | set(present) | set(now):
        below_kept = any(os.fsdecode(path) == name or os.fsdecode(path).startswith(name + "/") for name in kept)
        assert now.get(path) == (present if below_kept else target).get(path), (path, kept)
    if which == 0:
        assert {"once.txt", "twice.txt", "deleted.txt", "hand.txt", "made.txt", "moved/inside.txt"} <= set(kept)
    if which == 2:
        assert kept == {"kept/last.txt": "unknown-then"}  # whether there was one before it, nobody knows
        assert answer["undo"] is None  # so there was nothing to do
        return
    assert stage.json("undo", "--yes")["kept"] == []
    assert truth.files() == present


def test_a_message_before_the_outage_comes_back_whole(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    first = before(stage, truth)
    outage(stage, truth)
    answer = stage.json("rewind", first, "--yes", "--all")
    assert (answer["kept"], answer["failed"]) == ([], [])
    assert truth.files() == truth.then[first]


def test_the_hand_edit_of_an_outage_is_kept_by_a_plain_rewind(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    first = before(stage, truth)
    outage(stage, truth)
    answer = stage.json("rewind", first, "--yes")
    kept = {one["path"]: one["reason"] for one in answer["kept"]}
    assert kept["hand.txt"] == "changed-outside-turns"
    assert kept["made-by-hand.txt"] == "created-outside-turns"
    now = truth.files()
    assert now[b"hand.txt"] == b"by hand, after the first unseen turn\n"
    assert now[b"made-by-hand.txt"] == b"by hand\n"
    rest = set(truth.then[first]) - {b"hand.txt"}
    assert {path: now[path] for path in rest} == {path: truth.then[first][path] for path in rest}


def test_a_message_of_the_outage_is_told_as_such(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    before(stage, truth)
    messages = outage(stage, truth)
    stage.attach_once()
    logged = {one["message"]: one for one in stage.json("log")}
    assert set(messages) <= set(logged)
    answer, _ = say(stage, "show", f"{messages[0]}:once.txt")
    assert answer.code == 1
    assert "nobody knows" in answer.err


@pytest.mark.parametrize("known", [True, False], ids=["known", "never-seen"])
def test_what_came_and_went_in_an_outage_was_perhaps_there(tmp_path, known):
    """A path that was absent before and after it may have been there at a message: nobody removes it for that."""
    stage = Stage(tmp_path)
    stage.write("other.txt", "other\n")
    if known:
        stage.write("passing.txt", "first\n")
    truth = Truth(stage)
    with stage.watching() as watcher:
        seen = truth.prompt("while it is watched")
        watcher.checkpoint(seen)
        if known:
            os.unlink(stage.project / "passing.txt")
        stage.session.say()
        time.sleep(PAUSE_S)
    stage.write("passing.txt", "in the outage\n")
    time.sleep(PAUSE_S)
    unseen = truth.prompt("while nobody watches")
    time.sleep(PAUSE_S)
    os.unlink(stage.project / "passing.txt")
    stage.session.say()
    stage.attach_once()
    with stage.watching() as watcher:
        later = truth.prompt("watched again")
        watcher.checkpoint(later)
        stage.write("passing.txt", "later\n")
        stage.session.say()
        time.sleep(PAUSE_S)
        watcher.checkpoint(truth.prompt("the last one"))
        assert f"{unseen} passing.txt" in truth.prove()
        told = stage.json("rewind", unseen, "--all", "--yes")
        assert {"path": "passing.txt", "reason": "unknown-then"} in told["kept"]
        assert (stage.project / "passing.txt").read_text() == "later\n"
        stage.json("rewind", later, "--yes")
        assert not (stage.project / "passing.txt").exists()
