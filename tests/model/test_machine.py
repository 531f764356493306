"""Random histories of files, messages, turns, rewinds, undos, evictions and outages, against a model in memory.

The clock is the real one, so a history does not always go the same way twice: what happened, and when, is printed with
a failure, and shrinking is left out.
"""

import os
import shutil
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sidecar.clock import MS
from tests.model import claims
from tests.model.world import LATEST_MS, World, pause

# Few names, each a file at one time and a folder at another (conserve's trick): collisions are what finds mistakes.
TOPS = [b"a", b"d"]
PATHS = [b"a", b"d", b"a/x", b"a/d", b"d/x", b"d/d"]
CONTENTS = {
    "nothing": b"",
    "one": b"one\n",
    "two": b"two\n",
    "text": b"three three three\n" * 40,
    "binary": bytes(range(200)),
    "big": b"two\n" * 100_000,
}
MODES = [0o644, 0o600, 0o755]
PAUSES = [0, 0, 1, 5, 12, 25, 60]

names = st.sampled_from(PATHS)
tops = st.sampled_from(TOPS)
contents = st.sampled_from(sorted(CONTENTS))
pauses = st.sampled_from(PAUSES)
# Of as many as there are: how many that is depends on the clock, and what is drawn must not.
choices = st.integers(0, 59)
THEN = ["nothing", "undo", "undo and redo"]


