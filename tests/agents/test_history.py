"""Fold the agent's own file history: what it says of each message, and what it cannot be believed for."""

import hashlib
import os
from pathlib import Path

import pytest

from sidecar.agents import registry
from sidecar.agents.backups import BackupContent, read_backup
from sidecar.agents.history import ImportedFile, ImportedState, fold_history, matches_text
from sidecar.model import Backup, HistoryRecord, ToolEdit, UserMessage
from sidecar.transcript.tail import Tail
from tests.builders.claude import ClaudeHome, ClaudeSession

CWD = "/w"
Entry = tuple[str | None, bool]


def name_of(path: str, version: int) -> str:
    return f"{hashlib.sha256(path.encode()).hexdigest()[:16]}@v{version}"


def backup(path: str, version: int, at: int = 1, *, absent: bool = False, cwd: str = CWD) -> Backup:
    full = os.path.join(cwd, path)
    name = None if absent else name_of(full, version)
    return Backup(path.encode(), name, version, at, os.path.dirname(full).encode())


def whole(message: str, *backups: Backup, at: int = 0) -> HistoryRecord:
    return HistoryRecord("s", message, backups, at, partial=False)


def added(message: str, one: Backup, by: str = "a1") -> HistoryRecord:
    return HistoryRecord("s", message, (one,), one.backup_at, partial=True, by=by)


def files(states: dict[str, ImportedState], message: str) -> dict[str, Entry]:
    return {file.path.decode(): (file.file_name, file.trusted) for file in states[message].files}


def v(path: str, version: int) -> str:
    return name_of(f"{CWD}/{path}", version)


def test_case_C03_the_first_touch_in_a_turn_is_a_record_of_its_own() -> None:
    deltas = [whole("U1"), added("U1", backup("f", 1, 10)), whole("U2", backup("f", 2, 20))]
    updates = [
        whole("U1"),
        HistoryRecord("s", "U1", (backup("f", 1, 10),), 10, partial=True, by="a1"),
        whole("U2", backup("f", 2, 20)),
    ]
    second_full = [whole("U1"), whole("U1", backup("f", 1, 10)), whole("U2", backup("f", 2, 20))]
    for records in (deltas, updates, second_full):
        states = fold_history(records, cwds=[CWD])
        assert files(states, "U1") == {"f": (v("f", 1), True)}
        assert files(states, "U2") == {"f": (v("f", 2), True)}


def test_a_delta_adds_and_never_replaces() -> None:
    states = fold_history([whole("U1", backup("f", 3, 30)), added("U1", backup("f", 1, 10))], cwds=[CWD])
    assert files(states, "U1") == {"f": (v("f", 3), True)}


def test_a_delta_may_come_before_its_snapshot_or_without_it() -> None:
    states = fold_history([added("U1", backup("f", 1, 10)), whole("U1"), added("U2", backup("g", 1, 20))], cwds=[CWD])
    assert files(states, "U1") == {"f": (v("f", 1), True), "g": (v("g", 1), True)}
    assert files(states, "U2") == {"g": (v("g", 1), True)}  # f is not said to be there still


def test_the_last_re_emission_wins_and_keeps_what_was_added() -> None:
    records = [
        whole("U1", backup("f", 1, 10)),
        added("U1", backup("g", 1, 11)),
        whole("U2", backup("f", 2, 20), backup("g", 1, 11)),
        whole("U1", backup("f", 1, 10), backup("h", 1, 12)),
    ]
    states = fold_history(records, cwds=[CWD])
    assert list(states) == ["U1", "U2"]
    assert files(states, "U1") == {"f": (v("f", 1), True), "g": (v("g", 1), True), "h": (v("h", 1), True)}


def test_a_path_unknown_to_a_message_takes_its_first_version_from_a_later_one() -> None:
    records = [whole("U1"), whole("U2", backup("f", 1, 20)), whole("U3", backup("f", 2, 30))]
    states = fold_history(records, cwds=[CWD])
    assert files(states, "U1") == {"f": (v("f", 1), True)}
    assert [file.later for file in states["U1"].files] == [True]
    assert [file.later for file in states["U2"].files] == [False]


def test_created_later_means_absent_and_deleted_means_absent_too() -> None:
    records = [
        whole("U1"),
        added("U1", backup("new", 1, 10, absent=True)),
        whole("U2", backup("new", 2, 20)),
        whole("U3", backup("new", 3, 30, absent=True)),
    ]
    states = fold_history(records, cwds=[CWD])
    assert [files(states, message)["new"] for message in ("U1", "U2", "U3")] == [
        (None, True),
        (v("new", 2), True),
        (None, True),
    ]


@pytest.mark.parametrize("absent", [True, False])
def test_a_first_entry_that_is_no_first_version_says_nothing_of_earlier_messages(absent: bool) -> None:
    states = fold_history([whole("U1"), whole("U2", backup("f", 2, 20, absent=absent))], cwds=[CWD])
    assert files(states, "U1") == {}


