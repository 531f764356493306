"""What the files really were at each message, and whether the command line says the same.

truth = Truth(stage)
message = truth.prompt("change it")       # the record is appended, and the files as they are now are noted
...
assert truth.verdicts(message) == {}      # nothing wrong; `unsure` lists what nobody claims to know
"""

import contextlib
import io
import os
import sys
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from sidecar.attach.settings import load_settings
from sidecar.cli.looking import state_then
from sidecar.cli.main import main
from sidecar.cli.resolve import find_checkpoint
from sidecar.model import Kind
from tests.builders.claude import ClaudeSession
from tests.builders.stage import Answer, Stage


def say(stage: Stage, *args: str) -> tuple[Answer, bytes]:
    """Run a verb in this process: the command line without starting an interpreter for each question."""
    out, err = io.BytesIO(), io.StringIO()
    text = io.TextIOWrapper(out, "utf-8", errors="surrogateescape", write_through=True)
    with (
        mock.patch.dict(os.environ, stage.environ),
        contextlib.chdir(stage.project),
        mock.patch.object(sys, "stdout", text),
        contextlib.redirect_stderr(err),
    ):
        code = main(args)
    said = out.getvalue()
    return Answer(code, said.decode("utf-8", "surrogateescape"), err.getvalue()), said


@dataclass
class Truth:
    """A record of the files at each message, kept by the test itself."""

    stage: Stage
    then: dict[str, dict[bytes, bytes]] = field(default_factory=dict)  # message -> path -> bytes
    paths: set[bytes] = field(default_factory=set)

    def files(self) -> dict[bytes, bytes]:
        """Give every file of the project as it is now."""
        tree = self.stage.tree()
        return {path: value[2] for path, value in tree.items() if value[0] == "file"}  # type: ignore[misc]

    def prompt(self, text: str, session: ClaudeSession | None = None, **fields: Any) -> str:
        """Send a prompt, and note what the files are at that instant; nothing else may be writing."""
        now = self.files()
        message = (session or self.stage.session).prompt(text, **fields)
        self.note(message, now)
        return message

    def note(self, message: str, files: dict[bytes, bytes]) -> None:
        """Note what the files were at a message."""
        self.then[message] = files
        self.paths.update(files)

    def compare(self, message: str) -> tuple[list[str], list[str]]:
        """Look up every path that ever was at a message, as `show MESSAGE:PATH` does; give the wrong and the unsure."""
        wrong, unsure = [], []
        self.paths.update(self.files())
        with mock.patch.dict(os.environ, self.stage.environ):
            found, checkpoint = find_checkpoint(load_settings(), message, None, str(self.stage.project))
            with found.workspace.opened():
                for path in sorted(self.paths):
                    true = self.then[message].get(path)
                    state = state_then(found.workspace, checkpoint, path)
                    if state is None or state.kind is Kind.UNKNOWN:
                        unsure.append(os.fsdecode(path))
                        continue
                    said = found.workspace.blobs.get(state.blob) if state.blob is not None else None
                    if said != true:
                        wrong.append(f"{path!r} at {message}: {state.kind} {said!r:.60} instead of {true!r:.60}")
        return wrong, unsure

    def prove(self, messages: list[str] | None = None) -> list[str]:
        """Prove that nothing wrong is said of any message; give `MESSAGE PATH` of what is not known."""
        wrong, unsure = [], []
        for message in messages if messages is not None else list(self.then):
            bad, unknown = self.compare(message)
            wrong += bad
            unsure += [f"{message} {path}" for path in unknown]
        assert not wrong, "\n".join(wrong)
        return unsure
