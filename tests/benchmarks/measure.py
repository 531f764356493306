"""Time, processor time and disk space, of this process and those that it starts."""

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and of processors."""

    wall_s: float
    cpu_s: float


def cost_of(do: Callable[[], object]) -> Cost:
    """Do something once."""
    began, used = time.perf_counter(), _used_s()
    do()
    return Cost(time.perf_counter() - began, _used_s() - used)


def median(costs: Iterable[Cost]) -> Cost:
    """Give the middle of several, each number for itself."""
    all_costs = list(costs)
    return Cost(
        statistics.median(cost.wall_s for cost in all_costs), statistics.median(cost.cpu_s for cost in all_costs)
    )


def disk_bytes(top: Path) -> int:
    """Give what a directory takes on the disk."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, folders, files in os.walk(top)
        for name in folders + files
    )


def _used_s() -> float:
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)
