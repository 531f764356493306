"""Cases C34 to C37: what the kernel does not tell of, tells too late, or tells while it still goes on."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.builders.acting import pause, turn
from tests.builders.limits import limited
from tests.builders.probe import settle
from tests.builders.stage import Stage
from tests.builders.truth import Truth, say


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.xdist_group("sysctl")
def test_case_C34_a_paused_reader_misses_the_overflow_no_more_than_the_files(tmp_path):
    stage = Stage(tmp_path)
    for number in range(10):
        stage.write(f"folder-{number}/edited.txt", "before\n")
    truth = Truth(stage)
    with limited("max_queued_events", 256), stage.watching() as watcher:
        first = truth.prompt("hello")
        watcher.checkpoint(first)
        watcher.process.send_signal(signal.SIGSTOP)
        for number in range(1_000):  # two events each
            (stage.project / f"folder-{number % 10}/{number // 10}.txt").write_text(f"{number}\n")
        for number in range(10):
            stage.write(f"folder-{number}/edited.txt", "after\n")
        second = truth.prompt("while it stands still")
        watcher.process.send_signal(signal.SIGCONT)
        watcher.checkpoint(second)
        assert "overflow" in watcher.wait("warning", code="lost")["text"]
        assert truth.prove([second]) == []
        assert len(truth.prove([first])) <= 10  # those whose first bytes nobody read in time
        assert stage.json("status")["rescans"] == 1
    assert stage.json("check")["ok"]


def test_case_C36_a_tree_that_moves_in_and_every_way_to_save(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f", "at first\n")
    stage.write("vim", "at first\n")
    package = tmp_path / "pkg"
    for number in range(30):
        path = package / ("sub" if number % 2 else "") / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"as it came {number}\n")
    (package / "sub/a").write_text("as it came\n")
    truth = Truth(stage)
    with stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        pause()
        os.rename(package, stage.project / "pkg")
        pause()
        watcher.checkpoint(truth.prompt("it moved in"))
        pause()
        stage.write("pkg/sub/a", "edited after it\n")
        stage.shell("mkdir -p a/b/c && echo x > a/b/c/f")
        stage.shell("echo saved > f.tmp && mv f.tmp f")
        stage.shell("mv vim vim~ && echo saved > vim && rm vim~")
        pause()
        third = truth.prompt("edited and saved")
        watcher.checkpoint(third)
        pause()
        stage.write("a/b/c/f", "later\n")
        stage.write("pkg/sub/a", "later still\n")
        pause()
        last = truth.prompt("the last one")
        watcher.checkpoint(last)
        assert truth.prove() == []
        files = stage.json("show", third)["files"]
        told = {one["path"]: one["change"] for one in files if one["state"] != "unstable"}
        assert told["f"] == told["vim"] == told["pkg/sub/a"]
        assert not [path for path in told if path.endswith((".tmp", "~"))]
        assert {one["path"] for one in stage.json("show", last)["files"]} == {"a/b/c/f", "pkg/sub/a"}


BIG, SMALL = b"A" * 3_000_000 + b"\n", b"B" * 2_000_000 + b"\n"


def rewrite(path: Path, content: bytes, pieces: int) -> None:
    """Truncate a file and write it anew in pieces, as careless programs do."""
    with path.open("wb", buffering=0) as file:
        size = len(content) // pieces + 1
        for start in range(0, len(content), size):
            file.write(content[start : start + size])
            time.sleep(0.0005)


@pytest.mark.parametrize("way", ["truncates", "in-place", "vanishes"])
def test_case_C37_a_torn_content_is_never_offered_as_whole(tmp_path, way):
    stage = Stage(tmp_path)
    path = stage.project / "f.bin"
    path.write_bytes(BIG)
    stop = threading.Event()
    whole = [BIG, SMALL]
    if way == "in-place":
        whole[1] = b"C" * 3_000_000 + b"\n"

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            content = whole[number % 2]
            if way == "in-place":
                with path.open("r+b", buffering=0) as file:
                    for start in range(0, len(content), 500_000):
                        os.pwrite(file.fileno(), content[start : start + 500_000], start)
                        time.sleep(0.0005)
            else:
                rewrite(path, content, 6)
            if way == "vanishes" and number % 3 == 0:
                path.unlink()
            time.sleep(0.01)

    messages = []
    with stage.watching() as watcher:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(20):
                messages.append(stage.session.prompt(f"message {number}"))
                time.sleep(0.03)
        finally:
            stop.set()
            writer.join()
        pause()
        messages.append(stage.session.prompt("after it"))
        watcher.checkpoint(messages[-1])
        settle(stage)
        known = 0
        for message in messages:
            # What it was then is not known to the test either: whatever is offered must be one of the whole contents.
            said = offered(stage, message)
            assert said is None or said in whole, (message, len(said), said[:20])
            known += said is not None
        assert known >= 1
        if path.exists():
            assert offered(stage, messages[-1]) == path.read_bytes()


def offered(stage: Stage, message: str) -> bytes | None:
    """Give the bytes that a checkpoint offers of the file; None where it offers none."""
    answer, out = say(stage, "show", f"{message}:f.bin")
    return out if answer.code == 0 else None


@pytest.mark.parametrize("how", ["another-directory", "moved-away", "removed"])
def test_a_replaced_root_is_told_and_no_success_is_reported_of_it(tmp_path, how):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = turn(stage, watcher, lambda: stage.write("f.txt", "v1\n"))
        settle(stage)
        old = tmp_path / "old"
        os.rename(stage.project, old)
        if how == "another-directory":
            stage.project.mkdir()
            stage.write("f.txt", "of another project\n")
        elif how == "removed":
            stage.project.mkdir()
            stage.write("f.txt", "of another project\n")
            for path in old.iterdir():
                path.unlink()
            old.rmdir()
        watcher.wait("warning", code="root-replaced")
        second = stage.session.prompt("after it was replaced")
        stage.session.say()
        time.sleep(0.7)
        assert not [one for one in watcher.events if one["event"] == "checkpoint" and one["message"] == second]
        for standing in stage.run("status", "--json", cwd=tmp_path).json["sessions"]:
            assert not standing["protected"], standing
        before = stage.tree() if stage.project.exists() else None
        for message in (first, second):
            answer = stage.run("rewind", message, "--yes", "--json", cwd=tmp_path)
            assert answer.code == 1, answer
            assert answer.json["restored"] == answer.json["removed"] == []
        if before is not None:
            assert stage.tree() == before
        if how == "moved-away":  # back in its place it is the same workspace, and nobody says that it was watched
            (old / "f.txt").write_text("v2\n")
            os.rename(old, stage.project)
            told = stage.json("rewind", first, "--yes", "--all")
            assert told["scanned"]
            assert (stage.project / "f.txt").read_text() == "v0\n"
            stage.json("undo", "--yes")
            assert (stage.project / "f.txt").read_text() == "v2\n"


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.alone
@pytest.mark.xdist_group("sysctl")
def test_case_C35_ten_thousand_folders_with_five_hundred_watches(tmp_path):
    stage = Stage(tmp_path)
    for number in range(10_000):
        os.makedirs(stage.project / f"{number // 100}/{number % 100}")
    truth = Truth(stage)
    stage.write("0/0/f.txt", "at first\n")
    stage.write("99/99/f.txt", "at first\n")
    with limited("max_user_watches", 500), stage.watching() as watcher:
        watcher.checkpoint(truth.prompt("hello"))
        told = watcher.wait("warning", code="watch-limit")
        assert "watch-limit" in told["text"]
        for number in range(2):
            pause()
            for folder in ("0/0", "50/50", "99/99"):
                stage.write(f"{folder}/f.txt", f"after message {number}\n")
            pause()
            watcher.checkpoint(truth.prompt(f"message {number}"))
        unsure = truth.prove()
        assert len(unsure) <= 6
        last = list(truth.then)[-1]
        assert truth.prove([last]) == []  # what lay still for a while is known, watched or not
        assert any("limit" in text for text in stage.json("status")["warnings"])
        # Whoever is asked looks first: nobody was told of these.
        for folder in ("0/0", "50/50", "99/99"):
            stage.write(f"{folder}/f.txt", "a moment ago\n")
        answer = stage.json("rewind", last, "--yes", "--all")
        assert answer["restored"] == ["0/0/f.txt", "50/50/f.txt", "99/99/f.txt"]
        assert (stage.project / "99/99/f.txt").read_text() == "after message 1\n"
        assert stage.json("undo", "--yes")["failed"] == []
        assert (stage.project / "99/99/f.txt").read_text() == "a moment ago\n"
