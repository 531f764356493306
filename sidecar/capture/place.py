"""Where on the timeline a change belongs. Pure.

A content's change instant is its ctime, the parameter `changed_at`. Three things qualify it:

* *Proof.* The state before is certain only until `proved_until`: the last instant at which everything that had
  happened was known and none of it touched the path. If more than one thing happened since, what lay between that
  instant and the ctime of what was read is anybody's guess: an unknown row covers it.
* *Order.* Within [T - before, T + after] of a message's instant T the ctime is not compared with T: kernels stamp by
  ticks, and records cut their times to milliseconds. There the order decides in which the path's events and the
  transcript's append arrived from the kernel, or else the stamps that the kernel gave to both: they come from one
  clock, so that one tick earlier is earlier. Without either the state at T is unknown (`unstable`). What came before
  an append came before the message only if the record was not long in coming.
* *Coverage.* Across a time that nobody watched, the state before ends with the watching (`unknown-then`).

A ctime tells when a file's bytes were written, not since when they lie under this path: a directory that is moved takes
its files along with the stamps that they have. A change that is older than the proof came after it all the same.

A removal has no ctime of its own. It lies between `proved_until` and `changed_at`, and where that interval straddles a
message the path counts as present: creating it again destroys nothing. That is so only where nothing but the removal
happened to it; else what it held in between is unknown, as it is of a path that came and went unread.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from sidecar.model import ABSENT, Kind, Reason, Row, State, unknown


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a change besides what was read."""

    proved_until: int  # the state before certainly stood until here
    single: bool = False  # exactly one thing happened to the path since
    first: int | None = None  # positions of the path's first and
    last: int | None = None  # last event since; None where no event told
    covered: bool = True  # watching was unbroken since proved_until
    absent_since: int | None = None  # for a path without a row: it is known not to have existed from here on
    not_before: int | None = None  # placed among the messages already: the directory that the path is in came then
    gone: bool = False  # and the last thing was its going
    earliest: int | None = None  # of the change, where `changed_at` is only the latest that it can have been
    another: bool = False  # another file took the path: it came with an event, whenever its bytes were written


@dataclass(frozen=True, slots=True)
class Mark:
    """A message's instant, and the positions between which its record was appended."""

    at: int
    first: int | None = None
    last: int | None = None
    appended_at: int | None = None  # the transcript's ctime after the append, or after a later one
    exact: bool = False  # it is that of the append itself: nothing was appended since

    def was_late(self, slack: "Slack") -> bool:
        """Tell whether something may have happened between the message and the append of its record."""
        return self.appended_at is None or self.appended_at > self.at + slack.before


@dataclass(frozen=True, slots=True)
class Slack:
    """Within [T - before, T + after] of a message at T the ctime is not believed; nanoseconds."""

    before: int
    after: int


class Order(Enum):
    """Whether a change came before a message's record, by the order of their events."""

    BEFORE = "before"
    AFTER = "after"
    UNSURE = "unsure"


def order(evidence: Evidence, mark: Mark, slack: Slack) -> Order:
    """Compare the events of a path with the append of a message's record."""
    if mark.first is None or mark.last is None:
        return Order.UNSURE
    if evidence.last is not None and evidence.last < mark.first:
        if mark.was_late(slack):
            return Order.UNSURE
        return Order.BEFORE
    if evidence.first is not None and evidence.first > mark.last:
        return Order.AFTER
    return Order.UNSURE


def order_by_stamps(changed_at: int, mark: Mark, slack: Slack) -> Order:
    """Compare a path's last change with a message's append by the stamps of the kernel's one clock."""
    if mark.appended_at is None or changed_at == mark.appended_at:
        return Order.UNSURE
    if changed_at > mark.appended_at:
        return Order.AFTER
    return Order.BEFORE if mark.exact and not mark.was_late(slack) else Order.UNSURE


def is_doubtful(from_at: int, mark: Mark, slack: Slack) -> bool:
    """Tell whether a row that began when the message was not known yet may be on the wrong side of it."""
    if not mark.at - slack.before <= from_at <= mark.at + slack.after:
        return False
    return order_by_stamps(from_at, mark, slack) is not (Order.AFTER if from_at > mark.at else Order.BEFORE)


def place(
    old: Row | None,
    state: State,
    changed_at: int,
    evidence: Evidence,
    marks: Iterable[Mark],
    slack: Slack,
) -> tuple[Row, ...]:
    """Give the rows that replace `old`, the row that holds now: none if nothing changed.

    The rows are adjacent, begin where `old` begins (or where the path is first known), and the last one holds.
    Rule: DESIGN section 2, "When did it change?".
    """
    relevant = sorted(marks, key=lambda mark: mark.at)
    if state == ABSENT:
        return _place_removal(old, changed_at, evidence, relevant, slack)
    sure_from, from_at, earliest = _interval(old, state, changed_at, evidence, relevant, slack)
    same = old is not None and old.state == state
    if same and evidence.covered and not any(sure_from <= mark.at < from_at for mark in relevant):
        return ()
    # A row that begins after a message that it may straddle was perhaps made before it: its author may have been, too.
    made = (min(earliest, from_at), from_at)
    changed_lo, changed_from = (old.changed_lo, old.changed_at) if old is not None and same else made
    rows = _before(old, sure_from, evidence)
    if rows and sure_from < from_at:
        rows.append(_gap(sure_from, from_at, evidence))
    rows.append(Row(state, from_at, None, changed_lo, changed_from))
    return tuple(rows)


