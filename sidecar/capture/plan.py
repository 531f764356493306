"""What to do with a path, from what is known of it and what lstat says now. Pure."""

from dataclasses import dataclass
from enum import Enum

from sidecar.capture.ignore import Verdict
from sidecar.model import ABSENT, Kind, Reason, Stat, State, unknown

LINKED = State(Kind.LINK)


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings of what is read; bytes and nanoseconds."""

    file_bytes: int
    small_ignored_bytes: int
    racy: int  # a stat this young when it was taken proves nothing


class Look(Enum):
    """What a path needs."""

    NOTHING = "nothing"  # the row stands
    REFRESH = "refresh"  # the row stands, what lstat says of it is new
    READ = "read"  # only its bytes can tell


def judge(  # noqa: PLR0911 - a table of cases, one answer each
    state: State | None,
    stat: Stat | None,
    seen_at: int,
    now: Stat | None,
    verdict: Verdict,
    limits: Limits,
) -> Look | State:
    """Say what a path needs: nothing, a new stat, a reading, or the state to be recorded without one.

    `state`, `stat` and `seen_at` are what is known (None: nothing); `now` is what lstat says (None: nothing there).
    """
    if now is None:
        return Look.NOTHING if state is None or state == ABSENT else ABSENT
    if verdict is Verdict.NEVER:
        return Look.NOTHING
    if verdict is Verdict.IGNORED_FOLDER:
        return _unless(state, unknown(Reason.IGNORED))
    if now.kind is Kind.DIRECTORY:
        return _unless(state, State(Kind.DIRECTORY, mode=now.mode))
    if now.kind is Kind.LINK:
        return _unless(state, LINKED)
    if now.kind is not Kind.FILE:
        return _unless(state, unknown(Reason.UNSTORABLE))
    if now.links > 1:
        return _judge_hard_link(state, stat, now)
    if verdict is Verdict.IGNORED_FILE and now.size_bytes > limits.small_ignored_bytes:
        return _unless(state, unknown(Reason.IGNORED))
    if now.size_bytes > limits.file_bytes:
        return _unless(state, unknown(Reason.TOO_LARGE))
    if stat is None or state is None or state.kind is not Kind.FILE:
        return Look.READ
    # As young as the look itself: another write may share the timestamp (git's racily-clean rule).
    racy = max(stat.ctime_ns, stat.mtime_ns) > seen_at - limits.racy
    return Look.READ if racy or not stat.same_file_state(now) else Look.NOTHING


def _unless(state: State | None, new: State) -> Look | State:
    return Look.REFRESH if state == new else new


def _judge_hard_link(state: State | None, stat: Stat | None, now: Stat) -> Look | State:
    """A second name for unchanged bytes (`cp -al`) is no change; otherwise a linked file is not ours to read.

    One that was touched as well is read, if it is the very file whose bytes we have: they may be the same.
    """
    if state is not None and state.kind is Kind.FILE and stat is not None:
        ours = (stat.inode, stat.device, stat.size_bytes) == (now.inode, now.device, now.size_bytes)
        if ours and state.mode == now.mode:
            return Look.REFRESH if stat.mtime_ns == now.mtime_ns else Look.READ
    return _unless(state, LINKED)
