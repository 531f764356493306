"""Carry a rewind out: staged before anything is touched, removals last, every displaced byte kept.

    journal --> stage all --> swap one by one --> removals --> record --> discard --> close the journal

Nothing goes to a path but by a rename that refuses to replace, or an exchange. What comes back from an exchange is
compared with what the plan saw; bytes that the store does not have are saved before anything of them is discarded,
and where that is not possible the swap is undone and the path reported. A crash at any point is taken up by
`recover`, which never puts old content over today's.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sidecar import errors
from sidecar.clock import MS, Clock
from sidecar.fs.beneath import Blocked, Root, stat_of
from sidecar.fs.places import Places
from sidecar.fs.read import has_writer
from sidecar.fs.scan import scan
from sidecar.fs.write import Displaced, Staging, fresh_name, fresh_staging_name
from sidecar.model import ABSENT, Kind, Reason, Row, Stat, State
from sidecar.rewind.plan import Action, Do, Never, RewindPlan
from sidecar.rewind.recover import TREE_SUFFIX
from sidecar.store.blobs import Damaged
from sidecar.store.rewinds import Journal, Step
from sidecar.store.workspace import Workspace

RETRY_PAUSE_S = 0.05
FOLDER_MODE = 0o755  # of a directory that must be made again and of which nobody knows the mode


@dataclass
class RewindOutcome:
    """What a rewind did. Every list is always there."""

    restored: list[bytes] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)
    kept: list[tuple[bytes, Reason]] = field(default_factory=list)
    failed: list[tuple[bytes, str]] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)


class ChangedSincePlan(Exception):
    """A finding: what is at the path is not what the plan saw, and it could not be kept."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is brought back, and under which checkpoint the present was kept."""

    session: str
    message: str
    before: str


