"""One workspace of a running sidecar: its suspects, and when they are written down.

Order of a round (`loop`): events are taken, the transcripts are read to their end, a barrier proves that every change
made before that was heard of; only then are suspects looked at and placed, together with the messages that were read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sidecar import errors
from sidecar.attach.pace import HotPaths
from sidecar.capture.apply import CaptureOutcome, Capturer
from sidecar.capture.budget import Budget
from sidecar.capture.look import Finding, Suspect
from sidecar.capture.named import NamedCapturer
from sidecar.capture.place import Evidence, Mark, Order, is_doubtful, order
from sidecar.clock import MS, SECOND, Clock
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store.doubt import begun_between, forget_instant
from sidecar.store.workspace import Workspace
from sidecar.watch import Event, What

MARKS_KEPT = 60 * SECOND
EXTEND_AFTER = 10 * SECOND  # a proof of the past this much longer is worth a commit


@dataclass(frozen=True, slots=True)
class Pending:
    """A suspect as its events add up."""

    proved_until: int
    first: int | None
    last: int | None
    count: int
    read_at: int
    listing: bool
    gone: bool = False
    since: int = 0

    def suspect(self, path: bytes) -> Suspect:
        """Turn what was gathered into something to look at."""
        evidence = Evidence(self.proved_until, self.count == 1, self.first, self.last, gone=self.gone)
        return Suspect(path, evidence, self.read_at, self.listing, self.since)


class Station:
    """A workspace and what is going on in it."""

    def __init__(self, workspace: Workspace, capturer: Capturer, policy: CheckpointPolicy, clock: Clock) -> None:
        self.workspace = workspace
        self.capturer = capturer
        self.policy = policy
        self.clock = clock
        self.budget = Budget(workspace, policy.limits)
        self.proved_until = 0  # every change before this instant was heard of
        self.scanned_at = 0
        self.coverage: int | None = None
        self.covered_until = 0
        self._files = 0
        self.marks: dict[tuple[str, str], Mark] = {}
        self._pending: dict[bytes, Pending] = {}
        self._unstable: dict[bytes, Pending] = {}
        self._passed: list[Finding] = []
        self.hot: HotPaths | None = None  # who captures continuously gives this

    # Suspects -------------------------------------------------------------------------------------------------------

    def note(self, event: Event, proved_until: int) -> None:
        """Make the path of an event a suspect. `proved_until`: when all was known before this event was taken."""
        listing = event.what is What.FOLDER
        gone = event.what in (What.REMOVED, What.MOVED_AWAY)
        old = self._pending.get(event.path)
        if old is None:
            at = event.position
            self._pending[event.path] = Pending(proved_until, at, at, 1, event.read_at, listing, gone)
            return
        known = old.last is not None and event.position > old.last
        self._pending[event.path] = replace(
            old,
            last=event.position if old.first is not None else None,
            count=old.count + 1 if known or old.last is None else old.count,
            read_at=max(old.read_at, event.read_at),
            listing=old.listing or listing,
            gone=gone,
        )

    def name(self, path: bytes) -> None:
        """Make a path that a tool call named a suspect, now and at every look at the whole tree."""
        self.capturer.named.add(path)
        self._pending.setdefault(path, Pending(self.scanned_at, None, None, 0, 0, listing=False))

    def renew_budget(self) -> None:
        """Let a message begin a budget of its own, out of which comes first what the one before had no room for."""
        for path in self.budget.renew():
            self._pending.setdefault(path, Pending(self.scanned_at, None, None, 0, 0, listing=False))

    @property
    def small(self) -> bool:
        """Tell whether looking at the whole tree costs little."""
        return self._files <= self.policy.limits.scan_files

    @property
    def busy(self) -> bool:
        """Tell whether there is anything to look at."""
        return bool(self._pending)

    # Writing down ---------------------------------------------------------------------------------------------------

    def survey(
        self,
        *,
        covered: bool,
        proved_until: int,
        until: int | None = None,
        progress: Callable[[int], None] = lambda _files: None,
        finish: Callable[[], None] | None = None,
    ) -> CaptureOutcome:
        """Compare the whole tree with what is known and write down what differs.

        `covered`: watching was unbroken since `proved_until`; else nothing is claimed of the time between. Changes
        later than `until` are left alone: their events, which say more, have not been taken yet.
        """
        waiting = self._pending
        if not covered:  # what was heard before and after a gap is no order; the tree itself says it all
            self._pending = {path: old for path, old in waiting.items() if path in self.capturer.named}
        started = self.clock.now()
        evidence = Evidence(proved_until, covered=covered)

        def count(files: int) -> None:
            self._count(files)
            progress(files)

        outcome = self._write(_heed(self.capturer.survey(evidence, count, until), waiting), finish, waiting)
        self.scanned_at = started
        return outcome

    def _count(self, files: int) -> None:
        self._files = files

    def write_down(
        self,
        finish: Callable[[], None] | None = None,
        *,
        unstable: bool = False,
        everything: bool = True,
        listings: bool = True,
    ) -> CaptureOutcome:
        """Look at all suspects and write down what became of them; `finish` joins the last transaction.

        `unstable`: also at paths that somebody was writing to when they were last looked at. Not `everything`: paths
        that change all the time wait for their next turn; their events go on adding up until then.
        Not `listings`: a look at the whole tree follows, which lists every folder.
        """
        waiting, now = self._pending, self.clock.now()
        if unstable:
            waiting = {**self._unstable, **waiting}
            self._unstable = {}
        if not listings:
            waiting = {path: one for path, one in waiting.items() if not one.listing}
        pending = waiting
        if self.hot is not None and not everything:
            pending = {path: one for path, one in waiting.items() if one.listing or not self.hot.is_hot(path, now)}
        self._pending = {path: one for path, one in waiting.items() if path not in pending}
        if not pending and finish is None:
            return CaptureOutcome((), (), (), 0)
        if self.hot is not None:
            for path in pending:
                self.hot.capture(path, now)
        findings = self.capturer.look(pending[path].suspect(path) for path in pending)
        return self._write(_heed(findings, self._pending), finish, waiting)

    def rescan(self, finish: Callable[[], None] | None = None) -> CaptureOutcome:
        """Look at the whole tree although events were heard: what nobody told is found by its stat.

        What was changed a moment ago may have an event that was not taken yet, and a stamp that lags behind it.
        """
        until = self.proved_until - self.policy.time.before_slack_ms * MS
        return self.survey(covered=True, proved_until=self.scanned_at, until=until, finish=finish)

    def look_at_named(self, finish: Callable[[], None] | None, *, extend_after: int) -> None:
        """Look at the paths that tool calls named, where nothing else is captured and no event tells of a change.

        Nothing is claimed of the time since the look before, but that it was proved until then.
        """
        started = self.clock.now()
        if isinstance(self.capturer, NamedCapturer):
            self.capturer.refused = self.budget.refused
        findings = self.capturer.survey(Evidence(self.scanned_at, covered=False), self._count)
        first = next(findings, None)
        if first is not None or finish is not None:
            outcome = self._write(chain(() if first is None else (first,), findings), finish, dict(self._pending))
            if outcome.again:
                return  # what was seen of them is not known: nothing is proved by this look
        self._pending, self._unstable = {}, {}  # all of them are looked at the next time
        self.scanned_at = started
        self.prove(started, extend_after=extend_after)

    def _write(
        self, findings: Iterator[Finding], finish: Callable[[], None] | None, waiting: Mapping[bytes, Pending]
    ) -> CaptureOutcome:
        try:
            return self._write_batches(findings, finish)
        except errors.StoreFault:
            self._pending = {**waiting, **self._pending}  # what was heard of them is as true as it was
            raise

    def _write_batches(self, findings: Iterator[Finding], finish: Callable[[], None] | None) -> CaptureOutcome:
        changed: list[bytes] = []
        again: list[Suspect] = []
        unstable: list[Suspect] = []
        total = 0
        for batch, last in _batches(findings, self.policy.batch.bytes):
            with self.workspace.blobs.writing(), self.workspace.database.transaction():
                admitted = self.budget.admit(batch)
                outcome = self.capturer.commit(admitted, self._marks(admitted))
                self.budget.spend()
                if last:
                    if finish is not None:
                        finish()
                    self._extend_coverage()
                    self.workspace.ledger.release(self.clock.now() - self.policy.time.record_grace_ms * MS)
            changed.extend(outcome.changed)
            again.extend(outcome.again)
            unstable.extend(outcome.unstable)
            total += outcome.bytes
            self._remember_passed(outcome.passed)
        self.workspace.blobs.bury()
        self._pending.update({suspect.path: _pending_again(suspect) for suspect in again})
        self._unstable.update({suspect.path: _pending_again(suspect) for suspect in unstable})
        return CaptureOutcome(tuple(changed), tuple(again), tuple(unstable), total)

    def _marks(self, batch: Sequence[Finding]) -> list[Mark]:
        """Give the messages that a batch's changes may straddle."""
        if not batch:
            return []
        slack = self.policy.time.before_slack_ms * MS
        since = min(min(f.suspect.evidence.proved_until, f.changed_at) for f in batch) - slack
        ordered = {mark.at: mark for mark in self.marks.values()}
        known = {at: ordered.get(at, Mark(at)) for at in self.workspace.instants.marks_since(since)}
        known.update((at, mark) for at, mark in ordered.items() if at >= since)
        return list(known.values())

    def add_mark(self, session: str, uuid: str, mark: Mark) -> None:
        """Remember between which events a message's record was appended, as long as a change may ask for it."""
        horizon = self.clock.now() - MARKS_KEPT
        self.marks = {key: old for key, old in self.marks.items() if old.at >= horizon}
        self.marks[session, uuid] = mark
        self._doubt(mark)
        self._doubt_absence(mark)

    def _remember_passed(self, findings: Iterable[Finding]) -> None:
        """Remember what came and went unread, as long as a message of that time may turn up."""
        horizon = self.clock.now() - self.policy.time.record_grace_ms * MS
        self._passed = [old for old in self._passed if old.seen_at >= horizon]
        self._passed.extend(finding for finding in findings if finding.path)

    def _doubt_absence(self, mark: Mark) -> None:
        """Say that what was perhaps there at a message, and went before anybody read it, is unknown there."""
        slack = self.capturer.slack
        for finding in self._passed:
            path, evidence = finding.path, finding.suspect.evidence
            if not evidence.proved_until <= mark.at <= finding.changed_at + slack.before:
                continue
            told = order(evidence, mark, slack)
            if told is Order.AFTER or (told is Order.BEFORE and evidence.gone):
                continue
            if self.workspace.ledger.row_at(path, mark.at) is not None:
                with self.workspace.database.transaction():
                    forget_instant(self.workspace.database, self.workspace.ledger.path_id(path), mark.at)
            else:
                self._pending[path] = _joined(_pending_again(finding.suspect), self._pending.get(path))

    def _doubt(self, mark: Mark) -> None:
        """Take back what was said of a message's instant before the message was known, where it may be wrong."""
        slack, database = self.capturer.slack, self.workspace.database
        near = begun_between(database, mark.at - slack.before, mark.at + slack.after)
        doubtful = [path for path, from_at in near if is_doubtful(from_at, mark, slack)]
        if doubtful:
            with database.transaction():
                for path in doubtful:
                    forget_instant(database, path, mark.at)

    # Coverage -------------------------------------------------------------------------------------------------------

    def begin_coverage(self, at: int) -> None:
        """Say that from here on every change is heard of."""
        with self.workspace.database.transaction():
            self.coverage = self.workspace.ledger.begin_coverage(at)
        self.covered_until = at

    def end_coverage(self) -> None:
        """Say that changes may have been missed since the last proof."""
        if self.coverage is not None:
            with self.workspace.database.transaction():
                self._extend_coverage()
            self.coverage = None

    def prove(self, until: int, *, extend_after: int) -> None:
        """Note that every change before an instant was heard of; written down when it is worth a commit."""
        self.proved_until = max(self.proved_until, until)
        if self.coverage is not None and self.proved_until - self.covered_until > extend_after and not self._pending:
            with self.workspace.database.transaction():
                self._extend_coverage()
                self.workspace.ledger.release(self.clock.now() - self.policy.time.record_grace_ms * MS)

    @property
    def known_until(self) -> int:
        """Give the instant until which the store's states stand: of a path that still waits it has an old one."""
        return min([self.proved_until, *(one.proved_until for one in self._pending.values() if one.count)])

    def _extend_coverage(self) -> None:
        until = self.known_until
        if self.coverage is not None and until > self.covered_until:
            self.workspace.ledger.extend_coverage(self.coverage, until)
            self.covered_until = until


