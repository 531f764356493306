"""C06, C07: nothing of a person's, or of another session's, is lost by a rewind; and there is always a way back."""

import time

from tests.builders.probe import settle
from tests.builders.stage import Stage


def test_case_C06_a_hand_edit_is_kept_and_a_forced_rewind_can_be_taken_back(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    stage.write("g.txt", "g0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("write v1")
        watcher.checkpoint(first)
        stage.session.edit("f.txt", b"v1\n")
        stage.session.edit("g.txt", b"g1\n")
        stage.session.say()
        stage.run("status")  # the turn is over by then
        stage.shell("echo mine >> f.txt; echo own > own.txt")
        mine = stage.tree()

        answer = stage.json("rewind", first, "--yes")
        assert answer["restored"] == ["g.txt"]
        assert answer["kept"] == [
            {"path": "f.txt", "reason": "changed-outside-turns"},
            {"path": "own.txt", "reason": "created-outside-turns"},
        ]
        assert (stage.project / "f.txt").read_bytes() == b"v1\nmine\n"
        assert answer["undo"] is not None
        stage.json("undo", "--yes")
        assert stage.tree() == mine

        forced = stage.json("rewind", first, "--all", "--yes")
        assert (stage.project / "f.txt").read_bytes() == b"v0\n"
        assert forced["removed"] == ["own.txt"]
        # What was overwritten was a checkpoint first, and can be read as one.
        assert stage.run("show", f"{forced['undo']}:f.txt").out == "v1\nmine\n"
        stage.json("undo", "--yes")
        assert stage.tree() == mine


def test_case_C06_two_rewinds_two_undos_two_redos(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    states, messages = [], []
    with stage.watching() as watcher:
        for number in (1, 2, 3):
            message = stage.session.prompt(f"write v{number}")
            watcher.checkpoint(message)
            messages.append(message)
            states.append(stage.tree())
            stage.shell(f"echo v{number} > f.txt; echo {number} > made{number}.txt; rm -f made{number - 1}.txt")
            stage.session.say()
            settle(stage)  # an edit in the very millisecond of the next message may be called unstable there
        stage.run("status")
        stage.shell("echo hand >> f.txt; mkdir byhand; echo x > byhand/x")
        last = stage.tree()

        answer = stage.json("rewind", messages[2], "--all", "--yes")
        assert stage.tree() == states[2], answer
        stage.json("rewind", messages[0], "--all", "--yes")
        assert stage.tree() == states[0]
        stage.json("undo", "--yes")
        assert stage.tree() == states[2]
        stage.json("undo", "--yes")
        assert stage.tree() == last
        nothing = stage.run("undo", "--yes", "--json")
        assert (nothing.code, nothing.json["code"]) == (1, "nothing-to-undo")
        assert stage.tree() == last
        stage.json("undo", "--redo", "--yes")
        assert stage.tree() == states[2]
        stage.json("undo", "--redo", "--yes")
        assert stage.tree() == states[0]
        assert stage.run("undo", "--redo", "--yes").code == 1
        stage.json("undo", "--yes")
        stage.json("rewind", messages[1], "--all", "--yes")
        assert stage.tree() == states[1]
        assert stage.run("undo", "--redo", "--yes").code == 1, "a new rewind clears the redo side"
        stage.json("undo", "--yes")
        assert stage.tree() == states[2]


def test_case_C06_an_edit_after_a_rewind_survives_its_undo(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("write")
        watcher.checkpoint(first)
        stage.session.edit("f.txt", b"v1\n")
        stage.session.edit("g.txt", b"g1\n")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        stage.session.say()
        stage.json("rewind", first, "--yes")
        stage.shell("echo mine > f.txt")
        answer = stage.json("undo", "--yes")
        assert answer["kept"] == [{"path": "f.txt", "reason": "changed-outside-turns"}]
        assert answer["restored"] == ["g.txt"]
        assert (stage.project / "f.txt").read_bytes() == b"mine\n"


def test_case_C06_the_same_without_a_watcher(tmp_path):
    """Bytes that nobody captured before the rewind itself looked are saved by it all the same."""
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("write")
        watcher.checkpoint(first)
        stage.session.edit("f.txt", b"v1\n")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        stage.session.say()
        settle(stage)
    stage.shell("echo never seen > f.txt; echo never seen > new.txt")
    unseen = stage.tree()
    kept = stage.json("rewind", first, "--yes")
    assert kept["scanned"]
    assert stage.tree() == unseen
    stage.json("rewind", first, "f.txt", "--yes")
    assert (stage.project / "f.txt").read_bytes() == b"v0\n"
    stage.json("undo", "--yes")
    assert stage.tree() == unseen


def test_case_C07_a_rewind_of_the_session_that_did_nothing_is_no_rewind(tmp_path):
    stage = Stage(tmp_path)
    stage.write("x.txt", "x0\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        idle = other.prompt("just talk")
        watcher.checkpoint(idle)
        other.say()
        busy = stage.session.prompt("edit x")
        watcher.checkpoint(busy)
        stage.session.edit("x.txt", b"x1\n")
        stage.shell("echo new > y.txt")
        stage.session.say()
        watcher.checkpoint(other.prompt("still talking"))
        other.say()
        here = stage.tree()

        answer = stage.json("rewind", idle, "--yes")
        assert answer["filesChanged"] == answer["restored"] == answer["removed"] == []
        assert answer["undo"] is None
        assert {one["path"]: one["reason"] for one in answer["kept"]} == {
            "x.txt": "other-session",
            "y.txt": "other-session",
        }
        assert stage.tree() == here
        plain = stage.run("rewind", idle, "--yes")
        assert plain.code == 0
        assert "0 restored, 0 removed" in plain.out

        assert stage.json("rewind", busy, "--yes")["restored"] == ["x.txt"]


def test_case_C07_of_a_file_that_both_edited_the_later_writer_decides(tmp_path):
    stage = Stage(tmp_path)
    stage.write("x.txt", "x0\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        mine = other.prompt("B edits x")
        watcher.checkpoint(mine)
        other.edit("x.txt", b"by B\n")
        other.edit("b.txt", b"only B\n")
        other.say()
        watcher.checkpoint(other.prompt("B waits"))
        other.say()
        its = stage.session.prompt("A edits x")
        watcher.checkpoint(its)
        stage.session.edit("x.txt", b"by A\n")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("A waits"))
        stage.session.say()
        here = stage.tree()

        answer = stage.json("rewind", mine, "--yes")
        assert answer["kept"] == [{"path": "x.txt", "reason": "other-session"}]
        assert answer["removed"] == ["b.txt"]
        assert (stage.project / "x.txt").read_bytes() == b"by A\n"
        stage.json("undo", "--yes")
        assert stage.tree() == here

        forced = stage.json("rewind", mine, "--all", "--yes")
        assert forced["restored"] == ["x.txt"]
        assert (stage.project / "x.txt").read_bytes() == b"x0\n"
        stage.json("undo", "--yes")
        assert stage.tree() == here
        # The other way round A takes back only what came after B.
        stage.json("rewind", its, "--yes")
        assert (stage.project / "x.txt").read_bytes() == b"by B\n"
        assert (stage.project / "b.txt").read_bytes() == b"only B\n"


def test_case_C07_two_agents_sent_to_work_in_the_same_millisecond(tmp_path):
    """Their turns have the same stamps, and are two turns all the same (a fork's would be one)."""
    stage = Stage(tmp_path)
    stage.write("a.txt", "a0\n")
    stage.write("b.txt", "b0\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        began = time.time_ns()
        mine, its = stage.session.prompt("A", at=began), other.prompt("B", at=began)
        watcher.checkpoint(mine)
        watcher.checkpoint(its)
        stage.session.edit("a.txt", b"a1\n")
        other.edit("b.txt", b"b1\n")
        ended = time.time_ns()
        stage.session.say(at=ended)
        other.say(at=ended)
        answer = stage.json("rewind", mine, "--yes")
        assert answer["restored"] == ["a.txt"]
        assert answer["kept"] == [{"path": "b.txt", "reason": "other-session"}]
        assert (stage.project / "b.txt").read_bytes() == b"b1\n"


def test_case_C07_two_turns_at_once_take_back_only_what_their_own_tools_named(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "a0\n")
    stage.write("b.txt", "b0\n")
    other = stage.home.session(stage.project)
    with stage.watching() as watcher:
        mine, its = stage.session.prompt("A"), other.prompt("B")
        watcher.checkpoint(mine)
        watcher.checkpoint(its)
        stage.session.edit("a.txt", b"a1\n")
        other.edit("b.txt", b"b1\n")
        stage.shell("echo whose > nobody.txt")
        stage.session.say()
        other.say()
        answer = stage.json("rewind", mine, "--yes")
        assert answer["restored"] == ["a.txt"]
        assert {one["path"]: one["reason"] for one in answer["kept"]} == {
            "b.txt": "other-session",
            "nobody.txt": "other-session",
        }
        assert stage.json("rewind", its, "--yes")["restored"] == ["b.txt"]
