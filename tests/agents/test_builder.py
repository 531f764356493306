"""The builder's sessions read as the real ones do, so that every other test may stand on them."""

import json
import os
from pathlib import Path

import pytest

from sidecar.agents import processes, registry
from sidecar.agents.processes import is_alive
from sidecar.model import Event, HistoryRecord, ToolEdit, TurnEnd, UserMessage
from sidecar.transcript.tail import Tail
from tests.builders.claude import ClaudeHome, ClaudeSession

CLAUDE = registry()["claude-code"]


def heard(session: ClaudeSession) -> list[Event]:
    (found,) = CLAUDE.find_in(str(session.transcript))
    reader = CLAUDE.reader(found)
    events: list[Event] = []
    for path in CLAUDE.transcripts_of(found):
        read = Tail(path).poll()
        assert not read.fragments
        for record in read.records:
            events += reader.events(record, subagent=path != found.transcript)
    assert not reader.unknown
    assert not reader.foreign
    return events


@pytest.mark.parametrize("entrypoint", ["cli", "sdk-cli"])
def test_a_session_with_everything_reads_as_it_was_played(tmp_path: Path, entrypoint: str) -> None:
    (tmp_path / "a.txt").write_bytes(b"zero\n")
    session = ClaudeHome(tmp_path / "home").session(tmp_path, entrypoint=entrypoint)
    typed = session.prompt("edit it")
    session.edit("a.txt", b"one\n")
    session.failed_edit("a.txt")
    session.shell("touch s", (tmp_path / "s").touch)
    queued = session.queued("and this", source_uuid="client-1")
    session.notification()
    session.say()
    command = session.command("fix", "all of it")
    session.edit("new/n.txt", b"n")
    session.rejected_edit("a.txt")
    session.interrupt(during_tool=True)
    shell = session.bash_mode("rm s", (tmp_path / "s").unlink)
    session.builtin("model")
    session.meta("Continue from where you left off.")
    session.compact()
    session.prompt("last")
    session.edit_notebook("n.ipynb", b"{}")
    session.subagent("part").edit("sub.txt", b"s")
    session.api_error()
    session.exit()

    events = heard(session)
    messages = [(one.uuid, one.prompt, one.queued) for one in events if isinstance(one, UserMessage)]
    assert messages[:4] == [
        (typed, "edit it", False),
        (queued, "and this", True),
        (command, "/fix all of it", False),
        (shell, "!rm s", False),
    ]
    assert [prompt for _, prompt, _ in messages[4:]] == ["last"]
    edits = [(os.fsdecode(one.path), one.original, one.created) for one in events if isinstance(one, ToolEdit)]
    assert edits == [
        (str(tmp_path / "a.txt"), "zero\n", False),
        (str(tmp_path / "new" / "n.txt"), None, True),
        (str(tmp_path / "n.ipynb"), None, False),
        (str(tmp_path / "sub.txt"), None, True),
    ]
    # A queued prompt has no record in the file history.
    snapshots = [one.message for one in events if isinstance(one, HistoryRecord) and not one.partial]
    assert snapshots == [uuid for uuid, _, queued in messages if not queued]
    assert sum(isinstance(one, TurnEnd) for one in events) == (5 if entrypoint == "cli" else 4)
    assert not (tmp_path / "s").exists()
    assert (tmp_path / "sub.txt").read_bytes() == b"s"


def test_a_batch_is_one_append(tmp_path: Path) -> None:
    session = ClaudeHome(tmp_path / "home").session(tmp_path)
    with session.batch():
        session.prompt("x")
        session.say()
        assert not session.transcript.exists()
    assert session.transcript.stat().st_mode & 0o777 == 0o600
    kinds = [json.loads(line)["type"] for line in session.transcript.read_text().splitlines()]
    assert kinds == ["file-history-snapshot", "user", "assistant", "system"]


def test_without_proc_the_number_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_stat_fields", lambda _: None)
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    assert is_alive(os.getpid(), "of another kind of system")
    assert not is_alive(2**22 + 1, None)
