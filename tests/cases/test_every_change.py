"""C01, C02, C04: whatever changed a file, and however many, a rewind brings all of it back."""

import os
import signal

from tests.builders.stage import Stage


def test_case_C01_shell_edits_are_in_the_checkpoint(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.py", "old\n")
    stage.write("b.py", "untouched\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("rewrite it in the shell")
        watcher.checkpoint(first)
        before = stage.tree()
        stage.session.shell("…", lambda: stage.shell("sed -i s/old/new/ a.py; cat > c.py <<'X'\nmade\nX"))
        stage.session.say()
        second = stage.session.prompt("next")
        assert watcher.checkpoint(second)["files"] == 2

        shown = {file["path"]: file for file in stage.json("show", second)["files"]}
        assert {path: file["change"] for path, file in shown.items()} == {"a.py": "changed", "c.py": "created"}
        assert {file["origin"] for file in shown.values()} == {"turn"}
        assert stage.run("show", f"{first}:a.py").out == "old\n"
        dry = stage.json("rewind", first, "--dry-run")
        assert (dry["restored"], dry["removed"], dry["insertions"], dry["deletions"]) == (["a.py"], ["c.py"], 1, 2)

        inode = os.stat(stage.project / "b.py").st_ino
        answer = stage.json("rewind", first, "--yes")
        assert (answer["restored"], answer["removed"]) == (["a.py"], ["c.py"])
        assert stage.tree() == before
        assert os.stat(stage.project / "b.py").st_ino == inode


def test_case_C01_what_was_not_observed_is_said_never_called_unchanged(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.py", "old\n")
    stage.write("b.py", "old\n")
    stage.session.prompt("before anybody watches")
    with stage.watching() as watcher:
        seen = stage.session.prompt("watched")
        watcher.checkpoint(seen)
        [standing] = stage.json("status")["sessions"]
        assert (standing["protected"], standing["why"], standing["pid"]) == (True, None, watcher.process.pid)
        stage.session.say()
    [standing] = stage.json("status")["sessions"]
    assert not standing["protected"]
    assert standing["why"]
    assert "UNPROTECTED" in stage.run("status").out

    # Nobody watches: one message, an edit before and one after it.
    stage.shell("echo between > a.py")
    missed = stage.session.prompt("nobody looks")
    stage.shell("echo after > a.py; echo after > b.py; echo made > c.py")
    stage.session.say()
    stage.attach_once()
    here = stage.tree()
    answer = stage.json("rewind", missed, "--yes")
    assert {one["path"]: one["reason"] for one in answer["kept"]} == dict.fromkeys(
        ["a.py", "b.py", "c.py"], "unknown-then"
    )
    assert answer["restored"] == answer["removed"] == []
    assert stage.tree() == here
    [logged] = [one for one in stage.json("log") if one["message"] == missed]
    assert logged["files"] + logged["unstable"] > 0, "a message nobody watched must not look like one without changes"

    # Of the message that was watched everything is known, and what came later is taken back only where a turn made it.
    answer = stage.json("rewind", seen, "--all", "--yes")
    assert (stage.project / "a.py").read_text() == (stage.project / "b.py").read_text() == "old\n"
    assert not (stage.project / "c.py").exists()


def test_case_C01_a_killed_sidecar_protects_nothing_and_status_says_so(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.py", "old\n")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("first"))
        watcher.stop(signal.SIGKILL)
    [standing] = stage.json("status")["sessions"]
    assert (standing["protected"], standing["pid"]) == (False, None)
    assert standing["why"]


def test_case_C02_many_files_edited_after_the_checkpoint_come_back_in_one_go(tmp_path):
    stage = Stage(tmp_path)
    for number in range(7):
        stage.write(f"src/{number}.py", f"old {number}\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("change twelve files")
        watcher.checkpoint(first)
        before = stage.tree()
        for number in range(7):
            stage.session.edit(f"src/{number}.py", f"new {number}\n".encode())
        for number in range(5):
            stage.shell(f"mkdir -p new{number}/deep; echo {number} > new{number}/deep/made.py")
        stage.session.say()
        second = stage.session.prompt("and?")
        watcher.checkpoint(second)

        answer = stage.json("rewind", first, "--yes")
        files = [f"src/{n}.py" for n in range(7)] + [f"new{n}/deep/made.py" for n in range(5)]
        assert sorted(answer["filesChanged"]) == sorted(files)
        assert len(answer["filesChanged"]) == 12
        assert stage.tree() == before
        again = stage.json("rewind", first, "--yes")
        assert again["filesChanged"] == again["restored"] == again["removed"] == again["kept"] == []
        assert again["undo"] is None, "nothing was done, so there is nothing to undo"
        assert stage.tree() == before


def test_case_C04_deleted_files_and_folders_come_back(tmp_path):
    stage = Stage(tmp_path)
    stage.write("go.mod", "module m\n", 0o644)
    stage.write("pkg/a.go", "a\n", 0o640)
    stage.write("pkg/run.sh", "#!/bin/sh\n", 0o755)
    stage.write("pkg/sub/b.go", b"\x00\xffb", 0o444)
    (stage.project / "pkg/hollow").mkdir(mode=0o750)
    (stage.project / "pkg/sub").chmod(0o700)
    with stage.watching() as watcher:
        first = stage.session.prompt("clean up")
        watcher.checkpoint(first)
        before = stage.tree()
        stage.session.shell("rm", lambda: stage.shell("rm go.mod; rm -rf pkg"))
        stage.session.say()
        dry = stage.json("rewind", first, "--dry-run")
        answer = stage.json("rewind", first, "--yes")
        assert answer["filesChanged"] == ["go.mod", "pkg/a.go", "pkg/run.sh", "pkg/sub/b.go"]
        assert "pkg/hollow" in answer["restored"]
        assert dry["restored"] == answer["restored"]
        assert answer["removed"] == answer["kept"] == answer["failed"] == []
        assert stage.tree() == before
        stage.json("undo", "--yes")
        assert not (stage.project / "pkg").exists()
        assert not (stage.project / "go.mod").exists()
        stage.json("undo", "--redo", "--yes")
        assert stage.tree() == before


def test_case_C04_a_deletion_by_the_person_stays_unless_asked(tmp_path):
    stage = Stage(tmp_path)
    stage.write("mine.txt", "mine\n")
    stage.write("its.txt", "its\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("remove one")
        watcher.checkpoint(first)
        stage.session.shell("rm", (stage.project / "its.txt").unlink)
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("so that the turn is over"))
        stage.session.say()
        stage.run("status")  # a process of its own: long after the turn's end
        (stage.project / "mine.txt").unlink()
        answer = stage.json("rewind", first, "--yes")
        assert answer["restored"] == ["its.txt"]
        assert answer["kept"] == [{"path": "mine.txt", "reason": "changed-outside-turns"}]
        assert not (stage.project / "mine.txt").exists()
        assert stage.json("rewind", first, "mine.txt", "--yes")["restored"] == ["mine.txt"]
