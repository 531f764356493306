"""Prove the rules of `sidecar.store`, and repair what can be repaired without losing anything.

A finding is a value with a stable word. The tables are asked in one snapshot; files, which live writers make and
unlink meanwhile, are looked at again before anything is said of them. Memory is bounded by the largest content.

Repaired are counters, modes, and what nothing names: contents without a reference, stray files, versions that no live
instant needs. A content that is missing or damaged is left, with every row that names it: such a row never becomes
one that claims absence, a rewind says `blob-missing`, and the same bytes heal it when they are captured again. In a
database that SQLite itself finds damaged nothing is repaired.
"""

import contextlib
import fcntl
import os
import stat as bits
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from sidecar import errors
from sidecar.fs.lock import read_owner
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store import home as homes
from sidecar.store.blobs import LOCK, Damaged, Missing
from sidecar.store.instants import CAPPED
from sidecar.store.workspace import Workspace, open_by_key

PAGE = 500  # contents asked for at once
TOLD = 20  # findings of one kind that are told one by one
DOOMED_S = 0.5
PATIENCE_S = 5.0  # for writers to let go of the folder of contents
TEMPORARY_DATABASE = "store.db.new"
DATABASE_FILES = ("store.db", "store.db-wal", "store.db-shm", TEMPORARY_DATABASE, "lock")

