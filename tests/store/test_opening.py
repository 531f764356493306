"""The store is made whole, for its owner alone, once; what is not ours is refused and left as it is."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar import errors
from sidecar.fs import private
from sidecar.policy.load import checkpoint_policy
from sidecar.store import home as homes
from sidecar.store.check import check, check_home
from sidecar.store.database import APPLICATION, open_database
from sidecar.store.home import identify, known_workspaces, open_home
from sidecar.store.workspace import Workspace, every_workspace, open_by_key, open_containing, open_for_root
from tests.store.timeline import change, message, open_timeline

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    old = os.umask(request.param)
    yield
    os.umask(old)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def opened(root: Path) -> Workspace:
    workspace = open_for_root(str(root), checkpoint_policy(), create=True)
    assert workspace is not None
    return workspace


def store_of(home: Path) -> Path:
    return home / "sidecar-home"


def tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"/"
        for path in sorted(directory.rglob("*"))
    }


# Modes and settings -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("umask")
def test_all_of_it_is_for_its_owner_alone_whatever_the_umask(root: Path, home: Path) -> None:
    workspace = opened(root)
    change(workspace, b"big", os.urandom(300_000), 10)
    change(workspace, b"small", b"x", 10)
    second = opened(root)  # another connection makes its own files
    found = {}
    for folder, names, files in os.walk(store_of(home)):
        for name in [*names, *files]:
            path = Path(folder, name)
            found[str(path.relative_to(store_of(home)))] = (path.is_dir(), path.stat().st_mode & 0o7777)
    assert {mode for is_folder, mode in found.values() if is_folder} == {0o700}
    assert {mode for is_folder, mode in found.values() if not is_folder} == {0o600}
    assert {Path(name).name for name in found} >= {"store.db", "store.db-wal", "store.db-shm", "sidecar-store", "lock"}
    assert store_of(home).stat().st_mode & 0o7777 == 0o700
    assert check(workspace).ok
    assert all(outcome.ok for outcome in check_home(checkpoint_policy()))
    second.close()
    workspace.close()


def test_the_settings_that_the_rules_rest_on_are_really_on(workspace: Workspace) -> None:
    expected = {
        "journal_mode": "wal",
        "page_size": 8192,
        "auto_vacuum": 2,  # incremental
        "synchronous": 2,  # full
        "foreign_keys": 1,
        "recursive_triggers": 1,
        "secure_delete": 2,  # where it costs no further page
        "application_id": APPLICATION,
        "user_version": 1,
    }
    assert {name: workspace.database.one(f"PRAGMA {name}")[0] for name in expected} == expected


def test_wide_modes_are_found_around_the_timelines_too(root: Path, home: Path) -> None:
    opened(root).close()
    for path in (store_of(home), store_of(home) / "workspaces"):
        path.chmod(0o755)
    (store_of(home) / "sidecar-store").chmod(0o644)
    policy = checkpoint_policy()
    assert [finding.code for outcome in check_home(policy) for finding in outcome.findings] == ["mode"] * 3
    assert all(outcome.ok for outcome in check_home(policy, repair=True))
    assert all(outcome.ok for outcome in check_home(policy))


# The home -----------------------------------------------------------------------------------------------------------


def test_nothing_is_made_that_was_not_asked_for(root: Path, home: Path) -> None:
    assert open_home(create=False) is None
    assert open_for_root(str(root), checkpoint_policy(), create=False) is None
    assert open_containing(str(root), checkpoint_policy()) is None
    with every_workspace(checkpoint_policy(), []) as workspaces:
        assert list(workspaces) == []
    assert list(check_home(checkpoint_policy())) == []
    assert not store_of(home).exists()
    open_home(create=True)
    assert open_for_root(str(root), checkpoint_policy(), create=False) is None
    assert os.listdir(store_of(home)) == ["sidecar-store"]


def hold_files(place: Path) -> None:
    (place / "notes.txt").write_text("mine")


def hold_another_marker(place: Path) -> None:
    (place / "sidecar-store").write_text("something else\n")


def hold_no_text(place: Path) -> None:
    (place / "sidecar-store").write_bytes(b"\xff\xfe")


def hold_a_folder(place: Path) -> None:
    (place / "sidecar-store").mkdir()


def hold_a_pipe(place: Path) -> None:
    os.mkfifo(place / "sidecar-store")


def test_a_home_that_another_process_makes_just_now_is_ours(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(path: str) -> bool:
        private.private_directory(path)
        private.write_private(os.path.join(path, homes.MARKER), homes.FORMAT.encode())
        return True

    monkeypatch.setattr(homes, "_is_foreign", meanwhile)
    assert open_home(create=True) == str(store_of(home))


def test_a_timeline_is_on_the_disk_before_it_has_its_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    rename = os.rename

    def note_rename(source: str, target: str) -> None:
        steps.append(f"rename {os.path.basename(target)}")
        rename(source, target)

    monkeypatch.setattr(os, "rename", note_rename)
    for name in ("sync_file", "sync_directory"):
        real = getattr(private, name)

        def note(path: str, name: str = name, real: Callable[[str], None] = real) -> None:
            steps.append(f"{name} {os.path.basename(os.fsdecode(path))}")
            real(path)

        monkeypatch.setattr(private, name, note)
    open_timeline(str(place)).close()
    assert steps[-3:] == ["sync_file store.db.new", "rename store.db", "sync_directory key"]


@pytest.mark.parametrize("hold", [hold_files, hold_another_marker, hold_no_text, hold_a_folder, hold_a_pipe])
@pytest.mark.parametrize("create", [False, True])
def test_a_directory_that_holds_something_else_is_refused(
    root: Path, home: Path, hold: Callable[[Path], None], create: bool
) -> None:
    store_of(home).mkdir(mode=0o755)
    hold(store_of(home))
    names = sorted(os.listdir(store_of(home)))
    with pytest.raises(errors.NotOurStore):
        open_for_root(str(root), checkpoint_policy(), create=create)
    assert sorted(os.listdir(store_of(home))) == names
    assert store_of(home).stat().st_mode & 0o7777 == 0o755


def test_a_file_where_the_home_should_be_is_refused(root: Path, home: Path) -> None:
    store_of(home).write_text("mine")
    with pytest.raises(errors.NotOurStore):
        opened(root)
    assert store_of(home).read_text() == "mine"


def test_the_home_of_a_newer_sidecar_is_refused(root: Path, home: Path) -> None:
    store_of(home).mkdir()
    (store_of(home) / "sidecar-store").write_text("2\n")
    with pytest.raises(errors.StoreTooNew, match="format 2"):
        opened(root)


def test_dying_while_the_home_is_made_does_not_lock_anybody_out(root: Path, home: Path) -> None:
    store_of(home).mkdir()
    (store_of(home) / (".tmp-" + "0" * 16)).write_text("")
    opened(root).close()


def test_the_home_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_home(create=True)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(errors.NotOurStore, match="another user owns it"):
        open_home(create=True)


# Databases ----------------------------------------------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(50_000))


def of_another_program(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA application_id = 42")
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def without_a_name(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def without_a_format(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute("CREATE TABLE theirs (x)")
    database.close()


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("make", [garbage, of_another_program, without_a_name, without_a_format, empty])
@pytest.mark.parametrize("create", [False, True])
def test_a_database_that_is_not_ours_is_refused_and_left(
    place: Path, make: Callable[[Path], None], create: bool
) -> None:
    directory = place / "workspaces" / "key"
    directory.mkdir(parents=True)
    make(directory / "store.db")
    before = tree(place)
    with pytest.raises(errors.NotOurStore):
        open_database(str(directory), create=create)
    assert tree(place) == before


def test_the_database_of_a_newer_sidecar_is_refused_and_left(place: Path) -> None:
    open_timeline(str(place)).close()
    with sqlite3.connect(place / "workspaces/key/store.db") as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    before = tree(place)
    with pytest.raises(errors.StoreTooNew, match="format 2, this one reads up to 1"):
        open_timeline(str(place))
    assert tree(place) == before


def test_no_timeline_is_said_and_none_is_made(place: Path) -> None:
    with pytest.raises(errors.NotOurStore):
        open_database(str(place / "workspaces" / "key"), create=False)
    assert os.listdir(place) == []
    with pytest.raises(errors.NotOurStore):
        open_by_key("key", checkpoint_policy())


def test_one_that_was_removed_meanwhile_is_not_made_anew(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = place / "workspaces" / "key"
    directory.mkdir(parents=True)
    monkeypatch.setattr(os.path, "exists", lambda _path: True)
    with pytest.raises(errors.StoreFault):
        open_database(str(directory), create=False)
    assert os.listdir(directory) == []


def test_dying_while_a_timeline_is_made_leaves_nothing_that_counts(place: Path) -> None:
    directory = place / "workspaces" / "key"
    (directory / "blobs").mkdir(parents=True, mode=0o700)
    for name in ("store.db.new", "store.db.new-wal", "store.db.new-shm"):
        (directory / name).write_bytes(os.urandom(10_000))
    with open_timeline(str(place)).opened():
        pass
    assert not [name for name in os.listdir(directory) if ".new" in name]


def test_a_timeline_that_cannot_be_read_keeps_no_other_from_being_checked(root: Path, home: Path) -> None:
    opened(root).close()
    for key, make in (("0" * 32, garbage), ("f" * 32, of_another_program)):
        (store_of(home) / "workspaces" / key).mkdir(mode=0o700)
        make(store_of(home) / "workspaces" / key / "store.db")
    lost = store_of(home) / "workspaces" / ("1" * 32) / "blobs"
    lost.mkdir(parents=True)
    (lost / ("ab" * 16)).write_bytes(b"content")
    outcomes = list(check_home(checkpoint_policy(), repair=True))
    codes = [finding.code for outcome in outcomes for finding in outcome.findings]
    assert sorted(codes) == ["database-damaged", "database-damaged", "database-missing"]
    assert sum(outcome.ok for outcome in outcomes) == 1
    assert (lost / ("ab" * 16)).exists()


RACE = """
import sys
from sidecar.policy.load import checkpoint_policy
from sidecar.store.workspace import open_for_root
from tests.store.timeline import change, message
sys.stdin.readline()
me = int(sys.argv[2])
for number in range(20):
    workspace = open_for_root(sys.argv[1], checkpoint_policy(), create=True)
    change(workspace, b"%d/%d" % (me, number), bytes([me]) * (200_000 if number % 5 == 0 else 50), 10 + number)
    message(workspace, f"s{me}", f"m{number}", 10 + number)
    workspace.give_back()
    workspace.close()
