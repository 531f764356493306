"""Steps that many scenarios take, and what they read of an answer."""

import time
from collections.abc import Callable
from typing import Any

from tests.builders.claude import ClaudeSession
from tests.builders.stage import Stage, Watcher

PAUSE_S = 0.03  # longer than the stretch in which times are not compared


def pause() -> None:
    """Let the clock get clear of the last step."""
    time.sleep(PAUSE_S)


def turn(
    stage: Stage,
    watcher: Watcher,
    *steps: Callable[[], object],
    session: ClaudeSession | None = None,
    ends: bool = True,
) -> str:
    """Send a message, let the agent work, and let it finish."""
    session = session or stage.session
    message = session.prompt("do it")
    watcher.checkpoint(message)
    for step in steps:
        pause()
        step()
    pause()
    if ends:
        session.say()
        pause()
    return message


def kept(answer: Any) -> dict[str, str]:
    """Give the paths that a rewind left alone, and why."""
    return {one["path"]: one["reason"] for one in answer["kept"]}


def read(stage: Stage, name: str) -> str | None:
    """Give the text of a file of the project; None where there is none."""
    path = stage.project / name
    return path.read_text() if path.exists() else None
