"""Damage in every form, to every part: it is found, never passed on as bytes, and never turned into absence."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar import errors
from sidecar.store.blobs import Damaged, Missing
from sidecar.store.check import check
from sidecar.store.rewinds import Journal, Step
from sidecar.store.workspace import Workspace
from tests.store.timeline import attach, change, content_at, files_of, message, named_files, open_timeline

BIG = bytes(range(256)) * 3  # does not shrink below a file's size
SMALL = b"small"
TEXT = b"text that packs well " * 2000


def fill(workspace: Workspace) -> None:
    """Keep a large, a small and a packed content that only a message needs, and the present ones."""
    attach(workspace, "s", 100, 1)
    for path, content in ((b"big", BIG), (b"small", SMALL), (b"text", TEXT)):
        change(workspace, path, content, 10)
    message(workspace, "s", "m", 20)
    for path in (b"big", b"small", b"text"):
        change(workspace, path, None, 30)
    with workspace.database.transaction():
        workspace.ledger.release(1000)
    assert check(workspace).findings == ()


def codes(workspace: Workspace, *, repair: bool = False) -> list[str]:
    return sorted(finding.code for finding in check(workspace, repair=repair).findings)


def number_of(workspace: Workspace, path: bytes) -> int:
    state = workspace.ledger.state_at(path, 20)
    assert state is not None
    assert state.blob is not None
    return state.blob


def file_of(workspace: Workspace, path: bytes) -> str:
    (name,) = workspace.database.one("SELECT file FROM blob WHERE id = ?", number_of(workspace, path))
    return os.path.join(workspace.database.blobs, name)


def delete_file(workspace: Workspace) -> None:
    os.unlink(file_of(workspace, b"big"))


def truncate_file(workspace: Workspace) -> None:
    os.truncate(file_of(workspace, b"big"), 100)


def flip_file(workspace: Workspace) -> None:
    with open(file_of(workspace, b"big"), "r+b") as file:
        file.seek(50)
        file.write(b"\xff")


def replace_file_by_folder(workspace: Workspace) -> None:
    os.unlink(file_of(workspace, b"big"))
    os.mkdir(file_of(workspace, b"big"))


def link_file(workspace: Workspace) -> None:
    path = file_of(workspace, b"big")
    os.rename(path, f"{workspace.database.directory}/elsewhere")
    os.symlink(f"{workspace.database.directory}/elsewhere", path)


def delete_row(workspace: Workspace) -> None:
    workspace.database.execute("DELETE FROM blob_data WHERE blob = ?", (number_of(workspace, b"small"),))


def truncate_row(workspace: Workspace) -> None:
    number = number_of(workspace, b"text")
    workspace.database.execute("UPDATE blob_data SET data = substr(data, 1, 20) WHERE blob = ?", (number,))


def flip_row(workspace: Workspace) -> None:
    workspace.database.execute(
        "UPDATE blob_data SET data = ? WHERE blob = ?", (b"Small", number_of(workspace, b"small"))
    )


def other_kind_of_row(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE blob_data SET data = 3 WHERE blob = ?", (number_of(workspace, b"small"),))


def claim_another_size(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE blob SET size_bytes = 3 WHERE id = ?", (number_of(workspace, b"small"),))


def claim_a_huge_size(workspace: Workspace) -> None:
    """Make a frame's header ask for more memory than there is."""
    number = number_of(workspace, b"text")
    (data,) = workspace.database.one("SELECT data FROM blob_data WHERE blob = ?", number)
    assert data[4] == 0x60  # one segment, its size in two bytes
    frame = data[:4] + b"\xe0" + (2**61).to_bytes(8, "little") + data[7:]
    workspace.database.execute("UPDATE blob_data SET data = ? WHERE blob = ?", (frame, number))


