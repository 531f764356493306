"""How often at most: the rules of the pace, in instants of the test's own."""

import pytest

from sidecar.attach.pace import Backoff, HotPaths
from sidecar.clock import MS, SECOND
from sidecar.policy.tables import WatchHot, WatchRescan

RESCAN = WatchRescan(period_s=300, degraded_period_s=5, first_pause_ms=1_000, longest_pause_s=30, quiet_s=60)
LATE = 1_000_000 * SECOND


def storm(backoff: Backoff, start: int, seconds: int) -> list[int]:
    """Lose events every 10 ms and look whenever that is allowed; give the seconds at which that was."""
    looks = []
    for now in range(start, start + seconds * SECOND, 10 * MS):
        backoff.lose(now)
        if backoff.is_due(now):
            backoff.look(now)
            looks.append((now - start) // SECOND)
    return looks


def test_the_first_look_comes_at_once_and_the_pauses_double_up_to_the_longest():
    assert storm(Backoff(RESCAN), LATE, 150) == [0, 1, 3, 7, 15, 31, 61, 91, 121]


def test_after_a_quiet_time_the_next_look_comes_at_once():
    backoff = Backoff(RESCAN)
    storm(backoff, LATE, 150)
    assert storm(backoff, LATE + 125 * SECOND, 5) == []
    assert storm(backoff, LATE + 300 * SECOND, 5) == [0, 1, 3]


def test_a_look_that_takes_long_is_no_quiet_time():
    backoff = Backoff(RESCAN)
    for start in range(LATE, LATE + 600 * SECOND, 100 * SECOND):
        backoff.lose(start)
        backoff.look(start + 99 * SECOND)
    assert backoff.pause == 30 * SECOND
    backoff.lose(LATE + 600 * SECOND)
    assert not backoff.is_due(LATE + 600 * SECOND)


def test_a_clock_that_is_set_back_ends_every_wait():
    backoff, hot = Backoff(RESCAN), HotPaths(WatchHot(period_ms=1_000, burst=2))
    backoff.look(LATE)
    assert not backoff.is_due(LATE)
    assert backoff.is_due(LATE // 2)
    hot.capture(b"a", LATE)
    hot.capture(b"a", LATE)
    assert hot.is_hot(b"a", LATE)
    assert not hot.is_hot(b"a", LATE // 2)


@pytest.mark.parametrize("step_ms", [1, 5, 100, 999])
def test_a_path_that_changes_all_the_time_has_its_burst_and_then_one_capture_a_period(step_ms):
    hot = HotPaths(WatchHot(period_ms=1_000, burst=8))
    captures = []
    for now in range(LATE, LATE + 60 * SECOND, step_ms * MS):
        if not hot.is_hot(b"log", now):
            hot.capture(b"log", now)
            captures.append(now)
    assert len(captures) <= 8 + 60
    assert len(captures) >= 60
    assert not hot.is_hot(b"other", LATE)


def test_a_path_that_rests_is_given_its_burst_again_and_forgotten():
    hot = HotPaths(WatchHot(period_ms=1_000, burst=8))
    for _ in range(100):  # messages take it all the same, and add no debt
        hot.capture(b"log", LATE)
    assert hot.is_hot(b"log", LATE)
    assert not hot.is_hot(b"log", LATE + 1 * SECOND)
    hot.capture(b"other", LATE + 9 * SECOND)
    assert list(hot._even_at) == [b"other"]
