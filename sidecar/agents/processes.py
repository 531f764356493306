"""Is the process that wrote its own number down still that process?"""

import os

_START_FIELD = 19  # of /proc/<pid>/stat, counted behind the name, which may hold anything
_STATE_FIELD = 0


def is_alive(pid: int, start: str | None) -> bool:
    """Tell whether a process lives and began when its file says; numbers are used again.

    `start` is in the system's own units (clock ticks since boot on Linux); None, or a system without /proc, leaves
    the number alone to decide.
    """
    if pid <= 0:
        return False
    fields = _stat_fields(pid)
    if fields is not None:
        return fields[_STATE_FIELD] not in ("Z", "X") and start in (None, "", fields[_START_FIELD])
    if os.path.isdir("/proc/self"):
        return False
    import psutil  # type: ignore[import-untyped]  # noqa: PLC0415 - slow to import, needed only without /proc

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False


def _stat_fields(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("latin-1")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > _START_FIELD else None