def _interval(
    old: Row | None, state: State, changed_at: int, evidence: Evidence, marks: list[Mark], slack: Slack
) -> tuple[int, int, int]:
    """Give [sure_from, from_at): the stretch over which neither the old state nor the new one is certain.

    And the earliest instant at which the change may have been made.
    """
    sure, start = evidence.proved_until, changed_at
    earliest = changed_at if evidence.earliest is None else evidence.earliest
    if sure >= start or (evidence.single and evidence.covered):
        sure = start
    if state.kind is Kind.UNKNOWN and state.reason is Reason.UNSTABLE:
        start = sure = min(sure, start)  # nothing was read whole: no ctime speaks for it
    for mark in marks:
        near = mark.at - slack.before <= changed_at <= mark.at + slack.after
        verdict = order(evidence, mark, slack)
        if evidence.not_before is not None and mark.at < evidence.not_before:
            verdict = Order.AFTER
        if verdict is Order.AFTER and (
            near or sure <= mark.at < start or state.kind is Kind.UNKNOWN or evidence.another
        ):
            sure, start = max(sure, mark.at + 1), max(start, mark.at + 1)
            earliest = max(earliest, mark.at + 1)
            continue
        if near and verdict is Order.UNSURE:
            verdict = order_by_stamps(changed_at, mark, slack)
        if verdict is Order.AFTER and near:
            # The last change came after; whether it was the only one is what `sure` says.
            sure, start = (max(sure, mark.at + 1) if sure == start else sure), max(start, mark.at + 1)
            earliest = max(earliest, mark.at + 1)
        elif verdict is Order.BEFORE and near:
            start = min(start, mark.at)
            sure = min(sure, start)
        elif verdict is Order.UNSURE and near:
            sure, start = min(sure, mark.at), max(start, mark.at + 1)
    if old is not None:
        sure = max(sure, old.from_at + 1)
    return sure, max(sure, start), earliest


def _place_removal(
    old: Row | None, changed_at: int, evidence: Evidence, marks: list[Mark], slack: Slack
) -> tuple[Row, ...]:
    if old is None or old.state == ABSENT:
        return _place_passing(old, changed_at, evidence, marks, slack)
    earliest, latest = min(evidence.proved_until, changed_at), changed_at
    for mark in marks:
        verdict = order(evidence, mark, slack)
        near = mark.at - slack.before <= latest <= mark.at + slack.after
        if verdict is Order.BEFORE and evidence.gone and (near or earliest <= mark.at < latest):
            latest = min(latest, mark.at)
            earliest = min(earliest, latest)
        elif verdict is Order.AFTER and (near or earliest <= mark.at):
            earliest, latest = max(earliest, mark.at + 1), max(latest, mark.at + 1)
        elif near and order_by_stamps(changed_at, mark, slack) is Order.BEFORE:  # no later than its directory's stamp
            latest = min(latest, mark.at)
            earliest = min(earliest, latest)
        elif near:
            latest = max(latest, mark.at + 1)
    latest = max(latest, old.from_at + 1)
    earliest = max(min(earliest, latest), old.from_at + 1)
    gone = Row(ABSENT, latest, None, earliest, latest)
    if (evidence.covered and evidence.single and evidence.gone) or earliest >= latest:
        return (*_before(old, latest, evidence), gone)
    return (*_before(old, earliest, evidence), _gap(earliest, latest, evidence), gone)


def _place_passing(
    old: Row | None, changed_at: int, evidence: Evidence, marks: list[Mark], slack: Slack
) -> tuple[Row, ...]:
    """Place what came and went before it was read: unknown at every message that it may have been there for."""
    if old is None and evidence.absent_since is None:
        return ()  # nothing is said of the path anyway
    absent_from = old.from_at if old is not None else evidence.absent_since or 0
    since = max(evidence.proved_until, absent_from + 1)
    apart = (Order.AFTER, Order.BEFORE) if evidence.gone else (Order.AFTER,)  # else its going may be yet to be heard of
    near = [mark for mark in marks if since <= mark.at <= changed_at + slack.before]
    straddled = [mark.at for mark in near if order(evidence, mark, slack) not in apart]
    if not straddled:
        return ()
    first, end = straddled[0], straddled[-1] + 1
    return (*_before(old, first, evidence), _gap(first, end, evidence), Row(ABSENT, end, None, first, end))


def _before(old: Row | None, end: int, evidence: Evidence) -> list[Row]:
    if old is not None:
        return [Row(old.state, old.from_at, end, old.changed_lo, old.changed_at)]
    since = evidence.absent_since
    if since is not None and since < end:
        return [Row(ABSENT, since, end, since, since)]
    return []


def _gap(start: int, end: int, evidence: Evidence) -> Row:
    reason = Reason.UNSTABLE if evidence.covered else Reason.UNKNOWN_THEN
    return Row(unknown(reason), start, end, start, start)