class Machine(RuleBasedStateMachine):
    """Each rule does one thing, and now and then lets time pass or the sidecar work."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def teardown(self) -> None:
        try:
            for line in self.world.log:
                note(line)
        finally:
            self.world.close()

    @initialize(first=contents, second=contents)
    def begin(self, first: str, second: str) -> None:
        world = self.world
        self.write_now(b"a", CONTENTS[first])
        self.write_now(b"d/x", CONTENTS[second])
        world.message()
        world.enter()
        world.begin()

    # Files ----------------------------------------------------------------------------------------------------------

    def write_now(self, path: bytes, content: bytes) -> None:
        def do() -> None:
            target = self.world.path(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)

        self.world.touch(f"write {path!r} {len(content)}", do, path)

    @rule(path=names, content=contents, after=pauses)
    def write(self, path: bytes, content: str, after: float) -> None:
        self.write_now(path, CONTENTS[content])
        pause(after)

    @rule(path=names, after=pauses)
    def write_the_same(self, path: bytes, after: float) -> None:
        entry = self.world.tree().get(path)
        if entry is not None and entry[0] == "file":
            assert isinstance(entry[2], bytes)
            self.write_now(path, entry[2])
            pause(after)

    @rule(path=names, content=contents, after=pauses)
    def save_atomically(self, path: bytes, content: str, after: float) -> None:
        def do() -> None:
            target = self.world.path(path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target + ".tmp", "wb") as file:
                file.write(CONTENTS[content])
            os.replace(target + ".tmp", target)

        self.world.touch(f"save {path!r} {content}", do, path)
        pause(after)

    @rule(path=names, content=contents, after=pauses)
    def tool_edit(self, path: bytes, content: str, after: float) -> None:
        target = self.world.path(path)
        if os.path.isdir(target) or os.path.isfile(os.path.dirname(target)):
            return
        edit = self.world.session.edit
        self.world.wake_up()
        self.world.touch(f"tool {path!r} {content}", lambda: edit(target, CONTENTS[content]), path)
        pause(after)

    @rule(path=names, after=pauses)
    def delete(self, path: bytes, after: float) -> None:
        target = self.world.path(path)
        remove: Callable[[str], None] = os.unlink if not os.path.isdir(target) else shutil.rmtree
        self.world.touch(f"delete {path!r}", lambda: remove(target), path)
        pause(after)

    @rule(source=names, goal=names, after=pauses)
    def move(self, source: bytes, goal: bytes, after: float) -> None:
        world = self.world
        below = [p for p in (*PATHS, *world.tree()) for top in (source, goal) if p == top or p.startswith(top + b"/")]
        world.touch(f"move {source!r} {goal!r}", lambda: os.rename(world.path(source), world.path(goal)), *below)
        pause(after)

    @rule(path=names, after=pauses)
    def make_folder(self, path: bytes, after: float) -> None:
        self.world.touch(f"mkdir {path!r}", lambda: os.mkdir(self.world.path(path)), path)
        pause(after)

    @rule(path=tops, content=contents)
    def swap_kind(self, path: bytes, content: str) -> None:
        target = self.world.path(path)

        def do() -> None:
            if os.path.isdir(target):
                shutil.rmtree(target)
                with open(target, "wb") as file:
                    file.write(CONTENTS[content])
            elif os.path.exists(target):
                os.unlink(target)
                os.mkdir(target)

        self.world.touch(f"swap {path!r}", do, path)

    @rule(path=names, mode=st.sampled_from(MODES))
    def chmod(self, path: bytes, mode: int) -> None:
        target = self.world.path(path)
        bits = mode | 0o700 if os.path.isdir(target) else mode
        self.world.touch(f"chmod {path!r} {bits:o}", lambda: os.chmod(target, bits), path)

    @rule(path=names)
    def touch(self, path: bytes) -> None:
        if os.path.lexists(self.world.path(path)):
            self.world.touch(f"touch {path!r}", lambda: os.utime(self.world.path(path)), path)

    @rule(path=names)
    def link_and_unlink(self, path: bytes) -> None:
        """What `cp -al` of the tree and its removal do to a file."""
        target, copy = self.world.path(path), str(self.world.directory / "copy")
        if os.path.isfile(target):
            self.world.step()
            self.world.touch(f"cp -al {path!r}", lambda: os.link(target, copy), path)
            self.world.step()
            self.world.touch(f"rm copy of {path!r}", lambda: os.unlink(copy), path)

    # Messages -------------------------------------------------------------------------------------------------------

    @rule(before=pauses, after=pauses)
    def message(self, before: float, after: float) -> None:
        pause(before)
        self.world.message()
        pause(after)

    @rule(before=pauses, after=pauses)
    def late_message(self, before: float, after: float) -> None:
        self.world.tell_late()
        pause(before)
        self.world.send_late()
        pause(after)

    @rule(before=pauses)
    def late_record(self, before: float) -> None:
        pause(before)
        self.world.tell_late()

    @rule()
    def repeat(self) -> None:
        self.world.repeat()

    @rule(before=pauses, after=pauses)
    def end_turn(self, before: float, after: float) -> None:
        pause(before)
        self.world.end_turn()
        pause(after)

    @rule(which=choices, name=st.sampled_from(["p", "q", None]))
    def pin(self, which: int, name: str | None) -> None:
        self.world.pin(self.world.sent[which % len(self.world.sent)], name)

    @rule()
    def mark(self) -> None:
        self.world.mark()

    # The sidecar ----------------------------------------------------------------------------------------------------

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule()
    def look_at_everything(self) -> None:
        assert self.world.sidecar is not None
        for room in self.world.sidecar.rooms.values():
            room.rescan_after = 0
        self.world.note("rescan")
        self.world.step()

    @rule(path=names, content=contents, message=st.booleans())
    def restart(self, path: bytes, content: str, message: bool) -> None:
        self.world.note("outage begins")
        with self.world.outage():
            if message:
                self.world.message()
            self.write_now(path, CONTENTS[content])
            pause(5)
        self.world.note("outage ends")

    # Rewinds --------------------------------------------------------------------------------------------------------

    def _rewind(self, which: int, then: str, everything: bool, only: tuple[bytes, ...] = ()) -> None:
        world = self.world
        world.tell_late()
        world.step()
        found = [(one, c) for one in world.sent if (c := world.checkpoint(one.uuid)) is not None]
        if not found:
            return
        sent, checkpoint = found[which % len(found)]
        stamps = world.stamps()
        went = world.rewind(checkpoint, everything=everything, only=only)
        claims.untouched(stamps, world.stamps(), went.before, went.after)
        if everything or only:
            kept = {path for path, _ in went.done.outcome.kept}
            paths = went.before.keys() | went.after.keys() | sent.tree.keys() | kept
            with world.store() as workspace:
                again = workspace.instants.get(checkpoint.session, checkpoint.message)
                said = claims.states(workspace, checkpoint, paths, counted=True) if again is not None else None
                if again is not None and said is not None:
                    claims.check_said(world, workspace, sent, again, said)
            if said is not None:
                claims.check_rewound(world, sent, went, said, only)
        else:
            claims.check_not_ours(world, sent, went)
        if then != "nothing" and went.done.undo is not None:
            back = world.undo()
            assert back is not None
            claims.same_as_before(went, back)
            if then == "undo and redo":
                forth = world.undo(redo=True)
                assert forth is not None
                claims.same_as_before(back, forth)

    @rule(which=choices, then=st.sampled_from(THEN))
    def rewind_everything(self, which: int, then: str) -> None:
        self._rewind(which, then, True)

    @rule(which=choices, then=st.sampled_from(THEN))
    def rewind_plainly(self, which: int, then: str) -> None:
        self._rewind(which, then, False)

    @rule(which=choices, then=st.sampled_from(THEN), only=names)
    def rewind_paths(self, which: int, then: str, only: bytes) -> None:
        self._rewind(which, then, False, (only,))

    @rule(redo=st.booleans())
    def undo_later(self, redo: bool) -> None:
        self.world.tell_late()
        went = self.world.undo(redo=redo)
        if went is not None:
            assert not went.done.outcome.failed

    # What always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def all_claims_hold(self) -> None:
        world = self.world
        if world.sidecar is None:
            return
        if world.late is not None and world.now() - world.late.at > LATEST_MS * MS:
            world.tell_late()
        if world.steps_due():
            world.step()
            claims.check_store(world)
            if world.late is None:
                claims.check_states(world)


def play(examples: int, steps: int, *, same: bool) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=same,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )


def test_a_few_histories() -> None:
    play(6, 25, same=True)


@pytest.mark.skipif(
    "SIDECAR_TEST_HISTORIES" not in os.environ,
    reason="new histories each time: for a nightly run, which names a number",
)
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_histories() -> None:
    play(int(os.environ.get("SIDECAR_TEST_HISTORIES", "150")), 40, same=False)
