"""The command line is a contract: names, keys, exit codes, one sentence on stderr, and nothing imported in vain."""

import json
import subprocess
import sys

import pytest

from tests.builders.probe import REWIND_KEYS, assert_sentence, hash_of, opened, settle
from tests.builders.stage import Stage

LOG_KEYS = {"message", "session", "at", "prompt", "files", "unstable", "kind", "pin", "parent"}
STATUS_KEYS = {"sessions", "bytes", "rescans", "linked", "warnings"}
SESSION_KEYS = {"session", "agent", "workspace", "pid", "since", "protected", "why", "checkpoints"}
CHECK_KEYS = {"ok", "checkpoints", "versions", "blobs", "bytes", "findings", "repaired"}
EVENT_KEYS = {
    "attached": {"event", "at", "session", "workspace", "agent"},
    "ready": {"event", "at", "files", "bytes", "ms", "workspace"},
    "checkpoint": {"event", "at", "session", "message", "files", "unstable", "ms"},
    "evicted": {"event", "at", "message", "blobs", "bytes"},
    "warning": {"event", "at", "code", "text"},
    "detached": {"event", "at"},
}
NAMELESS = {"message", "name"}
REFUSED = {"error", "code"}
VERBS = ["watch", "attach", "status", "log", "show", "diff", "rewind", "undo", "pin", "unpin", "mark", "check", "demo"]


@pytest.fixture
def stage(tmp_path):
    """Give a stage where two messages were followed by one edit each."""
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    with stage.watching() as watcher:
        for number in (1, 2):
            watcher.checkpoint(stage.session.prompt(f"message {number}"))
            stage.write("a.txt", f"changed {number}\n")
            stage.session.say()
            settle(stage)
    return stage


def test_help_is_there_for_every_verb_and_imports_nothing_heavy(tmp_path):
    stage = Stage(tmp_path)
    program = (
        "import sys\nfrom sidecar.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'watchdog', 'rich', 'sqlite3', 'orjson', 'psutil', 'rapidfuzz', 'xxhash', 'platformdirs'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    for words in (["--help"], *([verb, "--help"] for verb in VERBS), ["--version"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, env=stage.environ
        )
        assert done.stderr == "[]\n", (words, done.stderr)
        assert "sidecar" in done.stdout
    top = stage.run("--help").out
    assert all(f"    {verb} " in top for verb in VERBS)
    assert "MESSAGE" in stage.run("rewind", "--help").out
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no-such-verb"],
        ["rewind"],
        ["rewind", "latest", "--no-such-option"],
        ["rewind", "latest", "--ye"],  # an option is not known by its first letters
        ["log", "too", "many"],
        ["diff", "latest", "--stat", "--patch"],
        ["watch", "--profile", "endless"],
        ["watch", "--agent", "nobody"],
        ["attach"],
        ["unpin"],
    ],
)
def test_wrong_usage_is_said_in_one_sentence(tmp_path, words):
    stage = Stage(tmp_path)
    told = stage.run(*words, "--json")
    sentence = assert_sentence(told, 2)
    assert told.json["code"] == "usage"
    assert told.json["error"] == sentence
    if words and words[0] in ("rewind", "diff"):
        assert set(told.json) == REWIND_KEYS
    assert not (tmp_path / "store").exists()


def test_each_answer_has_the_documented_keys_and_no_others(stage):
    log = stage.json("log", "--all")
    assert [set(one) for one in log] == [LOG_KEYS] * 3
    assert sorted(one["kind"] for one in log) == ["baseline", "message", "message"]
    newest, older = stage.json("log")
    assert (newest["prompt"], newest["files"], newest["unstable"], newest["pin"]) == ("message 2", 1, 0, None)
    assert newest["session"] == stage.session.session
    assert newest["parent"]
    status = stage.json("status")
    assert set(status) == STATUS_KEYS
    (session,) = status["sessions"]
    assert set(session) == SESSION_KEYS
    assert (session["pid"], session["since"], session["protected"], session["checkpoints"]) == (None, None, False, 2)
    assert session["why"]
    assert set(stage.json("status", str(stage.directory))) == STATUS_KEYS

    shown = stage.json("show", newest["message"])
    assert (shown["message"], shown["session"]) == (newest["message"], stage.session.session)
    assert shown["files"] == [
        {"path": "a.txt", "change": "changed", "origin": "turn", "size": 10, "mode": "0o644", "state": "file"}
    ]
    for words in (
        ["diff", older["message"]],
        ["rewind", older["message"], "--dry-run"],
        ["rewind", older["message"], "--yes"],
        ["rewind", older["message"], "--yes"],
        ["undo", "--yes"],
        ["undo", "--redo", "--yes"],
    ):
        told = stage.json(*words)
        assert set(told) == REWIND_KEYS, words
        assert (told["canRewind"], told["error"], told["code"], told["reason"]) == (True, None, None, None)
        assert told["dryRun"] is (words[0] == "diff" or "--dry-run" in words)
        assert told["conversation"] is None
    assert stage.json("pin", older["message"], "p") == {"message": older["message"], "name": "p"}
    assert stage.json("unpin", "p") == {"message": older["message"], "name": "p"}
    assert set(stage.json("mark", "x")) == NAMELESS
    assert set(stage.json("check")) == CHECK_KEYS
    assert set(stage.json("demo")) == {"ok", "message"}


