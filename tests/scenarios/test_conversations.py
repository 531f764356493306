"""Whatever becomes of a conversation, its messages keep their files; nothing else gets a checkpoint (must show 8)."""

import json
import os

import pytest

from tests.builders.acting import kept, pause, read, turn
from tests.builders.claude import new_uuid
from tests.builders.stage import Stage
from tests.builders.truth import Truth


def logged(stage: Stage) -> list[str]:
    return [one["message"] for one in stage.json("log")]


def prove_rewinds(stage: Stage, truth: Truth, messages: list[str]) -> None:
    """Go to each message and prove that every file is as it was."""
    for message in messages:
        answer = stage.json("rewind", message, "--yes", "--all")
        assert (answer["kept"], answer["failed"]) == ([], []), message
        assert truth.files() == truth.then[message]


def ask(stage: Stage, watcher, truth: Truth, *steps, **fields) -> str:
    message = truth.prompt("do it", **fields)
    watcher.checkpoint(message)
    for step in steps:
        pause()
        step()
    pause()
    stage.session.say()
    pause()
    return message


def test_messages_before_a_compaction_come_back_exactly(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    stage.write("a.txt", "zero\n")
    with stage.watching() as watcher:
        messages = []
        for number in range(3):
            messages.append(
                ask(
                    stage,
                    watcher,
                    truth,
                    lambda number=number: stage.session.edit("a.txt", f"tool {number}\n".encode()),
                    lambda number=number: stage.write(f"shell-{number}.txt", "made\n"),
                )
            )
        boundary = stage.session.compact()
        for number in range(3, 5):
            edit = f"tool {number}\n".encode()
            messages.append(ask(stage, watcher, truth, lambda edit=edit: stage.session.edit("a.txt", edit)))
        assert logged(stage) == messages[::-1]  # neither the boundary nor the summary nor `/compact` is a message
        assert boundary not in messages
        prove_rewinds(stage, truth, [*messages, *messages[::-1]])


@pytest.mark.parametrize("parent", ["sibling", "root"])
def test_messages_of_a_branch_that_was_left_come_back_exactly(tmp_path, parent):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    stage.write("a.txt", "zero\n")
    with stage.watching() as watcher:
        first = ask(stage, watcher, truth, lambda: stage.write("a.txt", "first\n"))
        fork_at = stage.session.leaf if parent == "sibling" else None
        left = [
            ask(stage, watcher, truth, lambda n=n: stage.session.edit("a.txt", f"left {n}\n".encode()))
            for n in range(2)
        ]
        stage.session.leaf = fork_at
        new = ask(stage, watcher, truth, lambda: stage.write("b.txt", "another way\n"), parent=fork_at)
        assert logged(stage) == [new, *left[::-1], first]
        prove_rewinds(stage, truth, [left[1], first, new, left[0]])
        parents = {one["message"]: one["parent"] for one in stage.json("log", "--graph")}
        assert parents[new] == fork_at


@pytest.mark.parametrize("live", [True, False], ids=["watched", "caught-up"])
def test_a_queued_prompt_keeps_what_was_done_before_it_was_taken_up(tmp_path, live):
    stage = Stage(tmp_path)
    for name in ("before.txt", "tool.txt", "after.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        turn(stage, watcher)
        asked = stage.session.prompt("a long piece of work")
        watcher.checkpoint(asked)
        if not live:
            watcher.stop()
        typed_at = stage.home.now()
        pause()
        stage.write("before.txt", "two\n")  # made after the prompt was typed, before it was taken up
        stage.session.edit("tool.txt", b"two\n")
        pause()
        source = new_uuid()
        queued = stage.session.queued("and another thing", source_uuid=source, at=typed_at)
        pause()
        stage.write("after.txt", "two\n")
        stage.session.edit("made.txt", b"two\n")
        pause()
        stage.session.say()
        if live:
            watcher.checkpoint(queued)
        else:
            stage.attach_once()
        answer = stage.json("rewind", source, "--yes")  # the id that the agent's client knows it by
        assert answer["message"] == queued
        if live:
            assert (answer["kept"], answer["restored"], answer["removed"]) == ([], ["after.txt"], ["made.txt"])
            assert read(stage, "after.txt") == "one\n"
        else:
            assert set(kept(answer).values()) <= {"unknown-then", "unstable"}
        assert (read(stage, "before.txt"), read(stage, "tool.txt")) == ("two\n", "two\n")
        assert stage.json("log")[0]["message"] == queued
        assert stage.json("log")[0]["prompt"] == "and another thing"
        if live:
            stage.json("rewind", asked, "--yes")
            assert [read(stage, name) for name in ("before.txt", "tool.txt", "after.txt")] == ["one\n"] * 3


def test_only_what_a_person_sent_gets_a_checkpoint(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        session = stage.session
        sent = [session.prompt("typed")]
        session.shell("true")
        notes = [session.notification(), session.meta("put in by the program")]
        session.say()
        sent.append(session.command("deploy", "now"))
        session.say()
        sent.append(session.bash_mode("ls", output="a.txt"))
        notes.append(session.builtin("model", "Set model"))
        notes.append(session.interrupt())
        notes.append(session.compact())
        sent.append(session.prompt([{"type": "text", "text": "in blocks"}]))
        notes.append(session.queued("a notification", origin={"kind": "task-notification"}))
        child = session.subagent("work for it")
        child.say()
        notes.append(session.say())
        notes.append(session.api_error())
        sent.append(session.prompt("the last one"))
        watcher.checkpoint(sent[-1])
        assert logged(stage) == sent[::-1]
        for note in notes:
            refused = stage.json("rewind", note, "--yes", code=1)
            assert (refused["error"], refused["reason"]) == (
                "No file checkpoint found for this message.",
                "not-a-prompt",
            )


def test_a_record_that_is_written_again_is_one_message(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        message = ask(stage, watcher, truth, lambda: stage.write("a.txt", "two\n"))
        lines = stage.session.transcript.read_bytes().splitlines(keepends=True)
        record = next(line for line in lines if json.loads(line).get("uuid") == message)
        stage.session.append_bytes(record)
        later = ask(stage, watcher, truth, lambda: stage.write("a.txt", "three\n"))
        assert logged(stage) == [later, message]
        prove_rewinds(stage, truth, [message, later])
    stage.session.append_bytes(record)
    stage.attach_once()
    assert logged(stage) == [later, message]


def test_records_of_other_sessions_in_the_file_are_set_apart(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.write("b.txt", "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"))
        foreign = stage.session.node("user", stage.session._user("from elsewhere") | {"promptSource": "typed"})
        stage.session.leaf = message
        stage.session.append(foreign | {"sessionId": new_uuid()})
        stage.write("b.txt", "by hand\n")
        later = turn(stage, watcher)
        assert logged(stage) == [later, message]
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"b.txt": "changed-outside-turns"}  # the foreign prompt began no turn of ours


def test_an_agent_that_keeps_no_session_leaves_nothing_to_tie_to_and_that_is_said(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.session.live(os.getpid())
    with stage.watching():
        stage.write("a.txt", "two\n")
        told = stage.json("status", str(stage.project))
        (warning,) = told["warnings"]
        assert stage.session.session in warning
        assert "nothing to tie" in warning
        assert not any(one["protected"] for one in told["sessions"])
        assert "nothing to tie" in stage.run("status").out
        refused = stage.json("rewind", "latest", "--yes", code=1)
        assert refused["code"] in ("no-checkpoint", "no-session")
        assert read(stage, "a.txt") == "two\n"


def test_a_session_of_print_mode_is_followed_like_any_other(tmp_path):
    stage = Stage(tmp_path)
    stage.session = stage.home.session(stage.project, entrypoint="sdk-cli", history=False)
    truth = Truth(stage)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        messages = [ask(stage, watcher, truth, lambda n=n: stage.write("a.txt", f"{n}\n")) for n in range(3)]
        prove_rewinds(stage, truth, messages[::-1])
