"""What a path needs: the table of `judge`."""

from dataclasses import replace

import pytest

from sidecar.capture.ignore import Verdict
from sidecar.capture.plan import LINKED, Limits, Look, judge
from sidecar.model import ABSENT, Kind, Reason, Stat, State, unknown

LIMITS = Limits(file_bytes=1000, small_ignored_bytes=100, racy=10)
SEEN_AT = 1_000
STAT = Stat(Kind.FILE, 0o644, 1, 7, 50, 500, 500, 1, 0, 0)
FILE = State(Kind.FILE, blob=1, size_bytes=50, mode=0o644)


def looked(state, stat, now, verdict=Verdict.CAPTURED):
    return judge(state, stat, SEEN_AT, now, verdict, LIMITS)


@pytest.mark.parametrize(
    ("state", "stat", "now", "expected"),
    [
        (FILE, STAT, STAT, Look.NOTHING),
        (FILE, STAT, replace(STAT, size_bytes=51), Look.READ),
        (FILE, STAT, replace(STAT, mtime_ns=501), Look.READ),
        (FILE, STAT, replace(STAT, ctime_ns=501), Look.READ),  # same size, same mtime: rewritten all the same
        (FILE, STAT, replace(STAT, inode=8), Look.READ),
        (FILE, STAT, replace(STAT, mode=0o755), Look.READ),
        (FILE, replace(STAT, ctime_ns=995), replace(STAT, ctime_ns=995), Look.READ),  # racily clean
        (FILE, None, STAT, Look.READ),
        (None, None, STAT, Look.READ),
        (ABSENT, None, STAT, Look.READ),
        (FILE, STAT, None, ABSENT),
        (ABSENT, None, None, Look.NOTHING),
        (None, None, None, Look.NOTHING),
        (FILE, STAT, replace(STAT, kind=Kind.DIRECTORY, mode=0o755), State(Kind.DIRECTORY, mode=0o755)),
        (FILE, STAT, replace(STAT, kind=Kind.LINK), LINKED),
        (None, None, replace(STAT, kind=Kind.UNKNOWN), unknown(Reason.UNSTORABLE)),
        (FILE, STAT, replace(STAT, links=2, ctime_ns=900), Look.REFRESH),  # `cp -al` changes nothing
        (FILE, STAT, replace(STAT, links=2, mtime_ns=900, ctime_ns=900), Look.READ),  # touched, perhaps no more
        (FILE, STAT, replace(STAT, links=2, size_bytes=51, mtime_ns=900), LINKED),
        (FILE, STAT, replace(STAT, links=2, inode=8), LINKED),
        (None, None, replace(STAT, links=2), LINKED),
    ],
)
def test_judge(state, stat, now, expected):
    assert looked(state, stat, now) == expected


def test_a_large_file_is_a_reason_and_not_silence():
    answer = looked(None, None, replace(STAT, size_bytes=1001))
    assert isinstance(answer, State)
    assert answer.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("verdict", "size", "expected"),
    [
        (Verdict.NEVER, 50, Look.NOTHING),
        (Verdict.IGNORED_FILE, 50, Look.READ),
        (Verdict.IGNORED_FILE, 101, unknown(Reason.IGNORED)),
        (Verdict.IGNORED_FOLDER, 50, unknown(Reason.IGNORED)),
    ],
)
def test_what_the_rules_leave_out(verdict, size, expected):
    assert looked(None, None, replace(STAT, size_bytes=size), verdict) == expected
