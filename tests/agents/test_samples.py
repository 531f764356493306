"""The recorded sessions of the real program: every record is read, every recorded rewind follows from its history."""

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sidecar.agents import registry
from sidecar.agents.backups import read_backup
from sidecar.agents.history import ImportedFile, ImportedState, fold_history, matches_text
from sidecar.model import Event, HistoryRecord, SessionFound, ToolEdit, UserMessage
from sidecar.transcript.tail import Tail

pytestmark = pytest.mark.samples

CLAUDE = registry()["claude-code"]


class Told:
    """Everything that a session's transcripts say."""

    def __init__(self, found: SessionFound) -> None:
        self.found = found
        self.reader = CLAUDE.reader(found)
        self.events: list[Event] = []
        self.fragments = 0
        for path in CLAUDE.transcripts_of(found):
            tail = Tail(path)
            more = True
            while more:
                read = tail.poll()
                assert read.fault is None
                self.fragments += len(read.fragments)
                for record in read.records:
                    self.events += self.reader.events(record, subagent=path != found.transcript)
                more = read.more

    def messages(self) -> list[UserMessage]:
        return [event for event in self.events if isinstance(event, UserMessage)]

    def history(self, *, with_edits: bool = False) -> dict[str, ImportedState]:
        edits = [event for event in self.events if isinstance(event, ToolEdit)] if with_edits else []
        records = [event for event in self.events if isinstance(event, HistoryRecord)]
        return fold_history(records, cwds=self.reader.cwds, edits=edits)


def told(config: Path, session: str) -> Told:
    return Told(next(found for found in CLAUDE.find_in(str(config)) if found.session == session))


def manifest(sample: Path) -> dict[str, Any]:
    return dict(json.loads((sample / "manifest.json").read_text()))


def content(found: SessionFound, file: ImportedFile) -> tuple[bytes, int] | None:
    """Give a file's bytes and mode as the history has them; None: it did not exist."""
    if file.file_name is None:
        return None
    assert found.history is not None
    backup = read_backup(found.history, file.file_name)
    assert backup is not None
    assert matches_text(backup.content, file.expected_text)
    return backup.content, backup.mode


