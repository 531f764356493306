"""A rewind takes back what the session's turns did, and leaves what anybody else did (must show 7)."""

import os
import subprocess
import sys
import time

import pytest

from tests.builders.acting import kept, pause, read, turn
from tests.builders.stage import Stage


def test_a_hand_edit_after_the_turn_is_kept_taken_brought_back_and_kept(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.write("b.txt", "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"), lambda: stage.write("b.txt", "two\n"))
        stage.write("a.txt", "two, and mine\n")
        answer = stage.json("rewind", message, "--yes", "--all")
        assert (kept(answer), read(stage, "a.txt"), read(stage, "b.txt")) == ({}, "one\n", "one\n")
        assert kept(stage.json("undo", "--yes")) == {}
        assert (read(stage, "a.txt"), read(stage, "b.txt")) == ("two, and mine\n", "two\n")
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"a.txt": "changed-outside-turns"}
        assert (read(stage, "a.txt"), read(stage, "b.txt")) == ("two, and mine\n", "one\n")
        # Naming the path is asking for it.
        assert kept(stage.json("rewind", message, "a.txt", "--yes")) == {}
        assert read(stage, "a.txt") == "one\n"


def test_what_a_person_made_or_removed_after_the_turn_stays_so(tmp_path):
    stage = Stage(tmp_path)
    for name in ("gone.txt", "changed.txt", "folder/in.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        message = turn(
            stage,
            watcher,
            lambda: stage.write("changed.txt", "two\n"),
            lambda: stage.write("folder/made.txt", "agent\n"),
        )
        stage.write("mine.txt", "by hand\n")
        stage.write("notes/mine.txt", "by hand\n")
        stage.write("folder/mine.txt", "by hand\n")
        (stage.project / "gone.txt").unlink()
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {
            "mine.txt": "created-outside-turns",
            "notes": "created-outside-turns",
            "notes/mine.txt": "created-outside-turns",
            "folder/mine.txt": "created-outside-turns",
            "gone.txt": "changed-outside-turns",
        }
        assert answer["removed"] == ["folder/made.txt"]
        assert answer["restored"] == ["changed.txt"]
        assert read(stage, "mine.txt") == read(stage, "notes/mine.txt") == read(stage, "folder/mine.txt") == "by hand\n"
        assert read(stage, "gone.txt") is None


def test_what_a_person_made_and_the_agent_changed_later_is_not_removed(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching() as watcher:
        first = turn(stage, watcher)
        stage.write("mine.txt", "by hand\n")
        pause()
        second = turn(stage, watcher, lambda: stage.session.edit("mine.txt", b"by the agent\n"))
        answer = stage.json("rewind", first, "--yes")
        assert kept(answer) == {"mine.txt": "created-outside-turns"}
        assert read(stage, "mine.txt") == "by the agent\n"
        assert kept(stage.json("rewind", second, "--yes")) == {}
        assert read(stage, "mine.txt") == "by hand\n"


def test_copies_by_links_touches_and_an_indexer_change_nothing(tmp_path):
    stage = Stage(tmp_path)
    for number in range(20):
        stage.write(f"src/{number}.txt", f"one {number}\n")
    with stage.watching() as watcher:
        message = turn(
            stage, watcher, lambda: stage.write("src/3.txt", "two\n"), lambda: stage.write("src/4.txt", "two\n")
        )
        stage.shell(f"cp -al src {stage.directory}/copy")
        answer = stage.json("rewind", message, "--dry-run")
        assert answer["skippedLinks"] == ["src/3.txt", "src/4.txt"]  # a second name: nobody writes through it
        assert (answer["restored"], answer["kept"]) == ([], [])
        stage.shell(
            f"touch src/*.txt; rm -r {stage.directory}/copy; touch src/1*.txt; cat src/* > {stage.directory}/index"
        )
        for path in (stage.project / "src").iterdir():
            os.utime(path, (time.time() + 60, path.stat().st_mtime))
        times = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (stage.project / "src").iterdir()}
        answer = stage.json("rewind", message, "--yes")
        assert (answer["restored"], answer["kept"], answer["skippedLinks"]) == (["src/3.txt", "src/4.txt"], [], [])
        now = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (stage.project / "src").iterdir()}
        assert {name for name in now if now[name] != times[name]} == {"3.txt", "4.txt"}