def _pending_again(suspect: Suspect) -> Pending:
    evidence = suspect.evidence
    count = 2  # whatever kept it from being written down may have changed it too
    return Pending(
        evidence.proved_until,
        evidence.first,
        evidence.last,
        count,
        suspect.read_at,
        suspect.listing,
        since=suspect.since,
    )


def _joined(passed: Pending, waiting: Pending | None) -> Pending:
    if waiting is None:
        return passed
    proved = min(passed.proved_until, waiting.proved_until)
    return replace(waiting, proved_until=proved, first=passed.first, count=2)


def _heed(findings: Iterable[Finding], waiting: Mapping[bytes, Pending]) -> Iterator[Finding]:
    """Let what was found of a path through its directory, or its other name, heed the path's own events that wait.

    They may have come before those of the directory: then the state before did not stand as long as those say. Only
    a removal of its own, and nothing else, says all that those do.
    """
    for finding in findings:
        own, evidence = waiting.get(finding.path), finding.suspect.evidence
        mine = own.suspect(finding.path).evidence if own is not None and own.count else evidence
        if own is None or mine == evidence:
            yield finding
            continue
        if not (own.gone and own.count == 1):
            first = min(own.first, evidence.first) if own.first is not None and evidence.first is not None else None
            proved = min(own.proved_until, evidence.proved_until)
            mine = replace(evidence, proved_until=proved, single=False, gone=False, first=first, last=None)
        yield replace(finding, suspect=replace(finding.suspect, evidence=mine))


def _batches(findings: Iterable[Finding], ceiling: int) -> Iterator[tuple[list[Finding], bool]]:
    """Cut findings into batches of at most so many bytes; the last one is told, and comes even if it is empty."""
    batch: list[Finding] = []
    size = 0
    for finding in findings:
        weight = len(finding.content or b"") + 512
        if batch and size + weight > ceiling:
            yield batch, False
            batch, size = [], 0
        batch.append(finding)
        size += weight
    yield batch, True
