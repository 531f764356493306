"""Rows of the timeline at their edges: what an instant sees, what releasing takes, what stays for whom."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecar import errors
from sidecar.checkpoint.apply import enforce_caps
from sidecar.model import ABSENT, CheckpointKind, Kind, Reason, Row, State, unknown
from sidecar.store.check import check
from sidecar.store.workspace import Workspace
from tests.store.timeline import attach, change, content_at, message

START, END = 100, 200  # the row that is looked at: [START, END)


@pytest.fixture
def timeline(workspace: Workspace) -> Iterator[Workspace]:
    attach(workspace, "s", 100, 1)
    change(workspace, b"a", b"before", 50)
    change(workspace, b"a", b"it", START)
    change(workspace, b"a", b"after", END)
    yield workspace


def release(workspace: Workspace, horizon: int) -> int:
    with workspace.database.transaction():
        return workspace.ledger.release(horizon)


def forget(workspace: Workspace, *messages: str) -> int:
    count = 0
    for uuid in messages:
        with workspace.database.transaction():
            checkpoint = workspace.instants.get("s", uuid)
            assert checkpoint is not None
            workspace.instants.evict("s", uuid)
            count += workspace.ledger.release_instant(checkpoint.at)
    return count


@pytest.mark.parametrize(
    ("at", "seen"),
    [(49, "unknown"), (50, b"before"), (START - 1, b"before"), (START, b"it"), (END - 1, b"it"), (END, b"after")],
)
def test_a_row_holds_from_its_first_instant_to_before_its_last(timeline: Workspace, at: int, seen: bytes | str) -> None:
    assert content_at(timeline, b"a", at) == seen


@pytest.mark.parametrize(("at", "kept"), [(START - 1, False), (START, True), (END - 1, True), (END, False)])
def test_a_row_stays_exactly_while_a_live_instant_lies_in_it(timeline: Workspace, at: int, kept: bool) -> None:
    message(timeline, "s", "m", at)
    release(timeline, 1000)
    assert (content_at(timeline, b"a", 150) == b"it") is kept
    assert check(timeline).findings == ()
    forget(timeline, "m")
    assert content_at(timeline, b"a", 150) == "unknown"
    assert content_at(timeline, b"a", END) == b"after"
    assert check(timeline).findings == ()


@pytest.mark.parametrize(("at", "kept"), [(START - 1, False), (START, True), (END - 1, True), (END, False)])
def test_a_neighbour_keeps_a_row_only_if_it_lies_in_it(timeline: Workspace, at: int, kept: bool) -> None:
    message(timeline, "s", "neighbour", at)
    message(timeline, "s", "m", 150)
    release(timeline, 1000)
    assert content_at(timeline, b"a", 150) == b"it"
    forget(timeline, "m")
    assert (content_at(timeline, b"a", 150) == b"it") is kept
    assert check(timeline).findings == ()


def test_another_at_the_same_instant_keeps_it(timeline: Workspace) -> None:
    message(timeline, "s", "m", 150)
    message(timeline, "s", "twin", 150)
    release(timeline, 1000)
    assert forget(timeline, "m") == 0
    assert content_at(timeline, b"a", 150) == b"it"
    assert forget(timeline, "twin") == 1


@pytest.mark.parametrize(("horizon", "kept"), [(END - 1, True), (END, False)])
def test_a_row_is_released_only_when_it_ended_by_the_horizon(timeline: Workspace, horizon: int, kept: bool) -> None:
    release(timeline, horizon)
    assert (content_at(timeline, b"a", 150) == b"it") is kept
    release(timeline, END)
    assert content_at(timeline, b"a", 150) == "unknown"
    assert release(timeline, END - 50) == 0, "a clock that went back"


def test_what_is_beside_the_timeline_or_evicted_keeps_nothing(timeline: Workspace) -> None:
    with timeline.database.transaction():
        timeline.instants.add("s", "i", at=150, kind=CheckpointKind.IMPORTED, timeline=False)
        timeline.instants.add("s", "b", at=150, kind=CheckpointKind.MESSAGE, timeline=False, state="before-attach")
    message(timeline, "s", "gone", 150)
    forget(timeline, "gone")
    release(timeline, 1000)
    assert content_at(timeline, b"a", 150) == "unknown"


def test_a_row_that_ended_in_the_released_past_is_released_too(timeline: Workspace) -> None:
    """After an outage the state before ends with the watching, long ago."""
    release(timeline, 1000)
    known = timeline.ledger.known(b"a")
    assert known is not None
    gap = Row(unknown(Reason.UNKNOWN_THEN), 500, 600, 500, 500)
    rows = [replace(known.row, to_at=500), gap, Row(ABSENT, 600, None, 600, 600)]
    with timeline.database.transaction():
        timeline.ledger.replace(b"a", known, rows, None, 2000)
    assert content_at(timeline, b"a", 300) == b"after"
    release(timeline, 1001)
    assert content_at(timeline, b"a", 300) == "unknown"
    assert content_at(timeline, b"a", 700) is None
    assert check(timeline).findings == ()


def test_what_changed_after_an_instant_says_what_was_and_what_is(timeline: Workspace) -> None:
    change(timeline, b"late", b"x", 300)
    change(timeline, b"still", b"x", 10)
    ledger = timeline.ledger
    found = {one.path: (one.then and one.then.from_at, one.now.from_at) for one in ledger.changed_after(START)}
    assert found == {b"a": (START, END), b"late": (None, 300)}
    assert [one.path for one in ledger.changed_after(END)] == [b"late"]
    assert [path for path, _ in ledger.changed_between(START, END)] == [b"a"]
    assert [(path, row.from_at) for path, row in ledger.changed_between(None, START)] == [
        (b"still", 10),
        (b"a", 50),
        (b"a", START),
    ]


def test_a_path_is_any_bytes_and_below_means_below(workspace: Workspace) -> None:
    paths = [b"d", b"d/a", b"d/a/\xff", b"d-", b"d0", b"d/\n", b"D/a", b"d.x/a"]
    for path in paths:
        change(workspace, path, b"x", 10)
    assert set(workspace.ledger.known_below(b"d")) == {b"d/a", b"d/a/\xff", b"d/\n"}
    assert set(workspace.ledger.known_below(b"")) == set(paths)
    change(workspace, b"d/a", None, 20)
    assert b"d/a" not in workspace.ledger.known_below(b"d")
    assert workspace.ledger.known(b"d/a") is not None


def test_every_state_comes_back_as_it_was(workspace: Workspace) -> None:
    states = [ABSENT, State(Kind.DIRECTORY, mode=0o7777), State(Kind.LINK), *map(unknown, Reason)]
    for number, state in enumerate(states):
        path = b"%d" % number
        with workspace.database.transaction():
            workspace.ledger.replace(path, None, [Row(state, 10, None, 5, 7)], None, 10, rewind=3)
        known = workspace.ledger.known(path)
        assert known is not None
        assert (known.row, known.rewind, known.stat) == (Row(state, 10, None, 5, 7), 3, None)


def test_a_folder_is_known_since_it_was_first_listed(workspace: Workspace) -> None:
    ledger = workspace.ledger
    with workspace.database.transaction():
        for folder, since in ((b"", 5), (b"d", 6), (b"d/e", 7), (b"d0", 8), (b"d", 9)):
            ledger.list_folder(folder, since)
        assert [ledger.listed_since(folder) for folder in (b"", b"d", b"d/e", b"d0", b"x")] == [5, 6, 7, 8, None]
        ledger.forget_folder(b"d")
    assert [ledger.listed_since(folder) for folder in (b"", b"d", b"d/e", b"d0")] == [5, None, None, 8]


def test_watching_is_unbroken_only_within_one_interval(workspace: Workspace) -> None:
    ledger = workspace.ledger
    assert (ledger.coverage_start(), ledger.coverage_end()) == (None, None)
    with workspace.database.transaction():
        first = ledger.begin_coverage(10)
        ledger.extend_coverage(first, 20)
        ledger.extend_coverage(first, 15)
        ledger.begin_coverage(30)
    assert [at for at in (9, 10, 20, 21, 29, 30, 31) if ledger.covered_at(at)] == [10, 20, 30]
    assert (ledger.coverage_start(), ledger.coverage_end()) == (10, 30)


def test_a_transaction_within_another_joins_it(workspace: Workspace) -> None:
    database = workspace.database
    with pytest.raises(KeyboardInterrupt), database.transaction():
        with database.transaction():
            workspace.set_meta("key", 1)
        raise KeyboardInterrupt
    assert workspace.meta("key") is None
    with database.transaction(), database.snapshot():
        workspace.set_meta("key", 2)
    assert workspace.meta("key") == 2


def test_nothing_is_written_after_a_transaction_that_ended_before_its_time(workspace: Workspace) -> None:
    """On a full disk SQLite rolls back by itself; what a caller writes after that must not be half of something."""
    database = workspace.database
    with pytest.raises(errors.StoreFault), database.transaction():
        workspace.set_meta("first", 1)
        database.connection.execute("ROLLBACK")
        with contextlib.suppress(errors.StoreFault):
            workspace.set_meta("second", 2)
    assert (workspace.meta("first"), workspace.meta("second")) == (None, None)
    workspace.set_meta("third", 3)
    assert workspace.meta("third") == 3


def test_what_an_evicted_message_kept_goes_at_once_where_no_late_one_could_stay(workspace: Workspace) -> None:
    attach(workspace, "s", 1, 1)
    change(workspace, b"a", b"first", 10)
    message(workspace, "s", "m", 20)
    change(workspace, b"a", b"second", 30)
    message(workspace, "s", "n", 40)
    change(workspace, b"a", b"third", 50)
    with workspace.database.transaction():
        (gone,) = enforce_caps(workspace, "s", cap=1, before_rewinds=20)
    assert (gone.message, gone.blobs) == ("m", 1)
    assert content_at(workspace, b"a", 20) == "unknown"
    assert content_at(workspace, b"a", 40) == b"second"


def test_it_stays_for_the_grace_where_another_session_has_room_for_a_late_one(workspace: Workspace) -> None:
    attach(workspace, "s", 1, 1)
    attach(workspace, "other", 2, 1)
    change(workspace, b"a", b"first", 10)
    message(workspace, "s", "m", 20)
    message(workspace, "other", "o", 45)
    change(workspace, b"a", b"second", 30)
    message(workspace, "s", "n", 40)
    with workspace.database.transaction():
        enforce_caps(workspace, "s", cap=1, before_rewinds=20)
    assert content_at(workspace, b"a", 20) == b"first"
    release(workspace, 1000)
    assert content_at(workspace, b"a", 20) == "unknown"
