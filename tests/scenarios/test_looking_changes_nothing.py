"""A dry run, a question and a refusal change nothing: not a byte of the workspace, nor of the store."""

import contextlib
import os
import pty
import select
import subprocess
import time

from tests.builders.probe import assert_sentence, content_files, hash_of, opened, rows_of, settle
from tests.builders.stage import PATIENCE_S, Stage


def play(stage: Stage, watcher, count: int = 1) -> list[str]:
    messages = []
    for number in range(count):
        messages.append(stage.session.prompt(f"message {number}"))
        watcher.checkpoint(messages[-1])
        stage.write("a.txt", f"changed {number}\n")
        stage.write("big", os.urandom(200_000))
        stage.session.say()
        settle(stage)
    return messages


def seen(stage: Stage) -> dict[str, object]:
    return {"workspace": hash_of(stage.project), "contents": content_files(stage), **rows_of(stage)}


def everything(stage: Stage) -> tuple[str, str]:
    return hash_of(stage.project), hash_of(stage.directory / "store")


def test_a_dry_run_with_a_live_watch_changes_nothing(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        (message,) = play(stage, watcher)
        before = seen(stage)
        for words in (["rewind", message, "--dry-run"], ["diff", message], ["diff", message, "--patch"]):
            assert stage.run(*words).code == 0
        told = stage.json("rewind", message, "--dry-run", "--all")
        assert (told["restored"], told["removed"], told["scanned"]) == (["a.txt"], ["big"], False)
        assert (told["dryRun"], told["undo"], told["canRewind"]) == (True, None, True)
        assert (told["insertions"], told["deletions"]) == (1, 1)
        assert seen(stage) == before
        # Looking and being refused change nothing either.
        for words in (["log"], ["show", message], ["status"], ["rewind", message], ["rewind", "abcdef12", "--yes"]):
            stage.run(*words)
        assert seen(stage) == before


def test_a_dry_run_after_an_outage_counts_what_happened_and_stores_none_of_it(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        (message,) = play(stage, watcher)
    stage.write("a.txt", "by hand, while nobody looked\n")
    stage.write("new.bin", os.urandom(300_000))
    before = everything(stage)
    told = stage.json("rewind", message, "--dry-run", "--all")
    assert told["scanned"]
    assert told["removed"] == ["big", "new.bin"]
    for words in (["diff", message], ["show", message], ["log", "--all"], ["status"], ["diff", message, "--patch"]):
        assert stage.run(*words).code == 0
    assert everything(stage) == before


def test_a_dry_run_that_finds_newer_messages_drops_none_of_the_older_ones(tmp_path):
    """What a real catching up would evict is still there after a rehearsed one, its bytes too."""
    stage = Stage(tmp_path)
    with stage.watching("watch", "--profile", "short") as watcher:
        messages = play(stage, watcher, 20)
        kept = stage.json("diff", messages[1], "--stat")
    for number in range(5):
        stage.session.prompt(f"nobody listens {number}")
        stage.session.say()
    before = everything(stage)
    assert stage.json("rewind", messages[1], "--dry-run")["filesChanged"] == kept["filesChanged"]
    assert everything(stage) == before
    assert stage.run("show", f"{messages[1]}:a.txt").out == "changed 0\n"
    with opened(stage) as database:
        named = [name for (name,) in database.execute("SELECT file FROM blob WHERE file IS NOT NULL")]
    assert set(named) <= set(content_files(stage))


def test_without_a_terminal_a_rewind_needs_yes(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        (message,) = play(stage, watcher)
    before = everything(stage)
    answer = stage.run("rewind", message)
    assert "--yes" in assert_sentence(answer)
    told = stage.json("rewind", message, code=1)
    assert (told["code"], told["canRewind"], told["dryRun"]) == ("needs-yes", False, False)
    assert everything(stage) == before


@contextlib.contextmanager
def at_a_terminal(stage: Stage, *words: str):
    """Run a verb as a person sees it; gives the terminal and the process."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        stage.command(*words), cwd=stage.project, env=stage.environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            yield ours, process
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal: int, text: str | None) -> str:
    """Read until a text was shown, or (None) the program ended."""
    shown, deadline = "", time.monotonic() + PATIENCE_S
    while text is None or text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"{text} did not come: {shown}"
        try:
            shown += os.read(terminal, 4096).decode()
        except OSError:  # the other end is closed
            assert text is None, shown
            return shown
    return shown


def test_on_a_terminal_it_shows_the_plan_and_asks(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        (message,) = play(stage, watcher)
        before = stage.tree()
        for said in (b"n\n", b"\n", b"\x04", b"perhaps\n"):
            with at_a_terminal(stage, "rewind", message) as (terminal, process):
                shown = read_until(terminal, "Go ahead?")
                assert "restore  a.txt" in shown
                assert "remove   big" in shown
                assert stage.tree() == before
                os.write(terminal, said)
                shown = read_until(terminal, None)
                assert process.wait(PATIENCE_S) == 1, said
                assert "Nothing was changed." in shown
                assert "Traceback" not in shown
            assert stage.tree() == before
        assert "before-rewind" not in [one["kind"] for one in stage.json("log", "--all")]
        with at_a_terminal(stage, "rewind", message) as (terminal, process):
            read_until(terminal, "Go ahead?")
            os.write(terminal, b"y\n")
            shown = read_until(terminal, None)
            assert process.wait(PATIENCE_S) == 0
        assert f"Files rewound to state at message {message}" in shown
        assert stage.tree() == {b"a.txt": ("file", 0o644, b"one\n")}


def test_nobody_else_is_held_up_by_the_question(tmp_path):
    """While a person thinks, the agent goes on: what changes then is kept, or taken back, but never lost."""
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        (message,) = play(stage, watcher)
        with at_a_terminal(stage, "rewind", message) as (terminal, process):
            read_until(terminal, "Go ahead?")
            busy = stage.run("rewind", message, "--yes")
            assert "Workspace" in assert_sentence(busy, 4)
            assert stage.json("rewind", message, "--yes", code=4)["code"] == "busy"
            second = stage.session.prompt("meanwhile")
            watcher.checkpoint(second)
            stage.write("a.txt", "changed while the question stood\n")
            settle(stage)
            os.write(terminal, b"y\n")
            read_until(terminal, None)
            process.wait(PATIENCE_S)
        told = stage.json("undo", "--yes") if (stage.project / "a.txt").read_text() == "one\n" else None
        assert (stage.project / "a.txt").read_text() == "changed while the question stood\n", told
