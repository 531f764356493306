"""Place what a look found among the messages, and write it into the timeline.

Two steps, so that no transaction is open while the workspace is read: `look` (and `survey`, the full scan) give
findings with the bytes they read; `commit` writes them. A finding whose row was replaced by another process in between
is dropped and its path stays a suspect.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.capture.look import Finding, Looker, Suspect, dirname
from sidecar.capture.place import Mark, place
from sidecar.model import ABSENT, Kind, Reason, Row, Stat, State
from sidecar.store.folders import no_folder_before, no_folder_since
from sidecar.store.ledger import Known


@dataclass(frozen=True, slots=True)
class CaptureOutcome:
    """What a commit did."""

    changed: tuple[bytes, ...]
    again: tuple[Suspect, ...]  # not written: busy, or replaced under us
    unstable: tuple[Suspect, ...]  # somebody is writing to them
    bytes: int
    passed: tuple[Finding, ...] = ()  # came and went unread: a message that turns up late may have seen them


@dataclass(frozen=True, slots=True)
class _Above:
    """What is known of the directory that a new path is in."""

    listed_since: int | None
    since: int | None  # it is a directory since then
    sure: bool  # and it is known what was there before
    none: tuple[int, int] | None = None  # from when until when it is known that there was no such directory


class Capturer(Looker):
    """The one that writes down what it finds; at most one a workspace is at work (see `attach.owner`)."""

    def commit(self, findings: Sequence[Finding], marks: Sequence[Mark]) -> CaptureOutcome:
        """Place findings among the messages and write them. Inside a transaction and `blobs.writing()`.

        Survives: a crash at any point; either all of it is there, or none.
        """
        busy = self.workspace.rewinds.journal_paths()
        changed: list[bytes] = []
        again: list[Suspect] = []
        unstable: list[Suspect] = []
        passed: list[Finding] = []
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
            elif path and (fresh is not None or finding.state != ABSENT):
                self.ledger.refresh(path, finding.stat, finding.seen_at)
            self._note_folder(finding, rows)
            if not _are_files(fresh, finding.stat) or finding.listed_at is not None:
                above.clear()
            if rows and path in twice:
                present[path] = self.ledger.known(path)
            if finding.state is not None and finding.state.reason is Reason.UNSTABLE:
                unstable.append(finding.suspect)
            if finding.state == ABSENT and (fresh is None or fresh.state == ABSENT):
                passed.append(finding)
        self.workspace.blobs.drop_unused()
        size = sum(len(f.content or b"") for f in findings)
        return CaptureOutcome(tuple(changed), tuple(again), tuple(unstable), size, tuple(passed))

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
        if changed_at > finding.suspect.read_at and not (state == ABSENT and evidence.gone):
            evidence = replace(evidence, single=False, last=None)  # it changed again after the event was read
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
        elif (another := _is_another_file(fresh, finding.stat)) or state == ABSENT:
            evidence = replace(evidence, another=another)
            if changed_at < evidence.proved_until - self.slack.before:  # a stamp that came along: it tells nothing
                changed_at = finding.seen_at
                evidence = replace(evidence, single=False, earliest=evidence.proved_until)
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


def _is_another_file(known: Known, stat: Stat | None) -> bool:
    """Tell whether another file has taken the place of the one that was known under its path."""
    was = known.stat
    if was is None or stat is None or not was.kind is stat.kind is Kind.FILE:
        return False
    return (was.device, was.inode) != (stat.device, stat.inode)


def _are_files(known: Known | None, stat: Stat | None) -> bool:
    """Tell whether a path neither was nor is a directory, and is there."""
    was_file = known is None or known.state.kind is not Kind.DIRECTORY
    return was_file and stat is not None and stat.kind is Kind.FILE
