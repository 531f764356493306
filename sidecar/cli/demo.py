"""`sidecar demo`: play a small session in a temporary directory and rewind it, as a person would do it by hand.

A stand-in for an agent writes a transcript and changes files by every means that agents use; a real sidecar watches in
a process of its own; a real `rewind` and `undo` bring the files back. Each claim is checked before it is printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from typing import IO, Any

from sidecar import errors
from sidecar.attach.settings import Settings
from sidecar.cli.output import print_json, say
from sidecar.clock import format_iso

EMPTY: dict[str, Any] = {"demo": {"ok": False}}
PATIENCE_S = 30.0


@dataclass
class _Stage:
    """A temporary home for the session."""

    directory: str
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    last: str | None = None

    @property
    def project(self) -> str:
        return os.path.join(self.directory, "project")

    @property
    def transcript(self) -> str:
        return os.path.join(self.directory, "agent", "projects", "demo", f"{self.session}.jsonl")

    @property
    def environ(self) -> dict[str, str]:
        store, agent = os.path.join(self.directory, "store"), os.path.join(self.directory, "agent")
        return {**os.environ, "SIDECAR_HOME": store, "CLAUDE_CONFIG_DIR": agent, "SIDECAR_DISABLE": ""}

    def sidecar(self, *args: str) -> list[str]:
        """Give the command line of another sidecar."""
        return [sys.executable, "-m", "sidecar", *args]

    def record(self, kind: str, content: object, **more: object) -> str:
        """Append one record as the agent would."""
        record = {
            "parentUuid": self.last,
            "isSidechain": False,
            "type": kind,
            "message": {
                "role": kind,
                "content": content,
                **({"stop_reason": "end_turn"} if kind == "assistant" else {}),
            },
            "uuid": str(uuid.uuid4()),
            "timestamp": format_iso(time.time_ns()),
            "userType": "external",
            "cwd": self.project,
            "sessionId": self.session,
            "version": "demo",
            **more,
        }
        with open(self.transcript, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.last = str(record["uuid"])
        return self.last

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = os.path.join(self.project, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def tree(self) -> dict[str, bytes]:
        """Give every file of the project."""
        found: dict[str, bytes] = {}
        for folder, _, names in os.walk(self.project):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, self.project)] = file.read()
        return found


def demo(args: argparse.Namespace, _settings: Settings) -> int:
    """Play the session and rewind it."""
    tell = (lambda _text: None) if args.json else say
    with tempfile.TemporaryDirectory(prefix="sidecar-demo-") as directory:
        stage = _Stage(os.path.realpath(directory))
        os.makedirs(os.path.dirname(stage.transcript))
        stage.write("app.py", "print('hello')\n")
        stage.write("docs/notes.txt", "keep me\n")
        tell(f"A small project in {stage.project}: {', '.join(sorted(stage.tree()))}")
        stage.record("user", "", isMeta=True)
        command = stage.sidecar("attach", stage.transcript, "--workspace", stage.project, "--json")
        with subprocess.Popen(command, env=stage.environ, stdout=subprocess.PIPE, text=True) as watcher:
            assert watcher.stdout is not None
            try:
                _wait(watcher.stdout, "ready")
                tell("$ sidecar attach …        # in the background, beside the agent")
                message = _play(stage, watcher.stdout, tell)
            finally:
                watcher.terminate()
                watcher.wait(PATIENCE_S)
    tell("Rewound, undone, and every byte compared. That is all there is to it.")
    if args.json:
        print_json({"ok": True, "message": message})
    return 0


def _play(stage: _Stage, events: IO[str], tell: Any) -> str:
    before = stage.tree()
    message = stage.record("user", "tidy up, please", promptSource="typed")
    _wait(events, "checkpoint", message)
    tell(f"You say: tidy up, please   (message {message})")
    stage.write("app.py", "print('goodbye')\n")
    subprocess.run(
        ["sh", "-c", "rm docs/notes.txt && mkdir new && echo made > new/made.txt"], cwd=stage.project, check=True
    )
    stage.record("assistant", [{"type": "text", "text": "done"}])
    after = stage.tree()
    tell(f"The agent edits app.py, deletes docs/notes.txt, makes new/made.txt: {', '.join(sorted(after))}")
    short = message[:8]
    _run(stage, tell, "rewind", short, "--yes")
    _prove(stage.tree() == before, "the rewind did not bring every byte back")
    tell(f"The project is as it was: {', '.join(sorted(stage.tree()))}")
    _run(stage, tell, "undo", "--yes")
    _prove(stage.tree() == after, "the undo did not bring every byte back")
    tell(f"And the agent's work is there again: {', '.join(sorted(stage.tree()))}")
    _run(stage, tell, "rewind", short, "--yes")
    _prove(stage.tree() == before, "the second rewind did not bring every byte back")
    return message


def _run(stage: _Stage, tell: Any, *args: str) -> None:
    tell(f"$ sidecar {' '.join(args)}")
    done = subprocess.run(
        stage.sidecar(*args), cwd=stage.project, env=stage.environ, capture_output=True, text=True, check=False
    )
    for line in (done.stdout + done.stderr).splitlines():
        tell(f"    {line}")
    _prove(done.returncode == 0, f"`sidecar {args[0]}` ended with {done.returncode}")


def _wait(events: IO[str], name: str, message: str | None = None) -> None:
    for line in events:
        event = json.loads(line)
        if event["event"] == name and message in (None, event.get("message")):
            return
    raise errors.RewindFailed(reason=f"the sidecar ended before it said {name}")


def _prove(truth: bool, otherwise: str) -> None:
    if not truth:
        raise errors.RewindFailed(reason=otherwise)
