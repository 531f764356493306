"""Cookies: a file appears under a name never used before, and its event proves that all earlier events were read.

The file is renamed from name to name rather than made anew: a rename needs no space, so a barrier still works on a full
disk. Names begin with a random word of this process; nobody else's file can be taken for one of ours.
"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable

from sidecar.clock import Clock

PREFIX = b"cookie-"


class CookieJar:
    """The cookies of one watcher."""

    def __init__(self, folder: bytes, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._word = PREFIX + secrets.token_hex(8).encode() + b"-"
        self._number = 0
        self._lock = threading.Lock()
        self._waiting: dict[bytes, tuple[int, threading.Event]] = {}
        for name in os.listdir(folder):
            if name.startswith(PREFIX):  # left by a crash; a living owner of it makes another
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))

    def ours(self, name: bytes) -> bool:
        """Tell whether a base name is one of this jar's."""
        return name.startswith(self._word)

    def recognise(self, name: bytes) -> int | None:
        """Take note that a cookie's event was read; return the instant that it proves, None for one not waited for.

        Called by the reader's thread.
        """
        waiting = self._waiting.get(name)
        return waiting[0] if waiting else None

    def release(self, name: bytes) -> None:
        """Let the barrier that waits for this cookie go on; call it when the proof is queued."""
        waiting = self._waiting.get(name)
        if waiting:
            waiting[1].set()

    def wait(self, deadline_s: float, retry_s: float, alive: Callable[[], bool]) -> bool:
        """Make cookies until the event of one is read; False when time, the reader or the folder is at an end.

        More than one, because an overflowing queue drops cookies too.
        """
        give_up = time.monotonic() + deadline_s
        seen = threading.Event()
        names = []
        try:
            while alive():
                names.append(self._turn(seen))
                if seen.wait(min(retry_s, max(0.0, give_up - time.monotonic()))):
                    return True
                if time.monotonic() >= give_up:
                    return False
            return False
        except OSError:
            return False
        finally:
            for name in names:
                self._waiting.pop(name, None)

    def close(self) -> None:
        """Take the file away."""
        with self._lock, contextlib.suppress(OSError):
            os.unlink(self._path(self._number))

    def _turn(self, seen: threading.Event) -> bytes:
        with self._lock:
            old = self._path(self._number)
            self._number += 1
            new = self._path(self._number)
            name = os.path.basename(new)
            # Noted before it exists: the event may be read before the call returns.
            self._waiting[name] = (self._clock.now(), seen)
            try:
                os.rename(old, new)
            except FileNotFoundError:
                os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            return name

    def _path(self, number: int) -> bytes:
        return os.path.join(self.folder, self._word + str(number).encode())
