"""What the real program rewound, we rewind from the import of its history to the same files (SPEC A6).

Three differences are meant, and each is proved where it shows: directories that a rewind emptied are removed, paths
that lie behind a link are named, and messages that the program refused may be rewound.
"""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.stage import Stage
from tests.builders.truth import say

pytestmark = pytest.mark.samples

Json = dict[str, Any]
Tree = dict[str, list[Any]]
PLACE = "/home/dev"  # the records' own


class Replay:
    """A sample's configuration in a directory of ours, and its project as it was when the program rewound."""

    def __init__(self, samples: Path, name: str, tmp_path: Path) -> None:
        self.sample: Json = json.loads((samples / "claude-code" / name / "manifest.json").read_text())
        self.stage = Stage(tmp_path)
        config = tmp_path / "claude"
        shutil.copytree(samples / "claude-code" / name / "config", config, dirs_exist_ok=True)
        for folder, folders, files in os.walk(config):
            for entry in folders + files:  # samples may be kept read-only
                path = Path(folder, entry)
                path.chmod(path.stat().st_mode | 0o600)
        for transcript in config.glob("projects/*/*.jsonl"):
            # What lies outside the project goes by its absolute path: let it be one of ours.
            text = transcript.read_text().replace(f'"{PLACE}/outside', f'"{tmp_path}/outside')
            transcript.write_text(text)
        self.transcripts = sorted(config.glob("projects/*/*.jsonl"))

    def build(self, tree: Tree) -> None:
        """Make the project, and what lies beside it, just what a tree says."""
        for top in {name.split("/")[0] for name in tree}:
            (self.stage.directory / top).mkdir(exist_ok=True)  # the same one: a workspace is its directory
            for entry in (self.stage.directory / top).iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        linked: dict[str, Path] = {}
        for name, (kind, *rest) in sorted(tree.items()):
            path = self.stage.directory / name
            if kind == "dir":
                path.mkdir(exist_ok=True)
                path.chmod(int(rest[0], 8))
            elif kind == "link":
                path.symlink_to(rest[0])
            elif name in self.sample.get("hard_linked", []) and rest[2] in linked:
                os.link(linked[rest[2]], path)
            else:
                path.write_bytes(base64.b64decode(self.sample["blobs"][rest[2]]))
                path.chmod(int(rest[0], 8))
                linked[rest[2]] = path

    def attach(self) -> None:
        """Import the sessions."""
        for transcript in self.transcripts:
            answer = self.stage.run(
                "attach", str(transcript), "--once", "--workspace", str(self.stage.project), "--json"
            )
            assert answer.code == 0, answer

    def rewind(self, message: str, *more: str) -> tuple[int, Json]:
        """Rewind by us, with all that the import knows."""
        answer, _ = say(self.stage, "rewind", message, "--all", "--outside", "--yes", "--json", *more)
        return answer.code, answer.json

    def tree(self) -> Tree:
        """Give what is there now, as the manifest writes it, but for the bytes."""
        found: Tree = {}
        for top in ("project", "outside"):
            for folder, folders, files in os.walk(self.stage.directory / top):
                found[os.path.relpath(folder, self.stage.directory)] = ["dir"]
                for name in folders + files:
                    path = Path(folder, name)
                    key = os.path.relpath(path, self.stage.directory)
                    if path.is_symlink():
                        found[key] = ["link", os.readlink(path)]
                    elif path.is_file():
                        found[key] = ["file", path.stat().st_mode & 0o111, path.read_bytes()]
        return found

    def expected(self, tree: Tree) -> Tree:
        """Give a tree of the manifest with bytes; write bits are lost where samples are kept read-only."""
        made: Tree = {}
        for name, (kind, *rest) in tree.items():
            if kind == "file":
                made[name] = ["file", int(rest[0], 8) & 0o111, base64.b64decode(self.sample["blobs"][rest[2]])]
            else:
                made[name] = [kind, *rest] if kind == "link" else [kind]
        return made

    def last_tree(self) -> Tree:
        """Give the project as the last turn left it."""
        last: Tree = {}
        for turn in self.sample["turns"]:
            for when in ("before", "after"):
                last = turn[when] if turn[when] != "same" else last
        return last

    def rewinds(self) -> Iterator[tuple[Json, Tree]]:
        """Give what the program rewound, and what it left."""
        tree = self.last_tree()
        for rewind in self.sample["rewinds"]:
            tree = rewind["tree_after"] if rewind["tree_after"] != "same" else tree
            yield rewind, tree


