"""Whatever is done in whatever order: what a live instant needs is there, and nothing else is."""

import os
import random
import shutil
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.checkpoint.apply import enforce_caps
from sidecar.model import CheckpointKind, Kind, State
from sidecar.store.check import check
from tests.store.timeline import (
    attach,
    change,
    content_at,
    files_of,
    message,
    named_files,
    open_timeline,
    put,
    small_policy,
)

PATHS = [b"a", b"a/b", b"\xff\xfe\n", b"/outside"]
CONTENTS = [b"", b"small", b"zeros" * 100, *(random.Random(n).randbytes(n) for n in (100, 101, 3000))]
SESSIONS = ["one", "two"]
GRACE = 6
BEFORE_REWINDS = 2


@dataclass
class Version:
    start: int
    end: int | None
    content: bytes | None


@dataclass
class Instant:
    at: int
    kind: CheckpointKind
    timeline: bool
    pin: bool = False
    live: bool = True


class Store(RuleBasedStateMachine):
    """The store beside lists and dictionaries that do the same."""

    def __init__(self) -> None:
        super().__init__()
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.directory = tempfile.mkdtemp(prefix="sidecar-model-", dir=base)
        self.policy = small_policy(before_rewind=BEFORE_REWINDS)
        self.workspace = open_timeline(self.directory, self.policy)
        self.now = 1000
        self.released = 0
        self.settled = 0  # what ended before it may have been let go of before its time
        self.caps: dict[str, int] = {}
        self.versions: dict[bytes, list[Version]] = {path: [] for path in PATHS}
        self.instants: dict[tuple[str, str], Instant] = {}
        self.imported: dict[tuple[str, str], dict[bytes, bytes]] = {}

    def teardown(self) -> None:
        self.workspace.close()
        shutil.rmtree(self.directory)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def live(self) -> list[int]:
        return [one.at for one in self.instants.values() if one.live and one.timeline]

    def needed(self, version: Version) -> bool:
        end = version.end
        return end is None or any(version.start <= at < end for at in self.live())

    @initialize(caps=st.tuples(st.integers(1, 3), st.integers(1, 3)))
    def begin(self, caps: tuple[int, int]) -> None:
        for session, cap in zip(SESSIONS, caps, strict=True):
            attach(self.workspace, session, cap, self.tick())
            self.caps[session] = cap
            self.remember(session, "baseline", self.now, CheckpointKind.BASELINE)

    def remember(self, session: str, uuid: str, at: int, kind: CheckpointKind) -> None:
        message(self.workspace, session, uuid, at, kind)
        self.instants[session, uuid] = Instant(at, kind, timeline=True)

    @rule(path=st.sampled_from(PATHS), content=st.sampled_from([*CONTENTS, None]))
    def change(self, path: bytes, content: bytes | None) -> None:
        versions = self.versions[path]
        if versions and versions[-1].content == content:
            return
        change(self.workspace, path, content, self.tick())
        if versions:
            versions[-1].end = self.now
        versions.append(Version(self.now, None, content))

    @rule(path=st.sampled_from(PATHS), content=st.sampled_from(CONTENTS))
    def fail(self, path: bytes, content: bytes) -> None:
        """A transaction that fails leaves nothing, on the disk either."""
        files = files_of(self.workspace)
        try:
            with self.workspace.blobs.writing(), self.workspace.database.transaction():
                put(self.workspace, path, content, self.tick())
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            assert files_of(self.workspace) == files

    @rule(session=st.sampled_from(SESSIONS), late=st.integers(0, GRACE), rewind=st.booleans())
    def message(self, session: str, late: int, rewind: bool) -> None:
        at = max(self.tick() - late, self.released)
        kind = CheckpointKind.BEFORE_REWIND if rewind else CheckpointKind.MESSAGE
        newer = sum(self.instants[key].at > at for key in self._of(session))
        if rewind or newer < self.caps[session]:
            at = max(at, self.settled)
        self.remember(session, f"m{self.now}", at, kind)
        self.enforce(session)

    @rule(
        session=st.sampled_from(SESSIONS), contents=st.dictionaries(st.sampled_from(PATHS), st.sampled_from(CONTENTS))
    )
    def import_(self, session: str, contents: dict[bytes, bytes]) -> None:
        uuid, at = f"i{self.tick()}", self.now - 500
        workspace = self.workspace
        with workspace.blobs.writing(), workspace.database.transaction():
            workspace.instants.add(session, uuid, at=at, kind=CheckpointKind.IMPORTED, timeline=False)
            for path, content in contents.items():
                state = State(Kind.FILE, workspace.blobs.put(content), len(content), 0o644)
                workspace.instants.add_imported(session, uuid, [(workspace.ledger.path_id(path), state, None)])
        self.instants[session, uuid] = Instant(at, CheckpointKind.IMPORTED, timeline=False)
        self.imported[session, uuid] = contents
        self.enforce(session)

    def enforce(self, session: str) -> None:
        with self.workspace.database.transaction():
            gone = enforce_caps(self.workspace, session, cap=self.caps[session], before_rewinds=BEFORE_REWINDS)
        expected = set()
        rewinds = CheckpointKind.BEFORE_REWIND
        for capped, keep in ((self._of(session), self.caps[session]), (self._of(None), BEFORE_REWINDS)):
            expected |= set(sorted(capped, key=lambda key: -self.instants[key].at)[keep:])
        ties = [one.at for one in self.instants.values() if one.live and not one.pin]
        told = {(one.session, one.message) for one in gone}
        assert len(told) == len(expected)
        if len(set(ties)) == len(ties):
            assert told == expected, rewinds
        for key in told:
            self.evict(key)

    def _of(self, session: str | None) -> list[tuple[str, str]]:
        capped = {CheckpointKind.MESSAGE, CheckpointKind.IMPORTED} if session else {CheckpointKind.BEFORE_REWIND}
        return [
            key
            for key, one in self.instants.items()
            if one.live and not one.pin and one.kind in capped and session in (None, key[0])
        ]

    def evict(self, key: tuple[str, str]) -> None:
        instant = self.instants[key]
        instant.live = False
        self.imported.pop(key, None)
        if instant.timeline:
            settled = self.settled_until()
            self.settled = max(self.settled, settled)
            for versions in self.versions.values():
                versions[:] = [
                    v
                    for v in versions
                    if v.end is None
                    or not v.start <= instant.at < v.end <= max(self.released, settled)
                    or self.needed(v)
                ]

    def settled_until(self) -> int:
        """Give the instant before which no late message could stay, whichever session it is of."""
        ages = [
            sorted((self.instants[key].at for key in self._of(session)), reverse=True)[cap - 1 :]
            for session, cap in self.caps.items()
        ]
        return min(oldest[0] for oldest in ages) if all(ages) else 0

    @precondition(lambda self: any(one.live for one in self.instants.values()))
    @rule(data=st.data(), on=st.booleans())
    def pin(self, data: st.DataObject, on: bool) -> None:
        keys = sorted(k for k, one in self.instants.items() if one.live and one.kind is not CheckpointKind.BASELINE)
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        with self.workspace.database.transaction():
            self.workspace.instants.pin(*key, f"pin {key}" if on else None)
        self.instants[key].pin = on
        self.enforce(key[0])

    @rule(session=st.sampled_from(SESSIONS), cap=st.integers(1, 3))
    def lower(self, session: str, cap: int) -> None:
        attach(self.workspace, session, cap, self.now)
        self.caps[session] = cap
        self.enforce(session)

    @rule(data=st.data(), forget=st.booleans())
    def move(self, data: st.DataObject, forget: bool) -> None:
        keys = sorted(k for k, one in self.instants.items() if one.live and one.kind is CheckpointKind.BEFORE_REWIND)
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        self.released = min(self.released, self.instants[key].at)
        with self.workspace.database.transaction():
            if forget:
                self.workspace.instants.remove(*key)
                del self.instants[key]
            else:
                self.workspace.instants.move(*key, self.tick())
                self.instants[key].at = self.now

    @rule()
    def release(self) -> None:
        horizon = self.tick() - GRACE
        with self.workspace.database.transaction():
            self.workspace.ledger.release(horizon)
        if horizon > self.released:
            for versions in self.versions.values():
                versions[:] = [
                    v for v in versions if v.end is None or not self.released < v.end <= horizon or self.needed(v)
                ]
            self.released = horizon

    @rule()
    def wait(self) -> None:
        self.now += GRACE * 2

    @rule()
    def give_back(self) -> None:
        self.workspace.give_back()
        assert self.workspace.database.one("PRAGMA freelist_count")[0] == 0

    @rule()
    def restart(self) -> None:
        self.workspace.close()
        self.workspace = open_timeline(self.directory, self.policy)
        assert self.workspace.blobs.remove_strays() == 0

    @invariant()
    def live_instants_know_everything(self) -> None:
        for path, versions in self.versions.items():
            first = min((v.start for v in versions), default=None)
            for at in {*self.live(), self.now}:
                held = [v.content for v in versions if v.start <= at and (v.end is None or at < v.end)]
                if held:
                    assert content_at(self.workspace, path, at) == held[0]
                elif first is None or at < first:
                    assert content_at(self.workspace, path, at) == "unknown"

    @invariant()
    def imports_are_whole(self) -> None:
        for key, contents in self.imported.items():
            found = {
                one.path: self.workspace.blobs.get(one.state.blob or 0)
                for one in self.workspace.instants.imported(*key)
            }
            assert found == contents

    @invariant()
    def exactly_what_is_needed_is_stored(self) -> None:
        self.workspace.blobs.bury()
        wanted = {v.content for versions in self.versions.values() for v in versions if v.content is not None}
        wanted |= {content for contents in self.imported.values() for content in contents.values()}
        numbers = [n for (n,) in self.workspace.database.all("SELECT id FROM blob")]
        stored = [self.workspace.blobs.get(number) for number in numbers]
        assert len(stored) == len(set(stored))
        assert set(stored) == wanted
        assert files_of(self.workspace) == named_files(self.workspace)
        assert check(self.workspace).findings == ()


TestStore = pytest.mark.slow(Store.TestCase)
TestStore.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
