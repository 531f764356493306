"""C14: neither the store nor the agent's own files are ever captured, wherever they lie; a project's settings are."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.builders.claude import ClaudeHome
from tests.builders.stage import Stage


class Inside(Stage):
    """A stage whose store and agent home lie in the workspace."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.home = ClaudeHome(self.project / ".claude-home")
        self.session = self.home.session(self.project)

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "SIDECAR_HOME": str(self.project / "tools" / "store")}

    def mine(self) -> dict[bytes, tuple[object, ...]]:
        """Give the project's tree without what is the agent's or ours."""
        own = (b".claude-home", b"tools/store")
        return {path: what for path, what in self.tree().items() if not path.startswith(own)}


def rows(store: Path) -> tuple[int, int, set[bytes]]:
    """Give the number of versions and of contents, and the paths that the store has rows of."""
    [path] = store.glob("workspaces/*/store.db")
    database = sqlite3.connect(path)
    try:
        [(versions,)] = database.execute("SELECT count(*) FROM version").fetchall()
        [(blobs,)] = database.execute("SELECT count(*) FROM blob").fetchall()
        names = {
            bytes(name) for (name,) in database.execute("SELECT name FROM path JOIN version v ON v.path = path.id")
        }
    finally:
        database.close()
    return versions, blobs, names


def chatter(stage: Stage, count: int) -> None:
    """Append records that are no messages, one write each, and let the agent write its other files, too."""
    for number in range(count):
        stage.session.append({"type": "progress", "data": "x" * 200, "sessionId": stage.session.session})
        if number % 100 == 0:
            stage.home.settings(number=number)
            (stage.home.root / "history.jsonl").write_text(f"{number}\n")
            (stage.home.root / "todos").mkdir(exist_ok=True)
            (stage.home.root / "todos" / f"{number}.json").write_text("[]")
            (stage.home.root / ".claude.json.tmp").write_text(str(number))


def test_case_C14_store_and_agent_inside_the_workspace(tmp_path):
    stage = Inside(tmp_path)
    store = stage.project / "tools" / "store"
    stage.write("a.txt", "old\n")
    stage.write("tools/mine.txt", "beside the store\n")
    stage.write(".claude/settings.json", '{"of": "the project"}\n')
    stage.write(".claude/commands/do.md", "do\n")
    stage.write(".claude-home-notes.txt", "only looks alike\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        before = stage.mine()
        chatter(stage, 10)
        settled = stage.session.prompt("again")
        watcher.checkpoint(settled)
        versions, blobs, _ = rows(store)

        chatter(stage, 1000)
        third = stage.session.prompt("and again")
        assert watcher.checkpoint(third)["files"] == 0
        assert rows(store)[:2] == (versions, blobs)

        stage.write(".claude/settings.json", '{"changed": "by the agent"}\n')
        stage.write(".claude-home-notes.txt", "changed\n")
        stage.session.edit("a.txt", b"new\n")
        stage.session.say()
        transcript = stage.session.transcript.read_bytes()
        answer = stage.json("rewind", first, "--all", "--yes")
        assert sorted(answer["filesChanged"]) == [".claude-home-notes.txt", ".claude/settings.json", "a.txt"]
        assert answer["kept"] == answer["skippedLinks"] == answer["failed"] == []
        assert stage.mine() == before
        assert stage.session.transcript.read_bytes() == transcript
    assert not watcher_complained(watcher.events)
    named = rows(store)[2]
    assert {b".claude/settings.json", b".claude/commands/do.md", b"tools/mine.txt"} <= named
    assert not [path for path in named if path.startswith((b".claude-home/", b"tools/store"))]
    assert b".claude-home" not in named


def watcher_complained(events: list[dict[str, object]]) -> list[dict[str, object]]:
    return [event for event in events if event["event"] == "warning"]


@pytest.mark.parametrize("watched", [True, False])
def test_case_C14_a_process_that_does_not_know_the_agents_home_leaves_it_alone(tmp_path, watched):
    """A rewind from another terminal, where CLAUDE_CONFIG_DIR is not set."""
    stage = Inside(tmp_path)
    stage.write("a.txt", "old\n")
    elsewhere = {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")}
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.session.edit("a.txt", b"new\n")
        chatter(stage, 3)
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        if not watched:
            watcher.stop()
        chatter(stage, 3)
        agents = {path: path.read_bytes() for path in stage.home.root.rglob("*") if path.is_file()}
        for verb in (["rewind", first, "--all", "--dry-run"], ["mark"], ["rewind", first, "--all", "--yes"]):
            answer = stage.run(*verb, "--json", environ=elsewhere)
            assert answer.code == 0, answer
        assert (answer.json["restored"], answer.json["removed"], answer.json["kept"]) == (["a.txt"], [], [])
        assert {path: path.read_bytes() for path in stage.home.root.rglob("*") if path.is_file()} == agents
    named = rows(stage.project / "tools" / "store")[2]
    assert not [path for path in named if path.startswith(b".claude-home")]


@pytest.mark.parametrize("place", ["", "logs", "deep/in/logs"])
def test_case_C14_a_transcript_that_lies_in_the_workspace_itself(tmp_path, place):
    """Attached by its path: not below any agent's home, so that only the session tells whose it is."""
    stage = Stage(tmp_path)
    folder = stage.project / place
    folder.mkdir(parents=True, exist_ok=True)
    stage.session.file = folder / f"{stage.session.session}.jsonl"
    stage.session.history = False
    stage.session.prompt("before", snapshot=False)
    stage.write("a.txt", "old\n")
    beside = f"{place}/data.jsonl".lstrip("/")
    companion = folder / stage.session.session / "subagents"
    companion.mkdir(parents=True)
    command = ("attach", str(stage.session.file), "--workspace", str(stage.project))
    with stage.watching(*command) as watcher:
        stage.session.prompt("settle")
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        settled = rows(tmp_path / "store")[:2]
        for _ in range(200):
            stage.session.append({"type": "progress", "sessionId": stage.session.session})
            (companion / "agent-a1.jsonl").write_text("{}\n")
        second = stage.session.prompt("again")
        assert watcher.checkpoint(second)["files"] == 0
        assert rows(tmp_path / "store")[:2] == settled
        stage.session.edit("a.txt", b"new\n")
        if not place:  # a folder of transcripts is the agent's; where they lie in the workspace's own, only they are
            stage.write(beside, "a file of the project\n")
        stage.session.say()
        transcript = stage.session.file.read_bytes()
        answer = stage.json("rewind", first, "--all", "--yes")
        assert (answer["restored"], answer["removed"]) == (["a.txt"], [] if place else [beside])
        assert stage.session.file.read_bytes() == transcript
        assert (companion / "agent-a1.jsonl").exists()
    named = rows(tmp_path / "store")[2]
    assert not [path for path in named if stage.session.session.encode() in path]


def test_case_C14_a_workspace_of_which_nothing_may_be_captured_is_refused(tmp_path):
    """The agent's home, or a folder of the store, as a workspace: to follow it would promise what is not kept."""
    stage = Stage(tmp_path)
    stage.session.prompt("so that there is a store")
    stage.attach_once()
    session = stage.home.session(stage.home.root)
    session.prompt("work on the agent's own settings")
    store = tmp_path / "store"
    for place in (stage.home.root, store, store / "workspaces"):
        answer = stage.run("watch", str(place), "--json")
        assert answer.code == 1, place
        assert json_of(answer.out)["code"] == "no-workspace"
    refused = stage.run("attach", str(session.transcript), "--once")
    assert refused.code == 1
    assert "Traceback" not in refused.err


def json_of(out: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found