def test_a_name_claimed_again_is_trusted_for_the_newest_claim_only() -> None:
    records = [
        whole("U1"),
        added("U1", backup("f", 1, 10)),
        whole("U2", backup("f", 2, 20), backup("kept", 7, 21)),
        whole("U3"),  # after a compaction: the counter starts again
        added("U3", backup("f", 1, 30)),
    ]
    states = fold_history(records, cwds=[CWD])
    assert files(states, "U1") == {"f": (v("f", 1), False)}
    assert files(states, "U2") == {"f": (v("f", 2), True), "kept": (v("kept", 7), True)}
    assert files(states, "U3") == {"f": (v("f", 1), True)}


def test_claims_that_contradict_each_other_are_trusted_by_nobody() -> None:
    again = [whole("U1", backup("f", 1, 10)), whole("U2", backup("f", 1, 30)), whole("U1", backup("f", 1, 20))]
    states = fold_history(again, cwds=[CWD])
    assert {files(states, message)["f"] for message in states} == {(v("f", 1), False)}
    backwards = [whole("U1", backup("f", 1, 30)), whole("U2", backup("f", 1, 10))]
    states = fold_history(backwards, cwds=[CWD])
    assert {files(states, message)["f"] for message in states} == {(v("f", 1), False)}
    undated = Backup(b"f", v("f", 1), 1, None, None)
    states = fold_history([whole("U1", undated), whole("U2", backup("f", 1, 10))], cwds=[CWD])
    assert {files(states, message)["f"] for message in states} == {(v("f", 1), False)}


def test_a_number_that_is_not_the_names_own_is_not_trusted() -> None:
    odd = Backup(b"f", v("f", 2), 3, 10, None)
    assert files(fold_history([whole("U1", odd)], cwds=[CWD]), "U1") == {"f": (v("f", 2), False)}


def edit(path: str, at: int, message: str = "a9", original: str | None = None) -> ToolEdit:
    return ToolEdit("s", path.encode(), at, message, original=original)


def test_an_edit_before_the_first_touch_takes_its_evidence_away() -> None:
    records = [whole("U1", at=5), whole("U2", at=15), added("U2", backup("f", 1, 20))]
    for at, trusted in ((4, True), (5, False), (19, False), (21, True)):
        states = fold_history(records, cwds=[CWD], edits=[edit("/w/f", at)])
        assert files(states, "U1") == {"f": (v("f", 1), trusted)}
        assert files(states, "U2") == {"f": (v("f", 1), True)}


def test_the_text_that_the_tool_read_goes_with_its_backup_wherever_it_is_named() -> None:
    records = [whole("U1"), added("U1", backup("f", 1, 10), by="a1"), whole("U2", backup("f", 1, 10))]
    edits = [edit("/w/f", 11, "a1", "one\n"), edit("/w/f", 12, "a2", "two\n"), edit("/w/g", 12, "a1", "other\n")]
    states = fold_history(records, cwds=[CWD], edits=edits)
    assert [states[message].files[0].expected_text for message in ("U1", "U2")] == ["one\n", "one\n"]


def test_paths_are_told_from_the_workspace_wherever_the_session_was_resumed() -> None:
    records = [
        whole("U1", backup("a", 1, 1), backup("/etc/hosts", 1, 2)),
        whole("U2", backup("b", 1, 3, cwd="/w/sub"), backup("c", 1, 4, cwd="/other")),
        whole("U3", backup("d", 1, 5, absent=True, cwd="/w/sub"), backup("e", 1, 6, cwd="/moved")),
        whole("U4", backup("../up", 1, 7), backup("x/../y", 1, 8)),
    ]
    states = fold_history(records, cwds=[CWD, "/w/sub", "/other"])
    assert set(files(states, "U1")) >= {"a", "/etc/hosts"}
    assert set(files(states, "U2")) >= {"sub/b", "/other/c"}
    assert set(files(states, "U3")) >= {"sub/d", "e"}  # nobody knows /moved: as if it were the workspace
    assert set(files(states, "U4")) == {"/up", "y"}


def test_no_working_directory_no_way_out() -> None:
    states = fold_history([whole("U1", backup("../../etc/passwd", 1), backup("a", 1))], cwds=[])
    assert set(files(states, "U1")) == {"a"}


@pytest.mark.parametrize(
    ("content", "text", "same"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo\n", True),
        (b"one\ntwo\n", "one\ntwo\n", True),
        (b"one", "two", False),
        (b"\xef\xbb\xbfone", "one", True),
        (b"\xef\xbb\xbfone", "\ufeffone", True),
        ("één\n".encode("utf-16"), "\ufefféén\n", True),
        ("één\n".encode("utf-16"), "een\n", False),
        (b"caf\xe9", "cafe", False),
        (b"caf\xe9", None, True),
        (b"", "", True),
    ],
)
def test_when_bytes_can_be_the_text_that_was_read(content: bytes, text: str | None, same: bool) -> None:
    assert matches_text(content, text) is same


