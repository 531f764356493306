"""What a test asks of a store from outside: that nothing in it changed, what it takes, and how a refusal reads."""

import contextlib
import hashlib
import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.builders.stage import PATIENCE_S, Answer, Stage

REWIND_KEYS = {
    *("canRewind", "message", "session", "dryRun", "filesChanged", "insertions", "deletions", "skippedLinks"),
    *("restored", "removed", "kept", "failed", "conversation", "undo", "scanned", "reason", "error", "code"),
}


def hash_of(directory: Path, *, skip: tuple[str, ...] = ()) -> str:
    """Hash every name, kind, mode and byte below a directory, and its own existence."""
    digest = hashlib.sha256()
    if not os.path.lexists(directory):
        return "nothing"
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(folders + names):
            path = os.path.join(folder, name)
            if name.endswith(skip or ("\0",)):
                continue
            status = os.lstat(path)
            digest.update(os.fsencode(os.path.relpath(path, directory)) + b"\0%o\0" % status.st_mode)
            if os.path.isfile(path) and not os.path.islink(path):
                digest.update(Path(path).read_bytes())
    return digest.hexdigest()


def workspace_folder(stage: Stage) -> Path:
    """Give the directory of the only timeline in the store."""
    (found,) = (stage.directory / "store" / "workspaces").iterdir()
    return found


@contextlib.contextmanager
def opened(stage: Stage, *, write: bool = False):
    """Open the only timeline's database beside the program."""
    database = sqlite3.connect(f"file:{workspace_folder(stage) / 'store.db'}?mode={'rw' if write else 'ro'}", uri=True)
    try:
        with database:
            yield database
    finally:
        database.close()


_LIVE = (
    "SELECT * FROM version v WHERE v.to_at IS NULL OR EXISTS (SELECT 1 FROM message m WHERE m.timeline = 1 "
    "AND m.state = 'live' AND m.at >= v.from_at AND m.at < v.to_at)"
)


def rows_of(stage: Stage) -> dict[str, list[Any]]:
    """Give every row that says something of the workspace and its sessions.

    Left out is what a live sidecar writes by itself, now and then: how far watching reaches, and what it lets go of
    because no checkpoint needs it.
    """
    with opened(stage) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        ours = [name for name in names if name not in ("coverage", "sqlite_sequence", "tally", "doomed", "version")]
        queries = {name: f"SELECT * FROM {name}" for name in ours} | {
            "version": _LIVE,
            "blob": f"SELECT id, key, size_bytes, codec, file FROM blob WHERE id IN (SELECT blob FROM ({_LIVE}))",
            "blob_data": f"SELECT * FROM blob_data WHERE blob IN (SELECT blob FROM ({_LIVE}))",
        }
        rows = {name: sorted(map(repr, database.execute(query))) for name, query in queries.items()}
    rows["meta"] = [row for row in rows["meta"] if not row.startswith("('released'")]
    return rows


def settle(stage: Stage) -> None:
    """Have the live capturer write down all that happened, as every rewind does, so that no edit races a message."""
    ask = workspace_folder(stage) / "asks" / f"{secrets.token_hex(8)}.ask"
    ask.touch()
    deadline = time.monotonic() + PATIENCE_S
    while ask.exists():
        assert time.monotonic() < deadline, "the capturer does not answer"
        time.sleep(0.001)


def content_files(stage: Stage) -> list[str]:
    """Give the names of the contents that lie beside the database."""
    return sorted(name for name in os.listdir(workspace_folder(stage) / "blobs") if name != "lock")


def disk_bytes(stage: Stage) -> int:
    """Give what the store takes on the disk, its log included."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, _, names in os.walk(stage.directory / "store")
        for name in names
    )


def assert_sentence(answer: Answer, code: int = 1) -> str:
    """Prove that a command was refused in one sentence, and give it."""
    assert answer.code == code, answer
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err.endswith("\n"), answer.err
    assert "Traceback" not in answer.err, answer.err
    assert len(answer.err.strip()) > 10, answer.err
    return answer.err.strip()
