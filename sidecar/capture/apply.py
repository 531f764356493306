"""Look at suspects and write what changed of them into the timeline.

Two steps, so that no transaction is open while the workspace is read: `look` (and `survey`, the full scan) give
findings with the bytes they read; `commit` places them among the messages and writes them. A finding whose row was
replaced by another process in between is dropped and its path stays a suspect.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.capture.place import Evidence, Mark, Slack, place
from sidecar.capture.plan import LINKED, Limits, Look, judge
from sidecar.clock import MS, Clock
from sidecar.fs.beneath import Blocked
from sidecar.fs.places import Places
from sidecar.fs.read import Gone, Linked, Unread, Whole, read_whole
from sidecar.fs.scan import list_directory, scan
from sidecar.model import ABSENT, Kind, Reason, Row, Stat, State, unknown
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store.folders import no_folder_before, no_folder_since
from sidecar.store.ledger import Known
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Suspect:
    """A path that something may have happened to."""

    path: bytes
    evidence: Evidence
    read_at: int = 0  # of the last event that told of it
    listing: bool = False  # a directory whose names may have changed


@dataclass(frozen=True, slots=True)
class Finding:
    """What a look at one path found."""

    suspect: Suspect
    known: Known | None
    state: State | None  # None: the row stands, or `content` is the state
    content: bytes | None
    stat: Stat | None
    changed_at: int
    seen_at: int
    listed_at: int | None = None  # a directory whose names were all seen at this instant

    @property
    def path(self) -> bytes:
        """The path that was looked at."""
        return self.suspect.path


@dataclass(frozen=True, slots=True)
class CaptureOutcome:
    """What a commit did."""

    changed: tuple[bytes, ...]
    again: tuple[Suspect, ...]  # not written: busy, or replaced under us
    unstable: tuple[Suspect, ...]  # somebody is writing to them
    bytes: int


@dataclass(frozen=True, slots=True)
class _Above:
    """What is known of the directory that a new path is in."""

    listed_since: int | None
    since: int | None  # it is a directory since then
    sure: bool  # and it is known what was there before
    none: tuple[int, int] | None = None  # from when until when it is known that there was no such directory


class Capturer:
    """The one that reads a workspace's files; at most one a workspace is at work (see `attach.owner`)."""

    def __init__(
        self, workspace: Workspace, places: Places, rules: IgnoreRules, policy: CheckpointPolicy, clock: Clock
    ) -> None:
        self.workspace = workspace
        self.ledger = workspace.ledger
        self.places = places
        self.root = places.root
        self.rules = rules
        self.policy = policy
        self.clock = clock
        self.named: set[bytes] = set()  # by tool calls: captured although a pattern ignores them, or outside
        self.slack = Slack(policy.time.before_slack_ms * MS, policy.time.after_slack_ms * MS)
        self.limits = Limits(policy.limits.file_bytes, policy.limits.small_ignored_bytes, self.slack.before)

    # Looking --------------------------------------------------------------------------------------------------------

    def look(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """Find what became of suspects; the names of new or changed directories are followed down."""
        stack = sorted(suspects, key=lambda suspect: suspect.path, reverse=True)
        asked = {suspect.path for suspect in stack}
        while stack:
            suspect = stack.pop()
            known = self.ledger.known(suspect.path) if suspect.path else None
            try:
                now = self._stat(suspect.path)
            except OSError:
                yield from self._unreachable(suspect, known)
                continue
            finding = self._examine(suspect, known, now) if suspect.path else None
            listed_at, below = self._below(suspect, known, now, finding)
            if listed_at is not None:
                finding = replace(finding or self._found(suspect, known, None, now), listed_at=listed_at)
            stack.extend(reversed(below))
            beside = self._names_beside(known, now) - asked
            asked |= beside
            evidence = replace(suspect.evidence, single=False, first=None, last=None)
            stack.extend(Suspect(path, evidence, suspect.read_at) for path in sorted(beside))
            if finding is not None:
                yield finding

    def _names_beside(self, known: Known | None, now: Stat | None) -> set[bytes]:
        """Give the names of a file with several: what happens to it is heard of at one of them alone."""
        stats = [stat for stat in (known.stat if known is not None else None, now) if stat is not None]
        several = {(stat.device, stat.inode) for stat in stats if stat.kind is Kind.FILE and stat.links > 1}
        return {path for device, inode in several for path in self.ledger.names_of(device, inode)}

    def survey(
        self,
        evidence: Evidence,
        progress: Callable[[int], None] = lambda _files: None,
        until: int | None = None,
    ) -> Iterator[Finding]:
        """Compare the whole tree with what is known: the truth, when events are not to be trusted.

        Changes later than `until`, and what lies in a directory that came later, are left for their events.
        """
        late: set[bytes] = set()
        for finding in self._compare(evidence, progress):
            changed = finding.state is not None or finding.content is not None
            if dirname(finding.path) in late or (until is not None and changed and finding.changed_at > until):
                late.add(finding.path)
            else:
                yield finding

    def _compare(self, evidence: Evidence, progress: Callable[[int], None]) -> Iterator[Finding]:
        known_all = self.ledger.known_all()
        seen: set[bytes] = set()
        files = 0
        for listing in scan(self.root, b"", self._enter):
            prefix = listing.path + b"/" if listing.path else b""
            if listing.fault is not None or not listing.steady:  # no evidence of absence: what is known of it stands
                seen.update(path for path in known_all if path.startswith(prefix))
            if listing.fault is not None:
                continue
            self.rules.saw(listing.path, (name for name, _ in listing.entries))
            folder, known = Suspect(listing.path, evidence), known_all.get(listing.path)
            found = self._examine(folder, known, listing.stat) if listing.path else None
            listed_at = listing.listed_at if listing.steady else None
            yield replace(found or self._found(folder, known, None, listing.stat), listed_at=listed_at)
            for name, stat in listing.entries:
                path = prefix + name
                seen.add(path)
                if stat.kind is Kind.DIRECTORY and self._enter(path, stat):
                    continue  # it comes as a listing of its own
                finding = self._examine(Suspect(path, evidence), known_all.get(path), stat)
                if finding is not None:
                    yield finding
                files += 1
            progress(files)
        gone = {path for path, known in known_all.items() if path and known.state != ABSENT} - seen
        for path in sorted(gone | (self.named - seen - set(known_all))):
            yield from self._examine_at(Suspect(path, evidence), known_all.get(path))

    def _examine_at(self, suspect: Suspect, known: Known | None) -> Iterator[Finding]:
        try:
            now = self._stat(suspect.path)
        except OSError:
            yield from self._unreachable(suspect, known)
            return
        finding = self._examine(suspect, known, now)
        if finding is not None:
            yield finding

    def _unreachable(self, suspect: Suspect, known: Known | None) -> Iterator[Finding]:
        """What may not be looked at may be anything: it is neither gone nor what it was."""
        state = unknown(Reason.UNSTORABLE)
        if known is not None and known.state != state:
            yield self._found(suspect, known, state, None)

    def _stat(self, path: bytes) -> Stat | None:
        try:
            root, below = self.places.of(path)
            return root.stat(below)
        except (Blocked, FileNotFoundError):
            return None  # what lies behind a link is not in the workspace

    def _enter(self, path: bytes, stat: Stat) -> bool:
        return self._verdict(path, stat) is Verdict.CAPTURED and stat.device == self.root.device

    def _verdict(self, path: bytes, stat: Stat | None) -> Verdict:
        verdict = self.rules.verdict(path, is_directory=stat is not None and stat.kind is Kind.DIRECTORY)
        ignored = verdict in (Verdict.IGNORED_FILE, Verdict.IGNORED_FOLDER)
        return Verdict.CAPTURED if ignored and path in self.named else verdict

    def _examine(self, suspect: Suspect, known: Known | None, now: Stat | None) -> Finding | None:
        looked = judge(
            known.state if known else None,
            known.stat if known else None,
            known.seen_at if known else 0,
            now,
            self._verdict(suspect.path, now),
            self.limits,
        )
        if looked is Look.READ:
            return self._read(suspect, known)
        if looked is Look.NOTHING:
            return None
        return self._found(suspect, known, None if looked is Look.REFRESH else looked, now)

    def _read(self, suspect: Suspect, known: Known | None) -> Finding | None:
        root, below = self.places.of(suspect.path)
        ceiling, attempts = self.limits.file_bytes, self.policy.batch.attempts
        was = known.stat if known is not None and known.state.kind is Kind.FILE else None
        ours = (was.device, was.inode) if was is not None else None
        match read_whole(root, below, ceiling_bytes=ceiling, attempts=attempts, ours=ours):
            case Whole(content=content, stat=stat, sure=True) if stat.links > 1:
                same = known is not None and self.workspace.blobs.find(content) == known.state.blob
                return self._found(suspect, known, None if same else LINKED, stat)
            case Whole(content=content, stat=stat, sure=True):
                return self._found(suspect, known, None, stat, content)
            case Whole(stat=stat):
                return self._found(suspect, known, unknown(Reason.UNSTABLE), stat)
            case Linked(stat=stat):
                return self._found(suspect, known, LINKED, stat)
            case Unread(reason=reason, stat=stat):
                return self._found(suspect, known, unknown(reason), stat)
            case Gone():
                return self._found(suspect, known, ABSENT, None) if known and known.state != ABSENT else None

    def _found(
        self,
        suspect: Suspect,
        known: Known | None,
        state: State | None,
        stat: Stat | None,
        content: bytes | None = None,
    ) -> Finding:
        seen_at = self.clock.now()
        changed_at = min(seen_at, stat.ctime_ns if stat is not None else self._parent_changed_at(suspect.path, seen_at))
        return Finding(suspect, known, state, content, stat, changed_at, seen_at)

    def _parent_changed_at(self, path: bytes, seen_at: int) -> int:
        """Give an instant than which a removal is no later.

        The name went no later than the last change of the directory that it was in; if that is gone too, of the one
        above; if something else stands there, no later than that came.
        """
        while path:
            path = dirname(path)
            try:
                above = self._stat(path)
            except OSError:
                return seen_at
            if above is not None:
                return above.ctime_ns
        return seen_at

    def _below(
        self, suspect: Suspect, known: Known | None, now: Stat | None, finding: Finding | None
    ) -> tuple[int | None, list[Suspect]]:
        """Give the suspects that follow from a directory: its names, and what is gone from it."""
        path, evidence = suspect.path, replace(suspect.evidence, single=False, last=None)
        was_folder = not path or (known is not None and known.state.kind is Kind.DIRECTORY)
        if now is None or now.kind is not Kind.DIRECTORY or (path and self._verdict(path, now) is not Verdict.CAPTURED):
            gone = self.ledger.known_below(path) if was_folder and finding is not None else {}
            return None, [Suspect(child, evidence) for child in gone if b"/" not in child[len(path) + 1 :]]
        known_stat = known.stat if known is not None else None
        same_folder = was_folder and (not path or (known_stat is not None and known_stat.inode == now.inode))
        if same_folder and not suspect.listing:
            return None, []
        listing = list_directory(self.root, path, now)
        if listing.fault is not None:  # gone, or not to be read: the next look says which
            return None, []
        names = {name for name, _ in listing.entries}
        prefix = path + b"/" if path else b""
        if was_folder and listing.steady:
            here = {child[len(prefix) :] for child in self.ledger.known_below(path)}
            names |= {name for name in here if b"/" not in name}
        below = [Suspect(prefix + name, evidence, suspect.read_at) for name in sorted(names)]
        return listing.listed_at if listing.steady else None, below

    # Writing --------------------------------------------------------------------------------------------------------

    def commit(self, findings: Sequence[Finding], marks: Sequence[Mark]) -> CaptureOutcome:
        """Place findings among the messages and write them. Inside a transaction and `blobs.writing()`.

        Survives: a crash at any point; either all of it is there, or none.
        """
        busy = self.workspace.rewinds.journal_paths()
        changed: list[bytes] = []
        again: list[Suspect] = []
        unstable: list[Suspect] = []
        present: dict[bytes, Known | None] = dict(self.ledger.known_among([f.path for f in findings if f.path]))
        twice = {path for path, count in Counter(f.path for f in findings).items() if count > 1}
        above: dict[bytes, _Above] = {}  # of directories, until something else than a file is written
        for finding in findings:
            path = finding.path
            fresh = present.get(path)
            if path in busy or (fresh and fresh.version) != (finding.known and finding.known.version):
                again.append(finding.suspect)
                continue
            rows = self._place(finding, fresh, marks, above)
            if rows:
                self.ledger.replace(path, fresh, rows, finding.stat, finding.seen_at)
                changed.append(path)
            elif path:
                self.ledger.refresh(path, finding.stat, finding.seen_at)
            self._note_folder(finding, rows)
            if not _are_files(fresh, finding.stat) or finding.listed_at is not None:
                above.clear()
            if rows and path in twice:
                present[path] = self.ledger.known(path)
            if finding.state is not None and finding.state.reason is Reason.UNSTABLE:
                unstable.append(finding.suspect)
        self.workspace.blobs.drop_unused()
        return CaptureOutcome(
            tuple(changed), tuple(again), tuple(unstable), sum(len(f.content or b"") for f in findings)
        )

    def _above(self, folder: bytes) -> _Above:
        parent = self.ledger.known(folder)
        if parent is None or parent.state.kind is not Kind.DIRECTORY:
            return _Above(self.ledger.listed_since(folder), None, sure=False)
        earlier = self.ledger.state_at(folder, parent.row.from_at - 1)
        sure = earlier is not None and earlier.kind is not Kind.UNKNOWN
        listed_since = self.ledger.listed_since(folder)
        none = no_folder_before(self.ledger, folder, parent.row.from_at) if listed_since is None else None
        return _Above(listed_since, parent.row.from_at, sure, none)

    def _place(
        self, finding: Finding, fresh: Known | None, marks: Sequence[Mark], above: dict[bytes, _Above]
    ) -> tuple[Row, ...]:
        state = finding.state
        if finding.content is not None and finding.stat is not None:
            blob = self.workspace.blobs.put(finding.content)
            state = State(Kind.FILE, blob, len(finding.content), finding.stat.mode)
        if state is None or (fresh is not None and fresh.state == state and _was_not_written(finding, fresh)):
            return ()
        evidence, changed_at = finding.suspect.evidence, finding.changed_at
        if evidence.single and changed_at > finding.suspect.read_at:
            evidence = replace(evidence, single=False)  # it changed again after the event was read
        if fresh is None or fresh.state == ABSENT:
            folder = dirname(finding.path)
            parent = above.get(folder)
            if parent is None:
                parent = above[folder] = self._above(folder)
            if fresh is None:
                evidence = replace(evidence, absent_since=parent.listed_since)
                if parent.none is not None:  # it kept changing while it was listed: only what was before it is sure
                    since, until = parent.none
                    proved = min(evidence.proved_until, until)
                    evidence = replace(evidence, absent_since=since, proved_until=proved, single=False)
            if state != ABSENT and parent.since is not None:
                # A moved folder's children keep their ctime: a path cannot be older than the folder that it is in.
                changed_at = max(changed_at, parent.since)
                if parent.sure:
                    evidence = replace(evidence, not_before=parent.since)
        return place(fresh.row if fresh else None, state, changed_at, evidence, marks, self.slack)

    def _note_folder(self, finding: Finding, rows: tuple[Row, ...]) -> None:
        path, state = finding.path, finding.state
        if state is not None and state.kind in (Kind.LINK, Kind.UNKNOWN):
            self.ledger.forget_folder(path)
        if finding.listed_at is None:
            return
        # While there was no such directory there was nothing in it either.
        was_none = len(rows) > 1 and rows[0].state.kind in (Kind.ABSENT, Kind.FILE)
        since = no_folder_since(self.ledger, path, rows[0].from_at) if was_none else finding.listed_at
        self.ledger.list_folder(path, since)


def _was_not_written(finding: Finding, fresh: Known) -> bool:
    """Tell whether the same bytes are there as ever, and only the file's other names came or went: no event says so."""
    evidence, was, now = finding.suspect.evidence, fresh.stat, finding.stat
    unheard = evidence.covered and evidence.first is None
    return unheard and was is not None and now is not None and _written(was) == _written(now)


def _written(stat: Stat) -> tuple[object, ...]:
    return stat.kind, stat.device, stat.inode, stat.size_bytes, stat.mtime_ns


def _are_files(known: Known | None, stat: Stat | None) -> bool:
    """Tell whether a path neither was nor is a directory, and is there."""
    was_file = known is None or known.state.kind is not Kind.DIRECTORY
    return was_file and stat is not None and stat.kind is Kind.FILE


def dirname(path: bytes) -> bytes:
    """Give the directory that a relative path is in; the root's is the root."""
    return path.rpartition(b"/")[0]
