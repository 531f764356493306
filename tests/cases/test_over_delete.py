"""C08, C09: nothing is deleted but on evidence that it was not there, and nothing that another program made."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.stage import Stage

LARGE = 400_000  # incompressible bytes of this size are kept as a file of their own


def database_of(stage: Stage) -> Path:
    [path] = (stage.directory / "store" / "workspaces").glob("*/store.db")
    return path


def destroy(stage: Stage, content: bytes) -> None:
    """Remove one content from the store by hand, wherever it is kept."""
    path = database_of(stage)
    with sqlite3.connect(path) as database:
        numbers = database.execute("SELECT id, file FROM blob WHERE size_bytes = ?", (len(content),)).fetchall()
        assert len(numbers) == 1, "the content is not told from others by its size"
        [(number, file)] = numbers
        if file is not None:
            (path.parent / "blobs" / file).unlink()
        else:
            database.execute("DELETE FROM blob_data WHERE blob = ?", (number,))
    database.close()


@pytest.mark.parametrize("size", [101, LARGE], ids=["in the database", "in a file"])
@pytest.mark.parametrize("watched", [True, False])
def test_case_C08_a_missing_content_is_reported_and_nothing_is_deleted(tmp_path, size, watched):
    stage = Stage(tmp_path)
    lost, whole = os.urandom(size), os.urandom(77)
    stage.write("edited.bin", lost)
    stage.write("fine.bin", whole)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit them")
        watcher.checkpoint(first)
        stage.write("edited.bin", b"after")
        stage.write("fine.bin", b"after")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        stage.session.say()
        if not watched:
            watcher.stop()
        destroy(stage, lost)

        dry = stage.json("rewind", first, "--dry-run", code=3)
        assert dry["kept"] == [{"path": "edited.bin", "reason": "blob-missing"}]
        assert (stage.project / "fine.bin").read_bytes() == b"after"
        answer = stage.json("rewind", first, "--yes", code=3)
        assert answer["kept"] == [{"path": "edited.bin", "reason": "blob-missing"}]
        assert answer["restored"] == ["fine.bin"]
        assert answer["removed"] == answer["failed"] == []
        assert (stage.project / "edited.bin").read_bytes() == b"after"
        assert (stage.project / "fine.bin").read_bytes() == whole
        assert "Files rewound to state" not in stage.run("rewind", first, "--yes").out
        # Asking for everything, or for the very path, makes nothing of it either.
        for more in (["--all"], ["edited.bin"]):
            assert stage.json("rewind", first, *more, "--yes", code=3)["removed"] == []
        shown = stage.run("show", f"{first}:edited.bin")
        assert (shown.code, shown.out) == (1, "")
        assert "Traceback" not in shown.err
        assert stage.run("diff", first, "--patch").code == 3
        assert (stage.project / "edited.bin").read_bytes() == b"after"


@pytest.mark.parametrize("size", [101, LARGE], ids=["in the database", "in a file"])
def test_case_C08_a_missing_content_of_today_is_healed_before_it_is_displaced(tmp_path, size):
    stage = Stage(tmp_path)
    today = os.urandom(size)
    stage.write("f.bin", b"before")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.write("f.bin", today)
        stage.write("made.bin", today + b"more")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        stage.session.say()
    destroy(stage, today)
    destroy(stage, today + b"more")
    here = stage.tree()
    assert stage.json("rewind", first, "--dry-run")["restored"] == ["f.bin"]
    answer = stage.json("rewind", first, "--yes")
    assert (answer["restored"], answer["removed"]) == (["f.bin"], ["made.bin"]), answer
    stage.json("undo", "--yes")
    assert stage.tree() == here


def test_case_C08_damaged_bytes_are_never_put_into_a_file(tmp_path):
    stage = Stage(tmp_path)
    content = os.urandom(LARGE)
    stage.write("f.bin", content)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.write("f.bin", b"after")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
    [blob] = [path for path in (database_of(stage).parent / "blobs").iterdir() if path.stat().st_size >= LARGE // 2]
    damaged = bytearray(blob.read_bytes())
    damaged[1000] ^= 1
    blob.write_bytes(damaged)
    answer = stage.json("rewind", first, "--yes", code=3)
    assert answer["kept"] == [{"path": "f.bin", "reason": "blob-missing"}]
    assert (stage.project / "f.bin").read_bytes() == b"after"


def test_case_C08_a_second_process_starting_never_removes_what_a_checkpoint_refers_to(tmp_path):
    stage = Stage(tmp_path)
    large, small = os.urandom(LARGE), b"small\n"
    stage.write("large.bin", large)
    stage.write("small.txt", small)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.write("large.bin", os.urandom(LARGE))
        stage.write("small.txt", "other\n")
        stage.session.say()
        with stage.watching(ready=False) as second:  # it finds the session taken, and leaves
            assert second.process.wait(60) == 4
        other = stage.home.session(stage.project)
        other.prompt("a second session here")
        assert stage.run("attach", str(other.transcript), "--once").code in (0, 4)
        for verb in (["status"], ["log"], ["check"]):
            stage.run(*verb)
        answer = stage.json("rewind", first, "--yes")
        assert sorted(answer["restored"]) == ["large.bin", "small.txt"]
        assert (stage.project / "large.bin").read_bytes() == large
        assert (stage.project / "small.txt").read_bytes() == small


MAKER = """
import os, sys
folder, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.makedirs(folder, exist_ok=True)
for number in range(first, last):
    with open(os.path.join(folder, f"{number}.o"), "w") as file:
        file.write(f"object {number}")
