"""What records of Claude Code mean, row by row of what was observed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.agents import registry
from sidecar.agents.reading import Reader
from sidecar.model import Activity, Event, HistoryRecord, SessionFound, ToolEdit, TurnEnd, UserMessage
from sidecar.transcript.lines import Line, Record, decode

SESSION = "11111111-1111-4111-8111-111111111111"
AT = "2026-11-30T20:39:33.733Z"
AT_NS = 1_796_071_173_733_000_000
Json = dict[str, Any]


def make_reader() -> Reader:
    return registry()["claude-code"].reader(
        SessionFound(SESSION, "claude-code", "/x.jsonl", "/w", (), None, None),
    )


def record(value: Json, offset: int = 0) -> Record:
    (found,) = decode(Line(offset, json.dumps(value).encode()))
    assert isinstance(found, Record)
    return found


def node(kind: str, **body: Any) -> Json:
    base = {"type": kind, "uuid": "u1", "parentUuid": "p1", "isSidechain": False, "timestamp": AT, "cwd": "/w"}
    return base | {"sessionId": SESSION} | body


def user(content: Any, **body: Any) -> Json:
    return node("user", message={"role": "user", "content": content}, **body)


def attachment(**body: Any) -> Json:
    return node("attachment", attachment={"type": "queued_command"} | body)


def said(value: Json, *, subagent: bool = False) -> list[UserMessage]:
    events = make_reader().events(record(value), subagent=subagent)
    return [event for event in events if isinstance(event, UserMessage)]


TEXT = [{"type": "text", "text": "do it"}]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        # The table of CLAUDE_CODE.md, section 2.
        (user("fix it", promptSource="typed", origin={"kind": "human"}), "fix it"),
        (user("fix it", promptSource="sdk"), "fix it"),
        (user(TEXT, promptSource="sdk"), "do it"),
        (user("<task-notification>x", promptSource="sdk", origin={"kind": "task-notification"}), None),
        (user("<command-message>foo</command-message>\n<command-name>/foo</command-name>"), "/foo"),
        (
            user(
                "<command-message>foo</command-message>\n<command-name>/foo</command-name>\n"
                "<command-args>bar baz</command-args>"
            ),
            "/foo bar baz",
        ),
        (user([{"type": "text", "text": "Please do bar"}], isMeta=True), None),
        (user("<bash-input>ls -l</bash-input>"), "!ls -l"),
        (user("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>"), None),
        (user("<command-name>/compact</command-name>\n            <command-message>compact</command-message>"), None),
        (user("<local-command-caveat>Caveat: …", isMeta=True), None),
        (user("<local-command-stdout>Compacted</local-command-stdout>"), None),
        (user(RESULT, sourceToolAssistantUUID="a1", toolUseResult={"type": "text"}), None),
        (user("This session is being continued", isCompactSummary=True, isVisibleInTranscriptOnly=True), None),
        (user([{"type": "text", "text": "[Request interrupted by user]"}]), None),
        (user([{"type": "text", "text": "[Request interrupted by user for tool use]"}]), None),
        (user(TEXT, isMeta=True), None),
        # The rule below the table.
        (user("x", promptSource="system"), None),
        (user("x", promptSource="queued"), "x"),
        (user("x", promptSource="suggestion_accepted"), "x"),
        (user("x", promptSource="typed", origin={"kind": "peer"}), None),
        (user("x", promptSource="typed", origin={"kind": "coordinator"}), None),
        (user("x", promptSource="typed", isSidechain=True), None),
        (
            user("[Request interrupted by user] is what it said", promptSource="typed"),
            "[Request interrupted by user] is what it said",
        ),
        # TRANSCRIPTS.md, section 5: nobody typed these.
        (user("<teammate-message teammate_id='x'>hi</teammate-message>"), None),
        (user("<system-reminder>note</system-reminder>"), None),
        (user("Stop hook feedback:\n- x"), None),
        (user("Operation stopped by hook: another session is active"), None),
        (user("<task-notification>\n<task-id>b7</task-id>"), None),
        (user([{"type": "text", "text": "Base directory for this skill: /x"}], isMeta=True), None),
        (user([{"type": "text", "text": "[Image: source: /x.png]"}], isMeta=True), None),
        (user("from the parent agent", isSidechain=True), None),
        (user("x", origin={"kind": "peer"}), None),
        # … and these somebody did.
        (user("fix tests"), "fix tests"),
        (user(TEXT), "do it"),
        (user("<command-message>init is analyzing…</command-message>\n<command-name>/init</command-name>"), "/init"),
        (user("<command-name>/mine</command-name>\n<command-message>mine</command-message>"), "/mine"),
        (user([IMAGE]), "[image]"),
        (user([IMAGE, *TEXT]), "do it"),
        (user([{"type": "text", "text": "<ide_opened_file>/x is open</ide_opened_file>"}, *TEXT]), "do it"),
        (user([{"type": "text", "text": "<ide_opened_file>/x is open</ide_opened_file>"}]), None),
        (user("Implement the following plan:\n\n# Plan: x", planContent="# Plan: x"), "Implement the following plan:"),
        # Shapes that no version should write.
        (user("", promptSource="typed"), None),
        (user(None), None),
        (user([]), None),
        (user([1, None, "x"]), None),
        (user({"odd": 1}, promptSource="typed"), ""),
        (node("user"), None),
        (node("user", message="text"), None),
    ],
)
def test_which_records_are_a_persons_message(value: Json, prompt: str | None) -> None:
    assert [message.prompt for message in said(value)] == ([] if prompt is None else [prompt])


@pytest.mark.parametrize(
    ("value", "prompt"),
    [
        (attachment(prompt="go on", commandMode="prompt", source_uuid="s1"), "go on"),
        (attachment(prompt=TEXT, commandMode="prompt"), "do it"),
        (attachment(prompt=[IMAGE, *TEXT], commandMode="prompt"), "do it"),
        (attachment(prompt="go on", commandMode="prompt", origin={"kind": "human"}), "go on"),
        (attachment(prompt="x", commandMode="prompt", origin={"kind": "task-notification"}), None),
        (attachment(prompt="x", commandMode="task-notification"), None),
        (attachment(prompt="<task-notification>x", commandMode="prompt"), None),
        (attachment(prompt="x", commandMode="prompt", origin={"kind": "peer"}), None),
        (attachment(prompt="", commandMode="prompt"), None),
        (attachment(commandMode="prompt"), None),
        (node("attachment", attachment={"type": "file", "prompt": "x", "commandMode": "prompt"}), None),
        (node("attachment", attachment=None), None),
    ],
)
def test_which_queued_commands_are_a_persons_message(value: Json, prompt: str | None) -> None:
    found = said(value)
    assert [message.prompt for message in found] == ([] if prompt is None else [prompt])
    assert all(message.queued and message.uuid == "u1" for message in found)
    assert [message.alias for message in said(attachment(prompt="x", commandMode="prompt", source_uuid="s1"))] == ["s1"]


def test_a_message_carries_what_the_store_needs() -> None:
    (event,) = make_reader().events(record(user("\n  first \nsecond", promptSource="typed"), 77))
    assert event == UserMessage(SESSION, "u1", AT_NS, "p1", 77, "first")


def test_a_prompt_is_cut_and_can_always_be_stored() -> None:
    (message,) = said(user("é" * 500, promptSource="typed"))
    assert message.prompt == "é" * 200
    (message,) = said(user("\ud800 half", promptSource="typed"))
    assert message.prompt == "? half"


def test_nobody_types_in_a_subagents_file() -> None:
    value = user("x", promptSource="typed")
    assert said(value, subagent=True) == []
    (event,) = make_reader().events(record(value), subagent=True)
    assert event == Activity(SESSION, AT_NS)


def test_a_record_that_comes_twice_speaks_once() -> None:
    reader = make_reader()
    assert len(reader.events(record(user("x", promptSource="typed")))) == 1
    assert reader.events(record(user("x", promptSource="typed", slug="replayed"))) == []


def test_records_of_another_session_are_set_apart() -> None:
    reader = make_reader()
    assert reader.events(record(user("x", promptSource="typed", sessionId="other"))) == []
    assert reader.foreign == 1
    assert len(reader.events(record(user("x", promptSource="typed")))) == 1  # the same uuid, but here it is new


# Tool calls ---------------------------------------------------------------------------------------------------------


def call(tool: str, given: Any, *, identity: str = "t1") -> Json:
    content = [{"type": "tool_use", "id": identity, "name": tool, "input": given}]
    return node("assistant", uuid="a1", message={"role": "assistant", "content": content, "stop_reason": "tool_use"})


def answer(details: Any = None, *, uuid: str = "r1", text: str = "ok", identity: str = "t1", **body: Any) -> Json:
    error = {"is_error": True} if body.pop("is_error", False) else {}
    block = {"type": "tool_result", "tool_use_id": identity, "content": text} | error
    return user([block], uuid=uuid, toolUseResult=details, sourceToolAssistantUUID="a1", **body)


def edits(*values: Json) -> list[ToolEdit]:
    reader = make_reader()
    events = [event for value in values for event in reader.events(record(value))]
    return [event for event in events if isinstance(event, ToolEdit)]


PATCH: Json = {"structuredPatch": []}


@pytest.mark.parametrize(
    ("tool", "given", "details", "expected"),
    [
        ("Edit", {"file_path": "/w/a"}, PATCH | {"filePath": "/w/a", "originalFile": "x\n"}, ("/w/a", "x\n", False)),
        ("Edit", {"file_path": "/w/a"}, {"filePath": "/w/b", "originalFile": "x"}, ("/w/b", "x", False)),
        ("Edit", {"file_path": "sub/../a"}, {"originalFile": "x"}, ("/w/a", "x", False)),
        ("Edit", {"file_path": "../out"}, None, ("/out", None, False)),
        ("Edit", {"file_path": "/w/a"}, {"originalFile": "bad \ufffd"}, ("/w/a", None, False)),
        ("Edit", {"file_path": "/w/a"}, {"originalFile": None}, ("/w/a", None, False)),
        ("Edit", {"file_path": "/w/a"}, "a text", ("/w/a", None, False)),
        ("MultiEdit", {"file_path": "/w/a"}, {}, ("/w/a", None, False)),
        ("Write", {"file_path": "/w/n"}, {"type": "create", "originalFile": None}, ("/w/n", None, True)),
        ("Write", {"file_path": "/w/n"}, {"type": "create"}, ("/w/n", None, True)),
        ("Write", {"file_path": "/w/n"}, {"filePath": "/w/n", "originalFile": None}, ("/w/n", None, True)),
        ("Write", {"file_path": "/w/big"}, {"type": "update", "originalFile": None}, ("/w/big", None, False)),
        ("Write", {"file_path": "/w/o"}, {"type": "update", "originalFile": "o"}, ("/w/o", "o", False)),
        ("NotebookEdit", {"notebook_path": "/w/n.ipynb"}, {"original_file": "{}"}, ("/w/n.ipynb", "{}", False)),
        ("mcp__acp__Write", {"file_path": "/w/a"}, None, ("/w/a", None, False)),
        ("mcp__fs__write_file", {"path": "/w/a"}, None, ("/w/a", None, False)),
        ("NotebookEdit", {"notebook_path": "/w/n.ipynb"}, {"error": "no such cell"}, None),
        ("Read", {"file_path": "/w/a"}, {"file": {"filePath": "/w/a"}}, None),
        ("Bash", {"command": "rm a"}, {"stdout": ""}, None),
        ("Edit", {}, None, None),
        ("Edit", None, None, None),
        ("Edit", {"file_path": 3}, [], None),
        ("Edit", {"file_path": "/w/\0"}, None, None),
    ],
)
def test_which_results_are_an_edit(
    tool: str, given: Any, details: Any, expected: tuple[str, str | None, bool] | None
) -> None:
    found = edits(call(tool, given), answer(details))
    if expected is None:
        assert found == []
    else:
        path, original, created = expected
        assert found == [ToolEdit(SESSION, path.encode(), AT_NS, "a1", original=original, created=created)]


def test_a_new_file_of_a_subagent_is_known_by_the_answers_text() -> None:
    (edit,) = edits(call("Write", {"file_path": "/w/n"}), answer(text="File created successfully at: /w/n"))
    assert edit.created


def test_a_call_that_failed_or_was_refused_changed_nothing() -> None:
    made = call("Edit", {"file_path": "/w/a"})
    assert edits(made, answer("Error: x", is_error=True)) == []
    assert edits(made, answer("User rejected tool use", is_error=True, toolDenialKind="user-rejected")) == []
    assert edits(made) == []


def test_a_result_whose_call_was_not_read_is_known_by_its_patch() -> None:
    (edit,) = edits(answer(PATCH | {"filePath": "/w/a", "originalFile": "x"}))
    assert (edit.path, edit.message, edit.original) == (b"/w/a", "a1", "x")
    assert edits(answer({"filePath": "/w/a", "content": "read"})) == []


def test_parallel_calls_find_their_own_results() -> None:
    first, second = call("Edit", {"file_path": "/w/a"}), call("Edit", {"file_path": "/w/b"}, identity="t2")
    second["uuid"] = "a2"
    found = edits(first, second, answer(identity="t2", uuid="r2"), answer(identity="t1", uuid="r1"))
    assert [(edit.path, edit.message) for edit in found] == [(b"/w/b", "a2"), (b"/w/a", "a1")]


def test_an_edit_of_a_subagent_counts_too() -> None:
    reader = make_reader()
    reader.events(record(call("Edit", {"file_path": "/w/a"}) | {"isSidechain": True}), subagent=True)
    (edit,) = reader.events(record(answer(isSidechain=True)), subagent=True)
    assert isinstance(edit, ToolEdit)


# Turns --------------------------------------------------------------------------------------------------------------


def reply(stop_reason: str | None, **body: Any) -> Json:
    message = {"role": "assistant", "content": TEXT, "stop_reason": stop_reason}
    return node("assistant", message=message, **body)


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (reply("end_turn"), True),
        (reply("stop_sequence"), True),
        (reply("max_tokens"), True),
        (reply("refusal"), True),
        (reply("tool_use"), False),
        (reply("pause_turn"), False),
        (reply(None), False),
        (reply("end_turn", isSidechain=True), False),
        (reply("stop_sequence", isApiErrorMessage=True), True),
        (reply(None, isApiErrorMessage=True), True),
        (node("system", subtype="turn_duration"), True),
        (node("system", subtype="api_error"), False),  # it will try again
        (node("system", subtype="compact_boundary"), False),
        (user([{"type": "text", "text": "[Request interrupted by user]"}]), True),
        (user("[Request interrupted by user for tool use]"), True),
        (user("[Request interrupted by user]", isSidechain=True), False),
        (answer("User rejected tool use", is_error=True, toolDenialKind="user-rejected"), True),
        (answer("User rejected tool use", is_error=True), True),
        (answer("x", is_error=True, toolDenialKind="user-rejected", text="To proceed, the user said:\nuse b"), False),
        (answer("Error: x", is_error=True), False),
        (answer({"stdout": "[Request interrupted by user]"}, text="[Request interrupted by user]"), False),
        (node("queue-operation", operation="enqueue"), False),
    ],
)
def test_what_ends_a_turn(value: Json, ends: bool) -> None:
    events = make_reader().events(record(value))
    working = value["type"] == "assistant" and not value.get("isSidechain")  # where it had finished, it goes on
    assert events == ([TurnEnd(SESSION, AT_NS, 0)] if ends else [Activity(SESSION, AT_NS, working=working)])


def test_a_subagents_end_is_a_sign_of_life_only() -> None:
    assert make_reader().events(record(reply("end_turn")), subagent=True) == [Activity(SESSION, AT_NS)]


# Drift --------------------------------------------------------------------------------------------------------------


def test_case_C33_schema_drift_costs_nothing_but_a_count() -> None:
    lines = [
        b'{"type":"recap-of-tomorrow","uuid":"n1","sessionId":"%s","timestamp":"%s","x":[1]}'
        % (SESSION.encode(), AT.encode()),
        b'{"type":"prompt-marker"}',
        json.dumps(node("system", uuid="n2", subtype="brand_new")).encode(),
        json.dumps(user("real", uuid="n3", promptSource="typed", timestamp=None)).encode(),
        json.dumps(user(TEXT, uuid="n4", promptSource="typed")).encode(),
        json.dumps(node("user", uuid="n5", promptSource="typed")).encode(),
        b'{"type":"user","uuid":"gone","uuid":"n6","message":{"content":"twice"},"promptSource":"typed"}',
        json.dumps(user({"new": "shape"}, uuid="n7", promptSource="typed")).encode(),
        json.dumps(node("assistant", uuid="n8", message=None)).encode(),
        json.dumps({"type": ["a", "list"], "uuid": 7, "parentUuid": {}, "timestamp": 5, "sessionId": None}).encode(),
        b'{"type":"file-history-snapshot","messageId":"n3","snapshot":{"trackedFileBackups":{"a":null,"b":{"version":"x"}}}}',
        b'{"type":"file-history-snapshot","snapshot":[]}',
        b'{"type":"file-history-delta","snapshotMessageId":"n3","trackingPath":"a","backup":{"version":1}}',
    ]
    reader = make_reader()
    events: list[Event] = []
    for number, line in enumerate(lines):
        pieces = decode(Line(number, line))
        assert b"".join(piece.raw for piece in pieces) == line  # an unknown record is carried through byte for byte
        for piece in pieces:
            assert isinstance(piece, Record)
            events += reader.events(piece)
    said = [(event.uuid, event.prompt, event.at) for event in events if isinstance(event, UserMessage)]
    assert said == [("n3", "real", None), ("n4", "do it", AT_NS), ("n6", "twice", None), ("n7", "", AT_NS)]
    assert reader.unknown == {"recap-of-tomorrow": 1, "prompt-marker": 1, "": 1}
    assert [event.backups for event in events if isinstance(event, HistoryRecord)] == [()]


KEYS = [
    *("type", "uuid", "message", "content", "attachment", "prompt", "toolUseResult", "filePath", "structuredPatch"),
    *("snapshot", "messageId", "trackedFileBackups", "backup", "backupFileName", "version", "text", "tool_use_id"),
    *("id", "name", "input", "cwd", "origin", "kind", "timestamp", "commandMode", "promptSource", "stop_reason"),
]
WORDS = ["user", "tool_result", "tool_use", "text", "Edit", "t1", AT, SESSION]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)


@given(
    st.dictionaries(
        st.sampled_from(["message", "attachment", "toolUseResult", "snapshot", "backup", "origin"]), json_values
    ),
    st.sampled_from(
        ["user", "assistant", "attachment", "system", "file-history-snapshot", "file-history-delta", "new"]
    ),
)
def test_no_record_can_make_it_fail(body: Json, kind: str) -> None:
    value = node(kind, **body)
    make_reader().events(Record(0, b"", value))
