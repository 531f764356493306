"""How another process asks the live capturer to write down everything that has happened so far.

The question is a file in the workspace's private folder `asks`, which the capturer watches with the same descriptor as
the workspace: when its event arrives, so has every earlier one. The answer is that the file is gone.
"""

import contextlib
import os
import secrets
import time

from sidecar.attach import owner
from sidecar.clock import MS
from sidecar.fs import private
from sidecar.store.workspace import Workspace

SUFFIX = ".ask"
_PAUSE_S = 0.002


def cookie_folder(home: str) -> str:
    """Make this process's folder for the watcher's cookies, and remove those that dead processes left."""
    above, own = os.path.join(home, "cookies"), str(os.getpid())
    private.private_directory(os.path.join(above, own))
    for name in os.listdir(above):
        if name != own and not os.path.exists(f"/proc/{name}") and os.path.isdir("/proc/self"):
            with contextlib.suppress(OSError):
                for cookie in os.listdir(os.path.join(above, name)):
                    os.unlink(os.path.join(above, name, cookie))
                os.rmdir(os.path.join(above, name))
    return os.path.join(above, own)


def ask_capturer(workspace: Workspace, *, answer_ms: int) -> bool:
    """Ask, and wait for the answer; False if none came in time, or whoever captured is gone."""
    path = os.path.join(workspace.database.asks, secrets.token_hex(8) + SUFFIX)
    os.close(private.open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    deadline = time.monotonic_ns() + answer_ms * MS
    try:
        while time.monotonic_ns() < deadline:
            if not os.path.lexists(path):
                return True
            if owner.capturer(workspace) is None:
                return False
            time.sleep(_PAUSE_S)
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def questions(workspace: Workspace) -> list[str]:
    """List what was asked and not answered."""
    folder = workspace.database.asks
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(SUFFIX)]


def answer(asked: list[str]) -> None:
    """Say that all has been written down."""
    for path in asked:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
