"""A session that nobody watched is rewound from the history that the agent kept of its own (SPEC A6)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.builders.acting import kept, read
from tests.builders.claude import agent_write, backup_name, iso
from tests.builders.stage import Stage
from tests.builders.truth import Truth

NAMES = ("a.txt", "b.txt", "new/deep/c.txt")
LATER = 5_000_000_000  # nanoseconds


def play(stage: Stage) -> tuple[Truth, list[str]]:
    """Play four messages; the tools change three files, the shell a fourth one that the agent's history never sees."""
    truth = Truth(stage)
    stage.write("a.txt", "a zero\n", 0o644)
    stage.write("b.txt", b"b zero\r\n\xff", 0o755)
    stage.write("unseen.txt", "never named\n")
    messages = [truth.prompt("first")]
    stage.session.edit("a.txt", b"a one\n")
    stage.session.edit("a.txt", b"a one and a half\n")
    stage.session.say()
    messages.append(truth.prompt("second"))
    stage.session.edit("new/deep/c.txt", b"c two\n")
    stage.session.edit("b.txt", b"b two\n")
    stage.session.say()
    messages.append(truth.prompt("third"))
    stage.shell("chmod 700 a.txt; rm b.txt; echo changed > unseen.txt")
    stage.session.edit("a.txt", b"a three\n")
    stage.session.say()
    messages.append(truth.prompt("fourth"))
    stage.session.edit("b.txt", b"b four\n")
    stage.session.say()
    return truth, messages


def prove(stage: Stage, truth: Truth, messages: list[str]) -> None:
    """Rewind to each message and prove that the files that the history names are as they were, and no other changed."""
    untouched = read(stage, "unseen.txt")
    for message in messages:
        answer = stage.json("rewind", message, "--yes", "--all")
        assert (answer["kept"], answer["failed"], answer["skippedLinks"]) == ([], [], [])
        now = truth.files()
        for name in map(os.fsencode, NAMES):
            assert now.get(name) == truth.then[message].get(name), (name, message)
        assert read(stage, "unseen.txt") == untouched
        assert (stage.project / "new").exists() == (b"new/deep/c.txt" in now)  # emptied by the rewind alone


def records(stage: Stage) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stage.session.transcript.read_text().splitlines()]


def write_records(stage: Stage, lines: list[dict[str, Any]]) -> None:
    stage.session.transcript.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_message_comes_back_from_snapshots_and_deltas(tmp_path):
    stage = Stage(tmp_path)
    truth, messages = play(stage)
    stage.attach_once()
    logged = stage.json("log")
    assert [one["message"] for one in logged] == messages[::-1]
    assert {one["kind"] for one in logged} == {"imported"}
    assert {file["path"] for file in stage.json("show", messages[0])["files"]} == set(NAMES)
    prove(stage, truth, [*messages, *messages[::-1]])
    modes = {name: (stage.project / name).stat().st_mode & 0o777 for name in ("a.txt", "b.txt")}
    assert modes == {"a.txt": 0o644, "b.txt": 0o755}
    assert stage.run("check").code == 0


def test_snapshots_written_again_say_nothing_new(tmp_path):
    stage = Stage(tmp_path)
    truth, messages = play(stage)
    stage.session.reemit()
    stage.attach_once()
    stage.session.reemit()
    stage.attach_once()
    prove(stage, truth, messages[::-1])


def test_updates_of_a_snapshot_only_add_paths(tmp_path):
    """Older versions write no deltas but the whole snapshot again, as an update, after each first touch."""
    stage = Stage(tmp_path)
    truth, messages = play(stage)
    lines, snapshots = [], {}
    for record in records(stage):
        line = record
        if line["type"] == "file-history-snapshot":
            snapshots[line["messageId"]] = json.loads(json.dumps(line))
        if line["type"] == "file-history-delta":
            snapshot = snapshots[line["snapshotMessageId"]]
            snapshot["snapshot"]["trackedFileBackups"][line["trackingPath"]] = line["backup"]
            line = json.loads(json.dumps(snapshot)) | {"isSnapshotUpdate": True, "messageId": line["messageId"]}
        lines.append(line)
    assert not any(line["type"] == "file-history-delta" for line in lines)
    write_records(stage, lines)
    stage.attach_once()
    prove(stage, truth, messages)