class Carrier:
    """One rewind being carried out. Its journal is open from construction to `finish`."""

    def __init__(
        self,
        workspace: Workspace,
        places: Places,
        clock: Clock,
        save: Callable[[bytes, bytes, Stat], None],
        *,
        never: Never,
        retry_ms: int,
        ceiling_bytes: int,
    ) -> None:
        self.workspace = workspace
        self.places = places
        self.clock = clock
        self.save = save  # keeps bytes that the store does not have, as the path's newest version
        self.never = never
        self.retry_ns = retry_ms * MS
        self.ceiling_bytes = ceiling_bytes
        self.staging_name = fresh_staging_name()
        self.outcome = RewindOutcome()
        self._stagings: dict[bytes, Staging] = {}
        self._names: dict[bytes, bytes] = {}
        self._ours: dict[bytes, list[bytes]] = {}  # staged and not swapped: the store has them
        self._proven: list[tuple[Staging, bytes, Stat]] = []  # displaced, and the store has them
        self._folders: list[tuple[Staging, bytes]] = []
        self._retry_until = 0

    def run(self, plan: RewindPlan, target: Target) -> RewindOutcome:
        """Do all that a plan says.

        Survives: a crash at any point, by `recover`; a full disk, by changing nothing.
        Does not survive: somebody removing the staging folder while it is in use.
        """
        self.outcome.kept.extend(plan.kept)
        actions = [action for action in plan.actions if self._is_reachable(action.path)]
        self._names = {action.path: fresh_name() for action in actions}
        with self.workspace.database.transaction():
            journal = Journal(
                os.fsdecode(self.staging_name),
                target.session,
                target.message,
                target.before,
                os.getpid(),
                self.clock.now(),
            )
            self.workspace.rewinds.open_journal(journal)
            self.workspace.rewinds.add_steps(
                [Step(a.path, os.fsdecode(self._names[a.path]), a.do.value) for a in actions]
            )
        try:
            self._stage(actions)
        except (OSError, Blocked, Damaged) as error:
            self._abandon()  # nothing was swapped: all that lies in staging is ours
            raise errors.RewindFailed(reason=_say(error)) from error
        for action in actions:
            if action.do in (Do.REMOVE, Do.REMOVE_FOLDER) and (self.outcome.failed or self._write_was_kept(plan)):
                self.outcome.kept.append((action.path, Reason.WRITE_FAILED))
                continue
            self._attempt(action)
        return self.outcome

    def _is_reachable(self, path: bytes) -> bool:
        """Tell whether the directory of a file outside the workspace is still there; else report the file."""
        try:
            self.places.of(path)
        except (OSError, Blocked) as error:
            self.outcome.failed.append((path, _say(error)))
            return False
        return True

    def finish(self, record: Callable[[Sequence[Action]], None]) -> None:
        """Write down what is there now (`record`, in one transaction), then let go of what was displaced."""
        for staging in self._stagings.values():
            staging.sync()
        with self.workspace.database.transaction():
            record(self.outcome.done)
        self._discard()
        with self.workspace.database.transaction():
            self.workspace.rewinds.close_journal()

    # Staging --------------------------------------------------------------------------------------------------------

    def _staging(self, path: bytes) -> tuple[Staging, bytes]:
        root, below = self.places.of(path)
        staging = self._stagings.get(root.path)
        if staging is None:
            staging = self._stagings[root.path] = Staging.create(root, self.staging_name)
        return staging, below

    def _stage(self, actions: Sequence[Action]) -> None:
        for action in actions:
            staging, below = self._staging(action.path)
            if action.do is Do.WRITE:
                known = self.workspace.ledger.known(action.path)
                like = known.stat if known is not None and action.now.kind is Kind.FILE else None
                staging.stage(
                    self.workspace.blobs.get(action.then.blob or 0),
                    action.then.mode,
                    like,
                    like_path=below if like is not None else None,
                    name=self._names[action.path],
                )
                self._ours.setdefault(staging.name + staging.root.path, []).append(self._names[action.path])
        for staging in self._stagings.values():
            staging.sync()

    def _abandon(self) -> None:
        self._discard()
        with self.workspace.database.transaction():
            self.workspace.rewinds.close_journal()

    def _discard(self) -> None:
        """Unlink what we staged ourselves and what was proven to be in the store; anything else stays in the folder."""
        for staging in self._stagings.values():
            for name in self._ours.pop(staging.name + staging.root.path, []):
                with contextlib.suppress(OSError, Blocked):
                    staging.discard(name)
        for staging, name, stat in self._proven:
            with contextlib.suppress(OSError, Blocked):
                if staging.stat(name) == stat:
                    staging.discard(name)
        for staging, name in reversed(self._folders):
            with contextlib.suppress(OSError, Blocked):
                staging.discard_empty_directory(name)
        for staging in self._stagings.values():
            with contextlib.suppress(OSError, Blocked):
                if not staging.close():
                    left = os.fsdecode(staging.root.path + b"/" + staging.name)
                    self.outcome.failed.append(
                        (staging.name, f"displaced bytes that are not in the store lie in {left}")
                    )
        self._stagings.clear()

    # Swapping -------------------------------------------------------------------------------------------------------

    def _write_was_kept(self, plan: RewindPlan) -> bool:
        mine = {action.path for action in plan.actions if action.do is Do.WRITE}
        return any(path in mine for path, reason in self.outcome.kept if reason is Reason.CHANGED_SINCE_PLAN)

    def _attempt(self, action: Action) -> None:
        while True:
            try:
                if self._carry_out(action):
                    self.outcome.done.append(action)
                    side = self.outcome.removed if action.do in (Do.REMOVE, Do.REMOVE_FOLDER) else self.outcome.restored
                    side.append(action.path)
                return
            except (ChangedSincePlan, Displaced, FileExistsError, FileNotFoundError):
                self.outcome.kept.append((action.path, Reason.CHANGED_SINCE_PLAN))
                return
            except (OSError, Blocked) as error:
                # What is no directory does not become one by waiting.
                if isinstance(error, OSError) and not isinstance(error, NotADirectoryError) and self._patient():
                    time.sleep(RETRY_PAUSE_S)
                    continue
                self.outcome.failed.append((action.path, _say(error)))
                return

    def _patient(self) -> bool:
        """Tell whether there is time left to try again; one allowance for the whole rewind."""
        now = time.monotonic_ns()
        self._retry_until = self._retry_until or now + self.retry_ns
        return now < self._retry_until

    def _carry_out(self, action: Action) -> bool:
        staging, path = self._staging(action.path)
        name = self._names[action.path]
        match action.do:
            case Do.MAKE_FOLDER:
                if action.now.kind is not Kind.ABSENT:
                    self._park(staging, path, name, action)
                self._make_parents(staging.root, path, action)
                staging.root.make_directory(path, action.then.mode)
            case Do.WRITE if action.now.kind is Kind.FILE:
                staging.exchange(name, path)
                self._swapped(staging, name)
                if not self._kept_or_known(staging, name, action.path):
                    staging.exchange(name, path)
                    self._ours.setdefault(staging.name + staging.root.path, []).append(name)
                    raise ChangedSincePlan
            case Do.WRITE:
                if action.now.kind is Kind.DIRECTORY:
                    self._park(staging, path, name + TREE_SUFFIX, action)
                self._make_parents(staging.root, path, action)
                staging.place(name, path)
                self._swapped(staging, name)
            case Do.MODE:
                self._prove_unchanged(staging.root.stat(path), action.path)
                staging.root.chmod(path, action.then.mode)
            case Do.REMOVE:
                if _is_gone(staging.root, path):
                    return True  # it went with the directory that it was in
                self._park(staging, path, name, action)
            case Do.REMOVE_FOLDER:
                return _is_gone(staging.root, path) or staging.root.remove_directory(path)
        return True

    def _swapped(self, staging: Staging, name: bytes) -> None:
        self._ours[staging.name + staging.root.path].remove(name)

    def _prove_unchanged(self, stat: Stat | None, path: bytes) -> None:
        known = self.workspace.ledger.known(path)
        if stat is None or known is None or known.stat is None or stat.kind is not known.stat.kind:
            raise ChangedSincePlan
        if stat.kind is Kind.FILE and not _same_bytes(known.stat, stat):
            raise ChangedSincePlan

    def _park(self, staging: Staging, path: bytes, name: bytes, action: Action) -> None:
        staging.park(path, name)
        if self._kept_or_known(staging, name, action.path):
            return
        staging.unpark(name, path)
        raise ChangedSincePlan

    def _make_parents(self, root: Root, path: bytes, action: Action) -> None:
        missing: list[bytes] = []
        parent = path.rpartition(b"/")[0]
        while parent and root.stat(parent) is None:
            missing.append(parent)
            parent = parent.rpartition(b"/")[0]
        prefix = action.path[: len(action.path) - len(path)]
        for folder in reversed(missing):
            root.make_directory(folder, FOLDER_MODE)
            made = Action(Do.MAKE_FOLDER, prefix + folder, ABSENT, State(Kind.DIRECTORY, mode=FOLDER_MODE))
            self.outcome.done.append(made)
            self.outcome.restored.append(made.path)

    # Displaced bytes ------------------------------------------------------------------------------------------------

    def _kept_or_known(self, staging: Staging, name: bytes, path: bytes) -> bool:
        """Make sure that the store has every byte of a displaced entry; False where it cannot."""
        stat = staging.stat(name)
        if stat is None or stat.kind is not Kind.DIRECTORY:
            return self._file_is_kept(staging, name, path, stat)
        for listing in scan(staging.inside, name, lambda _path, _stat: True):
            if listing.fault is not None or not listing.steady:
                return False
            for entry, seen in listing.entries:
                found = stat_of(seen)
                below = listing.path + b"/" + entry
                was, is_file = path + below[len(name) :], found.kind is not Kind.DIRECTORY
                if self.never(was, not is_file) or (is_file and not self._file_is_kept(staging, below, was, found)):
                    return False
            self._folders.append((staging, listing.path))
        return True

    def _file_is_kept(self, staging: Staging, name: bytes, path: bytes, stat: Stat | None) -> bool:
        """Compare a displaced file's bytes with the store, and save them there if they are new.

        Nobody can open it by a path any more, so bytes without a writer stay as they are read.
        """
        if stat is None or stat.kind is not Kind.FILE or stat.links > 1 or stat.size_bytes > self.ceiling_bytes:
            return False
        with contextlib.ExitStack() as stack:
            fd = staging.inside.open_read(name)
            stack.callback(os.close, fd)
            if has_writer(staging.inside, fd):
                return False
        content = staging.read(name)
        known = self.workspace.ledger.known(path)
        stored = known is not None and known.state.kind is Kind.FILE and known.state.mode == stat.mode
        if known is None or not stored or self.workspace.blobs.find(content) != known.state.blob:
            self.save(path, content, stat)
        if staging.stat(name) != stat:
            return False
        self._proven.append((staging, name, stat))
        return True