_NEEDED = "SELECT 1 FROM message m WHERE m.timeline = 1 AND m.state = 'live' AND m.at >= v.from_at AND m.at < v.to_at"
_RELEASED = "COALESCE((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'released'), 0)"
_REFERENCES = (
    "(SELECT count(*) FROM version v WHERE v.blob = b.id) + (SELECT count(*) FROM imported i WHERE i.blob = b.id)"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that does not hold."""

    code: str
    what: str


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a check found and mended; `findings` are those that are left."""

    ok: bool
    checkpoints: int
    versions: int
    blobs: int
    bytes: int  # as stored
    findings: tuple[Finding, ...]
    repaired: tuple[str, ...]


def check(workspace: Workspace, repair: bool = False) -> CheckOutcome:
    """Prove the rules for one timeline; `repair` what loses nothing. Beside live writers, too.

    Survives: a crash in a repair; each is one transaction.
    """
    looking = _Check(workspace, repair)
    try:
        looking.run()
    except errors.StoreFault as fault:
        looking.say("database-damaged", str(fault))
    return looking.outcome()


def check_home(policy: CheckpointPolicy, repair: bool = False) -> Iterator[CheckOutcome]:
    """Prove the rules for every timeline of the store, and for what lies around them.

    A timeline that cannot be opened is a finding and keeps no other from being checked.
    """
    home = homes.open_home(create=False)
    if home is None:
        return
    around = _Findings(repair)
    _check_around(around, home)
    yield CheckOutcome(not around.findings, 0, 0, 0, 0, tuple(around.findings), tuple(around.repaired))
    for key in homes.known_workspaces(home):
        try:
            workspace = open_by_key(key, policy)
        except errors.StoreTooNew as refusal:
            yield _failed("store-too-new", refusal)
        except errors.Refusal as refusal:
            yield _failed("database-damaged", refusal)
        else:
            with workspace.opened():
                yield check(workspace, repair)


def _failed(code: str, refusal: errors.Refusal) -> CheckOutcome:
    return CheckOutcome(False, 0, 0, 0, 0, (Finding(code, str(refusal)),), ())


def _check_around(around: "_Findings", home: str) -> None:
    workspaces = os.path.join(home, "workspaces")
    for folder in (home, workspaces, os.path.join(home, "locks")):
        if os.path.lexists(folder):
            around.prove_mode(folder, directory=True)
    around.prove_mode(os.path.join(home, homes.MARKER), directory=False)
    known = set(homes.known_workspaces(home))
    names = os.listdir(workspaces) if os.path.isdir(workspaces) else []
    for name in sorted(set(names) - known):
        blobs = os.path.join(workspaces, name, "blobs")
        if os.path.isdir(blobs) and set(os.listdir(blobs)) - {LOCK}:
            around.say("database-missing", f"{os.path.join(workspaces, name)} holds contents, but no database")


@dataclass
class _Findings:
    """What is found as a check goes on."""

    repair: bool
    findings: list[Finding] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def say(self, code: str, what: str) -> None:
        """Note a finding; beyond the first few of a kind they are only counted."""
        self.counts[code] = self.counts.get(code, 0) + 1
        if self.counts[code] <= TOLD:
            self.findings.append(Finding(code, what))

    def mend(self, code: str, what: str, how: Callable[[], object]) -> None:
        """Repair something if asked to and note that; else note a finding."""
        if not self.repair:
            self.say(code, what)
            return
        how()
        self.repaired.append(f"{code}: {what}")

    def prove_mode(self, path: str, *, directory: bool) -> None:
        """Prove that a directory or file is for its owner alone."""
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return
        wanted = 0o700 if directory else 0o600
        if not (bits.S_ISDIR if directory else bits.S_ISREG)(found.st_mode):
            self.say("foreign-file", f"{path} is no {'directory' if directory else 'regular file'}")
        elif bits.S_IMODE(found.st_mode) != wanted:
            # By its path, not by a handle: closing any handle of a database drops the locks that SQLite has on it.
            what = f"{path} is {bits.S_IMODE(found.st_mode):04o}, not {wanted:04o}"
            self.mend("mode", what, partial(os.chmod, path, wanted))


class _Check(_Findings):
    """One look at one timeline."""

    def __init__(self, workspace: Workspace, repair: bool) -> None:
        super().__init__(repair)
        self.workspace = workspace
        self.database = workspace.database
        self.blobs = workspace.blobs
        self.numbers = (0, 0, 0, 0)

    def run(self) -> None:
        """Prove everything, the database itself first."""
        damage = [str(row[0]) for row in self.database.all(f"PRAGMA integrity_check({TOLD})")]
        if damage != ["ok"]:
            for line in damage:
                self.say("database-damaged", line)
            self.repair = False
        with self.database.snapshot():
            self._count()
            self._prove_timeline()
            self._prove_instants()
        self._prove_doomed()
        self._prove_references()
        self._prove_versions_needed()
        self._prove_tally()
        self._prove_contents()
        self._prove_files()
        self._prove_modes()
        if self.repaired:
            self.workspace.give_back()

    def outcome(self) -> CheckOutcome:
        """Sum up."""
        hidden = [Finding(code, f"… and {n - TOLD} more") for code, n in sorted(self.counts.items()) if n > TOLD]
        found = (*self.findings, *hidden)
        return CheckOutcome(not found, *self.numbers, found, tuple(self.repaired))

    def _count(self) -> None:
        one = self.database.one
        blobs, stored = one("SELECT count(*), COALESCE(sum(stored_bytes), 0) FROM blob")
        live = one("SELECT count(*) FROM message WHERE state = 'live'")[0]
        self.numbers = (live, one("SELECT count(*) FROM version")[0], blobs, stored)

    # Rows -----------------------------------------------------------------------------------------------------------

    def _prove_timeline(self) -> None:
        for name, at, last in self.database.rows(
            "SELECT p.name, v.from_at, v.next IS NULL FROM (SELECT path, from_at, to_at, lead(from_at) OVER "
            "(PARTITION BY path ORDER BY from_at) AS next FROM version) v LEFT JOIN path p ON p.id = v.path "
            "WHERE CASE WHEN v.next IS NULL THEN v.to_at IS NOT NULL ELSE v.to_at IS NULL OR v.to_at > v.next END"
        ):
            if last:
                self.say("no-present", f"no version of {_show(name)} holds now")
            else:
                self.say("overlap", f"versions of {_show(name)} overlap from {at} on")
        for table, number, what in self.database.rows(
            "SELECT 'version', v.id, COALESCE(p.name, v.path) FROM version v LEFT JOIN path p ON p.id = v.path "
            "WHERE v.blob IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.id = v.blob) UNION ALL "
            "SELECT 'imported', i.message, COALESCE(p.name, i.path) FROM imported i LEFT JOIN path p ON p.id = i.path "
            "WHERE i.blob IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blob b WHERE b.id = i.blob)"
        ):
            self.say("blob-missing", f"{table} {number} of {_show(what)} names a content that is not there")

    def _prove_instants(self) -> None:
        kinds = ", ".join(f"'{kind}'" for kind in CAPPED)
        for session, count, cap in self.database.rows(
            "SELECT s.id, count(*), s.cap FROM session s JOIN message m ON m.session = s.id AND m.state = 'live' "
            f"AND m.pin IS NULL AND m.kind IN ({kinds}) AND NOT EXISTS (SELECT 1 FROM journal j "
            "WHERE j.session = m.session AND j.message = m.uuid) GROUP BY s.id HAVING count(*) > s.cap"
        ):
            self.say("over-cap", f"session {session} has {count} checkpoints, {cap} are kept")
        keep = self.workspace.policy.limits.before_rewind
        (count,) = self.database.one(
            "SELECT count(*) FROM message m WHERE m.kind = 'before-rewind' AND m.state = 'live' AND m.pin IS NULL "
            "AND NOT EXISTS (SELECT 1 FROM journal j WHERE j.before = m.uuid OR j.message = m.uuid)"
        )
        if count > keep:
            self.say("over-cap", f"there are {count} states before rewinds, {keep} are kept")
        for session, message in self.database.rows(
            "SELECT DISTINCT i.session, i.message FROM imported i JOIN message m ON m.session = i.session "
            "AND m.uuid = i.message WHERE m.state <> 'live'"
        ):
            self.say("imported-orphan", f"message {message} of session {session} is gone, its imported paths are not")
        journal = self.workspace.rewinds.journal()
        if journal is not None and read_owner(self.workspace.lock_path("rewind")) is None:
            what = f"the rewind to {journal.message} by process {journal.pid} was interrupted: run it again"
            self.say("interrupted-rewind", what)

    def _prove_references(self) -> None:
        for number, refs, counted in self.database.all(
            f"SELECT id, refs, n FROM (SELECT b.id, b.refs, {_REFERENCES} AS n FROM blob b) WHERE refs <> n OR n = 0"
        ):
            if counted:
                what = f"content {number} counts {refs} references and has {counted}"
                self.mend("refcount", what, partial(self._recount, number))
            else:
                self.mend("unreferenced", f"content {number} has no reference", partial(self._drop, number))

    def _recount(self, number: int) -> None:
        # A trigger deletes at zero, so that is left to `_drop`; counted anew here, where nobody else can write.
        with self.database.transaction():
            counted = f"(SELECT {_REFERENCES} FROM blob b WHERE b.id = blob.id)"
            self.database.execute(f"UPDATE blob SET refs = {counted} WHERE id = ? AND {counted} > 0", (number,))

    def _drop(self, number: int) -> None:
        with self.database.transaction():
            self.database.execute(
                f"DELETE FROM blob WHERE id = ? AND (SELECT {_REFERENCES} FROM blob b WHERE b.id = blob.id) = 0",
                (number,),
            )

    def _prove_versions_needed(self) -> None:
        (count,) = self.database.one(
            f"SELECT count(*) FROM version v WHERE v.to_at <= {_RELEASED} AND NOT EXISTS ({_NEEDED})"
        )
        if count:
            what = f"{count} versions are kept that no live instant needs"
            self.mend("unreleased", what, self._release)

    def _release(self) -> None:
        with self.database.transaction():
            self.database.execute(
                "DELETE FROM version WHERE id IN (SELECT v.id FROM version v "
                f"WHERE v.to_at <= {_RELEASED} AND NOT EXISTS ({_NEEDED}))"
            )

    def _prove_tally(self) -> None:
        counted = "SELECT count(*), COALESCE(sum(stored_bytes), 0) FROM blob"
        with self.database.snapshot():
            told, found = self.database.one("SELECT blobs, bytes FROM tally"), self.database.one(counted)
        if told is None or tuple(told) != tuple(found):
            what = f"the tally says {told}, there are {found}"
            self.mend("tally", what, partial(self._tally, counted))

    def _tally(self, counted: str) -> None:
        with self.database.transaction():
            self.database.execute(f"INSERT OR REPLACE INTO tally SELECT 1, * FROM ({counted})")

    # Contents -------------------------------------------------------------------------------------------------------

    def _prove_contents(self) -> None:
        last = 0
        while page := self.database.all("SELECT id FROM blob WHERE id > ? ORDER BY id LIMIT ?", last, PAGE):
            for (number,) in page:
                last = number
                self._prove_content(number)

    def _prove_content(self, number: int) -> None:
        fault = self._fault_of(number)
        if fault is None or (fault := self._fault_of(number)) is None:  # healed, or forgotten, just now
            return
        code = "blob-missing" if isinstance(fault, Missing) else "blob-damaged"
        paths = self.database.all(
            "SELECT DISTINCT p.name FROM path p WHERE p.id IN (SELECT path FROM version WHERE blob = ?1 "
            "UNION SELECT path FROM imported WHERE blob = ?1) LIMIT 3",
            number,
        )
        self.say(code, f"{fault} ({', '.join(_show(name) for (name,) in paths) or 'no path'})")

    def _fault_of(self, number: int) -> Damaged | None:
        try:
            self.blobs.get(number)
        except Damaged as damaged:
            return damaged if self.database.one("SELECT 1 FROM blob WHERE id = ?", number) else None
        return None

    def _prove_doomed(self) -> None:
        doomed, deadline = self._doomed(), time.monotonic() + DOOMED_S
        while doomed and time.monotonic() < deadline:  # whoever forgot them is about to unlink them
            time.sleep(0.01)
            doomed &= self._doomed()
        if doomed:
            self.mend("doomed-file", f"{len(doomed)} files of forgotten contents are still there", self.blobs.bury)

    def _prove_files(self) -> None:
        with contextlib.ExitStack() as stack:
            deadline = time.monotonic() + PATIENCE_S
            while not stack.enter_context(self.blobs.folder_lock(fcntl.LOCK_EX | fcntl.LOCK_NB)):
                stack.close()
                if time.monotonic() > deadline:  # somebody writes all the time: what is new cannot be told from strays
                    return
                time.sleep(0.01)
            for name in self.blobs.strays():
                path = os.path.join(self.database.blobs, name)
                self.mend("stray-file", f"no content names {path}", partial(os.unlink, path))
        for name in self._foreign():
            self.say("foreign-file", f"{name} is not ours")

    def _doomed(self) -> set[str]:
        names = (name for (name,) in self.database.all("SELECT file FROM doomed"))
        return {name for name in names if os.path.lexists(os.path.join(self.database.blobs, name))}

    def _foreign(self) -> Iterator[str]:
        ours = {*DATABASE_FILES, "blobs", "asks"}
        yield from (
            os.path.join(self.database.directory, n) for n in os.listdir(self.database.directory) if n not in ours
        )
        with os.scandir(self.database.blobs) as entries:
            for entry in entries:
                if entry.name != LOCK and not (entry.is_file(follow_symlinks=False) and self.blobs.is_name(entry.name)):
                    yield entry.path

    def _prove_modes(self) -> None:
        for folder in (self.database.directory, self.database.blobs, self.database.asks):
            self.prove_mode(folder, directory=True)
        for name in DATABASE_FILES:
            self.prove_mode(os.path.join(self.database.directory, name), directory=False)
        with os.scandir(self.database.blobs) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    self.prove_mode(entry.path, directory=False)


def _show(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else f"path {name}"