def is_skipped(path: str, sample: dict[str, Any], tree: dict[str, list[Any]]) -> bool:
    """Tell whether the program itself left a path alone: it is, or lies behind, a link or no regular file."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    kind = tree.get(path, ["file"])[0]
    return path in sample.get("hard_linked", []) or kind != "file" or any(tree.get(a, [""])[0] == "link" for a in above)


@pytest.mark.parametrize("name", ["basic", "kinds", "links", "parallel", "subagent", "compact"])
def test_every_recorded_rewind_follows_from_the_history_alone(samples: Path, name: str) -> None:
    folder = samples / "claude-code" / name
    sample = manifest(folder)
    mine = told(folder / "config", sample["session"])
    states = mine.history()
    compared = 0
    tree: dict[str, list[Any]] = {}
    for rewind in sample["rewinds"]:
        tree = rewind["tree_after"] if rewind["tree_after"] != "same" else tree
        if rewind["rc"] != 0:
            continue
        state = states[rewind["uuid"]]
        for file in state.files:
            path = str(Path("/home/dev/project", file.path.decode()).relative_to("/home/dev"))
            if is_skipped(path, sample, tree):
                continue
            assert file.trusted
            kept = content(mine.found, file)
            if kept is None:
                assert path not in tree
            else:
                _, mode, size, digest = tree[path]
                assert size == len(kept[0])
                assert int(mode, 8) & 0o111 == kept[1] & 0o111  # write bits are lost where samples are kept read-only
                assert base64.b64decode(sample["blobs"][digest]) == kept[0]
            compared += 1
    assert compared > 0


def test_the_forks_history_stands_alone(samples: Path) -> None:
    folder = samples / "claude-code" / "fork"
    sample = manifest(folder)
    sessions = {"original": sample["session"], "fork": sample["fork_session"]}
    for rewind in sample["rewinds_by_session"]:
        mine = told(folder / "config", sessions[rewind["in"]])
        (file,) = mine.history(with_edits=True)[rewind["uuid"]].files
        kept = content(mine.found, file)
        assert file.trusted
        assert kept is not None
        assert kept[0].decode() == rewind["a.txt_after"]


def test_a_branch_that_the_program_left_is_offered_too(samples: Path) -> None:
    folder = samples / "claude-code" / "tui-rewind"
    mine = told(folder / "config", "ba510471-8ae8-41c4-9a45-1f261f9aba4d")
    states = mine.history(with_edits=True)
    texts = {}
    for message in mine.messages():
        files = {file.path: file for file in states[message.uuid].files}
        kept = content(mine.found, files[b"a.txt"])
        texts[message.prompt] = kept and kept[0]
        # new.txt was made by the last prompt: before it, and on the branch that was left, it was not there.
        assert content(mine.found, files[b"new.txt"]) is None
    assert texts == {"edit 1 #T1": b"V0\n", "edit 2 #T2": b"V1\n", "edit 3 #T3": b"V2\n", "again #T4": b"V1\n"}


def test_backups_overwritten_after_a_compaction_are_never_offered(samples: Path) -> None:
    folder = samples / "claude-code" / "compact"
    sample = manifest(folder)
    mine = told(folder / "config", sample["session"])
    states = mine.history(with_edits=True)
    first, second, fourth, fifth = mine.messages()
    for message in (first, second):
        assert [(file.path, file.trusted) for file in states[message.uuid].files] == [(b"a.txt", False)]
    for message, text in ((fourth, b"V2\n"), (fifth, b"V3\n")):
        (file,) = states[message.uuid].files
        kept = content(mine.found, file)
        assert file.trusted
        assert kept is not None
        assert kept[0] == text


def test_an_edit_of_a_subagent_makes_a_later_first_touch_no_evidence(samples: Path) -> None:
    folder = samples / "claude-code" / "subagent"
    sample = manifest(folder)
    mine = told(folder / "config", sample["session"])
    named = {file.path for state in mine.history().values() for file in state.files}
    before = sample["turns"][0]["before"]
    for file in mine.history(with_edits=True)[sample["turns"][0]["uuid"]].files:
        if file.trusted:
            kept = content(mine.found, file)
            path = f"project/{file.path.decode()}"
            assert (kept is None) == (path not in before)
            if kept is not None:
                assert base64.b64decode(sample["blobs"][before[path][3]]) == kept[0]
    assert named


def test_what_a_client_sends_in_every_way(samples: Path) -> None:
    mine = told(samples / "claude-code" / "sdk-inputs" / "config", "270f7885-7d8c-451d-9403-8e0f942a940b")
    said = [(message.prompt, message.queued) for message in mine.messages()]
    assert said == [
        ("bg #T1", False),
        ("slow #T2", False),
        ("queued one #T3", True),
        ("queued two #T4", True),
        ("/foo bar", False),
        ("/context", True),
        ("image #T6", True),
        ("interrupt #T7", False),
        ("after #T8", False),
    ]
    assert mine.messages()[2].alias == "ecbf571f-1849-4d03-834a-54d4d8af002f"


@pytest.mark.parametrize("name", ["basic", "kinds", "links", "parallel", "subagent", "compact", "tui-rewind", "live"])
def test_every_prompt_of_the_manifest_is_a_user_message(samples: Path, name: str) -> None:
    folder = samples / "claude-code" / name
    sample = manifest(folder)
    prompts = sample["turns"] if "turns" in sample else [p for t in sample["transcripts"] for p in t["prompts"]]
    (found,) = CLAUDE.find_in(str(folder / "config"))
    wanted = [(prompt["uuid"], prompt["text"]) for prompt in prompts if prompt["uuid"]]
    assert [(message.uuid, message.prompt) for message in Told(found).messages()] == wanted
    assert found.workspace == sample["cwd"]
    assert found.history == str(folder / "config" / "file-history" / found.session)


def test_every_transcript_found_in_the_wild_is_read(samples: Path) -> None:
    found = CLAUDE.find_in(str(samples / "transcripts"))
    assert len(found) == len(list((samples / "transcripts").glob("*.jsonl"))) == 16
    total: Counter[str] = Counter()
    for one in found:
        mine = Told(one)
        assert mine.fragments == 0
        assert not mine.reader.unknown
        total.update(type(event).__name__ for event in mine.events)
        assert all(len(message.prompt) <= 200 for message in mine.messages())
    assert total["UserMessage"] == 35
    assert total["ToolEdit"] == 33
