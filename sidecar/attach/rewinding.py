"""A whole rewind, from the question to the record: what the verbs `rewind`, `undo` and `diff` share.

    bring the timeline up to now --> gather --> plan --> (dry: stop) --> before-rewind state --> carry out --> record

A dry run does the same inside a transaction that is rolled back: it changes nothing, in the workspace or the store.
"""

import contextlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar import errors
from sidecar.attach import owner
from sidecar.attach.catchup import catch_up, make_capturer
from sidecar.attach.people import people_of
from sidecar.attach.rescue import saver
from sidecar.attach.settings import Settings
from sidecar.attach.upto import ask, bring_up_to_now, opened_places
from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.checkpoint.apply import enforce_caps, remember_state
from sidecar.fs.beneath import Blocked
from sidecar.fs.places import Places
from sidecar.fs.read import Whole, read_whole
from sidecar.model import Checkpoint, CheckpointKind, Reason, State
from sidecar.rewind.apply import Carrier, RewindOutcome, Target, rows_after
from sidecar.rewind.diff import count_lines
from sidecar.rewind.gather import Gatherer
from sidecar.rewind.plan import Action, Never, RewindPlan, Wish, plan_rewind
from sidecar.rewind.recover import recover
from sidecar.store.blobs import Damaged
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for."""

    checkpoint: Checkpoint
    only: tuple[bytes, ...] = ()
    everything: bool = False
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan, and what it would change in lines."""

    plan: RewindPlan
    insertions: int
    deletions: int
    scanned: bool
    recovered: int | None  # entries that an interrupted rewind had left, put back


@dataclass(frozen=True, slots=True)
class Done:
    """A rewind that was carried out; `undo` is the checkpoint of the state just before, None if nothing was to do."""

    prepared: Prepared
    outcome: RewindOutcome
    undo: str | None


