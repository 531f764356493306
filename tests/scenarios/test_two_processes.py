"""One owner a session, one capturer a workspace: others look and rewind meanwhile, and take over when it dies."""

import signal

from tests.builders.probe import assert_sentence, settle
from tests.builders.stage import Stage


def turn(stage: Stage, session, watcher, number: int) -> str:
    message = session.prompt(f"message {number}")
    watcher.checkpoint(message)
    stage.write("a.txt", f"after message {number}\n")
    stage.shell(f"echo {number} > made{number}.txt")
    session.say()
    settle(stage)
    return message


def listed(stage: Stage, session=None) -> list[str]:
    named = ("--session", session.session) if session is not None else ()
    return [one["message"] for one in stage.json("log", *named)]


def test_a_second_process_rewinds_while_the_first_watches(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "at first\n")
    with stage.watching() as watcher:
        states, messages = [], []
        for number in range(2):
            states.append(stage.tree())
            messages.append(turn(stage, stage.session, watcher, number))
        states.append(stage.tree())

        answer = stage.run("rewind", messages[0], "--yes")
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.splitlines()[0] == f"Files rewound to state at message {messages[0]}"
        assert stage.tree() == states[0]

        messages.append(turn(stage, stage.session, watcher, 7))
        after = stage.tree()
        told = stage.json("show", messages[2])
        # What changed since the message before is what the rewind and the first turn did.
        assert {one["path"] for one in told["files"]} <= {"a.txt", "made0.txt", "made1.txt"}
        assert stage.json("rewind", messages[2], "--yes")["kept"] == []
        assert stage.tree() == states[0]
        assert stage.json("rewind", messages[1], "--yes")["failed"] == []
        assert stage.tree() == states[1]
        assert stage.json("rewind", messages[0], "--yes")["failed"] == []
        assert stage.tree() == states[0]
        for expected in (states[1], states[0], after):
            stage.json("undo", "--yes")
            assert stage.tree() == expected
        assert not [event for event in watcher.events if event["event"] == "warning"], watcher.events
        assert listed(stage) == messages[::-1]
    assert stage.json("check")["ok"]


def test_a_second_owner_is_refused_takes_nothing_over_and_may_look(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "at first\n")
    with stage.watching() as watcher:
        first = turn(stage, stage.session, watcher, 0)
        for words in (
            ["watch"],
            ["attach", str(stage.session.transcript)],
            ["attach", stage.session.session],
            ["attach", str(stage.session.transcript.parent), "--once"],
            ["attach", str(stage.session.transcript), "--once", "--workspace", str(stage.project)],
        ):
            sentence = assert_sentence(stage.run(*words), 4)
            assert str(watcher.process.pid) in sentence, sentence
            told = stage.run(*words, "--json")
            assert told.code == 4
            last = told.out.splitlines()[-1]
            assert '"code": "busy"' in last, told.out
            assert '"event": "ready"' not in told.out
            assert '"event": "checkpoint"' not in told.out
        (session,) = stage.json("status")["sessions"]
        assert (session["pid"], session["protected"]) == (watcher.process.pid, True)
        assert session["since"]
        for words in (["log"], ["log", "--all"], ["show", first], ["diff", first], ["status"], ["check"]):
            answer = stage.run(*words)
            assert (answer.code, answer.err) == (0, ""), (words, answer)
        # And the first goes on as if nothing had been.
        second = turn(stage, stage.session, watcher, 1)
        assert listed(stage) == [second, first]


def test_the_next_one_takes_over_at_once_when_the_first_is_killed(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "at first\n")
    messages = []
    with stage.watching() as watcher:
        messages.append(turn(stage, stage.session, watcher, 0))
        before = stage.tree()
        messages.append(turn(stage, stage.session, watcher, 1))
        watcher.stop(signal.SIGKILL)
    (session,) = stage.json("status")["sessions"]
    assert (session["pid"], session["protected"]) == (None, False)
    unheard = stage.session.prompt("while nobody listens")
    stage.session.say()
    with stage.watching() as watcher:
        watcher.wait("attached", session=stage.session.session)
        watcher.checkpoint(unheard)
        messages += [unheard, turn(stage, stage.session, watcher, 3)]
        assert listed(stage) == messages[::-1]
        watcher.stop(signal.SIGKILL)
    answer = stage.attach_once()
    assert "busy" not in answer.out
    with stage.watching("attach", str(stage.session.transcript)) as watcher:
        messages.append(turn(stage, stage.session, watcher, 4))
        assert listed(stage) == messages[::-1]  # none lost, none twice
        told = stage.json("rewind", messages[1], "--yes", "--all")
        assert (told["kept"], told["failed"]) == ([], [])
        assert stage.tree() == before
    assert stage.json("check")["ok"]


