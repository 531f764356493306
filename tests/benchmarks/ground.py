"""What is measured: a tree of real text, the sidecar beside it, and a shadow git repository of the same tree."""

import itertools
import os
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from sidecar.agents import registry
from sidecar.attach.loop import Sidecar
from sidecar.attach.rewinding import Request, Rewinding
from sidecar.attach.settings import load_settings
from sidecar.store.workspace import open_for_root
from tests.builders.claude import ClaudeHome

TEXT = {".py", ".pyi", ".txt", ".md", ".json", ".h", ".toml", ".rst"}
LARGEST_BYTES = 200_000


def texts() -> list[tuple[str, bytes]]:
    """Give the text files of the installed packages."""
    top = Path(sysconfig.get_path("purelib"))
    found = [path for path in sorted(top.rglob("*")) if path.suffix in TEXT and path.is_file()]
    return [(str(path.relative_to(top)), path.read_bytes()) for path in found if path.stat().st_size <= LARGEST_BYTES]


def build_tree(top: Path, files: int) -> None:
    """Write so many files of real text; where they do not suffice again, each copy a little different."""
    sources = texts()
    everything = ((copy, name, content) for copy in itertools.count() for name, content in sources)
    for copy, name, content in itertools.islice(everything, files):
        path = top / f"part-{copy}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content + f"\n# {copy}\n".encode() if copy else content)


def some_files(top: Path, count: int) -> list[Path]:
    """Give files of a tree, spread over it; always the same ones."""
    found = sorted(path for path in top.rglob("*.py") if path.is_file())
    return found[:: max(1, len(found) // count)][:count]


def edit(paths: list[Path], what: object) -> None:
    """Change files as an editor does, and let the file system's tick pass, as it does in life."""
    for path in paths:
        path.write_bytes(path.read_bytes() + f"# {what}\n".encode())
    time.sleep(0.02)


class ShadowGit:
    """A repository beside the tree that commits all of it, as other checkpointers do.

    It never packs itself: that would go on in the background, in somebody else's measurement.
    """

    def __init__(self, directory: Path, tree: Path) -> None:
        self.directory = directory
        self._git = ["git", f"--git-dir={directory}", f"--work-tree={tree}"]
        self._environ = {
            **os.environ,
            **{
                f"GIT_{who}_{what}": "shadow@example.com"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        self.run("init", "-q")
        self.run("config", "gc.auto", "0")

    def run(self, *args: str) -> str:
        done = subprocess.run([*self._git, *args], env=self._environ, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> None:
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", "state")

    def head(self) -> str:
        return self.run("rev-parse", "HEAD")

    def go_back(self, commit: str) -> None:
        self.run("checkout", "-q", "-f", commit, "--", ".")


class Ours:
    """The sidecar in this process, stepped by hand; it runs by itself while it is asked for something."""

    def __init__(self, directory: Path, tree: Path, *, profile: str = "default") -> None:
        self.tree = tree
        self.store = directory / "store"
        self.session = ClaudeHome(directory / "claude").session(tree, history=False)
        environ = {"CLAUDE_CONFIG_DIR": str(directory / "claude"), "SIDECAR_HOME": str(self.store)}
        self._environ = mock.patch.dict(os.environ, environ)
        self._environ.start()
        self.settings = load_settings()
        self.cap = self.settings.cap(profile)
        self.events: list[dict[str, Any]] = []
        self.sidecar: Sidecar | None = None

    def enter(self) -> None:
        """Begin to capture the tree: the baseline, or what has changed since the last one."""
        self.sidecar = Sidecar(self.settings, self.events.append, cap=self.cap)
        self.sidecar.enter(str(self.tree))

    def follow(self) -> None:
        """Follow the session."""
        assert self.sidecar is not None
        self.session.prompt("begin")
        for found in registry()["claude-code"].find_in(str(self.session.transcript)):
            self.sidecar.attach(registry()["claude-code"], found, str(self.tree))

    def message(self) -> str:
        """Let a person send a message; it is not read yet."""
        return self.session.prompt("go on")

    def checkpoint(self) -> None:
        """Do one round of the running sidecar."""
        assert self.sidecar is not None
        self.sidecar.step()
        assert self.events[-1]["event"] in ("checkpoint", "evicted"), self.events[-1]

    def go_back(self, message: str) -> None:
        """Rewind all files, as another process does."""
        with self._opened() as workspace:
            checkpoint = workspace.instants.get(self.session.session, message)
            assert checkpoint is not None
            done = Rewinding(workspace, self.settings).carry_out(
                Request(checkpoint, everything=True), lambda _done: None
            )
            assert done is not None and not done.prepared.scanned

    def runs(self) -> "Running":
        """Let the sidecar run by itself."""
        assert self.sidecar is not None
        return Running(self.sidecar)

    def payload(self) -> tuple[int, int]:
        """Give the bytes of all contents that are kept, and those of the store's files."""
        with self._opened() as workspace:
            (kept,) = workspace.database.one("SELECT bytes FROM tally")
        files = (path for path in self.store.rglob("*") if path.is_file())
        return int(kept), sum(path.stat().st_blocks * 512 for path in files)

    def leave(self) -> None:
        """Stop the sidecar."""
        if self.sidecar is not None:
            self.sidecar.close()
            self.sidecar = None

    def close(self) -> None:
        self.leave()
        self._environ.stop()

    def _opened(self) -> Any:
        workspace = open_for_root(str(self.tree), self.settings.checkpoints, create=False)
        assert workspace is not None
        return _Opened(workspace)


class _Opened:
    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace

    def __enter__(self) -> Any:
        return self._workspace

    def __exit__(self, *_: object) -> None:
        self._workspace.close()


class Running:
    """The sidecar's loop in a thread."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=sidecar.run, args=(self._stopped.is_set,))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        assert self._sidecar.watcher is not None
        self._sidecar.watcher.wake()
        self._thread.join()


def stat_walk(top: Path) -> int:
    """Look at every entry of a tree and at nothing else: what any comparison must cost at least."""
    count = 0
    waiting: list[str] = [str(top)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                count += status.st_size >= 0
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return count


def raw_copies(directory: Path, paths: list[Path]) -> Iterator[int]:
    """Copy files whole, as the reference does, and give what they take."""
    for number, path in enumerate(paths):
        target = directory / str(number)
        target.write_bytes(path.read_bytes())
        yield target.stat().st_blocks * 512
