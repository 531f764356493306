"""When a turn began and ended, whatever the order in which that was heard."""

from sidecar.clock import MS
from sidecar.model import CheckpointKind, Turn
from sidecar.store.workspace import Workspace

NEVER = 10**15  # longer than any turn's silence here


def prompt(workspace: Workspace, at: int, offset: int) -> None:
    workspace.instants.add(
        "s", f"m{offset}", at=at, kind=CheckpointKind.MESSAGE, timeline=True, offset=offset, state="live"
    )
    workspace.turns.begin("s", at)


def turns_of(workspace: Workspace) -> list[tuple[int, int | None]]:
    return [(turn.start // MS, None if turn.end is None else turn.end // MS) for turn in all_turns(workspace)]


def all_turns(workspace: Workspace) -> list[Turn]:
    return workspace.turns.all(now=NEVER, timeout=NEVER)


def test_an_end_in_the_millisecond_of_the_next_message_is_not_that_ones(workspace: Workspace) -> None:
    """A transcript is read more than once: the second time the next message is known when the end is read."""
    with workspace.database.transaction():
        prompt(workspace, 100 * MS, offset=0)
        assert workspace.turns.end("s", 200 * MS, offset=10)
        prompt(workspace, 200 * MS, offset=20)
        assert not workspace.turns.end("s", 200 * MS, offset=10)
        assert turns_of(workspace) == [(100, 200), (200, None)]
        assert workspace.turns.end("s", 200 * MS, offset=30)
        assert turns_of(workspace) == [(100, 200), (200, 200)]


def test_of_two_messages_of_one_millisecond_an_end_is_that_of_the_one_before_it(workspace: Workspace) -> None:
    with workspace.database.transaction():
        prompt(workspace, 100 * MS, offset=0)
        prompt(workspace, 100 * MS + 1_000, offset=10)
        assert workspace.turns.end("s", 100 * MS, offset=20)
    first, second = all_turns(workspace)
    assert first.end == second.start
    assert second.end == second.start  # no earlier than it began


def test_an_end_that_no_record_tells_ends_what_is_open(workspace: Workspace) -> None:
    with workspace.database.transaction():
        prompt(workspace, 100 * MS, offset=500)
        assert workspace.turns.end("s", 100 * MS)
    assert turns_of(workspace) == [(100, 100)]


def test_an_end_is_only_told_once(workspace: Workspace) -> None:
    with workspace.database.transaction():
        prompt(workspace, 100 * MS, offset=0)
        assert workspace.turns.end("s", 200 * MS, offset=10)
        assert not workspace.turns.end("s", 300 * MS, offset=20)
        assert not workspace.turns.end("s", 50 * MS, offset=30)
    assert turns_of(workspace) == [(100, 200)]