DAMAGE: dict[Callable[[Workspace], None], tuple[bytes, bytes, type[Damaged]]] = {
    delete_file: (b"big", BIG, Missing),
    truncate_file: (b"big", BIG, Damaged),
    flip_file: (b"big", BIG, Damaged),
    replace_file_by_folder: (b"big", BIG, Damaged),
    link_file: (b"big", BIG, Damaged),
    delete_row: (b"small", SMALL, Missing),
    truncate_row: (b"text", TEXT, Damaged),
    flip_row: (b"small", SMALL, Damaged),
    other_kind_of_row: (b"small", SMALL, Damaged),
    claim_a_huge_size: (b"text", TEXT, Damaged),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_content_is_found_kept_and_healed(workspace: Workspace, damage: Callable[[Workspace], None]) -> None:
    fill(workspace)
    path, content, kind = DAMAGE[damage]
    number = number_of(workspace, path)
    damage(workspace)

    with pytest.raises(Damaged) as caught:
        workspace.blobs.get(number)
    assert type(caught.value) is kind
    assert workspace.blobs.find(content) is None
    assert not workspace.blobs.is_whole(number)

    word = "blob-missing" if kind is Missing else "blob-damaged"
    for repair in (False, True, False):
        outcome = check(workspace, repair=repair)
        assert [finding.code for finding in outcome.findings if finding.code != "foreign-file"] == [word]
        assert path.decode() in outcome.findings[0].what
        assert not outcome.ok
    # The row still says that there was a file: a rewind calls it missing, and removes nothing.
    state = workspace.ledger.state_at(path, 20)
    assert state is not None
    assert state.blob == number

    change(workspace, b"again", content, 40)
    assert content_at(workspace, path, 20) == content
    assert number_of(workspace, path) == number
    workspace.blobs.bury()
    for leftover in (os.path.join(workspace.database.directory, "elsewhere"),):
        if os.path.exists(leftover):
            os.unlink(leftover)
    assert [code for code in codes(workspace) if code != "foreign-file"] in ([], ["doomed-file"])


def test_a_content_whose_row_is_gone_is_missing_and_stays_so(workspace: Workspace) -> None:
    fill(workspace)
    number = number_of(workspace, b"small")
    with sqlite3.connect(os.path.join(workspace.database.directory, "store.db")) as foreign:  # keys are not enforced
        foreign.execute("DELETE FROM blob WHERE id = ?", (number,))
    foreign.close()
    with pytest.raises(Missing):
        workspace.blobs.get(number)
    assert codes(workspace) == ["blob-missing"]
    assert codes(workspace, repair=True) == ["blob-missing"]
    state = workspace.ledger.state_at(b"small", 20)
    assert state is not None
    assert state.blob == number


def test_the_database_refuses_to_forget_what_a_row_names(workspace: Workspace) -> None:
    fill(workspace)
    with pytest.raises(errors.StoreFault):
        workspace.database.execute("DELETE FROM blob WHERE id = ?", (number_of(workspace, b"small"),))
    workspace.database.execute("UPDATE blob SET refs = 2 WHERE id = ?", (number_of(workspace, b"small"),))
    change(workspace, b"twin", SMALL, 50)
    workspace.database.execute("UPDATE blob SET refs = 1 WHERE id = ?", (number_of(workspace, b"small"),))
    change(workspace, b"twin", b"other", 60)
    with pytest.raises(errors.StoreFault), workspace.database.transaction():
        workspace.ledger.release(1001)
        workspace.database.execute(
            "DELETE FROM version WHERE blob = ? AND from_at = 50", (number_of(workspace, b"small"),)
        )
    assert content_at(workspace, b"small", 20) == SMALL


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE version SET blob = NULL, kind = 'absent' WHERE blob IS NOT NULL",
        "UPDATE version SET from_at = from_at - 1",
        "UPDATE version SET kind = 'directory' WHERE kind = 'absent'",
        "UPDATE version SET to_at = 31 WHERE to_at = 30",
        "UPDATE version SET to_at = NULL WHERE to_at = 30",
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (1, 5, 11, 5, 5, 'absent')",
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (1, 5, NULL, 5, 5, 'absent')",
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (1, 29, 30, 5, 5, 'absent')",
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (1, 40, 50, 5, 5, 'absent')",
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (99, 1, 2, 1, 1, 'absent')",
        "INSERT INTO version (path, from_at, changed_lo, changed_at, kind, blob) VALUES (9, 1, 1, 1, 'file', 9)",
    ],
)
def test_the_database_refuses_what_breaks_a_timeline(workspace: Workspace, statement: str) -> None:
    fill(workspace)
    with pytest.raises(errors.StoreFault):
        workspace.database.execute(statement)
    assert check(workspace).ok


def test_a_row_before_all_others_is_no_overlap(workspace: Workspace) -> None:
    fill(workspace)
    workspace.database.execute(
        "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind) VALUES (1, 5, 10, 5, 5, 'absent')"
    )
    assert codes(workspace) == ["unreleased"]


# What a repair may mend ---------------------------------------------------------------------------------------------


