"""What a rewind would do: golden cases, one line each."""

import pytest

from sidecar.model import ABSENT, Kind, Reason, Row, State, Turn, unknown
from sidecar.rewind.plan import Candidate, Do, People, Wish, plan_rewind

MS = 1_000_000
T = 100 * MS
A = State(Kind.FILE, blob=1, size_bytes=1, mode=0o644)
B = State(Kind.FILE, blob=2, size_bytes=1, mode=0o644)
A_RUN = State(Kind.FILE, blob=1, size_bytes=1, mode=0o755)
FOLDER = State(Kind.DIRECTORY, mode=0o755)
LINK = State(Kind.LINK)
IN_TURN, IDLE, IN_OTHERS = 150 * MS, 250 * MS, 350 * MS
PEOPLE = People([Turn("me", T, 200 * MS), Turn("other", 300 * MS, 400 * MS)], {})


def candidate(path: bytes, then: State | None, now: State, at: int = IN_TURN, **more: object) -> Candidate:
    then_row = None if then is None else Row(then, 0, at, 0, 0)
    return Candidate(path, then, now, then_row, Row(now, at, None, at, at), **more)  # type: ignore[arg-type]


def plan(*candidates: Candidate, **wish: object):
    return plan_rewind(candidates, Wish("me", T, **wish), PEOPLE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("then", "now", "do"),
    [
        (A, B, Do.WRITE),
        (A, ABSENT, Do.WRITE),
        (A, FOLDER, Do.WRITE),
        (A, A_RUN, Do.MODE),
        (ABSENT, A, Do.REMOVE),
        (ABSENT, FOLDER, Do.REMOVE_FOLDER),
        (FOLDER, ABSENT, Do.MAKE_FOLDER),
        (FOLDER, A, Do.MAKE_FOLDER),
        (FOLDER, State(Kind.DIRECTORY, mode=0o700), Do.MODE),
    ],
)
def test_what_is_done(then, now, do):
    (action,) = plan(candidate(b"f", then, now)).actions
    assert action.do is do


@pytest.mark.parametrize(
    ("one", "reason", "everything"),
    [
        (candidate(b"f", A, B, IDLE), Reason.CHANGED_OUTSIDE_TURNS, True),
        (candidate(b"f", A, ABSENT, IDLE), Reason.CHANGED_OUTSIDE_TURNS, True),
        (candidate(b"f", ABSENT, B, IDLE), Reason.CREATED_OUTSIDE_TURNS, True),
        (candidate(b"f", A, B, IN_OTHERS), Reason.OTHER_SESSION, True),
        (candidate(b"f", None, B), Reason.UNKNOWN_THEN, False),
        (candidate(b"f", unknown(Reason.UNSTABLE), B), Reason.UNSTABLE, False),
        (candidate(b"f", unknown(Reason.TOO_LARGE), B), Reason.TOO_LARGE, False),
        (candidate(b"f", unknown(Reason.BLOB_MISSING), B), Reason.BLOB_MISSING, False),
        (candidate(b"f", A, unknown(Reason.TOO_LARGE)), Reason.TOO_LARGE, False),
        (candidate(b"f", A, unknown(Reason.UNSTORABLE)), Reason.UNSTORABLE, False),
        (candidate(b"f", A, B, missing=True), Reason.BLOB_MISSING, False),
        (candidate(b"f", ABSENT, B, ignored=True), Reason.IGNORED, False),
    ],
)
def test_what_is_kept_and_what_overrides_it(one, reason, everything):
    assert plan(one).kept == ((b"f", reason),)
    assert bool(plan(one, everything=True).actions) is everything
    assert bool(plan(one, only=(b"f",)).actions) is everything


def test_a_file_that_a_person_made_and_a_turn_wrote_to_is_not_removed():
    one = Candidate(b"f", ABSENT, B, Row(ABSENT, 0, IDLE, 0, 0), Row(B, IN_TURN, None, IN_TURN, IN_TURN))
    assert plan(one).kept == ((b"f", Reason.CREATED_OUTSIDE_TURNS),)


