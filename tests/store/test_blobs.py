"""Contents are stored once, whole, and go with their last reference: at once, from the disk too."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar import errors
from sidecar.model import Kind, Stat
from sidecar.store import blobs as room
from sidecar.store.blobs import Blobs, Damaged
from sidecar.store.check import check
from sidecar.store.database import Database
from sidecar.store.workspace import Workspace
from tests.store.timeline import (
    attach,
    change,
    content_at,
    disk_bytes,
    files_of,
    message,
    named_files,
    open_timeline,
    put,
    small_policy,
)

CHECKOUT = Path(__file__).resolve().parents[2]
BIG = random.Random(1).randbytes(1000)


def stored(workspace: Workspace) -> int:
    return int(workspace.database.one("SELECT count(*) FROM blob")[0])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda part: part * 50)))
def test_any_bytes_come_back(workspace: Workspace, content: bytes) -> None:
    with workspace.blobs.writing(), workspace.database.transaction():
        number = workspace.blobs.put(content)
        assert workspace.blobs.put(content) == number
        assert workspace.blobs.get(number) == content
        assert workspace.blobs.find(content) == number
        workspace.blobs.drop_unused()
    workspace.blobs.bury()
    assert stored(workspace) == 0
    assert files_of(workspace) == set()


def test_two_contents_of_one_key_are_two(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "key_of", lambda content: b"one key for all")
    for number, content in enumerate((b"a" * 10, b"b" * 10, BIG, BIG[::-1])):
        change(workspace, b"%d" % number, content, 10)
    assert [content_at(workspace, b"%d" % n, 10) for n in range(4)] == [b"a" * 10, b"b" * 10, BIG, BIG[::-1]]
    change(workspace, b"again", BIG[::-1], 10)
    assert stored(workspace) == 4


def test_one_content_under_many_paths_is_one_and_goes_with_the_last(workspace: Workspace) -> None:
    attach(workspace, "s", 9, 1)
    for number in range(5):
        change(workspace, b"%d" % number, BIG, 10 + number)
    assert (stored(workspace), len(files_of(workspace))) == (1, 1)
    message(workspace, "s", "m", 20)
    for number in range(5):
        change(workspace, b"%d" % number, None, 30 + number)
    with workspace.database.transaction():
        workspace.ledger.release(100)
    workspace.give_back()
    assert (stored(workspace), len(files_of(workspace))) == (1, 1)
    with workspace.database.transaction():
        workspace.instants.evict("s", "m")
        assert workspace.ledger.release_instant(20) == 5
    assert len(files_of(workspace)) == 1, "unlinked before the commit that forgets it was known"
    workspace.give_back()
    assert (stored(workspace), files_of(workspace)) == (0, set())
    assert workspace.database.one("SELECT blobs, bytes FROM tally") == (0, 0)


def test_a_file_is_unlinked_only_after_the_commit_that_forgets_it(workspace: Workspace) -> None:
    change(workspace, b"a", BIG, 10)
    with pytest.raises(KeyboardInterrupt), workspace.database.transaction():
        workspace.database.execute("DELETE FROM version")
        assert workspace.blobs.bury() == (0, 0)
        raise KeyboardInterrupt
    workspace.blobs.bury()
    assert content_at(workspace, b"a", 10) == BIG


def test_a_transaction_that_fails_takes_its_files_with_it(workspace: Workspace) -> None:
    change(workspace, b"a", BIG, 10)
    before = files_of(workspace)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), workspace.blobs.writing(), workspace.database.transaction():
            put(workspace, b"b", BIG[1:], 20)
            put(workspace, b"a", BIG[2:], 20)
            assert len(files_of(workspace)) == 3
            raise KeyboardInterrupt
        assert files_of(workspace) == before
    assert content_at(workspace, b"a", 20) == BIG


def test_a_commit_in_doubt_keeps_its_files(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt), workspace.blobs.writing(), workspace.database.transaction():
        put(workspace, b"a", BIG, 10)
        workspace.database.in_doubt = True
        raise KeyboardInterrupt
    assert len(files_of(workspace)) == 1
    assert workspace.blobs.remove_strays() == 1


def test_a_second_transaction_that_fails_leaves_the_files_of_the_first(workspace: Workspace) -> None:
    with pytest.raises(KeyboardInterrupt), workspace.blobs.writing():
        with workspace.database.transaction():
            put(workspace, b"a", BIG, 10)
        with workspace.database.transaction():
            put(workspace, b"b", BIG[1:], 10)
            raise KeyboardInterrupt
    assert content_at(workspace, b"a", 10) == BIG
    assert files_of(workspace) == named_files(workspace)


def test_a_file_cannot_be_written_where_a_cleaner_may_take_it(workspace: Workspace) -> None:
    with pytest.raises(AssertionError), workspace.database.transaction():
        workspace.blobs.put(BIG)


def test_strays_are_removed_but_not_while_somebody_writes(place: Path, workspace: Workspace) -> None:
    change(workspace, b"a", BIG, 10)
    other = open_timeline(str(place))
    with pytest.raises(KeyboardInterrupt), workspace.blobs.writing(), workspace.database.transaction():
        put(workspace, b"b", BIG[1:], 20)
        assert other.blobs.remove_strays() == 0
        assert len(files_of(workspace)) == 2
        workspace.database.in_doubt = True
        raise KeyboardInterrupt
    Path(workspace.database.blobs, ".tmp-" + "0" * 16).write_bytes(b"half")
    assert other.blobs.remove_strays() == 2
    assert files_of(workspace) == named_files(workspace)
    other.close()


def test_a_rehearsal_writes_no_file(workspace: Workspace) -> None:
    change(workspace, b"a", BIG, 10)
    name = os.path.join(workspace.database.blobs, *named_files(workspace))
    Path(name).write_bytes(b"damaged")
    with pytest.raises(KeyboardInterrupt), workspace.database.transaction():
        workspace.blobs.rehearsing = True
        put(workspace, b"b", BIG[1:], 20)
        put(workspace, b"c", BIG, 20)  # heals
        assert content_at(workspace, b"c", 20) == BIG
        raise KeyboardInterrupt
    assert {Path(workspace.database.blobs, name).read_bytes() for name in files_of(workspace)} == {b"damaged"}


def test_unlinking_that_fails_is_tried_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    change(workspace, b"a", BIG, 10)
    workspace.database.execute("DELETE FROM version")

    def refuse(_path: str) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert workspace.blobs.bury() == (0, 0)
    assert [finding.code for finding in check(workspace).findings] == ["doomed-file"]
    assert workspace.blobs.bury() == (1, len(BIG))
    assert check(workspace).ok


# Space --------------------------------------------------------------------------------------------------------------


def test_space_goes_back_to_the_disk_and_nothing_that_was_forgotten_can_be_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = open_timeline(str(tmp_path), small_policy(inline_bytes=131_072))
    secret = b"SECRET-0123456789-do-not-keep"
    attach(workspace, "s", 9, 1)
    change(workspace, b"keep", b"keep me", 5)
    change(workspace, b".env", secret, 10)
    change(workspace, b"page", secret * 900, 10)  # packed
    change(workspace, b"noise", random.Random(2).randbytes(100_000) + secret, 10)
    for number in range(40):
        change(workspace, b"n%d" % number, random.Random(number).randbytes(100_000), 10)
    message(workspace, "s", "m", 20)
    with workspace.database.transaction():
        for path in (b".env", b"page", b"noise", *(b"n%d" % number for number in range(40))):
            put(workspace, path, None, 30)
        workspace.ledger.release(100)
    workspace.give_back()
    full = disk_bytes(str(tmp_path))
    assert full > 4_000_000
    with workspace.database.transaction():
        workspace.instants.evict("s", "m")
        workspace.ledger.release_instant(20)
    steps, step = [], workspace.database._reclaim_step
    monkeypatch.setattr(workspace.database, "_reclaim_step", lambda pages: steps.append(pages) or step(pages))
    workspace.give_back()
    assert len(steps) == 1, "a page at a time"
    assert disk_bytes(str(tmp_path)) < 500_000
    for name in ("store.db", "store.db-wal"):
        assert secret not in Path(workspace.database.directory, name).read_bytes()
    assert content_at(workspace, b"keep", 20) == b"keep me"
    assert check(workspace).ok
    workspace.close()


def test_giving_back_costs_nothing_where_nothing_was_forgotten(workspace: Workspace) -> None:
    change(workspace, b"a", b"x", 10)
    log = os.path.join(workspace.database.directory, "store.db-wal")
    before = os.stat(log)
    workspace.give_back()
    assert os.stat(log) == before


def test_a_reader_puts_giving_back_off_and_is_not_disturbed(place: Path) -> None:
    workspace = open_timeline(str(place), small_policy(inline_bytes=131_072))
    change(workspace, b"keep", b"keep", 5)
    for number in range(40):
        change(workspace, b"n%d" % number, random.Random(number).randbytes(100_000), 10)
    other = open_timeline(str(place))
    with other.database.snapshot():
        assert len(other.database.all("SELECT 1 FROM blob")) == 41
        workspace.database.execute("DELETE FROM version WHERE from_at = 10")
        workspace.give_back()
        assert len([content_at(other, b"n%d" % number, 10) for number in range(40)]) == 40
    workspace.give_back()
    assert disk_bytes(str(place)) < 500_000
    other.close()
    workspace.close()


# Full disks ---------------------------------------------------------------------------------------------------------


def free_bytes(where: Path) -> int:
    found = os.statvfs(where)
    return found.f_bavail * found.f_frsize


@pytest.mark.root
@pytest.mark.parametrize("inline_bytes", [64, 131_072])
def test_a_full_disk_refuses_loses_nothing_and_fills_no_further(
    tmp_path: Path, mount: Callable[..., None], inline_bytes: int
) -> None:
    where = tmp_path / "small"
    where.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m,mode=700", "none", str(where))
    workspace = open_timeline(str(where / "store"), small_policy(inline_bytes=inline_bytes))
    attach(workspace, "s", 100, 1)
    (where / "ballast").write_bytes(bytes(5_000_000))
    kept: dict[bytes, bytes] = {}
    at, refused = 10, 0
    while refused < 20:
        path, content = b"%d" % at, random.Random(at).randbytes(random.Random(at).randrange(1, 120_000))
        at += 1
        try:
            with workspace.blobs.writing(), workspace.database.transaction():
                put(workspace, path, content, at)
                workspace.instants.add("s", f"m{at}", at=at, kind="message", timeline=True)  # type: ignore[arg-type]
        except errors.StoreFault as fault:
            refused += 1
            assert "full" in str(fault) or "no space" in str(fault)
            assert files_of(workspace) == named_files(workspace), "a try that failed leaves what fills the disk"
            assert workspace.ledger.known(path) is None
        else:
            kept[path] = content
    assert len(kept) > 10
    for path, content in kept.items():
        assert content_at(workspace, path, at) == content
    assert check(workspace).findings == ()
    workspace.close()

    # Somebody makes a little room: enough to forget, and to give back all of it.
    (where / "ballast").unlink()
    workspace = open_timeline(str(where / "store"), small_policy(inline_bytes=inline_bytes))
    with workspace.database.transaction():
        for number in range(11, at + 1):
            workspace.instants.evict("s", f"m{number}")
        for path in list(kept)[: len(kept) * 3 // 4]:
            workspace.database.execute("DELETE FROM version WHERE path = ?", (workspace.ledger.path_id(path),))
            del kept[path]
    workspace.give_back()
    assert free_bytes(where) > 8_000_000
    change(workspace, b"after", BIG, at + 5)
    for path, content in {**kept, b"after": BIG}.items():
        assert content_at(workspace, path, at + 5) == content
    assert check(workspace).findings == ()
    workspace.close()


@pytest.mark.root
def test_no_room_for_a_timeline_leaves_none(tmp_path: Path, mount: Callable[..., None]) -> None:
    where = tmp_path / "tiny"
    where.mkdir()
    mount("-t", "tmpfs", "-o", "size=64k,mode=700", "none", str(where))
    with pytest.raises(errors.StoreFault):
        open_timeline(str(where))
    directory = where / "workspaces" / "key"
    assert [name for name in os.listdir(directory) if name.startswith("store.db")] == []
    subprocess.run(["mount", "-o", "remount,size=8m", str(where)], check=True)
    with open_timeline(str(where)).opened():
        pass


@pytest.mark.root
def test_a_store_that_cannot_be_written_is_refused_and_can_be_read(tmp_path: Path, mount: Callable[..., None]) -> None:
    where = tmp_path / "ro"
    where.mkdir()
    mount("-t", "tmpfs", "-o", "size=8m,mode=700", "none", str(where))
    workspace = open_timeline(str(where))
    change(workspace, b"a", BIG, 10)
    subprocess.run(["mount", "-o", "remount,ro", str(where)], check=False)
    if os.access(where, os.W_OK):
        subprocess.run(["chattr", "+i", workspace.database.blobs], check=True)
    try:
        with pytest.raises(errors.Refusal):
            change(workspace, b"b", BIG[1:], 20)
        assert content_at(workspace, b"a", 20) == BIG
    finally:
        subprocess.run(["chattr", "-i", workspace.database.blobs], check=False)
        subprocess.run(["mount", "-o", "remount,rw", str(where)], check=True)
    change(workspace, b"b", BIG[1:], 20)
    assert check(workspace).ok
    workspace.close()


# Two at once --------------------------------------------------------------------------------------------------------

WRITER = """
import random, sys
from tests.store.timeline import open_timeline, small_policy, put, attach
from sidecar.checkpoint.apply import enforce_caps
workspace = open_timeline(sys.argv[1])
me = sys.argv[2]
attach(workspace, me, 5, 1)
chance = random.Random(me)
for number in range(120):
    with workspace.blobs.writing(), workspace.database.transaction():
        at = workspace.database.one("SELECT COALESCE(max(at), 100) + 1 FROM message")[0]
        for path in (b"shared", me.encode()):
            known = workspace.ledger.known(path)
            if known is None or known.row.from_at < at:
                put(workspace, path, random.Random(chance.randrange(12)).randbytes(200), at)
        workspace.instants.add(me, f"m{number}", at=at, kind="message", timeline=True)
        enforce_caps(workspace, me, cap=5, before_rewinds=20)
        workspace.ledger.release(at - 3)
    workspace.give_back()
    if number % 10 == 0:
        workspace.blobs.remove_strays()