class Rewinding:
    """One rewind of one workspace."""

    def __init__(self, workspace: Workspace, settings: Settings) -> None:
        self.workspace = workspace
        self.settings = settings
        self.clock = settings.clock
        self._save = saver(workspace, settings.clock)

    # Looking --------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Bring the timeline up to now."""
        with opened_places(self.workspace) as places, owner.own_rewind(self.workspace):
            recover(self.workspace, places, self._save)
            bring_up_to_now(self.workspace, places, self.settings, evict=False)

    def rehearse(
        self, asked: Callable[[], Request], show: Callable[[Prepared], None] = lambda _prepared: None
    ) -> tuple[Request, Prepared]:
        """Plan and change nothing. `asked` gives the request once all that happened is known.

        `show` is called while the contents that the plan names can be read.
        """
        result: tuple[Request, Prepared] | None = None
        with opened_places(self.workspace) as places:
            scanned = not ask(self.workspace, self.settings)
            with contextlib.suppress(_RollBack), self.workspace.database.transaction():
                self.workspace.blobs.rehearsing = True
                try:
                    if scanned:
                        catch_up(self.workspace, places, self.settings, evict=False)
                    request = asked()
                    self._require_live(request.checkpoint)
                    prepared = self._plan(request, places, scanned=scanned, recovered=None)
                    show(prepared)
                    result = request, prepared
                finally:
                    self.workspace.blobs.rehearsing = False
                raise _RollBack
        assert result is not None
        return result

    def _plan(self, request: Request, places: Places, *, scanned: bool, recovered: int | None) -> Prepared:
        capturer = make_capturer(self.workspace, places, self.settings)

        def ignored(path: bytes, is_directory: bool) -> bool:
            return not path.startswith(b"/") and (
                capturer.rules.verdict(path, is_directory=is_directory) is not Verdict.CAPTURED
            )

        gatherer = Gatherer(self.workspace, places, ignored, _never(capturer.rules))
        candidates = gatherer.candidates(request.checkpoint)
        people = people_of(self.workspace, self.settings)
        at, session = request.checkpoint.at, request.checkpoint.session
        wish = Wish(session, at, request.only, request.everything, request.outside)
        plan = plan_rewind(candidates, wish, people, gatherer.links(request.checkpoint))
        insertions = deletions = 0
        for action in plan.actions:
            self._mend(action, places)
            added, taken = self.count(action)
            insertions += added
            deletions += taken
        return Prepared(plan, insertions, deletions, scanned, recovered)

    def _mend(self, action: Action, places: Places) -> None:
        """Store today's bytes again where the store has lost them: nothing else leads back to them afterwards."""
        if action.now.blob is None or self.workspace.blobs.is_whole(action.now.blob):
            return
        root, below = places.of(action.path)
        policy = self.settings.checkpoints
        read = read_whole(root, below, ceiling_bytes=policy.limits.file_bytes, attempts=policy.batch.attempts)
        if isinstance(read, Whole):
            with self.workspace.blobs.writing(), self.workspace.database.transaction():
                self.workspace.blobs.put(read.content)
                self.workspace.blobs.drop_unused()

    def count(self, action: Action) -> tuple[int, int]:
        """Give the lines that one action adds and takes away; none where today's bytes cannot be read."""
        if action.now.blob == action.then.blob:
            return 0, 0
        try:
            return count_lines(self.content(action.now), self.content(action.then))
        except Damaged:
            return 0, 0

    def content(self, state: State) -> bytes | None:
        """Give a state's bytes; None where there is no file. Raises Damaged."""
        return self.workspace.blobs.get(state.blob) if state.blob is not None else None

    # Doing ----------------------------------------------------------------------------------------------------------

    def carry_out(
        self,
        request: Request,
        note: Callable[[Done], None],
        confirm: Callable[[Prepared], bool] = lambda _prepared: True,
    ) -> Done | None:
        """Rewind; `note` writes down what it means for the stack of rewinds, in the same transaction.

        Refuses (Busy) while another process rewinds this workspace. None: the person said no.
        """
        with opened_places(self.workspace) as places, owner.own_rewind(self.workspace):
            recovered = recover(self.workspace, places, self._save)
            scanned = bring_up_to_now(self.workspace, places, self.settings, evict=False)
            self._require_live(request.checkpoint)
            prepared = self._plan(request, places, scanned=scanned, recovered=recovered)
            if not prepared.plan.actions:
                done = Done(prepared, RewindOutcome(kept=list(prepared.plan.kept)), None)
                with self.workspace.database.transaction():
                    self._enforce_caps(request.checkpoint.session)
                    note(done)  # an undo that finds nothing to do is done: the next one goes further back
                self.workspace.give_back()
                return done
            if not confirm(prepared):
                return None
            before = str(uuid.uuid4())
            with self.workspace.database.transaction():
                self._require_live(request.checkpoint)  # a person may have thought about it for long
                remember_state(
                    self.workspace,
                    request.checkpoint.session,
                    before,
                    self.clock.now(),
                    CheckpointKind.BEFORE_REWIND,
                    prompt=f"before going back to {request.checkpoint.message}",
                )
            policy = self.settings.checkpoints
            carrier = Carrier(
                self.workspace,
                places,
                self.clock,
                self._save,
                never=_never(make_capturer(self.workspace, places, self.settings).rules),
                retry_ms=policy.time.retry_write_ms,
                ceiling_bytes=policy.limits.file_bytes,
            )
            target = Target(request.checkpoint.session, request.checkpoint.message, before)
            try:
                outcome = carrier.run(prepared.plan, target)
            except errors.RewindFailed:
                with self.workspace.database.transaction():
                    self.workspace.instants.remove(request.checkpoint.session, before)
                raise
            done = Done(prepared, outcome, before)
            carrier.finish(
                lambda actions: self._record(actions, places, request.checkpoint.session, before, done, note)
            )
            with self.workspace.database.transaction():
                self._enforce_caps(request.checkpoint.session)  # the target is in use no more
            self.workspace.give_back()
            return done

    def _require_live(self, checkpoint: Checkpoint) -> None:
        if self.workspace.instants.get(checkpoint.session, checkpoint.message) is None:
            raise errors.NoCheckpoint(reason="evicted")

    def _record(
        self,
        actions: Sequence[Action],
        places: Places,
        session: str,
        before: str,
        done: Done,
        note: Callable[[Done], None],
    ) -> None:
        """Write down what the rewind made of each path, and make the before-rewind state end just before it."""
        at = self.clock.now()
        self.workspace.instants.move(session, before, at - 1)
        for action in actions:
            root, below = places.of(action.path)
            try:
                stat = root.stat(below)
            except Blocked:
                stat = None
            known = self.workspace.ledger.known(action.path)
            rows = rows_after(self.workspace, action, at)
            self.workspace.ledger.replace(action.path, known, rows, stat, at)
        note(done)
        self._enforce_caps(session)

    def _enforce_caps(self, session: str) -> None:
        policy, row = self.settings.checkpoints, self.workspace.instants.session(session)
        cap = row.cap if row is not None else policy.profiles["default"]
        enforce_caps(self.workspace, session, cap=cap, before_rewinds=policy.limits.before_rewind)


def _never(rules: IgnoreRules) -> Never:
    return lambda path, is_directory: rules.verdict(path, is_directory=is_directory) is Verdict.NEVER


class _RollBack(Exception):
    """Ends a rehearsal."""


def is_partial(outcome: RewindOutcome) -> bool:
    """Tell whether something that should have come back did not (exit code 3)."""
    return bool(outcome.failed) or any(reason is Reason.BLOB_MISSING for _, reason in outcome.kept)
