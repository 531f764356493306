"""Undo is a stack: back through the rewinds one by one, and forward again, byte for byte."""

from tests.builders.probe import assert_sentence, hash_of, settle
from tests.builders.stage import Stage


def play(stage: Stage, watcher) -> list[str]:
    """Three messages; each turn changes, creates and removes."""
    messages = []
    for number in range(3):
        messages.append(stage.session.prompt(f"message {number}"))
        watcher.checkpoint(messages[-1])
        stage.session.edit("edited.txt", f"{number}\n".encode() * (number + 1))
        stage.shell(f"mkdir -p d{number}; head -c 300000 /dev/urandom > d{number}/big; rm -f gone{number}")
        stage.session.say()
        settle(stage)
    return messages


def prepare(stage: Stage) -> None:
    for number in range(3):
        stage.write(f"gone{number}", f"here until {number}\r\n")
    stage.write("edited.txt", b"\xff\x00 not text")
    stage.write("mine.txt", "by hand\n")


def test_two_rewinds_two_undos_two_redos(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    states = [stage.tree()]
    with stage.watching() as watcher:
        messages = play(stage, watcher)
        last = stage.tree()

        first = stage.json("rewind", messages[2], "--yes")
        middle = stage.tree()
        second = stage.json("rewind", messages[0], "--yes")
        assert stage.tree() == states[0]
        assert middle not in (last, states[0])
        assert len({first["undo"], second["undo"], None}) == 3

        undone = stage.json("undo", "--yes")
        assert (undone["message"], stage.tree() == middle) == (second["undo"], True)
        undone = stage.json("undo", "--yes")
        assert (undone["message"], stage.tree() == last) == (first["undo"], True)
        told = stage.json("undo", "--yes", code=1)
        assert (told["code"], told["error"]) == ("nothing-to-undo", "There is no rewind left to undo.")
        assert stage.tree() == last

        stage.json("undo", "--redo", "--yes")
        assert stage.tree() == middle
        stage.json("undo", "--redo", "--yes")
        assert stage.tree() == states[0]
        assert stage.json("undo", "--redo", "--yes", code=1)["code"] == "nothing-to-undo"

        # And once more all the way, then a new rewind clears what could be redone.
        for expected in (middle, last):
            stage.json("undo", "--yes")
            assert stage.tree() == expected
        stage.json("rewind", messages[1], "--yes")
        assert_sentence(stage.run("undo", "--redo", "--yes"))
        stage.json("undo", "--yes")
        assert stage.tree() == last
    # The stack outlives the sidecar.
    stage.json("undo", "--redo", "--yes")
    stage.json("undo", "--yes")
    assert stage.tree() == last
    kinds = [one["kind"] for one in stage.json("log", "--all")]
    assert kinds.count("before-rewind") > 5
    assert stage.json("check")["ok"]


def test_undo_keeps_what_was_done_by_hand_since(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    with stage.watching() as watcher:
        messages = play(stage, watcher)
        last = stage.tree()
        stage.json("rewind", messages[1], "--yes")
        settle(stage)
        stage.write("mine.txt", "changed by hand after the rewind\n")
        settle(stage)
        told = stage.json("undo", "--yes")
        assert stage.tree() == {**last, b"mine.txt": ("file", 0o644, b"changed by hand after the rewind\n")}
        assert told["kept"] == [{"path": "mine.txt", "reason": "changed-outside-turns"}]


def test_the_newest_rewind_of_any_session_is_undone_first(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "a\n")
    stage.write("b.txt", "b\n")
    with stage.watching() as watcher:
        mine = stage.session
        other = stage.home.session(stage.project)
        first = mine.prompt("to a")
        watcher.checkpoint(first)
        stage.write("a.txt", "a changed\n")
        mine.say()
        settle(stage)
        second = other.prompt("to b")
        watcher.checkpoint(second)
        stage.write("b.txt", "b changed\n")
        other.say()
        settle(stage)
        done = stage.tree()
        stage.json("rewind", first, "--yes")
        half = stage.tree()
        assert half == {**done, b"a.txt": ("file", 0o644, b"a\n")}
        stage.json("rewind", second, "--yes")
        none = stage.tree()
        assert none[b"b.txt"] == ("file", 0o644, b"b\n")

        assert stage.json("undo", "--yes")["session"] == other.session
        assert stage.tree() == half
        assert stage.json("undo", "--yes")["session"] == mine.session
        assert stage.tree() == done
        assert stage.json("undo", "--redo", "--yes")["session"] == mine.session
        assert stage.tree() == half
        assert stage.json("undo", "--redo", "--yes")["session"] == other.session
        assert stage.tree() == none
        assert stage.json("undo", "--yes", "--session", mine.session)["session"] == mine.session
        assert (stage.project / "a.txt").read_text() == "a changed\n"


def test_a_dry_undo_changes_nothing(tmp_path):
    stage = Stage(tmp_path)
    prepare(stage)
    with stage.watching() as watcher:
        messages = play(stage, watcher)
        last = stage.tree()
        stage.json("rewind", messages[0], "--yes")
    before = hash_of(stage.project), hash_of(stage.directory / "store")
    told = stage.json("undo", "--dry-run")
    assert told["restored"]
    assert (hash_of(stage.project), hash_of(stage.directory / "store")) == before
    assert_sentence(stage.run("undo"))
    assert (hash_of(stage.project), hash_of(stage.directory / "store")) == before
    done = stage.json("undo", "--yes")
    assert (done["restored"], done["removed"]) == (told["restored"], told["removed"])
    assert stage.tree() == last
