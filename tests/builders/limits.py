"""Limits of the whole machine, lowered for a moment; only in tests marked `root` and `alone`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_INOTIFY = Path("/proc/sys/fs/inotify")


@contextlib.contextmanager
def limited(name: str, number: int) -> Iterator[None]:
    """Lower one of inotify's limits; a watcher that starts meanwhile keeps a queue's limit."""
    before = (_INOTIFY / name).read_text()
    (_INOTIFY / name).write_text(str(number))
    try:
        yield
    finally:
        (_INOTIFY / name).write_text(before)
