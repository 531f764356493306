"""What is too much for one checkpoint comes later, what is too much for the store not at all: never a wrong byte."""

import secrets
import time

import pytest

from tests.builders.acting import kept, pause, read, turn
from tests.builders.stage import PATIENCE_S, Stage


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def limit(monkeypatch, stage, numbers):
    folder = stage.directory / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "checkpoints.toml").write_text(f"[limits]\n{numbers}\n")
    monkeypatch.setenv("SIDECAR_POLICIES", str(folder))


def warned(stage):
    return [text for text in stage.json("status", str(stage.project))["warnings"] if "budgets" in text]


def until(told):
    deadline = time.monotonic() + PATIENCE_S
    while not told():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("numbers", ["checkpoint_bytes = 20000", "checkpoint_files = 2"])
@pytest.mark.parametrize("tree_files", [200_000, 1])
def test_what_is_too_much_for_one_checkpoint_is_kept_after_the_next_message(stage, monkeypatch, numbers, tree_files):
    limit(monkeypatch, stage, f"{numbers}\ntree_files = {tree_files}")
    content = {f"{number}.txt": secrets.token_hex(4000) for number in range(4)}
    for number in range(4):
        stage.write(f"old/{number}", secrets.token_hex(10_000))  # the first look is no checkpoint's

    def work():
        for name, data in content.items():
            stage.session.edit(name, data.encode())

    with stage.watching() as watcher:
        first = turn(stage, watcher, work)
        watcher.wait("warning", code="over-budget")
        assert len(warned(stage)) == 1
        answer = stage.json("rewind", first, "--dry-run")
        unkept = {path for path, reason in kept(answer).items() if reason == "too-large"}
        assert 1 <= len(unkept) < len(content)
        assert not unkept & set(answer["removed"])
        second = turn(stage, watcher)
        until(lambda: not warned(stage))
        stage.shell("rm *.txt")
        pause()
        answer = stage.json("rewind", second, "--yes", "--all")
        assert answer["restored"] == sorted(content)  # no stamp has changed since: it is what there was
        assert {name: read(stage, name) for name in content} == content
    assert stage.json("check")["ok"]


@pytest.mark.parametrize("tree_files", [200_000, 1])
def test_a_full_store_keeps_what_it_has_and_takes_in_nothing_new(stage, monkeypatch, tree_files):
    limit(monkeypatch, stage, f"store_bytes = 10000\ntree_files = {tree_files}")
    old, new = secrets.token_hex(4000), secrets.token_hex(4000)
    stage.write("a.txt", b"")
    stage.write("b.txt", "1\n")
    with stage.watching() as watcher:
        turn(stage, watcher, lambda: stage.session.edit("a.txt", old.encode()))
        second = turn(stage, watcher, lambda: stage.session.edit("a.txt", new.encode()))
        third = turn(stage, watcher, lambda: stage.session.edit("b.txt", b"2\n"))
        watcher.wait("warning", code="over-budget")
        assert len(warned(stage)) == 1
        answer = stage.json("rewind", third, "--yes")
        assert (answer["restored"], kept(answer)) == (["b.txt"], {})
        assert read(stage, "b.txt") == "1\n"
        answer = stage.json("rewind", second, "--yes", "--all")
        assert (answer["restored"], kept(answer)["a.txt"]) == ([], "too-large")
        assert read(stage, "a.txt") == new  # no undo could bring it back
        assert stage.run("show", f"{second}:a.txt").out == old
        stage.shell("rm a.txt")
        until(lambda: not warned(stage))
        assert "a.txt" in stage.json("rewind", second, "--yes", "--all")["restored"]
        assert read(stage, "a.txt") == old
        assert [event["code"] for event in watcher.events if event["event"] == "warning"].count("over-budget") == 1
    assert stage.json("check")["ok"]