def forget_a_reference(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE blob SET refs = refs + 3 WHERE id = ?", (number_of(workspace, b"big"),))


def lose_a_reference(workspace: Workspace) -> None:
    change(workspace, b"twin", BIG, 40)
    workspace.database.execute("UPDATE blob SET refs = 1 WHERE id = ?", (number_of(workspace, b"big"),))


def leave_a_content(workspace: Workspace) -> None:
    with workspace.blobs.writing(), workspace.database.transaction():
        workspace.blobs.put(b"z" * 10 + BIG)


def leave_a_stray(workspace: Workspace) -> None:
    Path(workspace.database.blobs, "ab" * 16).write_bytes(b"stray")
    Path(workspace.database.blobs, ".tmp-" + "ab" * 8).write_bytes(b"stray")
    for name in ("ab" * 16, ".tmp-" + "ab" * 8):
        os.chmod(os.path.join(workspace.database.blobs, name), 0o600)


def leave_a_doomed_file(workspace: Workspace) -> None:
    leave_a_stray(workspace)
    os.unlink(os.path.join(workspace.database.blobs, ".tmp-" + "ab" * 8))
    workspace.database.execute("INSERT INTO doomed VALUES (?)", ("ab" * 16,))


def open_modes(workspace: Workspace) -> None:
    os.chmod(file_of(workspace, b"big"), 0o644)
    os.chmod(workspace.database.blobs, 0o755)
    os.chmod(os.path.join(workspace.database.directory, "store.db"), 0o640)


def miscount(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE tally SET blobs = 7, bytes = 7")


def keep_too_much(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE message SET state = 'evicted'")


MENDABLE = {
    forget_a_reference: {"refcount"},
    lose_a_reference: {"refcount"},
    leave_a_content: {"unreferenced"},
    leave_a_stray: {"stray-file"},
    leave_a_doomed_file: {"doomed-file"},
    open_modes: {"mode"},
    miscount: {"tally"},
    keep_too_much: {"unreleased"},
}


@pytest.mark.parametrize("harm", MENDABLE, ids=lambda harm: harm.__name__)
def test_what_loses_nothing_is_mended(workspace: Workspace, harm: Callable[[Workspace], None]) -> None:
    fill(workspace)
    harm(workspace)
    assert set(codes(workspace)) == MENDABLE[harm]
    assert set(codes(workspace)) == MENDABLE[harm], "a check without --repair changed something"

    outcome = check(workspace, repair=True)
    assert outcome.ok
    assert {line.partition(":")[0] for line in outcome.repaired} == MENDABLE[harm]
    assert check(workspace).findings == ()
    assert files_of(workspace) == named_files(workspace)
    if harm is not keep_too_much:
        assert [content_at(workspace, path, 20) for path in (b"big", b"small", b"text")] == [BIG, SMALL, TEXT]


def test_what_is_not_ours_is_left(workspace: Workspace) -> None:
    fill(workspace)
    theirs = [os.path.join(workspace.database.blobs, "notes.txt"), os.path.join(workspace.database.directory, "mine")]
    folder = os.path.join(workspace.database.blobs, "cd" * 16)
    for path in theirs:
        Path(path).write_text("theirs")
        os.chmod(path, 0o600)
    os.mkdir(folder)
    assert workspace.blobs.remove_strays() == 0
    assert codes(workspace, repair=True) == ["foreign-file"] * 3
    assert [Path(path).read_text() for path in theirs] == ["theirs"] * 2
    assert os.path.isdir(folder)


def test_a_name_that_leads_elsewhere_is_never_followed(workspace: Workspace, tmp_path: Path) -> None:
    fill(workspace)
    stored = Path(file_of(workspace, b"big")).read_bytes()
    (tmp_path / "theirs").write_bytes(stored)
    name = os.path.relpath(tmp_path / "theirs", workspace.database.blobs)
    workspace.database.execute("INSERT INTO doomed VALUES (?)", (name,))
    workspace.blobs.bury()
    assert (tmp_path / "theirs").read_bytes() == stored
    workspace.database.execute("UPDATE blob SET file = ? WHERE id = ?", (name, number_of(workspace, b"big")))
    with pytest.raises(Damaged):
        workspace.blobs.get(number_of(workspace, b"big"))


# What only people can judge -----------------------------------------------------------------------------------------


def overlap(workspace: Workspace) -> None:
    with sqlite3.connect(os.path.join(workspace.database.directory, "store.db")) as foreign:
        foreign.execute("DROP TRIGGER version_ends")
        foreign.execute("UPDATE version SET to_at = 35 WHERE to_at = 30")
    foreign.close()


def end_everything(workspace: Workspace) -> None:
    workspace.database.execute("UPDATE version SET to_at = 2000 WHERE to_at IS NULL")


def pass_the_cap(workspace: Workspace) -> None:
    attach(workspace, "s", 1, 1)
    message(workspace, "s", "n", 40)


def orphan_an_import(workspace: Workspace) -> None:
    with workspace.blobs.writing(), workspace.database.transaction():
        number = workspace.ledger.path_id(b"big")
        state = workspace.ledger.state_at(b"big", 20)
        assert state is not None
        workspace.instants.add_imported("s", "m", [(number, state, None)])
        workspace.instants.add("s", "keeper", at=20, kind="mark", timeline=True)  # type: ignore[arg-type]
        workspace.database.execute("UPDATE message SET state = 'evicted' WHERE uuid = 'm'")


def interrupt_a_rewind(workspace: Workspace) -> None:
    with workspace.database.transaction():
        workspace.rewinds.open_journal(Journal("staging", "s", "m", "before", 1, 50))
        workspace.rewinds.add_steps([Step(b"big", "x", "create")])


JUDGED = {
    overlap: {"overlap"},
    end_everything: {"no-present"},
    pass_the_cap: {"over-cap"},
    orphan_an_import: {"imported-orphan"},
    interrupt_a_rewind: {"interrupted-rewind"},
}


@pytest.mark.parametrize("harm", JUDGED, ids=lambda harm: harm.__name__)
def test_what_a_repair_could_lose_is_only_told(workspace: Workspace, harm: Callable[[Workspace], None]) -> None:
    fill(workspace)
    harm(workspace)
    before = list(workspace.database.connection.iterdump())
    for repair in (False, True):
        assert set(codes(workspace, repair=repair)) == JUDGED[harm]
    assert list(workspace.database.connection.iterdump()) == before


# The database -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("how", ["truncate", "flip"])
def test_a_damaged_database_is_told_and_nothing_in_it_is_mended(place: Path, how: str, share: float) -> None:
    workspace = open_timeline(str(place))
    fill(workspace)
    for number in range(300):
        change(workspace, b"many %d" % number, os.urandom(60), 100 + number)
    workspace.blobs.bury()
    (directory, blobs) = (workspace.database.directory, files_of(workspace))
    workspace.close()
    path = os.path.join(directory, "store.db")
    size = os.path.getsize(path)
    if how == "truncate":
        os.truncate(path, int(size * share) // 8192 * 8192 + (100 if share else 0))
    else:
        with open(path, "r+b") as file:
            file.seek(int(size * share) // 8192 * 8192)
            file.write(os.urandom(4096))
    damaged = Path(path).read_bytes()
    try:
        workspace = open_timeline(str(place))
    except errors.Refusal as refusal:
        assert refusal.code in ("not-our-store", "store-fault")
        assert Path(path).read_bytes() == damaged
    else:
        outcome = check(workspace, repair=True)
        assert "database-damaged" in {finding.code for finding in outcome.findings}
        assert not outcome.repaired
        workspace.close()
    assert set(os.listdir(os.path.join(directory, "blobs"))) - {"lock"} == blobs


@pytest.mark.parametrize("log", [False, True])
def test_a_missing_database_is_not_begun_anew_over_its_contents(place: Path, tmp_path: Path, log: bool) -> None:
    workspace = open_timeline(str(place))
    fill(workspace)
    directory = workspace.database.directory
    copy = str(tmp_path / "copy")
    shutil.copytree(directory, copy)  # with the log, as after a kill
    workspace.close()
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    os.unlink(os.path.join(directory, "store.db"))
    if log:
        for name in os.listdir(os.path.join(directory, "blobs")):
            os.unlink(os.path.join(directory, "blobs", name))
    else:
        os.unlink(os.path.join(directory, "store.db-wal"))
    before = sorted(os.listdir(os.path.join(directory, "blobs")))
    with pytest.raises(errors.StoreFault, match="missing"):
        open_timeline(str(place))
    assert set(os.listdir(os.path.join(directory, "blobs"))) - {"lock"} == set(before) - {"lock"}
    assert not os.path.exists(os.path.join(directory, "store.db"))


def test_a_content_of_another_size_than_was_stored_is_damaged(workspace: Workspace) -> None:
    fill(workspace)
    claim_another_size(workspace)
    with pytest.raises(Damaged):
        workspace.blobs.get(number_of(workspace, b"small"))
    assert codes(workspace, repair=True) == ["blob-damaged"]
