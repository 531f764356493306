"""Two sessions in one workspace, and subagents: each rewind takes back its own session's work and no other's."""

import time

from tests.builders.acting import kept, pause, read, turn
from tests.builders.stage import Stage


def test_case_C07_a_session_that_changed_nothing_takes_nothing_from_the_other(tmp_path):
    stage = Stage(tmp_path)
    stage.write("x.txt", "one\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        mine = turn(stage, watcher)
        theirs = turn(stage, watcher, lambda: stage.write("x.txt", "two\n"), session=other)
        status = (stage.project / "x.txt").stat()
        answer = stage.json("rewind", mine, "--yes")
        assert (answer["filesChanged"], answer["restored"], answer["removed"]) == ([], [], [])
        assert kept(answer) == {"x.txt": "other-session"}
        now = (stage.project / "x.txt").stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        assert stage.json("rewind", theirs, "--yes")["restored"] == ["x.txt"]
        assert read(stage, "x.txt") == "one\n"


def test_case_C07_what_both_changed_belongs_to_the_later_one_unless_asked_for(tmp_path):
    stage = Stage(tmp_path)
    stage.write("x.txt", "one\n")
    stage.write("y.txt", "one\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        theirs = turn(stage, watcher, lambda: stage.write("x.txt", "theirs\n"), session=other)
        mine = turn(stage, watcher, lambda: stage.write("x.txt", "mine\n"), lambda: stage.write("y.txt", "mine\n"))
        answer = stage.json("rewind", theirs, "--yes")
        assert kept(answer) == {"x.txt": "other-session", "y.txt": "other-session"}
        assert read(stage, "x.txt") == "mine\n"
        assert stage.json("rewind", mine, "--yes")["restored"] == ["x.txt", "y.txt"]
        assert read(stage, "x.txt") == "theirs\n"
        assert stage.json("rewind", theirs, "--yes")["restored"] == ["x.txt"]
        assert read(stage, "x.txt") == "one\n"
        assert stage.json("undo", "--session", other.session, "--yes")["restored"] == ["x.txt"]
        assert kept(stage.json("rewind", theirs, "--yes", "--all")) == {}
        assert read(stage, "x.txt") == "one\n"


def test_of_two_turns_at_once_a_tool_call_says_whose_file_it_is(tmp_path):
    stage = Stage(tmp_path)
    for name in ("mine.txt", "theirs.txt", "shell.txt"):
        stage.write(name, "one\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        mine = stage.session.prompt("work")
        watcher.checkpoint(mine)
        theirs = other.prompt("work, too")
        watcher.checkpoint(theirs)
        pause()
        stage.session.edit("mine.txt", b"two\n")
        other.edit("theirs.txt", b"two\n")
        stage.session.edit("made.txt", b"mine\n")
        stage.write("shell.txt", "by one of them\n")
        pause()
        stage.session.say()
        other.say()
        pause()
        expected = {"theirs.txt": "other-session", "shell.txt": "other-session"}
        answer = stage.json("rewind", mine, "--yes")
        assert (kept(answer), answer["restored"], answer["removed"]) == (expected, ["mine.txt"], ["made.txt"])
        answer = stage.json("rewind", theirs, "--yes")
        assert (kept(answer), answer["restored"]) == ({"shell.txt": "other-session"}, ["theirs.txt"])
        assert read(stage, "shell.txt") == "by one of them\n"
        assert stage.json("rewind", mine, "shell.txt", "--yes")["restored"] == ["shell.txt"]


def test_what_a_subagent_does_is_its_sessions_work(tmp_path):
    stage = Stage(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        message = stage.session.prompt("have it done")
        watcher.checkpoint(message)
        child = stage.session.subagent()
        pause()
        child.edit("a.txt", b"by the subagent\n")
        child.shell("sed -i s/one/two/ b.txt", lambda: stage.write("b.txt", "two\n"))
        child.edit("made/by/it.txt", b"by the subagent\n")
        child.say()
        stage.session.say()
        pause()
        stage.write("c.txt", "by hand\n")
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"c.txt": "changed-outside-turns"}
        assert answer["restored"] == ["a.txt", "b.txt"]
        assert not (stage.project / "made").exists()
        assert [one["message"] for one in stage.json("log")] == [message]  # what a subagent is told is no message


def test_a_subagent_in_the_background_holds_its_turn_open(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.write("b.txt", "one\n")
    with stage.watching() as watcher:
        message = stage.session.prompt("have it done in the background")
        watcher.checkpoint(message)
        child = stage.session.subagent()
        stage.session.say("it runs")
        pause()
        stage.write("a.txt", "by the shell of the subagent\n")
        pause()
        child.edit("made.txt", b"by the subagent\n")
        child.say()
        time.sleep(0.1)
        stage.write("b.txt", "by hand\n")
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"b.txt": "changed-outside-turns"}
        assert (answer["restored"], answer["removed"]) == (["a.txt"], ["made.txt"])


def test_a_fork_works_on_as_a_session_of_its_own(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        first = turn(stage, watcher, lambda: stage.session.edit("a.txt", b"two\n"))
        fork = stage.session.fork()
        second = turn(stage, watcher, lambda: fork.edit("a.txt", b"three\n"), session=fork)
        refused = stage.json("rewind", first, "--yes", code=1)
        assert "--session" in refused["error"]  # both have that message
        assert stage.json("rewind", second, "--yes")["restored"] == ["a.txt"]
        assert read(stage, "a.txt") == "two\n"
        answer = stage.json("rewind", first, "--session", stage.session.session, "--yes")
        assert (answer["restored"], read(stage, "a.txt")) == (["a.txt"], "one\n")


def test_a_session_in_a_folder_of_the_workspace_is_another_one(tmp_path):
    stage = Stage(tmp_path)
    stage.write("part/a.txt", "one\n")
    stage.write("b.txt", "one\n")
    inner = stage.home.session(stage.project / "part")
    with stage.watching() as watcher:
        mine = turn(stage, watcher)
        theirs = turn(stage, watcher, lambda: inner.edit("a.txt", b"two\n"), session=inner)
        turn(stage, watcher, lambda: stage.write("b.txt", "two\n"))
        answer = stage.json("rewind", mine, "--yes")
        assert kept(answer) == {"part/a.txt": "other-session"}
        assert (read(stage, "part/a.txt"), read(stage, "b.txt")) == ("two\n", "one\n")
        assert stage.json("rewind", theirs, "--yes")["restored"] == ["a.txt"]
        assert read(stage, "part/a.txt") == "one\n"