def _is_gone(root: Root, path: bytes) -> bool:
    try:
        return root.stat(path) is None
    except Blocked as blocked:
        if blocked.why != "not-a-directory":
            raise
        return True  # a file stands where its directory was


def _say(error: OSError | Blocked | Damaged) -> str:
    if isinstance(error, Damaged):
        return str(error)
    return errors.describe(error.as_fault() if isinstance(error, Blocked) else error)


def _same_bytes(one: Stat, other: Stat) -> bool:
    return (one.kind, one.device, one.inode, one.size_bytes, one.mtime_ns) == (
        other.kind,
        other.device,
        other.inode,
        other.size_bytes,
        other.mtime_ns,
    )


def rows_after(workspace: Workspace, action: Action, at: int) -> tuple[Row, ...]:
    """Give the rows of a path that a rewind changed: what it was ends, what it is begins with the old row's author.

    A restored state keeps the instant of the change that first made it, so that a later rewind still sees whose work
    it is. Where nobody knows the restored row (an import), it is the instant of the target.
    """
    known = workspace.ledger.known(action.path)
    then = action.row
    lo, changed = (then.changed_lo, then.changed_at) if then is not None else (0, 0)
    new = Row(action.then, at, None, lo, changed)
    if known is None:
        return (new,)
    old = known.row
    start = max(at, old.from_at + 1)
    return (replace(old, to_at=start), replace(new, from_at=start))
