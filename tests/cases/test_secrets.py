"""C40: nobody but the owner can read what is kept, whatever the umask; a private file comes back private."""

import contextlib
import os
import stat as bits
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.stage import Stage

SECRET = "API_KEY=very-secret\n"


@pytest.fixture(params=[0o022, 0o000, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def modes(top: Path) -> dict[str, int]:
    """Give the modes of everything below a directory; what goes while we look is passed over."""
    found = {str(top): bits.S_IMODE(top.lstat().st_mode)}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            found[os.path.join(folder, name)] = bits.S_IMODE(status.st_mode)
    return found


class Onlooker(threading.Thread):
    """Looks at the modes of the store, and of our staging in the workspace, all the while."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self.stage = stage
        self.open: dict[str, int] = {}
        self.seen: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        store = self.stage.directory / "store"
        while not self.over.is_set():
            if store.is_dir():
                found = modes(store)
                self.seen.update(os.path.basename(path) for path in found)
                self.open.update({path: mode for path, mode in found.items() if mode & 0o077})
            for entry in os.scandir(self.stage.project):
                if entry.name.startswith(".sidecar-"):
                    self.seen.add("staging")
                    with contextlib.suppress(FileNotFoundError):
                        mode = bits.S_IMODE(os.lstat(entry.path).st_mode)
                        self.open.update({entry.path: mode} if mode & 0o077 else {})

    def __enter__(self) -> "Onlooker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


def test_case_C40_the_store_is_private_at_every_moment(tmp_path, umask):
    stage = Stage(tmp_path)
    stage.write(".env", SECRET, 0o600)
    stage.write("big.bin", os.urandom(300_000), 0o600)
    stage.write("public.txt", "public\n", 0o644)
    with Onlooker(stage) as onlooker:
        with stage.watching() as watcher:
            first = stage.session.prompt("change the secrets")
            watcher.checkpoint(first)
            before = stage.tree()
            stage.shell("echo API_KEY=other > .env; rm big.bin; chmod 600 public.txt")
            stage.session.say()
            watcher.checkpoint(stage.session.prompt("next"))
            stage.session.say()
            stage.json("rewind", first, "--yes")
            assert stage.tree() == before
            stage.json("undo", "--yes")
            stage.json("rewind", first, "--yes")
            stage.json("mark", "by hand")
        stage.attach_once()
        stage.run("check")
    assert onlooker.open == {}
    assert {"store.db", "store.db-wal", "store.db-shm", "blobs", "locks", "asks"} <= onlooker.seen
    found = modes(tmp_path / "store")
    assert {mode for path, mode in found.items() if os.path.isdir(path)} == {0o700}
    assert {path: mode for path, mode in found.items() if os.path.isfile(path) and mode != 0o600} == {}
    assert bits.S_IMODE((stage.project / ".env").stat().st_mode) == 0o600
    assert (stage.project / ".env").read_text() == SECRET


@pytest.mark.parametrize("change", ["echo API_KEY=other > .env", "rm .env", "mv .env env.bak", "chmod 644 .env"])
def test_case_C40_a_private_file_comes_back_private(tmp_path, change):
    """Also where git ignores it, which is where such files are."""
    stage = Stage(tmp_path)
    stage.write(".gitignore", ".env\n*.pem\n")
    stage.write(".env", SECRET, 0o600)
    stage.write("keys/id.pem", SECRET, 0o400)
    (stage.project / "keys").chmod(0o700)
    with stage.watching() as watcher:
        first = stage.session.prompt("touch the secrets")
        watcher.checkpoint(first)
        before = stage.tree()
        stage.shell(change)
        stage.shell("rm -r keys")
        stage.session.say()
        stage.json("rewind", first, "--yes")
        assert stage.tree() == before
        assert before[b".env"] == ("file", 0o600, SECRET.encode())
        assert before[b"keys"] == ("directory", 0o700)


def test_case_C40_a_store_that_others_can_read_is_made_private(tmp_path):
    stage = Stage(tmp_path)
    stage.write(".env", SECRET, 0o600)
    stage.session.prompt("one")
    stage.attach_once()
    store = tmp_path / "store"
    for path in [store, *store.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    stage.session.prompt("two")
    stage.attach_once()
    assert modes(store)[str(store)] == 0o700, "nobody comes past it"


def test_case_C40_nothing_that_is_printed_shows_a_secret_unasked(tmp_path):
    stage = Stage(tmp_path)
    stage.write(".env", SECRET, 0o600)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        stage.write(".env", "API_KEY=other\n")
        stage.session.say()
        said = ""
        for verb in (["status"], ["log", "--all"], ["rewind", first, "--dry-run"], ["diff", first], ["show", first]):
            answer = stage.run(*verb, *(["--json"] if verb[0] != "diff" else []))
            said += answer.out + answer.err
        done = stage.run("rewind", first, "--yes")
        said += done.out + done.err + json_lines(watcher)
        assert "very-secret" not in said


def json_lines(watcher: object) -> str:
    return repr(getattr(watcher, "events", []))
