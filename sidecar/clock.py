"""The one source of the present instant; everything else is given it.

Instants are UTC nanoseconds since 1970. Tests pass a clock of their own.
"""

import time
from datetime import UTC, datetime
from typing import Protocol

MS = 1_000_000  # nanoseconds
SECOND = 1_000_000_000  # nanoseconds


class Clock(Protocol):
    """Something that knows the present instant in UTC nanoseconds."""

    def now(self) -> int: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns()


def parse_iso(text: object) -> int | None:
    """Read an ISO 8601 time as UTC nanoseconds; None for anything that is not one.

    A time without an offset is taken as UTC, as every agent that omits it means it.
    """
    if not isinstance(text, str) or not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        delta = moment - _EPOCH
    except OverflowError:
        return None
    return (delta.days * 86_400 + delta.seconds) * SECOND + delta.microseconds * 1_000


def format_iso(at: int) -> str:
    """Write an instant as ISO 8601 with milliseconds and `Z`."""
    seconds, rest = divmod(at, SECOND)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{rest // MS:03d}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