workspace.close()
print("done")
"""


@pytest.mark.slow
def test_two_writers_and_a_check_beside_them(place: Path) -> None:
    workspace = open_timeline(str(place))
    command = [sys.executable, "-c", WRITER, str(place)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": CHECKOUT}
    writers = [subprocess.Popen([*command, name], **pipes) for name in ("one", "two")]  # type: ignore[call-overload]
    looks = 0
    while any(writer.poll() is None for writer in writers):
        assert check(workspace).findings == ()
        looks += 1
    answers = [writer.communicate() for writer in writers]
    assert [out for out, _ in answers] == ["done\n"] * 2, answers
    assert looks > 1
    outcome = check(workspace)
    assert (outcome.findings, outcome.checkpoints) == ((), 10)
    assert files_of(workspace) == named_files(workspace)
    workspace.close()


# Values that SQLite does not take -----------------------------------------------------------------------------------


def test_a_file_of_the_year_2400_or_of_before_1970_is_known_by_its_times(workspace: Workspace) -> None:
    for number, time in enumerate((15_032_385_535_000_000_001, -(2**70), -1, 0, 2**63 - 1, 2**63)):
        stat = Stat(Kind.FILE, 0o644, 2**64 - 1, 2**63 + 5, 3, time, time + 1, 1, 0, 0)
        with workspace.blobs.writing(), workspace.database.transaction():
            put(workspace, b"%d" % number, b"abc", 10)
            workspace.ledger.refresh(b"%d" % number, stat, 11)
        known = workspace.ledger.known(b"%d" % number)
        assert known is not None
        assert known.stat == stat


def test_a_transcript_may_hold_lone_surrogates_and_times_beyond_all(workspace: Workspace) -> None:
    instants, turns = workspace.instants, workspace.turns
    with workspace.database.transaction():
        instants.attach("s\ud800", agent="a", transcript="/\udcff\n.jsonl", cwd="/w\udcfe", cap=3, at=1)
        instants.add("s\ud800", "u\udfff", at=5, kind="message", timeline=True, prompt="hi \ud83d")  # type: ignore[arg-type]
        turns.begin("s", 10**20)
        turns.touch("s", 10**21)
        turns.end("s", -(10**21))
    assert instants.seen("s\ud800", "u\udfff")
    assert instants.find("u\udfff") == [("s\ufffd", "u\ufffd")]
    found = instants.session("s\ud800")
    assert found is not None
    assert (found.transcript, found.cwd) == ("/\udcff\n.jsonl", "/w\udcfe")
    assert instants.checkpoints()[0].prompt == "hi \ufffd"
    assert turns.all(now=5, timeout=1)[0].start == 2**63 - 1


def test_an_error_while_rows_are_read_names_the_store(workspace: Workspace) -> None:
    change(workspace, b"a", b"1", 10)
    workspace.database.execute("ALTER TABLE stat RENAME TO gone")
    with pytest.raises(errors.StoreFault, match="workspaces/key"):
        workspace.ledger.known(b"a")
    database: Database = workspace.database
    database.connection.close()
    with pytest.raises(errors.StoreFault):
        database.one("SELECT 1")


def test_an_unknown_content_is_missing(workspace: Workspace) -> None:
    blobs: Blobs = workspace.blobs
    with pytest.raises(Damaged):
        blobs.get(7)
