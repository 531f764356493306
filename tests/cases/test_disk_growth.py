"""C16: the cap is no filter of a listing: beyond it a checkpoint is gone, and what only it held is off the disk."""

import os
import sqlite3
import time

from tests.builders.probe import settle
from tests.builders.stage import PATIENCE_S, Stage

KEPT = 20  # of the profile `short`
LARGE = 300_000


def stored(stage: Stage) -> tuple[dict[int, int], set[str], set[str]]:
    """Give the contents by number with their count of references, the files they name, and the files there are."""
    [path] = (stage.directory / "store" / "workspaces").glob("*/store.db")
    database = sqlite3.connect(path)
    try:
        refs = dict(database.execute("SELECT id, refs FROM blob").fetchall())
        counted = dict(
            database.execute(
                "SELECT blob, count(*) FROM (SELECT blob FROM version UNION ALL SELECT blob FROM imported) "
                "WHERE blob IS NOT NULL GROUP BY blob"
            ).fetchall()
        )
        assert refs == counted, "the counts are those of the rows"
        named = {name for (name,) in database.execute("SELECT file FROM blob WHERE file IS NOT NULL")}
        [(data,)] = database.execute("SELECT count(*) FROM blob_data").fetchall()
        assert data + len(named) == len(refs)
    finally:
        database.close()
    there = {name.name for name in (path.parent / "blobs").iterdir() if name.name != "lock"}
    return refs, named, there


def let_go(stage: Stage, files: int) -> tuple[dict[int, int], set[str], set[str]]:
    """Wait until so many large contents are left: what ended within the grace for late records is still held."""
    deadline = time.monotonic() + PATIENCE_S
    while len(stored(stage)[1]) > files and time.monotonic() < deadline:
        stage.write("tick.txt", str(time.monotonic()))  # whatever is written down takes the chance to let go
        settle(stage)
    return stored(stage)


def test_case_C16_beyond_the_cap_a_content_goes_unless_it_is_shared(tmp_path):
    stage = Stage(tmp_path)
    shared, own = os.urandom(LARGE), os.urandom(LARGE)
    stage.write("shared.bin", shared)
    stage.write("twin.bin", shared)
    stage.write("own.bin", own)
    stage.write("small.txt", "0\n")
    messages = []
    with stage.watching("watch", "--profile", "short") as watcher:
        for number in range(KEPT + 6):
            messages.append(stage.session.prompt(f"step {number}"))
            watcher.checkpoint(messages[-1])
            if number == 1:  # of the first messages alone, beside the baseline
                stage.write("only-early.bin", os.urandom(LARGE))
                early = stage.run("mark").out.split()[-1]
                stage.write("only-early.bin", "replaced\n")
            stage.write("small.txt", f"{number + 1}\n")
            stage.write("own.bin", own + bytes([number]))
            stage.session.say()
            settle(stage)
        last = stage.session.prompt("the end")
        watcher.checkpoint(last)
        messages.append(last)
        for message in messages[: -KEPT + 1]:
            refused = stage.json("rewind", message, "--yes", code=1) if message == messages[0] else None
            assert refused is None or refused["reason"] == "evicted"
        logged = [one["message"] for one in stage.json("log")]
        assert logged == messages[::-1][:KEPT]
        assert early not in logged

        refs, named, there = let_go(stage, KEPT + 2)
        assert there == named
        # shared.bin and twin.bin once; own.bin at each kept message, now and at the baseline; nothing of the early one.
        assert len(named) == KEPT + 2
        assert stage.run("check").code == 0

        wanted = messages[-KEPT]
        step = len(messages) - KEPT
        stage.json("rewind", wanted, "--yes")
        assert (stage.project / "own.bin").read_bytes() == own + bytes([step - 1])
        assert (stage.project / "small.txt").read_text() == f"{step}\n"
        assert (stage.project / "shared.bin").read_bytes() == (stage.project / "twin.bin").read_bytes() == shared
        # The first snapshot of each file outlives the cap.
        stage.json("rewind", "baseline", "--all", "--yes")
        assert (stage.project / "own.bin").read_bytes() == own
        assert len(refs) >= len(named)


def test_case_C16_a_content_that_a_kept_checkpoint_shares_with_a_dropped_one_stays(tmp_path):
    stage = Stage(tmp_path)
    back = os.urandom(LARGE)
    stage.write("f.bin", "first\n")
    with stage.watching("watch", "--profile", "short") as watcher:
        watcher.checkpoint(stage.session.prompt("one"))
        stage.write("f.bin", back)
        stage.session.say()
        settle(stage)
        watcher.checkpoint(stage.session.prompt("two"))
        stage.write("f.bin", "between\n")
        stage.session.say()
        settle(stage)
        watcher.checkpoint(stage.session.prompt("three"))
        stage.write("f.bin", back)  # the same bytes again
        stage.session.say()
        settle(stage)
        kept = stage.session.prompt("four")
        watcher.checkpoint(kept)
        stage.write("f.bin", "last\n")
        stage.session.say()
        settle(stage)
        for number in range(KEPT - 1):  # the first three go
            watcher.checkpoint(stage.session.prompt(f"more {number}"))
            stage.session.say()
        assert len(let_go(stage, 1)[1]) == 1
        stage.json("rewind", kept, "--yes")
        assert (stage.project / "f.bin").read_bytes() == back
