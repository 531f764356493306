"""What the records of a session mean, whatever the order in which they come and however often they are read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.attach.digest import Digest, News
from sidecar.checkpoint.plan import Reading
from sidecar.clock import MS
from sidecar.model import Event, TurnEnd, UserMessage
from sidecar.store.workspace import Workspace
from tests.store.timeline import attach, open_timeline, small_policy

READ = 1_000_000 * MS  # long after everything here


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    opened = open_timeline(str(tmp_path))
    with opened.opened():
        attach(opened, "s", 100, 1)
        yield opened


def prompt(number: int, at_ms: int) -> UserMessage:
    return UserMessage("s", f"m{number}", at_ms * MS, None, number, "do it")


def end(number: int, at_ms: int) -> TurnEnd:
    return TurnEnd("s", at_ms * MS, number)


def read(workspace: Workspace, *events: Event, by: Digest | None = None) -> Digest:
    """Read records one by one, as they come live."""
    row = workspace.instants.session("s")
    assert row is not None
    digest = by or Digest(workspace, row, small_policy())
    for event in events:
        news = [News(event, Reading(READ, 1, READ, None, newest=True), subagent=False)]
        with workspace.database.transaction():
            digest.write(news, digest.messages(news, lambda _uuid: False))
    return digest


def turns_of(workspace: Workspace) -> list[tuple[int, int | None]]:
    found = workspace.turns.all(now=READ, timeout=READ)
    return [(turn.start // MS, None if turn.end is None else turn.end // MS) for turn in found]


ORDERS: list[tuple[list[Event], list[tuple[int, int | None]]]] = [
    ([prompt(0, 100), end(1, 200), prompt(2, 200)], [(100, 200), (200, None)]),
    ([prompt(0, 100), prompt(1, 100), end(2, 100)], [(100, 100), (100, 100)]),
    ([prompt(0, 100), end(1, 200), prompt(2, 200), end(3, 200)], [(100, 200), (200, 200)]),
    # a message whose record comes late: inside a turn, between two, after its own end
    ([prompt(0, 100), end(1, 200), prompt(2, 150)], [(100, 200), (150, 200)]),
    ([prompt(0, 100), prompt(1, 300), prompt(2, 250), end(3, 400)], [(100, 300), (250, 300), (300, 400)]),
    ([prompt(0, 100), end(1, 200), end(2, 300), prompt(3, 250)], [(100, 200), (250, 300)]),
]


@pytest.mark.parametrize(("events", "turns"), ORDERS)
def test_turns_are_the_same_however_often_the_records_are_read(
    workspace: Workspace, events: list[Event], turns: list[tuple[int, int | None]]
) -> None:
    digest = read(workspace, *events)
    assert turns_of(workspace) == turns
    read(workspace, *events, by=digest)
    assert turns_of(workspace) == turns
    read(workspace, *events)
    assert turns_of(workspace) == turns
