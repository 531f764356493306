"""Look at suspects, or at the whole tree, and find what differs from what is known.

Nothing is written here: no transaction is open while the workspace is read. `capture.apply` places the findings among
the messages and writes them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.capture.place import Evidence, Slack
from sidecar.capture.plan import LINKED, Limits, Look, judge
from sidecar.clock import MS, Clock
from sidecar.fs.beneath import Blocked, stat_of, trace_of
from sidecar.fs.places import Places
from sidecar.fs.read import Gone, Linked, Unread, Whole, read_whole
from sidecar.fs.scan import Listing, list_directory, scan
from sidecar.model import ABSENT, Kind, Reason, Stat, State, unknown
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store.ledger import Known
from sidecar.store.present import folder_trace_of, present_paths
from sidecar.store.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Suspect:
    """A path that something may have happened to."""

    path: bytes
    evidence: Evidence
    read_at: int = 0  # of the last event that told of it
    listing: bool = False  # a directory whose names may have changed
    since: int = 0  # it lies in a directory that took the place of another: it is there no longer than that


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


class Looker:
    """The one that reads a workspace's files."""

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

    def look(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """Find what became of suspects; the names of new or changed directories are followed down."""
        stack = sorted(suspects, key=lambda suspect: suspect.path, reverse=True)
        asked = {suspect.path for suspect in stack}
        heard = {suspect.path: suspect.evidence for suspect in stack}
        came: dict[bytes, int] = {}  # directories that took the place of others, and when at the earliest
        while stack:
            suspect = _since(stack.pop(), came)
            known = self.ledger.known(suspect.path) if suspect.path else None
            try:
                now = self._stat(suspect.path)
            except OSError:
                yield from self._unreachable(suspect, known)
                continue
            finding = self._examine(suspect, known, now) if suspect.path else None
            if finding is None and now is None and suspect.evidence.first is not None:
                finding = self._passing(suspect, known)
            if now is not None and _is_another_folder(known, now):
                came[suspect.path] = max(suspect.since, now.ctime_ns)
            listed_at, below = self._below(suspect, known, now, finding, heard)
            if listed_at is not None:
                finding = replace(finding or self._found(suspect, known, None, now), listed_at=listed_at)
            stack.extend(reversed(below))
            beside = self._names_beside(known, now) - asked
            asked |= beside
            evidence = replace(suspect.evidence, single=False, first=None, last=None)
            stack.extend(Suspect(path, evidence, suspect.read_at) for path in sorted(beside))
            if finding is not None:
                yield finding

    def _passing(self, suspect: Suspect, known: Known | None) -> Finding | None:
        """Something was heard of a path where nothing was and nothing is: it came and went."""
        if self._verdict(suspect.path, None) is not Verdict.CAPTURED:
            return None
        return self._found(suspect, known, ABSENT, None)

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
        present, absent = present_paths(self.workspace.database, racy_ns=self.limits.racy)
        unseen, unnamed = set(present), set(self.named)

        def known(path: bytes) -> Known | None:
            return self.ledger.known(path) if path in present or path in absent else None

        came: dict[bytes, int] = {}
        files = 0
        for listing in scan(self.root, b"", self._enter):
            prefix = listing.path + b"/" if listing.path else b""
            if listing.fault is not None or not listing.steady:  # no evidence of absence: what is known of it stands
                unseen = {path for path in unseen if not path.startswith(prefix)}
            if listing.fault is not None:
                continue
            self.rules.saw(listing.path, (name for name, _ in listing.entries))
            verdict = self.rules.judging(listing.path)
            if not listing.steady or present.get(listing.path) != folder_trace_of(listing.stat):
                was = known(listing.path)
                if _is_another_folder(was, listing.stat):
                    came[listing.path] = listing.stat.ctime_ns
                yield self._of_listing(Suspect(listing.path, evidence), was, listing)
            for name, found in listing.entries:
                path = prefix + name
                unseen.discard(path)
                unnamed.discard(path)
                trace = present.get(path)
                if (
                    trace is not None
                    and trace == trace_of(found)
                    and found.st_size <= self.limits.file_bytes
                    and verdict(path, False) is Verdict.CAPTURED
                ):
                    files += 1
                    continue
                stat = stat_of(found)
                if stat.kind is Kind.DIRECTORY and self._enter(path, stat):
                    continue  # it comes as a listing of its own
                finding = self._examine(_since(Suspect(path, evidence), came), known(path), stat)
                if finding is not None:
                    yield finding
                files += 1
            progress(files)
        unseen.discard(b"")
        for path in sorted(unseen | (unnamed - set(present) - absent)):
            yield from self._examine_at(_since(Suspect(path, evidence), came), known(path))

    def _of_listing(self, suspect: Suspect, known: Known | None, listing: Listing) -> Finding:
        found = self._examine(suspect, known, listing.stat) if suspect.path else None
        listed_at = listing.listed_at if listing.steady else None
        return replace(found or self._found(suspect, known, None, listing.stat), listed_at=listed_at)

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
        stamp = stat.ctime_ns if stat is not None else self._parent_changed_at(suspect.path, seen_at)
        return Finding(suspect, known, state, content, stat, min(seen_at, max(stamp, suspect.since)), seen_at)

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
        self,
        suspect: Suspect,
        known: Known | None,
        now: Stat | None,
        finding: Finding | None,
        heard: Mapping[bytes, Evidence],
    ) -> tuple[int | None, list[Suspect]]:
        """Give the suspects that follow from a directory: its names, and what is gone from it.

        Nothing but its going happened to what went with a directory, unless more was `heard`.
        """
        path, evidence = suspect.path, replace(suspect.evidence, single=False, last=None)
        was_folder = not path or (known is not None and known.state.kind is Kind.DIRECTORY)
        if now is None or now.kind is not Kind.DIRECTORY or (path and self._verdict(path, now) is not Verdict.CAPTURED):
            gone = self.ledger.known_below(path) if was_folder and finding is not None else {}
            evidence = replace(evidence, single=suspect.evidence.single)
            return None, [
                Suspect(child, _together(evidence, heard.get(child)), suspect.read_at)
                for child in gone
                if b"/" not in child[len(path) + 1 :]
            ]
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
        paths = [prefix + name for name in sorted(names)]
        below = [Suspect(child, _together(evidence, heard.get(child)), suspect.read_at) for child in paths]
        return listing.listed_at if listing.steady else None, below


