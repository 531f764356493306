"""Who made a change: computed from its instant and the turns of all sessions. Pure."""

from collections.abc import Iterable, Sequence

from sidecar.clock import MS
from sidecar.model import ABSENT, Origin, Row, Turn

Edits = Sequence[tuple[str, int]]  # (session, instant) of the tool calls that named one path


def origin_of(row: Row, *, after: int, session: str, turns: Iterable[Turn], edits: Edits = ()) -> Origin:
    """Say who made the change that began a row, as a session sees it that looks back to an instant `after`.

    A change that may lie inside a turn or before it is not the turn's: perhaps a person made it. But a removal is:
    to bring back what is gone loses nothing. In two sessions' turns at once it is the one's whose tool call named the
    path, else the other's (it is left alone).
    """
    if row.changed_at <= after:
        return Origin.BEFORE
    turns = list(turns)
    named = any(who == session and when >= row.changed_lo for who, when in edits)
    if row.state != ABSENT and not named and not _begins_in_a_turn(row, turns):
        return Origin.IDLE
    return origin_between(row.changed_lo, row.changed_at, session=session, turns=turns, edits=edits)


def _begins_in_a_turn(row: Row, turns: Iterable[Turn]) -> bool:
    return any(turn.start < row.changed_lo and (turn.end is None or row.changed_lo <= turn.end + MS) for turn in turns)


def origin_between(lo: int, at: int, *, session: str, turns: Iterable[Turn], edits: Edits = ()) -> Origin:
    """Say in whose turns the stretch [lo, at] of instants lies; records cut their times to milliseconds.

    What was there at the very instant of a message came before it, so the turn that it begins did not do it.
    """
    hits = [turn for turn in turns if turn.start < at and (turn.end is None or lo <= turn.end + MS)]
    if not hits:
        return Origin.IDLE
    mine = {(turn.start, turn.end, turn.message) for turn in hits if turn.session == session}
    # A fork repeats the turns of its source: the same turn in both is no other's work. The same milliseconds are no
    # sign of that: two agents may be sent to work at once.
    hits = [
        turn
        for turn in hits
        if turn.session == session or turn.end is None or (turn.start, turn.end, turn.message) not in mine
    ]
    sessions = {turn.session for turn in hits}
    named = {
        who
        for who, when in edits
        if any(t.session == who and t.start <= when and (t.end is None or when <= t.end + MS) for t in hits)
    }
    if session in named and (sessions == {session} or named == {session}):
        return Origin.TOOL
    if sessions == {session}:
        return Origin.TURN
    return Origin.OTHER
