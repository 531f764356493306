"""The newest hundred are kept, and with an evicted one goes all that only it kept: rows, contents, files."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.checkpoint.apply import Evicted, close_message, enforce_caps, evict, remember_message, remember_state
from sidecar.checkpoint.plan import Standing
from sidecar.model import CheckpointKind, Kind, State, UserMessage
from sidecar.store.check import check
from sidecar.store.rewinds import Journal
from sidecar.store.workspace import Workspace
from tests.store.timeline import attach, change, content_at, files_of, named_files, open_timeline, put

LIVE = Standing(CheckpointKind.MESSAGE, "live", timeline=True)
STEP = 10


def noise(number: int) -> bytes:
    return random.Random(number).randbytes(500)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    opened = open_timeline(str(tmp_path))
    attach(opened, "s", 100, 1)
    with opened.opened():
        yield opened


def prompt(uuid: str, session: str = "s") -> UserMessage:
    return UserMessage(session, uuid, None, None, 0, "do it")


def play(workspace: Workspace, numbers: range, *, cap: int, session: str = "s") -> list[str]:
    """Send messages, each after a change of `big`; give those that went."""
    gone = []
    for number in numbers:
        at = number * STEP
        with workspace.blobs.writing(), workspace.database.transaction():
            put(workspace, b"big", noise(number), at - 1)
            remember_message(workspace, prompt(f"m{number}", session), at, LIVE)
            close_message(workspace, session, f"m{number}", at, timeline=True)
            gone += [one.message for one in enforce_caps(workspace, session, cap=cap, before_rewinds=20)]
            workspace.ledger.release(at)
        workspace.give_back()
    return gone


def listed(workspace: Workspace, session: str = "s") -> list[str]:
    return [one.message for one in workspace.instants.checkpoints(session)]


def assert_only_what_is_needed(workspace: Workspace, numbers: list[int]) -> None:
    """Prove that exactly the contents of these messages are stored, on the disk too."""
    stored = {workspace.blobs.get(n) for (n,) in workspace.database.all("SELECT id FROM blob")}
    assert stored == {noise(number) for number in numbers}
    assert len(files_of(workspace)) == len(numbers)
    assert files_of(workspace) == named_files(workspace)
    assert check(workspace).findings == ()


def test_of_130_messages_the_newest_100_remain(workspace: Workspace) -> None:
    assert play(workspace, range(1, 131), cap=100) == [f"m{number}" for number in range(1, 31)]
    assert listed(workspace) == [f"m{number}" for number in range(130, 30, -1)]
    for number in range(31, 131):
        assert content_at(workspace, b"big", number * STEP) == noise(number)
    for number in range(1, 31):
        assert workspace.instants.get("s", f"m{number}") is None
        assert workspace.instants.state_of("s", f"m{number}") == "evicted"
        assert workspace.instants.seen("s", f"m{number}")
        assert content_at(workspace, b"big", number * STEP) == "unknown"
    assert_only_what_is_needed(workspace, list(range(31, 131)))


def test_a_content_that_a_kept_one_needs_too_stays(workspace: Workspace) -> None:
    change(workspace, b"shared", b"s" * 50, 1)
    play(workspace, range(1, 4), cap=2)
    assert content_at(workspace, b"shared", 20) == b"s" * 50
    change(workspace, b"shared", None, 35)
    change(workspace, b"twin", b"s" * 50, 36)
    play(workspace, range(4, 9), cap=2)
    assert content_at(workspace, b"twin", 80) == b"s" * 50
    assert content_at(workspace, b"shared", 80) is None
    assert check(workspace).findings == ()


def test_what_went_is_counted(workspace: Workspace) -> None:
    play(workspace, range(1, 4), cap=100)
    with workspace.database.transaction():
        assert evict(workspace, "s", "m1") == Evicted("s", "m1", 1, 500)
    with workspace.database.transaction():
        assert evict(workspace, "s", "m3") == Evicted("s", "m3", 0, 0)  # it is what the file holds now


def test_pins_stand_beside_the_cap_until_they_are_taken_off(workspace: Workspace) -> None:
    play(workspace, range(1, 3), cap=3)
    with workspace.database.transaction():
        workspace.instants.pin("s", "m1", "good")
    play(workspace, range(3, 11), cap=3)
    assert listed(workspace) == ["m10", "m9", "m8", "m1"]
    assert_only_what_is_needed(workspace, [1, 8, 9, 10])
    with workspace.database.transaction():
        workspace.instants.pin("s", "m1", None)
        assert [one.message for one in enforce_caps(workspace, "s", cap=3, before_rewinds=20)] == ["m1"]
    workspace.give_back()
    assert_only_what_is_needed(workspace, [8, 9, 10])


def test_a_lower_profile_evicts_down_and_a_higher_one_brings_nothing_back(workspace: Workspace) -> None:
    play(workspace, range(1, 51), cap=100)
    for cap in (20, 100):
        with workspace.database.transaction():
            enforce_caps(workspace, "s", cap=cap, before_rewinds=20)
        workspace.give_back()
        assert listed(workspace) == [f"m{number}" for number in range(50, 30, -1)]
        assert_only_what_is_needed(workspace, list(range(31, 51)))


def test_sixty_imported_and_fifty_new_are_a_hundred(workspace: Workspace) -> None:
    with workspace.blobs.writing(), workspace.database.transaction():
        number = workspace.ledger.path_id(b"old")
        for index in range(60):
            imported = Standing(CheckpointKind.IMPORTED, "live", timeline=False)
            remember_message(workspace, prompt(f"i{index}"), index - 1000, imported)
            state = State(Kind.FILE, workspace.blobs.put(noise(1000 + index)), 500, 0o644)
            workspace.instants.add_imported("s", f"i{index}", [(number, state, None)])
            assert close_message(workspace, "s", f"i{index}", index - 1000, timeline=False) == (1, 0)
    assert play(workspace, range(1, 51), cap=100) == [f"i{index}" for index in range(10)]
    assert listed(workspace) == [f"m{n}" for n in range(50, 0, -1)] + [f"i{n}" for n in range(59, 9, -1)]
    assert workspace.instants.imported("s", "i9") == []
    (kept,) = workspace.instants.imported("s", "i10")
    assert workspace.blobs.get(kept.state.blob or 0) == noise(1010)
    assert_only_what_is_needed(workspace, [*range(1, 51), *range(1010, 1060)])


def test_each_session_has_its_own_cap_and_needs_what_it_needs(workspace: Workspace) -> None:
    attach(workspace, "other", 100, 1)
    with workspace.database.transaction():
        put_at = 2 * STEP + 1
        remember_message(workspace, prompt("theirs", "other"), put_at, LIVE)
    play(workspace, range(1, 8), cap=2)
    assert listed(workspace) == ["m7", "m6"]
    assert listed(workspace, "other") == ["theirs"]
    assert content_at(workspace, b"big", put_at) == noise(2)
    assert_only_what_is_needed(workspace, [2, 6, 7])


def test_the_baseline_stays_and_before_rewinds_have_a_cap_of_their_own(workspace: Workspace) -> None:
    change(workspace, b"big", noise(0), 2)
    with workspace.database.transaction():
        remember_state(workspace, "s", "baseline", 3, CheckpointKind.BASELINE)
        for number in range(1, 6):
            remember_state(workspace, "s", f"b{number}", number * STEP + 5, CheckpointKind.BEFORE_REWIND)
        assert enforce_caps(workspace, "s", cap=1, before_rewinds=5) == []
    play(workspace, range(1, 8), cap=1)
    assert content_at(workspace, b"big", 3) == noise(0)
    for number in range(1, 6):
        assert content_at(workspace, b"big", number * STEP + 5) == noise(number)
    with workspace.database.transaction():
        gone = enforce_caps(workspace, "s", cap=1, before_rewinds=2)
    assert [one.message for one in gone] == ["b1", "b2", "b3"]
    workspace.give_back()
    assert [content_at(workspace, b"big", at) for at in (3, 45, 55)] == [noise(0), noise(4), noise(5)]
    stored = {workspace.blobs.get(n) for (n,) in workspace.database.all("SELECT id FROM blob")}
    assert stored == {noise(number) for number in (0, 4, 5, 7)}


def test_the_target_of_an_open_rewind_is_never_evicted(workspace: Workspace) -> None:
    play(workspace, range(1, 4), cap=3)
    with workspace.database.transaction():
        workspace.rewinds.open_journal(Journal("x", "s", "m1", "before", os.getpid(), 35))
    play(workspace, range(4, 8), cap=3)
    assert listed(workspace) == ["m7", "m6", "m5", "m1"]
    assert content_at(workspace, b"big", STEP) == noise(1)
    assert {finding.code for finding in check(workspace).findings} == {"interrupted-rewind"}
    with workspace.database.transaction():
        workspace.rewinds.close_journal()
        assert [one.message for one in enforce_caps(workspace, "s", cap=3, before_rewinds=20)] == ["m1"]
    workspace.give_back()
    assert_only_what_is_needed(workspace, [5, 6, 7])


def test_a_late_message_finds_what_was_replaced_within_the_grace(workspace: Workspace) -> None:
    """Evicting another one meanwhile takes nothing that an earlier message may yet ask for."""
    play(workspace, range(1, 3), cap=100)  # released up to 20
    change(workspace, b"big", noise(50), 25)
    change(workspace, b"big", noise(51), 27)
    with workspace.database.transaction():
        remember_message(workspace, prompt("short"), 26, LIVE)
        assert evict(workspace, "s", "short").blobs == 0
        remember_message(workspace, prompt("late"), 25, LIVE)
        workspace.ledger.release(1000)
    assert content_at(workspace, b"big", 25) == noise(50)
    with workspace.database.transaction():
        assert evict(workspace, "s", "late").blobs == 1
    workspace.give_back()
    assert check(workspace).findings == ()


def test_a_before_rewind_state_that_moves_lets_go_of_what_it_kept(workspace: Workspace) -> None:
    for forget in (False, True):
        start = 2000 if forget else 1000
        change(workspace, b"big", noise(start), start)
        with workspace.database.transaction():
            remember_state(workspace, "s", f"b{start}", start + 1, CheckpointKind.BEFORE_REWIND)
        change(workspace, b"big", noise(start + 1), start + 2)
        with workspace.database.transaction():
            workspace.ledger.release(start + 100)
            assert content_at(workspace, b"big", start + 1) == noise(start)
            if forget:
                workspace.instants.remove("s", f"b{start}")
            else:
                workspace.instants.move("s", f"b{start}", start + 50)
            workspace.ledger.release(start + 200)
        assert content_at(workspace, b"big", start + 1) == "unknown"
        assert content_at(workspace, b"big", start + 50) == noise(start + 1)
        workspace.give_back()
        assert check(workspace).findings == ()


def test_what_changed_and_what_is_unsure_is_counted(workspace: Workspace) -> None:
    play(workspace, range(1, 3), cap=100)
    change(workspace, b"new", b"x", 25)
    change(workspace, b"new", b"y", 26)
    with workspace.database.transaction():
        remember_message(workspace, prompt("m3"), 30, LIVE)
        assert close_message(workspace, "s", "m3", 30, timeline=True) == (1, 0)
    found = workspace.instants.get("s", "m3")
    assert found is not None
    assert (found.files, found.unstable) == (1, 0)


def test_forgetting_one_looks_at_few_rows(workspace: Workspace) -> None:
    """Its cost follows what changed around it, not the size of the timeline."""
    with workspace.blobs.writing(), workspace.database.transaction():
        for number in range(3000):
            put(workspace, b"file %d" % number, b"x", 1)
    play(workspace, range(1, 30), cap=100)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    for message in ("m1", "m15", "m28"):
        steps = 0
        workspace.database.connection.set_progress_handler(count, 100)
        with workspace.database.transaction():
            assert evict(workspace, "s", message).blobs == 1
        workspace.database.connection.set_progress_handler(None, 0)
        assert steps < 30, message