def _together(evidence: Evidence, heard: Evidence | None) -> Evidence:
    """Join what a directory's events say of a path in it with what the path's own do."""
    if heard is None:
        return evidence
    first = None if evidence.first is None or heard.first is None else min(evidence.first, heard.first)
    proved = min(evidence.proved_until, heard.proved_until)
    return replace(evidence, proved_until=proved, first=first, single=False, gone=False)


def _since(suspect: Suspect, came: Mapping[bytes, int]) -> Suspect:
    """Say of a suspect since when it can be there at most: since the directories above it are."""
    since, path = suspect.since, suspect.path
    while came and path:
        path = dirname(path)
        since = max(since, came.get(path, 0))
    if since == suspect.since:
        return suspect
    return replace(suspect, since=since, evidence=replace(suspect.evidence, single=False))


def _is_another_folder(known: Known | None, now: Stat) -> bool:
    """Tell whether a directory has taken the place of the one that was known under its path."""
    was = known.stat if known is not None else None
    folders = was is not None and was.kind is now.kind is Kind.DIRECTORY
    return folders and was is not None and (was.device, was.inode) != (now.device, now.inode)


def dirname(path: bytes) -> bytes:
    """Give the directory that a relative path is in; the root's is the root."""
    return path.rpartition(b"/")[0]