def skipped_targets(replay: Replay, skipped: list[str]) -> set[str]:
    """Give the paths of the manifest that links which we named lead to."""
    project = replay.stage.project
    places = {os.path.realpath(project / name) for name in skipped}
    return {os.path.relpath(place, replay.stage.directory.resolve()) for place in places}


@pytest.mark.parametrize("name", ["basic", "kinds", "links", "parallel", "subagent", "compact"])
def test_a_recorded_rewind_gives_the_same_files_from_the_import(samples, tmp_path, name):
    replay = Replay(samples, name, tmp_path)
    replay.build(replay.last_tree())
    replay.attach()
    compared = 0
    for rewind, after in replay.rewinds():
        replay.build(replay.last_tree())
        before = replay.tree()
        code, answer = replay.rewind(rewind["uuid"])
        now, wanted = replay.tree(), replay.expected(after)
        if rewind["rc"] != 0:
            # The program refused; where we have no evidence either, nothing happens.
            assert code in (0, 1, 3)
            assert code == 0 or now == before
            continue
        assert code == 0, (rewind["n"], answer)
        assert answer["failed"] == answer["kept"] == []
        linked = skipped_targets(replay, answer["skippedLinks"])
        assert bool(answer["skippedLinks"]) >= bool("skipped" in rewind["stderr"])
        for path in sorted(set(now) | set(wanted)):
            if now.get(path) == wanted.get(path):
                continue
            emptied = wanted.get(path) == ["dir"] and path in before and not any(p.startswith(path + "/") for p in now)
            behind_a_link = path in linked and now.get(path) == before.get(path)
            assert emptied or behind_a_link, (rewind["n"], path, now.get(path), wanted.get(path), answer)
        compared += 1
    assert compared == sum(rewind["rc"] == 0 for rewind in replay.sample["rewinds"])


def test_backups_overwritten_after_a_compaction_are_never_offered(samples, tmp_path):
    replay = Replay(samples, "compact", tmp_path)
    replay.build(replay.last_tree())
    replay.attach()
    before = replay.tree()
    for turn in replay.sample["turns"][:2]:
        code, answer = replay.rewind(turn["uuid"])
        assert (code, answer["kept"]) == (3, [{"path": "a.txt", "reason": "blob-missing"}])
        assert replay.tree() == before
        shown, said = say(replay.stage, "show", f"{turn['uuid']}:a.txt")
        assert (shown.code, said) == (1, b"")


def test_both_sessions_of_a_fork_come_back_on_their_own(samples, tmp_path):
    replay = Replay(samples, "fork", tmp_path)
    (replay.stage.project / "a.txt").write_text(replay.sample["final_bytes"]["a.txt"])
    replay.attach()
    sessions = {"original": replay.sample["session"], "fork": replay.sample["fork_session"]}
    shared = {rewind["uuid"] for rewind in replay.sample["rewinds_by_session"] if rewind["in"] == "original"}
    for rewind in replay.sample["rewinds_by_session"]:
        assert rewind["rc"] == 0
        code, answer = replay.rewind(rewind["uuid"], "--session", sessions[rewind["in"]])
        assert (code, answer["session"]) == (0, sessions[rewind["in"]])
        assert (replay.stage.project / "a.txt").read_text() == rewind["a.txt_after"]
        if rewind["in"] == "fork" and rewind["uuid"] in shared:
            code, answer = replay.rewind(rewind["uuid"])
            assert (code, answer["code"]) == (1, "ambiguous-id")


def test_a_branch_that_was_left_is_rewound_although_the_program_refuses(samples, tmp_path):
    replay = Replay(samples, "tui-rewind", tmp_path)
    texts = replay.sample["bytes"]
    replay.build({"project": ["dir", "0o755"]})
    for name, text in texts["after prompt 4"].items():
        (replay.stage.project / name).write_text(text)
    replay.attach()
    wanted = {"edit 1 #T1": "V0\n", "edit 2 #T2": "V1\n", "edit 3 #T3": "V2\n", "again #T4": "V1\n"}
    for rewind in replay.sample["cli_rewinds"]:
        code, answer = replay.rewind(rewind["uuid"])
        assert (code, answer["kept"]) == (0, [])
        assert (replay.stage.project / "a.txt").read_text() == wanted[rewind["text"]]
        assert rewind["rc"] != 0 or rewind["a.txt_after"] == wanted[rewind["text"]]
        assert not (replay.stage.project / "new.txt").exists()  # made by the last prompt
    assert {rewind["rc"] for rewind in replay.sample["cli_rewinds"]} == {0, 1}
