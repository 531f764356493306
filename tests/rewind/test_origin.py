"""Who made a change: the instants of turns, as a table."""

from dataclasses import replace

import pytest

from sidecar.model import ABSENT, Kind, Origin, Row, State, Turn
from sidecar.rewind.origin import origin_of

MS = 1_000_000
ME, OTHER = "me", "other"


def row(lo: int, at: int | None = None) -> Row:
    at = lo if at is None else at
    return Row(ABSENT, at * MS, None, lo * MS, at * MS)


def turn(session: str, start: int, end: int | None) -> Turn:
    return Turn(session, start * MS, None if end is None else end * MS)


MINE = [turn(ME, 100, 200)]
BOTH = [turn(ME, 100, 200), turn(OTHER, 150, 300)]


@pytest.mark.parametrize(
    ("changed", "turns", "edits", "expected"),
    [
        (row(150), MINE, [], Origin.TURN),
        (row(100), MINE, [], Origin.IDLE),  # part of the message's state
        (row(101), MINE, [], Origin.TURN),
        (row(99), MINE, [], Origin.IDLE),
        (row(200), MINE, [], Origin.TURN),
        (row(202), MINE, [], Origin.IDLE),
        (row(150), [turn(ME, 100, None)], [], Origin.TURN),
        (row(190, 250), MINE, [], Origin.TURN),  # straddles the end: the turn's
        (row(50, 110), MINE, [], Origin.TURN),  # straddles the start
        (row(250), BOTH, [], Origin.OTHER),
        (row(160), BOTH, [], Origin.OTHER),  # two turns at once, named by none
        (row(160), BOTH, [(ME, 170 * MS)], Origin.TOOL),
        (row(160), BOTH, [(OTHER, 170 * MS)], Origin.OTHER),
        (row(160), BOTH, [(ME, 170 * MS), (OTHER, 171 * MS)], Origin.OTHER),
        (row(160), BOTH, [(ME, 400 * MS)], Origin.OTHER),  # named, but in another turn
        (row(150), MINE, [(ME, 150 * MS)], Origin.TOOL),
        (row(40), MINE, [], Origin.BEFORE),  # a rewind brought back what is older than the target
    ],
)
def test_origin(changed, turns, edits, expected):
    assert origin_of(changed, after=50 * MS, session=ME, turns=turns, edits=edits) is expected


FILE = State(Kind.FILE, 1, 1, 0o644)


@pytest.mark.parametrize(
    ("lo", "at", "edits", "expected"),
    [
        (101, 101, [], Origin.TURN),
        (95, 101, [], Origin.IDLE),  # perhaps a person wrote it before the message was sent
        (95, 101, [(ME, 110 * MS)], Origin.TOOL),
        (95, 101, [(ME, 60 * MS)], Origin.IDLE),
        (190, 250, [], Origin.TURN),
        (60, 101, [], Origin.IDLE),
    ],
)
def test_what_was_perhaps_written_before_a_turn_is_not_the_turns(lo, at, edits, expected):
    changed = replace(row(lo, at), state=FILE)
    assert origin_of(changed, after=50 * MS, session=ME, turns=MINE, edits=edits) is expected


def test_what_was_written_between_two_turns_that_touch_is_theirs():
    changed = replace(row(195, 201), state=FILE)
    turns = [turn(ME, 100, 200), turn(ME, 200, 300)]
    assert origin_of(changed, after=50 * MS, session=ME, turns=turns) is Origin.TURN