def test_an_old_state_that_a_rewind_brought_back_is_nobodys_work():
    one = Candidate(b"f", B, A, Row(B, 60, 500 * MS, 60, 60), Row(A, 500 * MS, None, 50, 50))
    assert plan(one).restored == (b"f",)


@pytest.mark.parametrize(
    "one", [candidate(b"f", A, LINK), candidate(b"f", LINK, A), candidate(b"f", A, B, linked=True)]
)
def test_links_are_skipped_whatever_is_asked(one):
    for wish in ({}, {"everything": True}, {"only": (b"f",)}):
        made = plan(one, **wish)
        assert (made.skipped_links, made.actions, made.kept) == ((b"f",), (), ())


def test_a_file_outside_asks_for_outside():
    one = candidate(b"/elsewhere/f", A, B)
    assert plan(one, everything=True).kept == ((b"/elsewhere/f", Reason.OUTSIDE_WORKSPACE),)
    assert plan(one, everything=True, outside=True).restored == (b"/elsewhere/f",)


def test_removals_come_last_and_from_the_bottom():
    made = plan(
        candidate(b"new", ABSENT, FOLDER),
        candidate(b"new/in", ABSENT, FOLDER),
        candidate(b"new/in/f", ABSENT, A),
        candidate(b"old", FOLDER, ABSENT),
        candidate(b"old/f", A, ABSENT),
    )
    assert [action.path for action in made.actions] == [b"old", b"old/f", b"new/in/f", b"new/in", b"new"]


def test_a_folder_in_which_something_stays_stays_without_a_word():
    made = plan(candidate(b"new", ABSENT, FOLDER), candidate(b"new/mine", ABSENT, A, IDLE))
    assert made.actions == ()
    assert made.kept == ((b"new/mine", Reason.CREATED_OUTSIDE_TURNS),)


def test_a_file_does_not_come_back_over_a_folder_that_holds_somebodys_work():
    made = plan(candidate(b"d", A, FOLDER), candidate(b"d/mine", ABSENT, B, IDLE))
    assert made.actions == ()
    assert dict(made.kept)[b"d"] is Reason.CREATED_OUTSIDE_TURNS


def test_nothing_comes_back_below_a_file_that_stays():
    made = plan(candidate(b"d", FOLDER, B, IDLE), candidate(b"d/f", A, ABSENT))
    assert made.actions == ()
    assert set(dict(made.kept)) == {b"d", b"d/f"}


def test_only_the_named_paths():
    both = [candidate(b"src/a", A, B), candidate(b"srcs/b", A, B)]
    assert plan(*both, only=(b"src",)).restored == (b"src/a",)


def test_a_path_asked_for_brings_its_directories_back_as_they_were():
    folder = State(Kind.DIRECTORY, mode=0o700)
    gone = [candidate(b"d", folder, ABSENT), candidate(b"d/e", folder, ABSENT), candidate(b"d/e/f", A, ABSENT)]
    other = [candidate(b"d/g", A, ABSENT), candidate(b"x", folder, ABSENT)]
    found = plan(*gone, *other, only=(b"d/e/f",))
    assert [(a.do, a.path, a.then.mode) for a in found.actions] == [
        (Do.MAKE_FOLDER, b"d", 0o700),
        (Do.MAKE_FOLDER, b"d/e", 0o700),
        (Do.WRITE, b"d/e/f", 0o644),
    ]


def test_a_path_asked_for_takes_nothing_away_that_stands_where_its_directory_was():
    found = plan(candidate(b"d", FOLDER, B), candidate(b"d/f", A, ABSENT), only=(b"d/f",))
    assert [(a.do, a.path) for a in found.actions] == [(Do.WRITE, b"d/f")]
