"""What cannot be attached to is refused in one sentence, and nothing is made or changed for it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.probe import assert_sentence, hash_of, settle
from tests.builders.stage import PATIENCE_S, Answer, Stage

NOBODY = 65534


@pytest.fixture
def stage(tmp_path):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    return stage


def refused(stage: Stage, *words: str, code: int = 1) -> str:
    """Prove that a command is refused in one sentence, the same in JSON, and that nothing anywhere changed."""
    before = hash_of(stage.directory)
    told = stage.run(*words, "--json")
    sentence = assert_sentence(told, code)
    assert told.json["error"].replace("\x1b", "\\x1b") == sentence
    assert told.json["code"]
    assert hash_of(stage.directory) == before
    return sentence


def test_a_session_that_does_not_exist(stage):
    stage.session.prompt("so that there is one")
    nobody = "00000000-0000-4000-8000-000000000000"
    expected = f"No conversation found with session ID: {nobody}"
    assert refused(stage, "attach", nobody) == expected
    assert refused(stage, "attach", nobody, "--once") == expected
    for words in (
        ["log"],
        ["rewind", "latest", "--yes"],
        ["undo", "--yes"],
        ["mark"],
        ["diff", "latest"],
        ["pin", "x"],
    ):
        assert refused(stage, *words, "--session", nobody) == expected
    for words in (["log"], ["rewind", "latest", "--yes"], ["rewind", "baseline", "--yes"], ["undo", "--yes"], ["mark"]):
        assert refused(stage, *words).startswith("No conversation found with session ID: ")


def test_ids_that_are_none(stage):
    stage.session.prompt("so that there is one")
    for text in ("no-such-thing", "x" * 300, "000 000"):
        assert "session ID" in refused(stage, "attach", text)
        assert "session ID" in refused(stage, "attach", text, "--once")
    for text in ("a b", "*", "\x1b[31m"):
        sentence = refused(stage, "log", "--session", text)
        assert "session ID" in sentence
        assert "\x1b" not in sentence


def test_an_ambiguous_session(stage):
    ids = [f"abcdabcd-{number}111-4111-8111-111111111111" for number in (1, 2)]
    for session in ids:
        stage.home.session(stage.project, session=session).prompt("hello")
    sentence = refused(stage, "attach", "abcdabcd")
    assert all(session in sentence for session in ids)
    stage.run("attach", str(stage.session.folder), "--once")
    sentence = refused(stage, "log", "--session", "abcdabcd")
    assert all(session in sentence for session in ids)


@pytest.mark.parametrize("more", [[], ["--workspace", ".", "--once"]])
@pytest.mark.parametrize(
    "content",
    [b"\x00\xff" * 5000, b"not json\n" * 50, b'{"torn": ', b"[1,2,3]\n", b'{"hello":"world"}\n', os.urandom(9000)],
    ids=["zeros", "text", "torn", "array", "other", "random"],
)
def test_a_transcript_of_garbage(stage, content, more):
    stage.session.append_bytes(content)
    refused(stage, "attach", str(stage.session.transcript), *more)


def test_an_empty_transcript_is_waited_for_but_not_once(stage):
    stage.session.append_bytes(b"")
    assert stage.session.transcript.stat().st_size == 0
    for more in ([], ["--workspace", "."]):
        sentence = refused(stage, "attach", str(stage.session.transcript), "--once", *more)
        assert str(stage.session.transcript) in sentence
    with stage.watching("attach", str(stage.session.transcript), ready=False) as watcher:
        watcher.checkpoint(stage.session.prompt("the first word"))


def test_transcripts_that_are_no_files(stage, tmp_path):
    stage.session.transcript.mkdir(parents=True)
    fifo = tmp_path / "11111111-1111-4111-8111-111111111111.jsonl"
    os.mkfifo(fifo)
    loop = tmp_path / "21111111-1111-4111-8111-111111111111.jsonl"
    loop.symlink_to(loop)
    for path in (
        stage.session.transcript,
        fifo,
        loop,
        tmp_path / "nowhere.jsonl",
        Path("/dev/null"),
        Path("/dev/zero"),
    ):
        for more in ([], ["--once", "--workspace", "."]):
            assert str(path) in refused(stage, "attach", str(path), *more)


def test_a_transcript_in_a_directory_of_bad_ones_is_followed_alone(stage):
    stage.session.prompt("a good one")
    (stage.session.folder / "11111111-1111-4111-8111-111111111111.jsonl").write_bytes(b"garbage\n" * 10)
    (stage.session.folder / "21111111-1111-4111-8111-111111111111.jsonl").mkdir()
    answer = stage.run("attach", str(stage.session.folder), "--once", "--json")
    assert answer.code == 0, answer
    assert [one["session"] for one in stage.json("status")["sessions"]] == [stage.session.session]


def as_nobody(stage: Stage, *words: str) -> Answer:
    """Run a verb as a user who may read the program and the project, and has a store of his own."""
    store = stage.directory / "nobody"
    environ = {**stage.environ, "SIDECAR_HOME": str(store), "HOME": str(store), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *stage.command(*words)]
    done = subprocess.run(
        command, cwd=stage.project, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.root
def test_a_transcript_that_may_not_be_read(stage, tmp_path):
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    (tmp_path / "nobody").mkdir()
    os.chown(tmp_path / "nobody", NOBODY, NOBODY)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_mode & 0o005 != 0o005:
            above.chmod(above.stat().st_mode | 0o055)
    if as_nobody(stage, "--help").code != 0:
        pytest.skip("another user may not run this interpreter")
    stage.session.prompt("secret")
    stage.session.transcript.chmod(0o600)
    for more in ([], ["--once"], ["--workspace", str(stage.project), "--once"]):
        answer = as_nobody(stage, "attach", str(stage.session.transcript), *more)
        assert "Permission denied" in assert_sentence(answer), more
    stage.session.folder.chmod(0o700)
    answer = as_nobody(stage, "attach", str(stage.session.transcript), "--once")
    assert "Permission denied" in assert_sentence(answer)
    assert os.listdir(tmp_path / "nobody") == []


def test_a_workspace_that_is_gone(stage, tmp_path):
    with stage.watching() as watcher:
        message = stage.session.prompt("hello")
        watcher.checkpoint(message)
        stage.write("a.txt", "two\n")
        stage.session.say()
        settle(stage)
    moved = tmp_path / "moved"
    stage.project.rename(moved)
    session = ["--session", stage.session.session]
    elsewhere = tmp_path / "claude"
    for words in (
        ["rewind", message, "--yes", *session],
        ["rewind", message, "--dry-run", *session],
        ["diff", message, *session],
        ["mark", *session],
        ["attach", str(stage.session.transcript)],
        ["attach", str(stage.session.transcript), "--once"],
        ["watch", str(stage.project)],
    ):
        before = hash_of(stage.directory)
        answer = stage.run(*words, cwd=elsewhere)
        assert str(stage.project) in assert_sentence(answer)
        assert hash_of(stage.directory) == before, words
    # What is known of it can still be looked at, and it is told what is wrong.
    assert stage.run("log", *session, cwd=elsewhere).code == 0
    assert stage.run("show", f"{message}:a.txt", *session, cwd=elsewhere).out == "one\n"
    told = stage.run("status", "--json", cwd=elsewhere).json
    assert [text for text in told["warnings"] if "is not there" in text]

    # Another directory under the old name is another workspace: nothing of the old one is put there.
    stage.project.mkdir()
    stage.write("a.txt", "of somebody else\n")
    answer = stage.run("rewind", message, "--yes", "--all", *session, cwd=elsewhere)
    assert_sentence(answer)
    assert (stage.project / "a.txt").read_text() == "of somebody else\n"
    # The old one is known by itself, wherever it is.
    told = stage.run("rewind", message, "--yes", "--all", cwd=moved)
    assert told.code == 0, told
    assert (moved / "a.txt").read_text() == "one\n"
    assert (stage.project / "a.txt").read_text() == "of somebody else\n"


def test_where_sidecar_is_switched_off(stage):
    with stage.watching() as watcher:
        message = stage.session.prompt("hello")
        watcher.checkpoint(message)
        stage.write("a.txt", "two\n")
        stage.session.say()
        settle(stage)
    before = hash_of(stage.directory)
    off = {"SIDECAR_DISABLE": "1"}
    for words in (
        ["rewind", message, "--yes"],
        ["rewind", message, "--dry-run"],
        ["rewind", "no such message"],
        ["undo", "--yes"],
        ["diff", message],
        ["mark"],
        ["watch"],
        ["attach", str(stage.session.transcript), "--once"],
    ):
        told = stage.run(*words, "--json", environ=off)
        assert assert_sentence(told) == "File rewinding is not enabled."
        assert told.json["code"] == "not-enabled"
        assert told.json.get("canRewind", False) is False
    assert stage.run("log", environ=off).code == 0
    assert stage.run("status", "--json", environ=off).json["sessions"][0]["why"] == "switched off"
    assert hash_of(stage.directory) == before
    assert stage.run("rewind", message, "--yes", environ={"SIDECAR_DISABLE": "0"}).code == 0


def test_profiles_and_agents_that_do_not_exist(stage):
    stage.session.prompt("hello")
    for words in (["watch", "--profile", "huge"], ["attach", stage.session.session, "--profile", "101"]):
        assert "profile" in refused(stage, *words, code=2)
    assert "agent" in refused(stage, "watch", "--agent", "nobody", code=2)