"""


def make_output(stage: Stage, first: int, last: int) -> None:
    """Let another program make its files in out/."""
    subprocess.run([sys.executable, "-c", MAKER, str(stage.project / "out"), str(first), str(last)], check=True)


def stamps(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in folder.rglob("*"):
        status = path.stat()
        found[path.name] = (status.st_ino, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


@pytest.mark.parametrize("watched", [True, False])
def test_case_C09_what_another_program_makes_outside_turns_is_not_touched(tmp_path, watched):
    stage = Stage(tmp_path)
    stage.write("src/a", "old\n")
    make_output(stage, 0, 100)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit a")
        watcher.checkpoint(first)
        stage.session.edit("src/a", b"new\n")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("and now?"))
        stage.session.say()
        stage.run("status")
        make_output(stage, 100, 200)
        watcher.checkpoint(stage.session.prompt("more?"))
        stage.session.say()
        if not watched:
            watcher.stop()
            make_output(stage, 200, 300)
        stage.run("status")
        out, shown = stamps(stage.project / "out"), (stage.project / "out").stat()
        answer = stage.json("rewind", first, "--yes")
        assert answer["restored"] == ["src/a"]
        assert answer["removed"] == []
        assert stamps(stage.project / "out") == out
        now = (stage.project / "out").stat()
        assert (now.st_ino, now.st_mtime_ns) == (shown.st_ino, shown.st_mtime_ns)
        made = {one["path"]: one["reason"] for one in answer["kept"]}
        assert set(made) == {f"out/{number}.o" for number in range(100, 200 if watched else 300)}
        assert set(made.values()) <= {"created-outside-turns"}


def test_case_C09_what_a_turn_made_goes_and_what_was_there_before_stays(tmp_path):
    stage = Stage(tmp_path)
    stage.write("src/a", "old\n")
    make_output(stage, 0, 100)
    with stage.watching() as watcher:
        before, out = stage.tree(), stamps(stage.project / "out")
        first = stage.session.prompt("build it")
        watcher.checkpoint(first)
        stage.session.edit("src/a", b"new\n")
        make_output(stage, 100, 300)
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert len(answer["removed"]) == 200
        assert stage.tree() == before
        assert stamps(stage.project / "out") == out


def test_case_C09_absence_is_known_only_from_the_first_listing_on(tmp_path):
    """What appeared while nobody watched is not removed, whatever its age says: nobody saw that it was not there."""
    stage = Stage(tmp_path)
    stage.write("a", "old\n")
    early = tmp_path / "early.txt"
    early.write_text("made long ago, moved in today\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.session.say()
    missed = stage.session.prompt("nobody watches")
    stage.write("a", "new\n")
    stage.write("made.txt", "made while nobody watched\n")
    shutil.move(early, stage.project / "early.txt")
    stage.session.say()
    time.sleep(0.05)
    stage.attach_once()
    here = stage.tree()
    answer = stage.json("rewind", missed, "--yes")
    assert answer["removed"] == answer["restored"] == []
    assert {one["reason"] for one in answer["kept"]} == {"unknown-then"}
    assert stage.tree() == here


def test_case_C09_ignored_output_of_a_turn_is_not_removed(tmp_path):
    stage = Stage(tmp_path)
    stage.write(".gitignore", "out/\n*.log\n")
    stage.write("src/a", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("build")
        watcher.checkpoint(first)
        stage.session.edit("src/a", b"new\n")
        make_output(stage, 0, 30)
        stage.write("build.log", "log\n")
        stage.session.say()
        out = stamps(stage.project / "out")
        answer = stage.json("rewind", first, "--all", "--yes")
        assert answer["restored"] == ["src/a"]
        assert answer["removed"] == []
        assert stamps(stage.project / "out") == out
        assert (stage.project / "build.log").read_text() == "log\n"
