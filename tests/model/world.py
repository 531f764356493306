"""The running program on real files, and beside it the truth: what the tree really was at each message.

The sidecar is stepped by hand, except while somebody rewinds: then it runs in a thread, as the live capturer that a
rewind asks. All that is known of the truth is what this module itself saw just before and after each thing it did.
"""

import contextlib
import dataclasses
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from sidecar.agents import registry
from sidecar.attach.loop import Sidecar
from sidecar.attach.marking import make_mark
from sidecar.attach.rewinding import Done, Request, Rewinding
from sidecar.attach.settings import Settings, load_settings
from sidecar.checkpoint.apply import enforce_caps
from sidecar.clock import MS
from sidecar.model import Checkpoint
from sidecar.store.workspace import Workspace, open_for_root
from tests.builders.claude import ClaudeHome, new_uuid

CAP, BEFORE_REWINDS = 6, 4
INLINE_BYTES = 64  # small, so that contents lie in files too
LATEST_MS = 1_300  # a record is appended no later than so long after its time (the grace is 2 s)

Tree = dict[bytes, tuple[object, ...]]


def read_tree(top: Path) -> Tree:
    """Give every path: kind, mode, and a file's bytes."""
    found: Tree = {}
    root = os.fsencode(top)
    for folder, folders, files in os.walk(root):
        for name in folders:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = ("directory", os.lstat(path).st_mode & 0o7777)
        for name in files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = (
                "file",
                os.lstat(path).st_mode & 0o7777,
                Path(os.fsdecode(path)).read_bytes(),
            )
    return found


@dataclass(frozen=True)
class Span:
    """Something that took from one instant to another."""

    began: int
    ended: int

    def overlaps(self, began: int, ended: int) -> bool:
        return self.began <= ended and began <= self.ended


@dataclass(frozen=True)
class Touch(Span):
    """Paths were changed, or at least written to."""

    paths: frozenset[bytes]
    before: Tree = field(default_factory=dict, repr=False)
    changed: frozenset[bytes] = frozenset()  # those that are really different now
    by_rewind: bool = False


@dataclass
class Sent:
    """A message (or mark), and what the tree was."""

    uuid: str
    at: int
    tree: Tree = field(repr=False)
    told: int | None = None  # when its record was appended
    lines: bytes = field(default=b"", repr=False)


@dataclass
class Turn:
    began: int
    ended: int | None = None


@dataclass
class Went:
    """A rewind that was carried out: the trees around it."""

    before: Tree
    after: Tree
    done: Done
    touches: int  # so many had been noted when it was done