print("done")
"""


@pytest.mark.slow
def test_processes_that_begin_at_once_share_one_store(root: Path, home: Path) -> None:
    for attempt in range(3):
        work = root / str(attempt)
        work.mkdir()
        os.environ["SIDECAR_HOME"] = str(home / f"store-{attempt}")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", RACE, str(work), str(number)],
                cwd=CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(4)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.communicate(timeout=120) for process in processes]
        assert [out for out, _ in answers] == ["done\n"] * 4, answers
        workspace = opened(work)
        assert known_workspaces(str(home / f"store-{attempt}")) == [workspace.key]
        outcome = check(workspace)
        assert (outcome.findings, outcome.checkpoints, outcome.versions) == ((), 80, 80)
        assert outcome.blobs == 8
        workspace.close()


# Which workspace ----------------------------------------------------------------------------------------------------


def test_a_moved_directory_keeps_its_timeline_and_another_at_its_path_does_not(root: Path, tmp_path: Path) -> None:
    first = opened(root)
    assert first.root == os.path.realpath(root)
    change(first, b"a", b"1", 10)
    first.close()
    root.rename(tmp_path / "moved")
    root.mkdir()
    other = opened(root)
    assert other.key != first.key
    assert other.ledger.known(b"a") is None
    other.close()
    again = opened(tmp_path / "moved")
    assert again.key == first.key
    assert again.root == os.path.realpath(tmp_path / "moved")
    again.close()
    inner = tmp_path / "moved" / "x" / "y"
    inner.mkdir(parents=True)
    found = open_containing(str(inner), checkpoint_policy())
    assert found is not None
    assert found.key == first.key
    found.close()


def test_a_root_whose_name_is_no_text(tmp_path: Path) -> None:
    root = os.path.join(os.fsencode(tmp_path), b"\xff\xfe ?#%")
    os.mkdir(root)
    workspace = opened(Path(os.fsdecode(root)))
    assert os.fsencode(workspace.root) == os.path.realpath(root)
    workspace.close()


def test_a_home_whose_name_is_no_text(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_HOME", os.fsdecode(os.path.join(os.fsencode(tmp_path), b"\xff ?mode=ro#%41")))
    workspace = opened(root)
    message(workspace, "s", "m", 10)
    assert check(workspace).ok
    workspace.close()


def test_a_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.NoWorkspace):
        open_for_root(str(tmp_path / "none"), checkpoint_policy(), create=True)


def test_any_birth_time_has_a_key(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = identify(str(root))
    assert found.born_ns > 0
    keys = {homes.Identity(found.file_system, found.inode, born).key for born in (-1, 0, 2**63, 2**64 - 2)}
    assert len(keys) == 4