def test_a_copy_by_links_inside_the_workspace_is_left_alone(tmp_path):
    stage = Stage(tmp_path)
    stage.write("src/a.txt", "one\n")
    stage.write("src/b.txt", "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("src/a.txt", "two\n"))
        stage.shell("cp -al src backup")
        answer = stage.json("rewind", message, "--yes")
        assert set(answer["skippedLinks"]) == {"src/a.txt", "backup/a.txt", "backup/b.txt"}
        assert (answer["restored"], answer["removed"]) == ([], [])
        assert read(stage, "backup/a.txt") == "two\n"
        stage.shell("rm -r backup")
        assert stage.json("rewind", message, "--yes")["restored"] == ["src/a.txt"]
        assert read(stage, "src/a.txt") == "one\n"


@pytest.mark.parametrize("watched", [True, False])
def test_a_folder_that_the_person_renames_after_the_turn_loses_nothing(tmp_path, watched):
    stage = Stage(tmp_path)
    for name in ("lib/a.txt", "lib/deep/b.txt", "lib/c.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        message = turn(
            stage,
            watcher,
            lambda: stage.write("lib/a.txt", "two\n"),
            lambda: stage.write("lib/deep/made.txt", "agent\n"),
        )
        if not watched:
            watcher.stop()
        os.rename(stage.project / "lib", stage.project / "library")
        before = stage.tree()
        answer = stage.json("rewind", message, "--yes")
        assert answer["removed"] == []
        now = stage.tree()
        assert {path: now.get(path) for path in before} == before
        assert set(kept(answer).values()) <= {"changed-outside-turns", "created-outside-turns"}
        # What the turn changed is not brought back under the old name either: the person moved it away.
        assert not (stage.project / "lib").exists()


def test_what_the_agent_wrote_into_a_folder_made_by_hand_leaves_the_folder(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching() as watcher:
        turn(stage, watcher)
        (stage.project / "mine").mkdir()
        pause()
        message = turn(stage, watcher, lambda: stage.write("mine/made.txt", "agent\n"))
        assert stage.json("rewind", message, "--yes")["removed"] == ["mine/made.txt"]
        assert (stage.project / "mine").is_dir()


def test_small_ignored_files_come_back_and_are_never_removed(tmp_path):
    stage = Stage(tmp_path)
    stage.write(".gitignore", ".env\n*.log\nbuild/\n")
    stage.write(".env", "KEY=one\n")
    stage.write("build/out.o", "one\n")
    with stage.watching() as watcher:
        message = turn(
            stage,
            watcher,
            lambda: stage.shell(
                "echo KEY=two > .env; echo started > new.log; echo two > build/out.o; echo 3 > build/new.o"
            ),
        )
        build = (stage.project / "build").stat().st_ino
        answer = stage.json("rewind", message, "--yes", "--all")
        assert read(stage, ".env") == "KEY=one\n"
        assert kept(answer) == {"new.log": "ignored"}
        assert read(stage, "new.log") == "started\n"
        assert (read(stage, "build/out.o"), read(stage, "build/new.o")) == ("two\n", "3\n")
        assert (stage.project / "build").stat().st_ino == build
        (stage.project / ".env").unlink()
        assert ".env" not in stage.json("rewind", message, "--yes", "--all")["removed"]
        assert read(stage, ".env") == "KEY=one\n"


def test_an_interruption_ends_the_turn(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.write("b.txt", "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"), ends=False)
        stage.session.interrupt(during_tool=True)
        pause()
        stage.write("b.txt", "mine\n")
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"b.txt": "changed-outside-turns"}
        assert (read(stage, "a.txt"), read(stage, "b.txt")) == ("one\n", "mine\n")


def test_a_turn_without_an_end_stays_open_until_the_time_out(tmp_path, monkeypatch):
    stage = Stage(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"), ends=False)
        stage.write("b.txt", "perhaps mine\n")
        told = stage.json("rewind", message, "--dry-run")  # nobody said that it had finished: it may be the agent's
        assert (kept(told), told["restored"]) == ({}, ["a.txt", "b.txt"])
        policies = tmp_path / "policies"
        policies.mkdir()
        (policies / "checkpoints.toml").write_text("[time]\nturn_timeout_s = 1\n")
        monkeypatch.setenv("SIDECAR_POLICIES", str(policies))
        time.sleep(1.1)
        stage.write("c.txt", "mine\n")
        assert kept(stage.json("rewind", message, "--yes")) == {"c.txt": "changed-outside-turns"}
        assert read(stage, "c.txt") == "mine\n"


@pytest.mark.parametrize("killed", [True, False])
def test_the_death_of_a_process_that_was_seen_alive_ends_its_turn(tmp_path, killed):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    stage.write("b.txt", "one\n")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as agent:
        stage.session.live(agent.pid)
        with stage.watching() as watcher:
            message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"), ends=False)
            if killed:
                agent.kill()
                agent.wait()
            else:
                stage.session.exit(agent.pid)
            stage.json("rewind", message, "--dry-run")  # the sidecar looks around
            pause()
            stage.write("b.txt", "mine\n")
            answer = stage.json("rewind", message, "--yes")
            assert kept(answer) == {"b.txt": "changed-outside-turns"}
            assert (read(stage, "a.txt"), read(stage, "b.txt")) == ("one\n", "mine\n")
        agent.kill()


def test_a_task_that_wakes_the_agent_after_its_turn_is_the_sessions_work(tmp_path):
    stage = Stage(tmp_path)
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        stage.write(name, "one\n")
    with stage.watching() as watcher:
        message = turn(stage, watcher, lambda: stage.write("a.txt", "two\n"))
        stage.write("b.txt", "by hand, while the task runs\n")
        pause()
        stage.session.notification()
        pause()
        stage.session.shell("sed -i s/one/two/ c.txt", lambda: (pause(), stage.write("c.txt", "two\n")))
        stage.session.edit("made.txt", b"woken\n")
        pause()
        stage.session.say()
        pause()
        stage.write("d.txt", "by hand, afterwards\n")
        answer = stage.json("rewind", message, "--yes")
        assert kept(answer) == {"b.txt": "changed-outside-turns", "d.txt": "changed-outside-turns"}
        assert (answer["restored"], answer["removed"]) == (["a.txt", "c.txt"], ["made.txt"])
        assert [one["message"] for one in stage.json("log")] == [message]  # the notification is no message