@dataclass
class World:
    """Everything, below one temporary directory."""

    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="sidecar-model-")).resolve())
    log: list[str] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    late: Sent | None = None
    touches: list[Touch] = field(default_factory=list)
    rounds: list[Span] = field(default_factory=list)
    outages: list[Span] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    undone: list[Went] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project = self.directory / "project"
        self.project.mkdir()
        self.home = ClaudeHome(self.directory / "claude")
        self.session = self.home.session(self.project)
        environ = {**self.home.environ, "SIDECAR_HOME": str(self.directory / "store")}
        self._environ = mock.patch.dict(os.environ, environ)
        self._environ.start()
        loaded = load_settings()
        policy = loaded.checkpoints
        limits = dataclasses.replace(policy.limits, before_rewind=BEFORE_REWINDS, inline_bytes=INLINE_BYTES)
        profiles = MappingProxyType({**policy.profiles, "default": CAP})
        self.settings: Settings = dataclasses.replace(
            loaded, checkpoints=dataclasses.replace(policy, profiles=profiles, limits=limits)
        )
        self.sidecar: Sidecar | None = None
        self.events: list[dict[str, Any]] = []
        self.born = self.entered = time.time_ns()
        self._since_step = 0

    def close(self) -> None:
        if self.sidecar is not None:
            self.sidecar.close()
        self._environ.stop()
        shutil.rmtree(self.directory)

    def begin(self) -> None:
        """Note that the first look at the tree is over."""
        self.entered = time.time_ns()

    def now(self) -> int:
        return time.time_ns()

    def steps_due(self) -> bool:
        """Tell whether the sidecar has had nothing to do for three things that happened."""
        self._since_step += 1
        if self._since_step < 3:
            return False
        self._since_step = 0
        return True

    def note(self, text: str) -> None:
        self.log.append(f"{(time.time_ns() - self.born) / 1e6:9.1f} {text}")

    # The sidecar ----------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Start the sidecar, and follow the session."""
        self.sidecar = Sidecar(self.settings, self.events.append, cap=CAP)
        agent = registry()["claude-code"]
        for found in agent.find_in(str(self.session.transcript)):
            self.sidecar.attach(agent, found, str(self.project))
        self.step()

    def leave(self) -> None:
        """Stop the sidecar."""
        assert self.sidecar is not None
        self._gone = time.time_ns()
        self.sidecar.close()
        self.sidecar = None

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:
        """Be without a sidecar."""
        began = time.time_ns()
        self.leave()
        yield
        self.enter()
        self.outages.append(Span(began, time.time_ns()))

    def step(self) -> None:
        """Let the sidecar do one round."""
        assert self.sidecar is not None
        began = time.time_ns()
        self.sidecar.step()
        self.rounds.append(Span(began, time.time_ns()))

    @contextlib.contextmanager
    def running(self) -> Iterator[Workspace]:
        """Let the sidecar run by itself, and open the store as another process does."""
        assert self.sidecar is not None
        stopped = threading.Event()
        thread = threading.Thread(target=self.sidecar.run, args=(stopped.is_set,))
        began = time.time_ns()
        thread.start()
        try:
            with self.store() as workspace:
                yield workspace
        finally:
            stopped.set()
            assert self.sidecar.watcher is not None
            self.sidecar.watcher.wake()
            thread.join()
            self.rounds.append(Span(began, time.time_ns()))

    @contextlib.contextmanager
    def store(self) -> Iterator[Workspace]:
        """Open the store as another process does."""
        workspace = open_for_root(str(self.project), self.settings.checkpoints, create=False)
        assert workspace is not None
        with workspace.opened():
            yield workspace

    # What happens to files ------------------------------------------------------------------------------------------

    def tree(self) -> Tree:
        return read_tree(self.project)

    def stamps(self) -> dict[bytes, tuple[int, int]]:
        """Give inode and mtime of every file."""
        root = os.fsencode(self.project)
        found = {}
        for path, entry in self.tree().items():
            if entry[0] == "file":
                status = os.lstat(os.path.join(root, path))
                found[path] = (status.st_ino, status.st_mtime_ns)
        return found

    def path(self, name: bytes) -> str:
        return os.path.join(self.project, os.fsdecode(name))

    def touch(self, what: str, do: Callable[[], object], *paths: bytes) -> None:
        """Do something to files, and note what changed by it, and when."""
        before, began = self.tree(), time.time_ns()
        try:
            do()
        except OSError as error:
            what += f" -> {error.strerror}"
        ended, after = time.time_ns(), self.tree()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        self.touches.append(Touch(began, ended, frozenset(changed | set(paths)), before, frozenset(changed)))
        self.note(f"{what}: {sorted(changed)}")

    # What a person and the agent say --------------------------------------------------------------------------------

    def message(self) -> Sent:
        """Send a message."""
        sent = Sent(new_uuid(), time.time_ns(), self.tree())
        self.session.prompt("go on", uuid=sent.uuid, at=sent.at)
        sent.told = time.time_ns()
        self._add(sent)
        self._begin_turn(sent.at)
        self.note(f"message {sent.uuid[:8]}")
        return sent

    def send_late(self) -> None:
        """Send a message whose record is not appended yet."""
        sent = Sent(new_uuid(), time.time_ns(), self.tree())
        leaf, self.session._held = self.session.leaf, []
        self.session.prompt("late", uuid=sent.uuid, at=sent.at, snapshot=False)
        sent.lines, self.session._held = b"".join(self.session._held), None
        self.session.leaf = leaf
        self.late = sent
        self._begin_turn(sent.at)
        self.note(f"late message {sent.uuid[:8]} sent")

    def tell_late(self) -> None:
        """Append the record of the late message."""
        if self.late is None:
            return
        sent, self.late = self.late, None
        self.session.append_bytes(sent.lines)
        sent.told = time.time_ns()
        self._add(sent)
        self.note(f"late message {sent.uuid[:8]} told")

    def repeat(self) -> None:
        """Append the newest records once more."""
        lines = self.session.transcript.read_bytes().splitlines(keepends=True)
        self.session.append_bytes(b"".join(lines[-3:]))
        self.note("repeated")

    def _add(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.sent.sort(key=lambda one: one.at)

    def _begin_turn(self, at: int) -> None:
        if self.turns and self.turns[-1].ended is None:
            self.turns[-1].ended = at
        self.turns.append(Turn(at))

    def wake_up(self) -> None:
        """Note that the agent works, also after it had said that it was done."""
        if self.turns and self.turns[-1].ended is not None:
            self.turns.append(Turn(time.time_ns()))

    def end_turn(self) -> None:
        """Let the agent say that it is done."""
        self.session.say()
        if self.turns and self.turns[-1].ended is None:
            self.turns[-1].ended = time.time_ns()
        self.note("turn ends")

    def mark(self) -> None:
        """Make a checkpoint by hand."""
        uuid = new_uuid()
        with self.running() as workspace:
            row = workspace.instants.sessions()[0]
            make_mark(workspace, row, uuid, "by hand", self.settings)
            found = workspace.instants.get(row.session, uuid)
            assert found is not None
        self._add(Sent(uuid, found.at, self.tree(), told=found.at))
        self.note(f"mark {uuid[:8]}")

    def pin(self, sent: Sent, name: str | None) -> None:
        """Pin a checkpoint, or take its pin away."""
        with self.store() as workspace, workspace.database.transaction():
            if workspace.instants.get(self.session.session, sent.uuid) is None:
                return
            if name is not None and workspace.instants.pinned(name) is not None:
                return
            workspace.instants.pin(self.session.session, sent.uuid, name)
            enforce_caps(workspace, self.session.session, cap=CAP, before_rewinds=BEFORE_REWINDS)
        self.note(f"pin {sent.uuid[:8]} {name}")

    # Rewinds --------------------------------------------------------------------------------------------------------

    def checkpoint(self, uuid: str) -> Checkpoint | None:
        with self.store() as workspace:
            return workspace.instants.get(self.session.session, uuid)

    def rewind(self, checkpoint: Checkpoint, *, everything: bool = False, only: Sequence[bytes] = ()) -> Went:
        """Rewind, as the command line does it."""

        def note(workspace: Workspace, done: Done) -> None:
            if done.undo is not None:
                workspace.rewinds.push(checkpoint.session, checkpoint.message, done.undo, time.time_ns())

        went = self._carry_out(Request(checkpoint, tuple(only), everything), note)
        if went.done.undo is not None:
            self.undone.clear()
        return went

    def undo(self, *, redo: bool = False) -> Went | None:
        """Undo the newest rewind, or do it again, as the command line does it."""
        session = self.session.session
        with self.store() as workspace:
            rewinds = workspace.rewinds
            row = rewinds.last_undone(session) if redo else rewinds.last_done(session)
            found = None if row is None else workspace.instants.get(session, (row.redo if redo else row.before) or "")
        if row is None or found is None:
            return None
        number = row.id

        def note(workspace: Workspace, done: Done) -> None:
            change = workspace.rewinds.mark_redone if redo else workspace.rewinds.mark_undone
            change(number, done.undo or found.message, time.time_ns())

        return self._carry_out(Request(found), note)

    def _carry_out(self, request: Request, note: Callable[[Workspace, Done], None]) -> Went:
        before, began = self.tree(), time.time_ns()
        with self.running() as workspace:
            done = Rewinding(workspace, self.settings).carry_out(request, lambda done: note(workspace, done))
        assert done is not None
        after = self.tree()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        self.touches.append(
            Touch(began, time.time_ns(), frozenset(changed), before, frozenset(changed), by_rewind=True)
        )
        plan = done.prepared.plan
        self.note(
            f"went to {request.checkpoint.message[:8]} all={request.everything} only={request.only}: "
            f"restored {done.outcome.restored} removed {done.outcome.removed} kept {done.outcome.kept} "
            f"failed {done.outcome.failed} links {plan.skipped_links}"
        )
        return Went(before, after, done, len(self.touches))


def pause(milliseconds: float) -> None:
    """Let time pass."""
    time.sleep(milliseconds * MS / 1e9)