# Backups on disk ----------------------------------------------------------------------------------------------------


def test_a_backup_is_read_with_its_mode(tmp_path: Path) -> None:
    blob = tmp_path / "ab@v1"
    blob.write_bytes(b"\0bytes")
    blob.chmod(0o755)
    os.link(blob, tmp_path / "cd@v1")  # a fork's
    assert read_backup(str(tmp_path), "ab@v1") == BackupContent(b"\0bytes", 0o755)
    assert read_backup(str(tmp_path), "cd@v1", limit_bytes=6) == BackupContent(b"\0bytes", 0o755)
    assert read_backup(str(tmp_path), "ab@v1", limit_bytes=5) is None


def test_nothing_but_a_regular_file_below_the_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "link@v1").symlink_to(tmp_path / "secret")
    (folder / "folder@v1").mkdir()
    os.mkfifo(folder / "fifo@v1")
    (tmp_path / "linked").symlink_to(folder)
    (folder / "real@v1").write_bytes(b"x")
    for name in ("link@v1", "folder@v1", "fifo@v1", "gone@v1", "../secret", "", ".", "..", "a\0b"):
        assert read_backup(str(folder), name) is None
    assert read_backup(str(tmp_path / "linked"), "real@v1") is None
    assert read_backup(str(tmp_path / "gone"), "real@v1") is None


# With sessions as the builder writes them ---------------------------------------------------------------------------


def restored(session: ClaudeSession) -> dict[str, dict[str, bytes | None]]:
    """Give what the history offers for each prompt, as far as it is trusted and the bytes are there."""
    agent = registry()["claude-code"]
    (found,) = [one for one in agent.find_in(str(session.home.root)) if one.session == session.session]
    reader = agent.reader(found)
    events = [event for record in Tail(found.transcript).poll().records for event in reader.events(record)]
    records = [event for event in events if isinstance(event, HistoryRecord)]
    states = fold_history(records, cwds=reader.cwds, edits=[event for event in events if isinstance(event, ToolEdit)])
    prompts = {event.uuid: event.prompt for event in events if isinstance(event, UserMessage)}
    assert found.history is not None
    history = found.history

    def content(file: ImportedFile) -> bytes | None:
        kept = read_backup(history, file.file_name) if file.file_name else None
        assert kept is None or matches_text(kept.content, file.expected_text)
        return None if kept is None else kept.content

    return {
        prompts[message]: {file.path.decode(): content(file) for file in state.files if file.trusted}
        for message, state in states.items()
    }


@pytest.fixture
def session(tmp_path: Path) -> ClaudeSession:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_bytes(b"zero\r\n")
    return ClaudeHome(tmp_path / "claude").session(project)


def play(session: ClaudeSession, *contents: bytes) -> None:
    for number, content in enumerate(contents, 1):
        session.prompt(f"p{number}")
        session.edit("a.txt", content)
        session.say()


def test_each_prompt_finds_the_bytes_before_it(session: ClaudeSession) -> None:
    play(session, b"one\r\n", b"two\r\n")
    session.prompt("p3")
    session.edit("new/n.txt", b"n")
    session.say()
    session.prompt("p4")
    assert restored(session) == {
        "p1": {"a.txt": b"zero\r\n", "new/n.txt": None},
        "p2": {"a.txt": b"one\r\n", "new/n.txt": None},
        "p3": {"a.txt": b"two\r\n", "new/n.txt": None},
        "p4": {"a.txt": b"two\r\n", "new/n.txt": b"n"},
    }


def test_a_compaction_costs_what_it_overwrote_and_nothing_else(session: ClaudeSession) -> None:
    play(session, b"one", b"two", b"three")
    session.prompt("before")
    session.edit("b.txt", b"b")
    session.say()
    session.compact()
    session.prompt("after")
    session.edit("a.txt", b"four")
    session.say()
    found = restored(session)
    assert found["p1"] == {"b.txt": None}  # a.txt@v1 holds "three" now
    assert found["p2"] == {"a.txt": b"one", "b.txt": None}
    assert found["before"] == {"a.txt": b"three", "b.txt": None}
    assert found["after"] == {"a.txt": b"three"}


def test_a_fork_offers_what_its_parent_does(session: ClaudeSession) -> None:
    play(session, b"one", b"two")
    fork = session.fork()
    fork.prompt("own")
    fork.edit("a.txt", b"fork")
    fork.say()
    parent, child = restored(session), restored(fork)
    assert child.pop("own") == {"a.txt": b"two"}
    assert child == parent == {"p1": {"a.txt": b"zero\r\n"}, "p2": {"a.txt": b"one"}}


def test_snapshots_written_again_change_nothing(session: ClaudeSession) -> None:
    play(session, b"one", b"two")
    before = restored(session)
    session.reemit()
    assert restored(session) == before