def test_two_sessions_in_one_watch_each_have_their_own_cap(tmp_path):
    stage = Stage(tmp_path)
    other = stage.home.session(stage.project)
    with stage.watching("watch", "--profile", "short") as watcher:
        few = [turn(stage, other, watcher, number) for number in range(3)]
        many = [turn(stage, stage.session, watcher, number) for number in range(22)]
        watcher.wait("evicted", message=many[1])
        assert listed(stage, stage.session) == many[:1:-1]
        assert listed(stage, other) == few[::-1]
        assert listed(stage) == many[:1:-1]  # the newest session's
        told = stage.json("rewind", few[0], "--dry-run", "--all")
        assert told["session"] == other.session
        assert told["removed"][0] == "a.txt"


def test_two_processes_in_one_workspace_share_its_timeline(tmp_path):
    """One captures, the other only tails; each session is rewound from either's checkpoints; then the first dies."""
    stage = Stage(tmp_path)
    stage.write("a.txt", "at first\n")
    mine, other = stage.session, stage.home.session(stage.project)
    early = []
    for session in (mine, other):
        early.append(session.prompt("before anybody looks"))
        session.say()
    with (
        stage.watching("attach", str(mine.transcript), "--profile", "short") as first,
        stage.watching("attach", str(other.transcript), ready=False) as second,
    ):
        second.wait("attached", session=other.session)
        states, messages = [], []
        for number in range(4):
            states.append(stage.tree())
            session, watcher = ((mine, first), (other, second))[number % 2]
            messages.append(turn(stage, session, watcher, number))
        assert "ready" not in [event["event"] for event in second.events]
        assert {one["pid"] for one in stage.json("status")["sessions"]} == {
            first.process.pid,
            second.process.pid,
        }
        for number in (3, 2, 1, 0):
            told = stage.json("rewind", messages[number], "--yes", "--all")
            assert (told["kept"], told["scanned"]) == ([], False)
            assert stage.tree() == states[number], number
        assert listed(stage, mine) == [*messages[2::-2], early[0]]
        assert listed(stage, other) == [*messages[:0:-2], early[1]]

        many = [turn(stage, mine, first, number) for number in range(30, 52)]
        first.wait("evicted", message=many[1])
        assert listed(stage, mine) == many[:1:-1]
        assert listed(stage, other) == [*messages[:0:-2], early[1]]

        # The capturer dies: the other one captures from here on, and says so.
        first.stop(signal.SIGKILL)
        second.wait("warning", code="owner")
        second.wait("ready")
        state = stage.tree()
        last = turn(stage, other, second, 99)
        assert stage.json("rewind", last, "--yes")["scanned"] is False
        assert stage.tree() == state
        assert second.stop() == 0
    assert stage.json("check")["ok"]


def test_a_session_directory_is_followed_with_those_that_start_later(tmp_path):
    stage = Stage(tmp_path)
    stage.session.folder.mkdir(parents=True)
    refused = stage.run("attach", str(stage.session.folder), "--once")
    assert_sentence(refused)
    assert not (tmp_path / "store").exists()
    with stage.watching("attach", str(stage.session.folder), ready=False) as watcher:
        message = stage.session.prompt("the first")
        watcher.checkpoint(message)
        stage.session.say()
        other = stage.home.session(stage.project)
        second = other.prompt("of another")
        watcher.checkpoint(second)
        assert {event["session"] for event in watcher.events if event["event"] == "attached"} == {
            stage.session.session,
            other.session,
        }
