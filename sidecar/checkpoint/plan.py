"""Which instant a message stands for, and what kind of checkpoint it gets. Pure."""

from dataclasses import dataclass

from sidecar.clock import MS
from sidecar.model import CheckpointKind, UserMessage

STEP = 1_000  # nanoseconds between two messages of one millisecond


@dataclass(frozen=True, slots=True)
class Reading:
    """How a record came to us; instants."""

    read_at: int
    previous_read_at: int | None  # None: not read before, the record is history
    written_by: int | None  # the record was on disk by then, where the file's ctime tells
    written_after: int | None  # the newest time of a record before it in the file
    newest: bool = False  # it was the last record of the file, so that `written_by` is the stamp of its own append
    heard: bool = False  # `written_by` is the file's stamp at the moment at which its append was heard of


@dataclass(frozen=True, slots=True)
class Watching:
    """What the store knows of the time before a message."""

    since: int | None  # the first instant of any watching
    imported: bool  # the agent's own history has a record of this message


@dataclass(frozen=True, slots=True)
class Standing:
    """What a message's checkpoint is."""

    kind: CheckpointKind
    state: str  # live; before-attach: nothing is known of it; unprotected: nobody captured when it was sent
    timeline: bool


def instant_of(message: UserMessage, reading: Reading, previous: int | None) -> int:
    """Give the instant that a message stands for.

    Its own time, never later than we read it; a queued prompt's is when its record was written (SPEC A2), because its
    own time is when it was typed. When a record was written is told by the file only if we saw it soon: of one that is
    read later, with others behind it, nothing is known but that it came after the one before it. Two messages of one
    millisecond keep the order of their records: `previous` is the instant of the one before.
    """
    written = reading.written_by if reading.newest or reading.heard else None
    at = message.at if message.at is not None else written or reading.written_after
    if at is None:
        at = reading.written_by or reading.read_at
    if message.queued:
        at = max(at, reading.written_after or at, written or at)
    at = min(at, reading.read_at)
    if previous is not None and previous >= at and previous // MS == at // MS:
        at = previous + STEP
    return at


def appended_live(at: int, reading: Reading, grace: int) -> bool:
    """Tell whether a record is news: appended while we followed, with a time since the read before.

    `grace` in nanoseconds: transcripts lag behind their records' times.
    """
    return reading.previous_read_at is not None and at >= reading.previous_read_at - grace


def standing_of(at: int, *, live: bool, watching: Watching, captured: bool = True) -> Standing:
    """Say what a message can be restored from (SPEC A2, A6; DESIGN section 2).

    News, and whatever came after the first look, is answered by the timeline, path by path: its rows say where nobody
    watched. Older messages have the agent's own history, or nothing: a ctime alone makes no checkpoint.
    """
    if not captured:
        return Standing(CheckpointKind.MESSAGE, "unprotected", timeline=False)
    if live or (watching.since is not None and at >= watching.since):
        return Standing(CheckpointKind.MESSAGE, "live", timeline=True)
    if watching.imported:
        return Standing(CheckpointKind.IMPORTED, "live", timeline=False)
    return Standing(CheckpointKind.MESSAGE, "before-attach", timeline=False)
