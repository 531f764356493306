"""How a message, a session and a path are named: prefixes, words, pins, forks; and what each verb shows of them."""

import os
import subprocess

import pytest

from tests.builders.probe import assert_sentence, hash_of, settle
from tests.builders.stage import Stage

ODD = b"odd \xff\xfe\n name.bin"


def uuid_of(start: str) -> str:
    return f"{start}-1111-4111-8111-111111111111"


@pytest.fixture
def stage(tmp_path):
    """Give a stage where two messages, whose ids begin alike, were followed by edits."""
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\ntwo\n")
    stage.write("sub/b.txt", "b\n")
    stage.write(ODD, b"\x00\xffodd\r\n")
    with stage.watching() as watcher:
        for start in ("abcd0001", "abcd0002"):
            watcher.checkpoint(stage.session.prompt(f"message {start}", uuid=uuid_of(start)))
            stage.session.edit("a.txt", f"one\n{start}\nthree\n".encode())
            stage.shell(f"echo {start} > sub/b.txt; echo {start} > sub/{start}.txt")
            stage.write(ODD, start)
            stage.session.say()
            settle(stage)
    return stage


def test_prefixes_of_four_and_more_characters_name_a_message(stage):
    first = uuid_of("abcd0001")
    assert stage.json("show", "abcd0001")["message"] == first
    assert stage.json("show", first[:30])["message"] == first
    assert stage.json("show", "latest")["message"] == uuid_of("abcd0002")
    assert stage.json("show", "baseline")["message"] == "baseline"
    session = stage.session.session
    assert stage.json("show", "abcd0001", "--session", session[:8])["message"] == first
    assert stage.json("show", "abcd0001", "--session", str(stage.session.transcript))["message"] == first

    ambiguous = stage.run("rewind", "abcd", "--yes")
    sentence = assert_sentence(ambiguous)
    assert uuid_of("abcd0001") in sentence
    assert uuid_of("abcd0002") in sentence
    told = stage.json("rewind", "abcd", "--yes", code=1)
    assert (told["code"], told["canRewind"]) == ("ambiguous-id", False)
    for text in ("abc", "", "..", "abcd*", "a b c d", "-" * 8 + "x y"):
        answer = stage.run("rewind", "--json", "--yes", "--", text)
        assert_sentence(answer)
        assert answer.json["code"] == "malformed-id", text
    assert stage.json("rewind", "abce", "--yes", code=1)["reason"] == "unknown"


