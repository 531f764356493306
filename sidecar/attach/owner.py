"""One living owner a session, one capturer and one rewind a workspace: flocks, which die with their process."""

import os

import xxhash

from sidecar import errors
from sidecar.fs import private
from sidecar.fs.lock import FileLock, Owner, read_owner
from sidecar.store.workspace import Workspace


def _session_path(home: str, session: str) -> str:
    # A session's id comes from a transcript: it names no file of ours as it stands.
    return os.path.join(home, "locks", f"session-{xxhash.xxh3_128_hexdigest(session.encode())}")


def own_session(home: str, session: str) -> FileLock:
    """Become a session's owner. Refuses (Busy) while another process is."""
    path = _session_path(home, session)
    return _take(path, f"Session {session}")


def session_owner(home: str, session: str) -> Owner | None:
    """Tell who follows a session."""
    return read_owner(_session_path(home, session))


def own_capture(workspace: Workspace) -> FileLock | None:
    """Become the workspace's capturer; None while another process is."""
    private.private_directory(os.path.join(workspace.home, "locks"))
    return FileLock.acquire(workspace.lock_path("capture"))


def capturer(workspace: Workspace) -> Owner | None:
    """Tell who captures a workspace."""
    return read_owner(workspace.lock_path("capture"))


def own_rewind(workspace: Workspace) -> FileLock:
    """Become the one that rewinds a workspace. Refuses (Busy) while another process does."""
    return _take(workspace.lock_path("rewind"), f"Workspace {workspace.root}")


def _take(path: str, what: str) -> FileLock:
    private.private_directory(os.path.dirname(path))
    lock = FileLock.acquire(path)
    if lock is None:
        owner = read_owner(path)
        raise errors.Busy(what=what, pid=owner.pid if owner is not None else "(unknown)")
    return lock
