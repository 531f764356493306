"""C32: one owner a session, one capturer and one rewind a workspace; who dies is replaced at once."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

from sidecar.fs.lock import FileLock
from tests.builders.probe import settle, workspace_folder
from tests.builders.stage import Stage, Watcher


def lock_file(stage: Stage, pid: int) -> Path:
    """Find the lock of the session that a process follows."""
    locks = [path for path in (stage.directory / "store" / "locks").iterdir() if path.name.startswith("session-")]
    [found] = [path for path in locks if json.loads(path.read_text())["pid"] == pid]
    return found


def logged(stage: Stage) -> list[str]:
    return [one["message"] for one in stage.json("log", "--session", stage.session.session)][::-1]


def test_case_C32_a_second_sidecar_takes_nothing_over_and_a_third_takes_over_at_once(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as a:
        first = stage.session.prompt("one")
        a.checkpoint(first)
        stage.write("f.txt", "v1\n")
        stage.session.say()
        pid = a.process.pid
        for verb in (["attach", str(stage.session.transcript)], ["attach", stage.session.session, "--once"], ["watch"]):
            refused = stage.run(*verb, "--json")
            assert refused.code == 4, refused
            assert json.loads(refused.out.splitlines()[-1])["code"] == "busy"
            assert str(pid) in refused.err
            assert "Traceback" not in refused.err
        assert logged(stage) == [first]  # and it can list
        [standing] = stage.json("status")["sessions"]
        assert standing["pid"] == pid
        second = stage.session.prompt("two")
        a.checkpoint(second)
        a.stop(signal.SIGKILL)

    # Nobody is there; its number may even belong to another program by now.
    lock = lock_file(stage, pid)
    lock.write_text(json.dumps(json.loads(lock.read_text()) | {"pid": os.getpid()}))
    assert stage.json("status")["sessions"][0]["pid"] is None
    stage.write("f.txt", "v2\n")
    stage.session.say()
    with stage.watching() as c:
        [standing] = stage.json("status")["sessions"]
        assert standing["pid"] == c.process.pid
        third = stage.session.prompt("three")
        c.checkpoint(third)
        assert not [event for event in c.events if event["event"] == "checkpoint" and event["message"] != third]
        assert logged(stage) == [first, second, third], "none lost, none doubled"
        stage.json("rewind", first, "--all", "--yes")
        assert (stage.project / "f.txt").read_text() == "v0\n"


def test_case_C32_of_many_that_start_at_once_one_follows(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    stage.session.prompt("before")
    processes = [
        subprocess.Popen(
            stage.command("watch", "--json"),
            cwd=stage.project,
            env=stage.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(4)
    ]
    watchers = [Watcher(process) for process in processes]
    try:
        # Those that are refused leave; whoever is left is the owner.
        [owner] = [w for w in watchers if "attached" in first_events(w)]
        codes = [w.process.wait(60) for w in watchers if w is not owner]
        assert codes == [4, 4, 4]
        message = stage.session.prompt("who writes this down?")
        owner.checkpoint(message)
        [standing] = stage.json("status")["sessions"]
        assert (standing["pid"], standing["protected"]) == (owner.process.pid, True)
        assert logged(stage).count(message) == 1
    finally:
        for watcher in watchers:
            watcher.stop()


def first_events(watcher: Watcher) -> set[str]:
    """Hear a process until it follows the session, or has left."""
    try:
        watcher.wait("attached")
        watcher.wait("ready")
    except AssertionError:
        assert watcher.process.wait(60) == 4
        return set()
    return {event["event"] for event in watcher.events}


def test_case_C32_the_capturer_dies_and_the_one_beside_it_goes_on(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    other = stage.home.session(stage.project)
    other.prompt("another session of this workspace")
    stage.session.prompt("mine")
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(stage.watching("attach", str(stage.session.transcript)))
        b = stack.enter_context(stage.watching("attach", str(other.transcript), ready=False))
        b.wait("attached")
        both = other.prompt("while both live")
        b.checkpoint(both)
        first = stage.session.prompt("to the capturer")
        a.checkpoint(first)
        stage.session.say()
        settle(stage)
        a.stop(signal.SIGKILL)
        b.wait("warning", code="owner")
        message = other.prompt("after it died")
        b.checkpoint(message)
        stage.write("f.txt", "v1\n")
        other.say()
        standings = {one["session"]: one for one in stage.json("status")["sessions"]}
        assert standings[other.session]["protected"]
        assert not standings[stage.session.session]["protected"]
        assert stage.json("rewind", message, "--yes")["restored"] == ["f.txt"]
        assert (stage.project / "f.txt").read_text() == "v0\n"
    assert stage.run("check").code == 0


def test_case_C32_two_terminals_that_append_to_one_transcript(tmp_path):
    """The agent itself was resumed twice: two processes write to one file. Each message is one checkpoint."""
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    stage.session.prompt("begin")
    twin = stage.home.session(stage.project, session=stage.session.session)
    twin.leaf, twin.message = stage.session.leaf, stage.session.message
    with stage.watching() as watcher:
        sent = []
        for number in range(4):
            for terminal in (stage.session, twin):
                message = terminal.prompt(f"{number}")
                watcher.checkpoint(message)
                sent.append(message)
                stage.write("f.txt", f"{len(sent)}\n")
                terminal.say()
                settle(stage)
        # One of them writes a record again, as a dropped connection makes it do.
        lines = stage.session.transcript.read_bytes().splitlines(keepends=True)
        stage.session.append_bytes(
            next(line for line in lines if sent[3].encode() in line and b'"type":"user"' in line)
        )
        last = twin.prompt("last")
        watcher.checkpoint(last)
        assert [message for message in logged(stage) if message in sent] == sent
        assert sum(event.get("message") == sent[3] for event in watcher.events if event["event"] == "checkpoint") == 1
        stage.json("rewind", sent[2], "--yes")
        assert (stage.project / "f.txt").read_text() == "2\n"


def test_case_C32_a_second_rewind_is_refused_and_changes_nothing(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.write("f.txt", "v1\n")
        stage.session.say()
        lock = FileLock.acquire(str(tmp_path / "store" / "locks" / f"{workspace_folder(stage).name}.rewind"))
        assert lock is not None
        try:
            for verb in (["rewind", first, "--yes"], ["rewind", first, "--all", "--yes"]):
                assert stage.json(*verb, code=4)["code"] == "busy"
            assert (stage.project / "f.txt").read_text() == "v1\n"
            assert stage.json("rewind", first, "--dry-run")["restored"] == ["f.txt"]
        finally:
            lock.release()
        assert stage.json("rewind", first, "--yes")["restored"] == ["f.txt"]
        assert (stage.project / "f.txt").read_text() == "v0\n"