def test_a_history_in_use_counts_on_after_the_attach(tmp_path):
    stage = Stage(tmp_path)
    truth, messages = play(stage)
    with stage.watching() as watcher:
        live = truth.prompt("while it is watched")
        watcher.checkpoint(live)
        stage.session.edit("a.txt", b"a five\n")
        stage.session.say()
        kinds = {one["message"]: one["kind"] for one in stage.json("log")}
        assert kinds == {**dict.fromkeys(messages, "imported"), live: "message"}
        prove(stage, truth, [messages[0], live, messages[2]])


@pytest.mark.parametrize("harm", ["missing", "other-bytes", "torn", "link", "folder", "fifo"])
def test_a_backup_that_cannot_be_trusted_is_said_to_be_missing(tmp_path, harm):
    stage = Stage(tmp_path)
    _, messages = play(stage)
    backup = stage.session.file_history / backup_name(str(stage.project / "a.txt"), 1)
    content = backup.read_bytes()
    backup.unlink()
    if harm == "other-bytes":
        backup.write_bytes(b"a compaction gave the name to these\n")
    elif harm == "torn":
        backup.write_bytes(content[:3])
    elif harm == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        backup.symlink_to(tmp_path / "elsewhere")
    elif harm == "folder":
        backup.mkdir()
    elif harm == "fifo":
        os.mkfifo(backup)
    stage.attach_once()
    before = stage.tree()
    told = stage.json("rewind", messages[0], "--dry-run", "--all", code=3)
    assert kept(told) == {"a.txt": "blob-missing"}
    assert stage.tree() == before
    answer = stage.json("rewind", messages[0], "--yes", "--all", code=3)
    assert kept(answer) == {"a.txt": "blob-missing"}
    assert read(stage, "a.txt") == "a three\n"
    assert (stage.project / "b.txt").read_bytes() == b"b zero\r\n\xff"  # the others come back
    assert stage.json("rewind", messages[1], "--yes", "--all")["kept"] == []  # and the versions that are whole
    assert read(stage, "a.txt") == "a one and a half\n"


@pytest.mark.parametrize("name", ["../../../secret", "/etc/hostname", "..", ".", "", "x\0y", 7, ["a"], {}])
def test_a_backups_name_that_leads_elsewhere_is_no_evidence(tmp_path, name):
    stage = Stage(tmp_path)
    _, messages = play(stage)
    (stage.home.root.parent / "secret").write_text("not the agent's\n")
    lines = records(stage)
    for line in lines:
        if line["type"] == "file-history-delta" and line["trackingPath"] == "a.txt":
            line["backup"]["backupFileName"] = name
    write_records(stage, lines)
    stage.attach_once()
    answer = stage.run("rewind", messages[0], "--yes", "--all", "--json").json
    assert read(stage, "a.txt") == "a three\n"
    assert "a.txt" not in answer["restored"] + answer["removed"]


def test_a_backup_of_another_version_is_no_evidence(tmp_path):
    stage = Stage(tmp_path)
    _, messages = play(stage)
    lines = records(stage)
    for line in lines:
        if line["type"] == "file-history-delta" and line["trackingPath"] == "a.txt":
            line["backup"]["backupFileName"] = backup_name(str(stage.project / "a.txt"), 2)
    write_records(stage, lines)
    stage.attach_once()
    assert kept(stage.json("rewind", messages[0], "--yes", "--all", code=3)) == {"a.txt": "blob-missing"}
    assert read(stage, "a.txt") == "a three\n"


def test_a_session_resumed_in_another_directory_keeps_its_workspace(tmp_path):
    stage = Stage(tmp_path)
    truth = Truth(stage)
    stage.write("a.txt", "one\n")
    stage.write("sub/a.txt", "sub one\n")
    first = truth.prompt("here")
    stage.session.edit("a.txt", b"two\n")
    stage.session.say()
    stage.session.cwd = str(stage.project / "sub")
    second = truth.prompt("there")
    stage.session.edit("a.txt", b"sub two\n")  # spelled as the first one is, from another directory
    stage.session.say()
    third = truth.prompt("there again")
    stage.session.edit(stage.project / "a.txt", b"three\n")
    stage.session.say()
    stage.attach_once()
    (status,) = stage.json("status")["sessions"]
    assert status["workspace"] == str(stage.project)
    for message in (first, second, third, first):
        answer = stage.json("rewind", message, "--yes", "--all")
        assert (answer["kept"], answer["failed"]) == ([], [])
        assert truth.files() == truth.then[message]


