"""C03, C33: what the agent's own records say is imported as they mean it, and records that nobody knows do no harm."""

import json
import shutil

import pytest

from tests.builders.claude import agent_write, new_uuid
from tests.builders.stage import Stage


def test_case_C03_a_delta_after_the_snapshot_gives_the_bytes_before_the_edit(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    first = stage.session.prompt("edit f")
    stage.session.edit("f.txt", b"v1\n")
    stage.session.edit("g.txt", b"g1\n")
    stage.session.say()
    second = stage.session.prompt("edit f again")
    stage.session.edit("f.txt", b"v2\n")
    stage.session.say()
    records = [json.loads(line) for line in stage.session.transcript.read_text().splitlines()]
    assert [r for r in records if r["type"] == "file-history-delta"], "the builder writes deltas"
    stage.attach_once()

    kinds = {one["message"]: one["kind"] for one in stage.json("log")}
    assert kinds == {first: "imported", second: "imported"}
    assert stage.run("show", f"{first}:f.txt").out == "v0\n"
    assert stage.run("show", f"{second}:f.txt").out == "v1\n"
    answer = stage.json("rewind", second, "--all", "--yes")
    assert answer["restored"] == ["f.txt"]
    assert (stage.project / "f.txt").read_text() == "v1\n"
    answer = stage.json("rewind", first, "--all", "--yes")
    assert (answer["restored"], answer["removed"]) == (["f.txt"], ["g.txt"])
    assert (stage.project / "f.txt").read_text() == "v0\n"


@pytest.mark.parametrize("style", ["delta", "second full snapshot", "both"])
def test_case_C03_every_style_of_record_gives_the_same_answer(tmp_path, style):
    """A delta adds a file that its snapshot lacks and replaces none, wherever in the transcript it stands."""
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    first = stage.session.prompt("edit f")
    stage.session.edit("f.txt", b"v1\n")
    stage.session.say()
    stage.session.prompt("next")
    stage.session.edit("f.txt", b"v2\n")
    stage.session.say()
    records = [json.loads(line) for line in stage.session.transcript.read_text().splitlines()]
    if style != "delta":
        full = stage.session.snapshots[first] | {"isSnapshotUpdate": True}
        kept = []
        for record in records:
            if record["type"] == "file-history-delta":
                kept.append(full)
                if style == "second full snapshot":
                    continue
            kept.append(record)
        records = kept
    else:
        [late] = [r for r in records if r["type"] == "file-history-delta"]
        newer = stage.session.tracked[str(stage.project / "f.txt")].entry()
        records.append(late | {"backup": newer})  # a delta for a file that is there: it replaces nothing
    stage.session.transcript.write_text("".join(json.dumps(record) + "\n" for record in records))
    stage.attach_once()
    assert stage.run("show", f"{first}:f.txt").out == "v0\n"
    stage.json("rewind", first, "--all", "--yes")
    assert (stage.project / "f.txt").read_text() == "v0\n"


def test_case_C03_followed_live_the_timeline_and_the_delta_agree(tmp_path):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit f")
        watcher.checkpoint(first)
        stage.session.edit("f.txt", b"v1\n")
        stage.session.say()
        second = stage.session.prompt("again")
        watcher.checkpoint(second)
        stage.session.say()
        assert {one["kind"] for one in stage.json("log")} == {"message"}
        shutil.rmtree(stage.session.file_history)  # ours does not lean on it
        stage.json("rewind", first, "--yes")
        assert (stage.project / "f.txt").read_text() == "v0\n"


def strange_records(stage: Stage) -> list[bytes]:
    """Give records as no release wrote them yet, and some that are no records at all."""
    base = {"sessionId": stage.session.session, "cwd": str(stage.project), "version": "99.0.0"}
    user = {**base, "type": "user", "isSidechain": False, "parentUuid": None, "timestamp": "2030-01-01T00:00:00.000Z"}
    found: list[object] = [
        {**base, "type": "recap-of-the-future", "uuid": new_uuid(), "timestamp": None, "payload": {"deep": [1, 2]}},
        {**base, "type": "system", "subtype": "never-heard-of", "uuid": new_uuid(), "timestamp": "not a time"},
        {**base, "type": "assistant", "uuid": new_uuid(), "message": None},
        {**base, "type": "assistant", "uuid": new_uuid(), "message": {"content": "a plain string", "stop_reason": 7}},
        {**base, "type": "assistant", "message": {"content": [{"type": "hologram"}, None, 3, "x"]}},
        {**user, "uuid": new_uuid(), "message": {"role": "user"}},
        {**user, "uuid": new_uuid(), "message": {"role": "user", "content": None}},
        {**user, "uuid": new_uuid(), "message": {"role": "user", "content": [{"type": "future", "x": {}}]}},
        {**user, "uuid": 17, "message": {"role": "user", "content": "a uuid that is a number"}},
        {**user, "uuid": None, "message": {"role": "user", "content": "none at all"}},
        {**user, "uuid": new_uuid(), "timestamp": None, "toolUseResult": [[]], "message": {"content": [{}]}},
        {**base, "type": "file-history-snapshot", "messageId": 4, "snapshot": None},
        {**base, "type": "file-history-snapshot", "messageId": "x", "snapshot": {"trackedFileBackups": ["no map"]}},
        {**base, "type": "file-history-delta", "snapshotMessageId": None, "trackingPath": {}, "backup": 3},
        {**base, "type": ["a", "list"], "uuid": {}},
        {"type": None},
        [],
        "a string",
        12,
        None,
    ]
    lines = [json.dumps(one).encode() for one in found]
    lines.append(b'{"type":"system","type":"user","uuid":"a","uuid":"b","message":{},"message":{"content":"twice"}}')
    lines += [
        b"",
        b"   ",
        b"{",
        b"not json",
        b'{"type":"user"',
        b"\xff\xfe\x00",
        b"\x00" * 300,
        b'{"a":"\xed\xa0\x80"}',
    ]
    return lines


@pytest.mark.parametrize("live", [True, False])
def test_case_C33_records_of_the_future_do_no_harm(tmp_path, live):
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    strange = b"".join(line + b"\n" for line in strange_records(stage))
    with stage.watching(ready=True) as watcher:
        if not live:
            watcher.stop()
        stage.session.append_bytes(strange)
        first = stage.session.prompt([{"type": "text", "text": "edit f"}, {"type": "future", "data": 1}])
        stage.session.append_bytes(strange)
        if live:
            watcher.checkpoint(first)
        stage.session.edit("f.txt", b"v1\n")
        stage.session.append_bytes(strange)
        stage.session.say()
        second = stage.session.prompt("next", futureField={"x": 1}, permissionMode=None)
        if live:
            watcher.checkpoint(second)
            assert watcher.process.poll() is None
        transcript = stage.session.transcript.read_bytes()
        if not live:
            stage.attach_once()
        logged = [one["message"] for one in stage.json("log")]
        assert [one for one in logged if one in (first, second)] == [second, first]
        assert len(logged) == len(set(logged))
        assert stage.run("status").code == 0
        answer = stage.json("rewind", first, "--all", "--yes")
        assert answer["restored"] == ["f.txt"]
        assert (stage.project / "f.txt").read_text() == "v0\n"
        assert stage.session.transcript.read_bytes() == transcript, "a transcript is only read"


def test_case_C33_a_file_that_the_agent_writes_without_any_record_is_still_seen(tmp_path):
    """Tools of the future: neither their names nor their results are known."""
    stage = Stage(tmp_path)
    stage.write("f.txt", "v0\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("use a new tool")
        watcher.checkpoint(first)
        call = stage.session.tool("QuantumEdit", {"where": [str(stage.project / "f.txt")]})
        agent_write(stage.project / "f.txt", b"v1\n")
        stage.session.result(call, "done", {"unheard": {"of": True}})
        stage.session.say()
        assert stage.json("rewind", first, "--yes")["restored"] == ["f.txt"]
        assert (stage.project / "f.txt").read_text() == "v0\n"
