"""The measurements, row by row."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.ground import Ours, ShadowGit, build_tree, edit, raw_copies, some_files, stat_walk
from tests.benchmarks.measure import Cost, cost_of, disk_bytes, median

EDITED_BYTES = 5_000


@dataclass(frozen=True)
class Row:
    """One comparison; times in seconds, sizes in MB."""

    what: str
    on: str
    ours: Cost | None
    other: Cost | None
    ours_mb: float = 0
    other_mb: float = 0

    def text(self) -> str:
        if self.ours is None or self.other is None:
            share = self.ours_mb / self.other_mb
            return f"{self.what:44} {self.on:>7} {self.ours_mb:9.2f} MB {self.other_mb:9.2f} MB      {share:8.3f}"
        wall, cpu = self.ours.wall_s / self.other.wall_s, self.ours.cpu_s / max(self.other.cpu_s, 1e-6)
        ours, other = (f"{cost.wall_s:8.3f} {cost.cpu_s:8.3f}" for cost in (self.ours, self.other))
        return f"{self.what:44} {self.on:>7} {ours}  {other}  {wall:7.3f} {cpu:7.3f}"


HEAD = f"{'':44} {'files':>7} {'ours: s':>8} {'cpu s':>8}  {'other: s':>8} {'cpu s':>8}  {'ratio':>7} {'of cpu':>7}"


def measure_tree(files: int, runs: int, place: Path | None = None) -> Iterator[Row]:
    """Measure on a tree of so many files."""
    directory = Path(tempfile.mkdtemp(prefix="sidecar-benchmark-", dir=place)).resolve()
    try:
        yield from _on_tree(directory, files, runs)
    finally:
        shutil.rmtree(directory)


def _on_tree(directory: Path, files: int, runs: int) -> Iterator[Row]:
    tree, on = directory / "tree", str(files)
    tree.mkdir()
    build_tree(tree, files)
    stat_walk(tree)
    firsts: list[tuple[Cost, Cost]] = []
    for run in range(runs if files <= 10_000 else 1):
        git = ShadowGit(directory / f"git-{run}", tree)
        others = cost_of(git.commit)
        ours = Ours(directory / f"ours-{run}", tree)
        firsts.append((cost_of(ours.enter), others))
        if run:
            ours.close()
            shutil.rmtree(ours.store)
            shutil.rmtree(git.directory)
        else:
            first_git, first = git, ours
            first.leave()
    yield Row("first baseline | git add -A, commit", on, median(o for o, _ in firsts), median(g for _, g in firsts))
    yield Row("its disk | git's", on, None, None, disk_bytes(first.store) / 1e6, disk_bytes(first_git.directory) / 1e6)
    again = []
    for _ in range(runs):
        again.append((cost_of(first.enter), cost_of(lambda: stat_walk(tree))))
        first.leave()
    yield Row(
        "second attach, nothing changed | stat-only walk", on, median(o for o, _ in again), median(w for _, w in again)
    )
    first.enter()
    first.follow()
    yield from _checkpoints(first, first_git, tree, on, runs)
    first.close()


def _checkpoints(ours: Ours, git: ShadowGit, tree: Path, on: str, runs: int) -> Iterator[Row]:
    paths = some_files(tree, 10)
    taken: list[tuple[Cost, Cost]] = []
    ready: list[Cost] = []
    back: list[tuple[Cost, Cost]] = []
    for run in range(runs):
        before, commit = ours.message(), git.head()
        ours.checkpoint()
        edit(paths, f"edit {run}")
        ours.message()
        taken.append((cost_of(ours.checkpoint), cost_of(git.commit)))
        edit(paths, f"edit {run} again")
        assert ours.sidecar is not None
        ours.sidecar.step()
        ours.message()
        ready.append(cost_of(ours.checkpoint))
        with ours.runs():
            mine = cost_of(lambda: ours.go_back(before))  # noqa: B023
        edit(paths, f"edit {run}")
        git.commit()
        back.append((mine, cost_of(lambda: git.go_back(commit))))  # noqa: B023
        ours.sidecar.step()
    yield Row(
        "checkpoint, 10 files changed | git add -A, commit",
        on,
        median(o for o, _ in taken),
        median(g for _, g in taken),
    )
    yield Row("the same, changes seen before the message | git", on, median(ready), median(g for _, g in taken))
    yield Row("rewind of 10 files | git checkout", on, median(o for o, _ in back), median(g for _, g in back))


def measure_growth(files: int, checkpoints: int, place: Path | None = None) -> Iterator[Row]:
    """Measure what many checkpoints of small edits take on the disk, and what is left of it after evictions."""
    directory = Path(tempfile.mkdtemp(prefix="sidecar-benchmark-", dir=place)).resolve()
    try:
        tree = directory / "tree"
        tree.mkdir()
        build_tree(tree, files)
        ours = Ours(directory, tree)
        edited = [tree / f"edited-{number}.py" for number in range(30)]
        source = b"".join(path.read_bytes() for path in some_files(tree, 60))
        for number, path in enumerate(edited):
            path.write_bytes(source[number * EDITED_BYTES :][:EDITED_BYTES])
        ours.enter()
        ours.follow()
        ours.leave()  # which folds the log into the database
        before, copied = disk_bytes(ours.store), 0
        ours.enter()
        ours.follow()
        (directory / "copies").mkdir()
        for checkpoint in range(checkpoints):
            for path in edited:
                old = path.read_bytes()
                at = (checkpoint * 97) % (EDITED_BYTES - 100)
                path.write_bytes(old[:at] + f"edit {checkpoint}\n".encode() + old[at + 10 :][: EDITED_BYTES - at - 10])
            copied += sum(raw_copies(directory / "copies", edited))
            ours.message()
            ours.checkpoint()
        ours.leave()
        grown = disk_bytes(ours.store) - before
        yield Row(
            f"{checkpoints} checkpoints of 30 edited files | copies", str(files), None, None, grown / 1e6, copied / 1e6
        )
        ours.cap = ours.settings.cap("short")
        ours.enter()
        ours.follow()
        ours.leave()
        kept, held = ours.payload()
        yield Row("after eviction to 20: store | live contents", str(files), None, None, held / 1e6, kept / 1e6)
        ours.close()
    finally:
        shutil.rmtree(directory)