def test_files_outside_the_workspace_come_back_only_when_asked_for(tmp_path):
    stage = Stage(tmp_path)
    outside = tmp_path / "beside" / "notes.txt"
    agent_write(outside, b"one\n")
    stage.write("a.txt", "one\n")
    message = stage.session.prompt("change both")
    stage.session.edit("a.txt", b"two\n")
    stage.session.edit(outside, b"two\n")
    stage.session.edit(outside.with_name("made.txt"), b"new\n")
    stage.session.say()
    stage.attach_once()
    answer = stage.json("rewind", message, "--yes", "--all")
    assert kept(answer) == dict.fromkeys([str(outside.with_name("made.txt")), str(outside)], "outside-workspace")
    assert (read(stage, "a.txt"), outside.read_text()) == ("one\n", "two\n")
    answer = stage.json("rewind", message, "--yes", "--all", "--outside")
    assert kept(answer) == {}
    assert outside.read_text() == "one\n"
    assert not outside.with_name("made.txt").exists()


def credentials(stage: Stage) -> list[Path]:
    home = stage.home.root
    beside = stage.directory / "beside"
    return [
        home / "settings.json",
        home / "projects" / "x" / "notes.jsonl",
        home / "CLAUDE.md",
        beside / ".ssh" / "config",
        beside / "id_rsa",
        beside / ".env",
        beside / "server.pem",
    ]


@pytest.mark.parametrize("watched", [True, False])
def test_credentials_and_the_agents_own_files_are_never_touched(tmp_path, watched):
    stage = Stage(tmp_path)
    stage.write("a.txt", "one\n")
    paths = credentials(stage)
    for path in paths:
        agent_write(path, b"SECRET-BEFORE\n")

    def work() -> str:
        message = stage.session.prompt("change them")
        for path in paths:
            stage.session.edit(path, b"SECRET-AFTER\n")
        stage.session.edit("a.txt", b"two\n")
        stage.session.say()
        return message

    if watched:
        with stage.watching() as watcher:
            message = work()
            watcher.checkpoint(message)
            watcher.checkpoint(stage.session.prompt("and now?"))
    else:
        message = work()
        stage.attach_once()
    answer = stage.json("rewind", message, "--yes", "--all", "--outside")
    assert read(stage, "a.txt") == "one\n"
    assert answer["restored"] == ["a.txt"]
    assert not set(kept(answer)) & set(map(str, paths))
    assert {path.read_bytes() for path in paths} == {b"SECRET-AFTER\n"}
    for folder, _, names in os.walk(tmp_path / "store"):
        for name in names:
            assert b"SECRET" not in Path(folder, name).read_bytes(), name


def test_a_session_without_a_history_has_no_checkpoints_from_before(tmp_path):
    stage = Stage(tmp_path)
    stage.session = stage.home.session(stage.project, entrypoint="sdk-cli", history=False)
    _, messages = play(stage)
    stage.attach_once()
    assert stage.json("log") == []
    before = stage.tree()
    for message in messages:
        refused = stage.json("rewind", message, "--yes", "--all", code=1)
        assert (refused["reason"], refused["code"]) == ("before-attach", "no-checkpoint")
    assert stage.tree() == before


def test_records_that_claim_to_come_from_the_future_are_no_checkpoints_of_now(tmp_path):
    stage = Stage(tmp_path)
    truth, messages = play(stage)
    stage.attach_once()
    stage.write("a.txt", "by hand\n")
    later = stage.session.prompt("sent by a clock that is ahead", at=stage.home.now() + LATER)
    stage.attach_once()
    log = {one["message"]: one for one in stage.json("log")}
    assert log[later]["at"] <= iso(stage.home.now())
    prove(stage, truth, messages)
