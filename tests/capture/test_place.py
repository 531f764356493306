"""Where a change belongs: each rule of `place` as a table."""

import itertools
from dataclasses import replace

import pytest

from sidecar.capture.place import Evidence, Mark, Slack, is_doubtful, place
from sidecar.model import ABSENT, Kind, Reason, Row, State, unknown

MS = 1_000_000
SLACK = Slack(10 * MS, 1 * MS)
A = State(Kind.FILE, blob=1, size_bytes=1, mode=0o644)
B = State(Kind.FILE, blob=2, size_bytes=1, mode=0o644)
OLD = Row(A, 100 * MS, None, 100 * MS, 100 * MS)
T = 1_000 * MS


def states(rows, *instants):
    """Give what the rows say at each instant; None where they say nothing."""
    return [
        next((r.state for r in rows if r.from_at <= at and (r.to_at is None or at < r.to_at)), None) for at in instants
    ]


def adjacent(rows):
    return all(one.to_at == other.from_at for one, other in itertools.pairwise(rows)) and rows[-1].to_at is None


UNSTABLE, UNKNOWN_THEN = unknown(Reason.UNSTABLE), unknown(Reason.UNKNOWN_THEN)


@pytest.mark.parametrize(
    ("name", "changed_at", "evidence", "marks", "at_t"),
    [
        ("a change well before the message is in it", T - 50 * MS, Evidence(T - 60 * MS), [Mark(T)], B),
        ("a change well after the message is not", T + 50 * MS, Evidence(T + 1), [Mark(T)], A),
        ("once changed, after: the old state stands", T + 50 * MS, Evidence(T - 60 * MS, single=True), [Mark(T)], A),
        ("changed more than once around it: nobody knows", T + 50 * MS, Evidence(T - 60 * MS), [Mark(T)], UNSTABLE),
        (
            "changed more than once, all after its record",
            T + 50 * MS,
            Evidence(T - 60 * MS, first=8, last=9),
            [Mark(T, 5, 7)],
            A,
        ),
        ("near, and no order to tell", T + MS // 2, Evidence(T + MS), [Mark(T)], UNSTABLE),
        ("near, ordered before", T + MS // 2, Evidence(T - 60 * MS, first=3, last=4), [Mark(T, 5, 5, T + MS)], B),
        ("near, before a late append", T - MS, Evidence(T - 60 * MS, last=4), [Mark(T, 5, 5, T + 90 * MS)], UNSTABLE),
        (
            "near, stamped before a late append",
            T - MS,
            Evidence(T - 60 * MS),
            [Mark(T, None, None, T + 90 * MS, exact=True)],
            UNSTABLE,
        ),
        ("near, ordered after", T - 5 * MS, Evidence(T - 60 * MS, first=6, last=6), [Mark(T, 5, 5)], A),
        (
            "near, in the middle of two appends",
            T - 5 * MS,
            Evidence(T - 60 * MS, first=6, last=6),
            [Mark(T, 5, 7)],
            UNSTABLE,
        ),
        ("near, stamped before the append", T - MS, Evidence(T - 60 * MS), [Mark(T, 5, 7, T + MS, exact=True)], B),
        ("near, stamped after the append", T + MS // 2, Evidence(T + 1), [Mark(T, 5, 7, T + MS // 4)], A),
        ("near, stamped after it, and not once", T + MS // 2, Evidence(T - MS), [Mark(T, 5, 7, T + 1)], UNSTABLE),
        ("near, stamped with it", T + MS // 2, Evidence(T - MS), [Mark(T, 5, 5, T + MS // 2, exact=True)], UNSTABLE),
        ("near, stamped before one of two appends", T - MS, Evidence(T - 60 * MS), [Mark(T, 5, 7, T + MS)], UNSTABLE),
        ("far before, whatever the order", T - 11 * MS, Evidence(T - 60 * MS, first=6, last=6), [Mark(T, 5, 5)], B),
        ("nobody watched", T + 50 * MS, Evidence(T - 60 * MS, single=True, covered=False), [Mark(T)], UNKNOWN_THEN),
        ("nobody watched, changed before", T - 50 * MS, Evidence(T - 60 * MS, covered=False), [Mark(T)], B),
    ],
)
def test_the_state_at_a_message(name, changed_at, evidence, marks, at_t):
    rows = place(OLD, B, changed_at, evidence, marks, SLACK)
    assert adjacent(rows), name
    assert rows[0].from_at == OLD.from_at
    assert rows[-1].state == B
    assert states(rows, T) == [at_t], name


def test_an_edit_5_ms_after_the_message_does_not_leak():
    rows = place(OLD, B, T + 5 * MS, Evidence(T, first=6, last=7), [Mark(T, 5, 5)], SLACK)
    assert states(rows, T, T + 5 * MS) == [A, B]


def test_same_bytes_again_are_no_change():
    assert place(OLD, A, T, Evidence(T - MS), [], SLACK) == ()


def test_same_bytes_after_more_than_one_change_around_a_message_are_not_claimed_for_it():
    rows = place(OLD, A, T + 50 * MS, Evidence(T - 50 * MS), [Mark(T)], SLACK)
    assert states(rows, T - 60 * MS, T, T + 60 * MS) == [A, UNSTABLE, A]
    assert rows[-1].changed_at == OLD.changed_at


def test_same_bytes_after_a_time_that_nobody_watched_keep_their_author_but_not_the_gap():
    rows = place(OLD, A, T + 50 * MS, Evidence(T - 50 * MS, covered=False), [], SLACK)
    assert states(rows, T - 60 * MS, T, T + 60 * MS) == [A, UNKNOWN_THEN, A]
    assert rows[-1].changed_at == OLD.changed_at


def test_a_new_path_is_absent_since_its_folder_was_listed():
    rows = place(None, B, T, Evidence(T, absent_since=200 * MS), [], SLACK)
    assert states(rows, 150 * MS, 200 * MS, T - 1, T) == [None, ABSENT, ABSENT, B]


def test_a_new_path_of_a_folder_never_listed_is_unknown_before():
    rows = place(None, B, T, Evidence(T), [], SLACK)
    assert states(rows, T - 1, T) == [None, B]


@pytest.mark.parametrize(
    ("evidence", "marks", "at_t"),
    [
        (Evidence(T - 50 * MS, single=True, gone=True), [Mark(T)], A),  # straddles: counts as present
        (Evidence(T - 50 * MS, True, 3, 3), [Mark(T)], UNSTABLE),  # its going was not heard of: what was?
        (Evidence(T - 50 * MS), [Mark(T)], UNSTABLE),  # and was perhaps written before it went
        (Evidence(T - 50 * MS, first=3, last=8), [Mark(T, 5, 5, T + MS)], UNSTABLE),
        (Evidence(T - 50 * MS, first=3, last=3, gone=True), [Mark(T, 5, 5, T + MS)], ABSENT),  # the order says: before
        (Evidence(T - 50 * MS, first=3, last=3), [Mark(T, 5, 5, T + MS)], UNSTABLE),  # of another thing that happened
        (Evidence(T - 50 * MS, True, 3, 3, gone=True), [Mark(T, 5, 5, T + 90 * MS)], A),  # only before a late append
        (Evidence(T - 50 * MS, first=6, last=6), [Mark(T, 5, 5)], A),
        (Evidence(T - 50 * MS, covered=False), [Mark(T)], UNKNOWN_THEN),
    ],
)
def test_a_removal_is_an_interval(evidence, marks, at_t):
    rows = place(OLD, ABSENT, T + 50 * MS, evidence, marks, SLACK)
    assert adjacent(rows)
    assert states(rows, T, T + 51 * MS) == [at_t, ABSENT]


def test_a_removal_remembers_how_early_it_may_have_been():
    (_, gone) = place(OLD, ABSENT, T + 50 * MS, Evidence(T - 50 * MS, single=True, gone=True), [], SLACK)
    assert (gone.changed_lo, gone.changed_at) == (T - 50 * MS, T + 50 * MS)


def test_a_change_whose_stamp_tells_nothing_was_made_any_time_since_the_proof():
    evidence = Evidence(T - 50 * MS, earliest=T - 50 * MS)
    made = place(OLD, B, T + 50 * MS, evidence, [Mark(T)], SLACK)[-1]
    assert (made.changed_lo, made.changed_at) == (T - 50 * MS, T + 50 * MS)


NOTHING = Row(ABSENT, 100 * MS, None, 100 * MS, 100 * MS)


@pytest.mark.parametrize(
    ("old", "evidence", "marks", "at_t"),
    [
        (NOTHING, Evidence(T - 50 * MS, first=3, last=9), [Mark(T, 5, 5)], UNSTABLE),
        (NOTHING, Evidence(T - 50 * MS, first=3, last=3), [Mark(T)], UNSTABLE),
        (NOTHING, Evidence(T - 50 * MS, first=3, last=4), [Mark(T, 5, 5, T)], UNSTABLE),  # its end was not heard of yet
        (NOTHING, Evidence(T - 50 * MS, first=3, last=4, gone=True), [Mark(T, 5, 5, T)], None),  # it had gone
        (NOTHING, Evidence(T - 50 * MS, first=6, last=9), [Mark(T, 5, 5)], None),  # it came after
        (NOTHING, Evidence(T + MS, first=3, last=9), [Mark(T)], None),  # nothing was there yet
        (NOTHING, Evidence(T - 50 * MS, first=3, last=9), [], None),
        (None, Evidence(T - 50 * MS, first=3, last=9, absent_since=MS), [Mark(T)], UNSTABLE),
        (None, Evidence(T - 50 * MS, first=3, last=9), [Mark(T)], None),
    ],
)
def test_what_came_and_went_unread_was_perhaps_there(old, evidence, marks, at_t):
    rows = place(old, ABSENT, T + 50 * MS, evidence, marks, SLACK)
    assert bool(rows) is (at_t is not None)
    assert not rows or (adjacent(rows) and states(rows, T - MS, T, T + 1) == [ABSENT, at_t, ABSENT])


def test_another_file_that_came_after_a_message_was_not_there_before_however_old_its_bytes_are():
    evidence = Evidence(T - 500 * MS, single=True, first=6, last=6)
    marks = [Mark(T, 5, 5)]
    assert states(place(OLD, B, T - 50 * MS, evidence, marks, SLACK), T) == [B]  # held open by its writer
    assert states(place(OLD, B, T - 50 * MS, replace(evidence, another=True), marks, SLACK), T, T + 1) == [A, B]


def test_what_could_not_be_read_whole_is_unsure_from_the_first_sign_on():
    rows = place(OLD, UNSTABLE, T + 50 * MS, Evidence(T - 50 * MS), [Mark(T)], SLACK)
    assert states(rows, T - 51 * MS, T) == [A, UNSTABLE]


def test_a_ctime_older_than_the_row_still_gives_adjacent_rows():
    rows = place(OLD, B, 50 * MS, Evidence(50 * MS), [], SLACK)
    assert adjacent(rows)
    assert rows[-1].from_at > OLD.from_at


@pytest.mark.parametrize(
    ("from_at", "mark", "doubtful"),
    [
        (T - 11 * MS, Mark(T), False),
        (T + 2 * MS, Mark(T), False),
        (T - MS, Mark(T), True),
        (T - MS, Mark(T, appended_at=T + MS, exact=True), False),  # stamped before the append
        (T - MS, Mark(T, appended_at=T + 90 * MS, exact=True), True),  # which says nothing if that was late
        (T - 3 * MS, Mark(T, appended_at=T - 4 * MS), True),  # stamped after it, and claimed for the message
        (T + MS // 2, Mark(T, appended_at=T, exact=True), False),
        (T + MS // 2, Mark(T, appended_at=T + MS, exact=True), True),
    ],
)
def test_a_row_from_before_the_message_was_known_is_doubted_near_it(from_at, mark, doubtful):
    assert is_doubtful(from_at, mark, SLACK) == doubtful