def test_each_refusal_has_all_keys_of_its_verb_too(stage):
    nobody = "00000000-0000-4000-8000-000000000000"
    expected = {
        ("log", "--session", nobody): (set(), "no-session"),
        ("show", nobody): ({"message", "session", "files"}, "no-checkpoint"),
        ("diff", nobody): (REWIND_KEYS, "no-checkpoint"),
        ("rewind", nobody, "--yes"): (REWIND_KEYS, "no-checkpoint"),
        ("rewind", nobody, "--dry-run"): (REWIND_KEYS, "no-checkpoint"),
        ("rewind", "latest"): (REWIND_KEYS, "needs-yes"),
        ("undo", "--yes"): (REWIND_KEYS, "nothing-to-undo"),
        ("undo", "--redo", "--yes"): (REWIND_KEYS, "nothing-to-undo"),
        ("pin", nobody): (NAMELESS, "no-checkpoint"),
        ("unpin", nobody): (NAMELESS, "no-checkpoint"),
        ("mark", "--session", nobody): (NAMELESS, "no-session"),
        ("attach", nobody): ({"event", "at"}, "no-session"),
    }
    before = hash_of(stage.project), hash_of(stage.directory / "store")
    for words, (keys, code) in expected.items():
        answer = stage.run(*words, "--json")
        sentence = assert_sentence(answer)
        assert answer.json["code"] == code, words
        assert answer.json["error"] == sentence
        assert set(answer.json) == keys | REFUSED, words
        if "dryRun" in answer.json:
            assert answer.json["dryRun"] is ("--dry-run" in words or words[0] == "diff")
    assert (hash_of(stage.project), hash_of(stage.directory / "store")) == before


def test_events_are_objects_on_lines_with_their_time(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching("watch", "--profile", "short") as watcher:
        for number in range(22):
            watcher.checkpoint(stage.session.prompt(f"message {number}"))
            stage.session.say()
        watcher.wait("evicted")
        assert watcher.stop() == 0
        watcher.wait("detached")
    kinds = [event["event"] for event in watcher.events]
    assert kinds[0] == "attached" or kinds[0] == "ready"
    assert set(kinds) >= {"attached", "ready", "checkpoint", "evicted", "detached"}
    for event in watcher.events:
        assert set(event) == EVENT_KEYS[event["event"]]
        assert event["at"].endswith("Z")


def test_text_answers_begin_as_promised(stage):
    older = stage.json("log")[1]["message"]
    dry = stage.run("rewind", older, "--dry-run")
    assert (dry.code, "restore  a.txt" in dry.out) == (0, True)
    assert "Files rewound" not in dry.out
    done = stage.run("rewind", older[:8], "--yes")
    assert done.out.splitlines()[0] == f"Files rewound to state at message {older}"
    assert "The conversation still contains the later messages." in done.out
    assert done.err == ""
    assert stage.run("undo", "--redo", "--yes").err == "There is no rewind left to redo.\n"


def test_the_log_shows_first_lines_and_what_follows_what(tmp_path):
    stage = Stage(tmp_path)
    with stage.watching() as watcher:
        long = stage.session.prompt("x" * 300 + "\nmore")
        watcher.checkpoint(long)
        stage.session.say()
        second = stage.session.prompt("grüße \x1b[31m\nsecond line")
        watcher.checkpoint(second)
    newest, older = stage.json("log")
    assert older["prompt"] == "x" * 200
    assert newest["prompt"].startswith("grüße")
    assert "second line" not in newest["prompt"]
    text = stage.run("log", "--graph").out
    assert "\x1b" not in text
    assert text.index(second) < text.index(long)
    assert "after" in text
    assert "x" * 201 not in text
    for line in stage.run("log", "--json").out.splitlines():
        json.loads(line)


def test_a_failed_path_is_exit_3_and_the_rest_is_done(stage):
    older = stage.json("log")[1]["message"]
    stage.write("more.txt", "by hand\n")
    with opened(stage, write=True) as database:
        database.execute(
            "UPDATE blob_data SET data = x'00' WHERE blob = (SELECT v.blob FROM version v JOIN path p ON p.id = v.path "
            "WHERE p.name = CAST('a.txt' AS BLOB) ORDER BY v.from_at LIMIT 1)"
        )
    told = stage.json("rewind", older, "--yes", "--all", code=3)
    assert set(told) == REWIND_KEYS
    assert told["kept"] == [{"path": "a.txt", "reason": "blob-missing"}]
    assert told["removed"] == ["more.txt"]
    assert (stage.project / "a.txt").read_text() == "changed 2\n"
    assert stage.run("rewind", older, "--yes").code == 3
    assert "Files rewound" not in stage.run("rewind", older, "--yes").out
    answer = stage.run("show", f"{older}:a.txt")
    assert_sentence(answer)
