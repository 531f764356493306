"""A workspace, an agent's home, a store, and the command line: what a scenario is played on.

stage = Stage(tmp_path)
with stage.watching() as watcher:
    message = stage.session.prompt("change it")
    watcher.checkpoint(message)
    stage.shell("echo new > a.txt")
    stage.session.say()
    answer = stage.json("rewind", message, "--yes")
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.claude import ClaudeHome, ClaudeSession

PATIENCE_S = 60.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Watcher:
    """A running `watch` or `attach`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.events: list[Json] = []
        self._queue: queue.Queue[Json | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def wait(self, event: str, **parts: object) -> Json:
        """Wait for an event that has these parts; those heard before count too."""
        for old in self.events:
            if _fits(old, event, parts):
                return old
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                new = self._queue.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
            if new is None:
                break
            self.events.append(new)
            if _fits(new, event, parts):
                return new
        code = self.process.poll()
        raise AssertionError(f"no {event} {parts}; exit code {code}; heard {self.events}")

    def checkpoint(self, message: str) -> Json:
        """Wait until a message's checkpoint is announced."""
        return self.wait("checkpoint", message=message)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and give its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def _fits(event: Json, name: str, parts: dict[str, object]) -> bool:
    return event["event"] == name and all(event.get(key) == value for key, value in parts.items())


@dataclass
class Stage:
    """Everything a scenario needs, below one directory."""

    directory: Path
    project: Path = field(init=False)
    home: ClaudeHome = field(init=False)
    session: ClaudeSession = field(init=False)

    def __post_init__(self) -> None:
        self.project = self.directory / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        self.home = ClaudeHome(self.directory / "claude")
        self.session = self.home.session(self.project)

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, **self.home.environ, "SIDECAR_HOME": str(self.directory / "store")}

    # Files ----------------------------------------------------------------------------------------------------------

    def write(self, name: str | bytes, content: bytes | str, mode: int | None = None) -> None:
        """Write a file of the project in place."""
        path = os.path.join(os.fsencode(self.project), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            os.chmod(path, mode)

    def shell(self, command: str) -> None:
        """Run a command in the project, as an agent's shell tool does."""
        subprocess.run(["bash", "-ec", command], cwd=self.project, check=True)

    def tree(self) -> dict[bytes, tuple[object, ...]]:
        """Give every path of the project: kind, mode, and bytes or link target."""
        found: dict[bytes, tuple[object, ...]] = {}
        top = os.fsencode(self.project)
        for folder, folders, files in os.walk(top):
            for name in folders + files:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                relative = os.path.relpath(path, top)
                if os.path.islink(path):
                    found[relative] = ("link", os.readlink(path))
                elif os.path.isdir(path):
                    found[relative] = ("directory", status.st_mode & 0o7777)
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        found[relative] = ("file", status.st_mode & 0o7777, file.read())
        return found

    # The command line -----------------------------------------------------------------------------------------------

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "sidecar", *args]

    def run(self, *args: str, cwd: Path | None = None, environ: dict[str, str] | None = None) -> Answer:
        """Run a verb and give what it said."""
        done = subprocess.run(
            self.command(*args),
            cwd=cwd or self.project,
            env={**self.environ, **(environ or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def json(self, *args: str, code: int = 0) -> Any:
        """Run a verb with --json, prove its exit code and give its answer."""
        answer = self.run(*args, "--json")
        assert answer.code == code, (args, answer)
        assert "Traceback" not in answer.err, answer.err
        return answer.json

    @contextlib.contextmanager
    def watching(self, *args: str, ready: bool = True) -> Iterator[Watcher]:
        """Run `watch` in the project (or what `args` say) until the block ends."""
        command = self.command(*(args or ("watch",)), "--json")
        with subprocess.Popen(
            command, cwd=self.project, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            watcher = Watcher(process)
            try:
                if ready:
                    watcher.wait("ready")
                yield watcher
            finally:
                watcher.stop()

    def attach_once(self, *more: str) -> Answer:
        """Catch up with the session and leave."""
        answer = self.run("attach", str(self.session.transcript), "--once", "--json", *more)
        assert answer.code == 0, answer
        return answer
