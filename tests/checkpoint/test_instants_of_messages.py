"""Which instant a message stands for, and what kind of checkpoint it gets."""

import pytest

from sidecar.checkpoint.plan import STEP, Reading, Watching, appended_live, instant_of, standing_of
from sidecar.model import CheckpointKind, UserMessage

MS = 1_000_000
READ = Reading(read_at=1_000 * MS, previous_read_at=500 * MS, written_by=990 * MS, written_after=900 * MS, newest=True)


def message(at: int | None, *, queued: bool = False) -> UserMessage:
    return UserMessage("s", "u", at, None, 0, "", queued=queued)


@pytest.mark.parametrize(
    ("at", "queued", "previous", "expected"),
    [
        (800 * MS, False, None, 800 * MS),
        (2_000 * MS, False, None, 1_000 * MS),  # a clock ahead of ours
        (None, False, None, 990 * MS),
        (800 * MS, False, 800 * MS, 800 * MS + STEP),  # one millisecond: the order of the records
        (800 * MS, False, 800 * MS + STEP, 800 * MS + 2 * STEP),
        (800 * MS, False, 850 * MS, 800 * MS),
        (700 * MS, True, None, 990 * MS),  # typed at 700, written by 990
    ],
)
def test_instant(at, queued, previous, expected):
    assert instant_of(message(at, queued=queued), READ, previous) == expected


@pytest.mark.parametrize("written_by", [None, 990 * MS])  # the file's stamp is a later record's
@pytest.mark.parametrize("at", [None, 700 * MS])
def test_a_queued_prompt_read_with_later_records_is_after_the_record_before_it(at, written_by):
    reading = Reading(1_000 * MS, None, written_by, 900 * MS)
    assert instant_of(message(at, queued=True), reading, None) == 900 * MS


def test_a_queued_prompt_that_was_heard_of_is_of_that_moment():
    reading = Reading(1_000 * MS, 500 * MS, 930 * MS, 900 * MS, heard=True)
    assert instant_of(message(700 * MS, queued=True), reading, None) == 930 * MS


@pytest.mark.parametrize(("at", "live"), [(600 * MS, True), (400 * MS, True), (200 * MS, False)])
def test_news_is_what_came_since_the_read_before(at, live):
    assert appended_live(at, READ, 200 * MS) is live


def test_a_first_read_gives_history():
    assert not appended_live(999 * MS, Reading(1_000 * MS, None, None, None), 200 * MS)


@pytest.mark.parametrize(
    ("live", "since", "imported", "kind", "state", "timeline"),
    [
        (True, None, False, CheckpointKind.MESSAGE, "live", True),
        (False, 50, False, CheckpointKind.MESSAGE, "live", True),
        (False, 150, True, CheckpointKind.IMPORTED, "live", False),
        (False, 150, False, CheckpointKind.MESSAGE, "before-attach", False),
        (False, None, False, CheckpointKind.MESSAGE, "before-attach", False),
    ],
)
def test_standing(live, since, imported, kind, state, timeline):
    standing = standing_of(100, live=live, watching=Watching(since, imported))
    assert (standing.kind, standing.state, standing.timeline) == (kind, state, timeline)


def test_what_nobody_captured_is_unprotected():
    standing = standing_of(100, live=True, watching=Watching(50, False), captured=False)
    assert (standing.state, standing.timeline) == ("unprotected", False)