def test_a_message_is_found_from_any_directory(stage, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert stage.run("show", "abcd0001", cwd=elsewhere).code == 0
    assert stage.json("pin", "abcd0001", "kept")["name"] == "kept"
    assert stage.run("show", "kept", cwd=elsewhere).code == 0
    assert stage.run("unpin", "kept", cwd=elsewhere).code == 0
    sentence = assert_sentence(stage.run("log", cwd=elsewhere))
    assert sentence.startswith("No conversation found with session ID: ")
    done = stage.run("rewind", "abcd0001", "--yes", cwd=elsewhere)
    assert done.code == 0, done
    assert (stage.project / "a.txt").read_text() == "one\ntwo\n"


def test_show_gives_the_bytes_of_any_file(stage):
    def bytes_at(message: str, path: bytes) -> bytes:
        command = [*map(os.fsencode, stage.command("show")), message.encode() + b":" + path]
        done = subprocess.run(command, cwd=stage.project, env=stage.environ, capture_output=True, check=True)
        assert done.stderr == b""
        return done.stdout

    assert bytes_at("abcd0001", b"a.txt") == b"one\ntwo\n"
    assert bytes_at("abcd0002", b"a.txt") == b"one\nabcd0001\nthree\n"
    assert bytes_at("abcd0001", ODD) == b"\x00\xffodd\r\n"
    assert bytes_at("abcd0002", ODD) == b"abcd0001"
    assert bytes_at("baseline", b"sub/b.txt") == b"b\n"
    files = {one["path"]: one for one in stage.json("show", "abcd0002")["files"]}
    assert set(files) == {"a.txt", "sub", "sub/b.txt", "sub/abcd0001.txt", os.fsdecode(ODD)} - {"sub"}
    assert (files["a.txt"]["origin"], files["sub/b.txt"]["origin"]) == ("tool", "turn")
    assert files["sub/abcd0001.txt"]["change"] == "created"
    for path in ("nowhere.txt", "sub", "sub/abcd0002.txt", "../out", "", "/etc/passwd"):
        answer = stage.run("show", f"abcd0002:{path}")
        assert_sentence(answer)
        assert answer.out == ""


def test_diff_shows_lines_and_counts_and_changes_nothing(stage):
    before = hash_of(stage.project), hash_of(stage.directory / "store")
    told = stage.json("diff", "abcd0001", "a.txt")
    assert (told["filesChanged"], told["insertions"], told["deletions"]) == (["a.txt"], 1, 2)
    patch = stage.run("diff", "abcd0001", "--patch", "a.txt").out
    assert patch.splitlines()[:2] == ["--- a/a.txt", "+++ b/a.txt"]
    assert "-abcd0002" in patch.splitlines()
    assert "+two" in patch.splitlines()
    everything = stage.run("diff", "abcd0001", "--patch").out
    assert "Binary file" in everything
    assert "\xff" not in everything
    assert "/dev/null" in everything
    stat = stage.run("diff", "abcd0001", "--stat").out
    assert stat == stage.run("diff", "abcd0001").out
    assert "a.txt" in stat
    assert (hash_of(stage.project), hash_of(stage.directory / "store")) == before


def test_path_arguments_restore_only_those(stage):
    tree = stage.tree()
    told = stage.json("rewind", "abcd0001", "--yes", "sub/b.txt", "sub/nowhere")
    assert (told["restored"], told["removed"]) == (["sub/b.txt"], [])
    assert stage.tree() == {**tree, b"sub/b.txt": ("file", 0o644, b"b\n")}
    # Relative to where one stands, as everywhere else.
    answer = stage.run("rewind", "abcd0001", "--yes", "abcd0002.txt", cwd=stage.project / "sub")
    assert answer.code == 0, answer
    assert b"sub/abcd0002.txt" not in stage.tree()
    told = stage.json("rewind", "abcd0001", "--yes", "sub")
    assert (told["restored"], told["removed"]) == ([], ["sub/abcd0001.txt"])
    assert (stage.project / "a.txt").read_bytes() == tree[b"a.txt"][2]
    told = stage.json("rewind", "abcd0001", "--yes", str(stage.project))
    assert sorted(told["restored"]) == sorted(["a.txt", os.fsdecode(ODD)])


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_an_empty_path_is_not_the_whole_workspace(stage, dry):
    """It is what a variable that was never set leaves of `rewind MESSAGE "$FILE"`."""
    before = stage.tree()
    answer = stage.run("rewind", "abcd0001", "--json", "--yes", *dry, "")
    assert_sentence(answer, code=2)
    assert answer.json["code"] == "usage"
    assert stage.tree() == before


def test_a_pin_never_hides_a_message(stage):
    first, second = uuid_of("abcd0001"), uuid_of("abcd0002")
    for name in (second, second[:8], "abcd0002", "two\nlines"):
        assert_sentence(stage.run("pin", first, name), code=2)
        assert stage.json("show", second[:8])["message"] == second
    assert stage.json("pin", first)["name"] == first[:8]
    assert stage.json("show", first[:8])["message"] == first
    stage.json("pin", first, "feed0003")  # no message begins with it yet
    with stage.watching() as watcher:
        third = uuid_of("feed0003")
        watcher.checkpoint(stage.session.prompt("a third", uuid=third))
    assert stage.json("show", "feed0003", code=1)["code"] == "ambiguous-id"
    assert stage.json("show", third)["message"] == third


def test_a_fork_shares_ids_and_asks_for_the_session(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        shared = stage.session.prompt("before the fork")
        watcher.checkpoint(shared)
        stage.write("a.txt", "two\n")
        stage.session.say()
        settle(stage)
        fork = stage.session.fork()
        watcher.wait("attached", session=fork.session)
        own = fork.prompt("in the fork")
        watcher.checkpoint(own)
        fork.say()

        answer = stage.run("rewind", shared, "--yes")
        sentence = assert_sentence(answer)
        assert "--session" in sentence
        assert stage.json("rewind", shared, "--yes", code=1)["code"] == "ambiguous-id"
        assert (stage.project / "a.txt").read_text() == "two\n"
        for session in (stage.session.session, fork.session):
            told = stage.json("rewind", shared, "--session", session, "--dry-run", "--all")
            assert (told["session"], told["restored"]) == (session, ["a.txt"])
        assert stage.json("log")[0]["message"] == own  # of the newest session alone
        assert {one["session"] for one in stage.json("log")} == {fork.session}
        told = stage.json("rewind", shared, "--session", stage.session.session, "--yes")
        assert (stage.project / "a.txt").read_text() == "one\n"


def test_the_id_of_something_else_is_told_from_an_unknown_one(stage):
    call = stage.session.edit("a.txt", b"more\n")
    result = stage.session.result((call, call), "a tool's result")
    before = hash_of(stage.project), hash_of(stage.directory / "store")
    for text, reason in (
        (call, "not-a-prompt"),
        (result, "not-a-prompt"),
        (result[:13], "not-a-prompt"),
        ("12345678-1234-4234-8234-123456789012", "unknown"),
    ):
        for narrow in ((), ("--session", stage.session.session)):
            answer = stage.run("rewind", text, "--yes", *narrow)
            assert answer.err == "No file checkpoint found for this message.\n"
            told = stage.json("rewind", text, "--yes", *narrow, code=1)
            assert (told["reason"], told["canRewind"]) == (reason, False), text
    assert (hash_of(stage.project), hash_of(stage.directory / "store")) == before


def test_a_message_that_the_watcher_has_not_told_of_yet_can_be_named(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        watcher.checkpoint(stage.session.prompt("so that the session is followed"))
        for number in range(5):
            message = stage.session.prompt(f"named at once {number}")
            assert stage.json("rewind", message, "--dry-run")["message"] == message
