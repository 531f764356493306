"""Find sessions: by home, by target, by id; by what the records say, never by a folder's name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.agents import registry
from sidecar.agents.claude_code import slug_of
from sidecar.agents.finding import home_of, matching
from sidecar.agents.processes import is_alive
from sidecar.agents.table import parse_agent
from sidecar.errors import AmbiguousId, BadPolicy, MalformedId, NoSession, NoTranscript
from sidecar.model import SessionFound
from sidecar.policy.load import load_table
from tests.builders.claude import ClaudeHome, ClaudeSession
from tests.builders.claude import slug_of as slug_of_builder

FIRST = "aaaa1111-0000-4000-8000-000000000001"
SECOND = "aaaa2222-0000-4000-8000-000000000002"
CLAUDE = registry()["claude-code"]


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeHome:
    return ClaudeHome(tmp_path / "config")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "a_b.c"
    place.mkdir()
    return place


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


def begun(home: ClaudeHome, cwd: Path, session: str = FIRST) -> ClaudeSession:
    made = home.session(cwd, session=session)
    made.prompt("hello")
    return made


def sessions(found: list[SessionFound]) -> set[str]:
    return {one.session for one in found}


def test_everything_about_a_session_is_found(claude: ClaudeHome, project: Path) -> None:
    made = begun(claude, project)
    assert CLAUDE.find_sessions(claude.environ) == [
        SessionFound(
            session=FIRST,
            agent="claude-code",
            transcript=str(made.transcript),
            workspace=str(project),
            companions=(str(made.companion),),
            pid=None,
            history=str(made.file_history),
        )
    ]


def test_the_default_home_is_below_the_persons(tmp_path: Path) -> None:
    assert CLAUDE.home({"HOME": str(tmp_path)}) == str(tmp_path / ".claude")
    assert CLAUDE.home({"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": ""}) == str(tmp_path / ".claude")
    assert CLAUDE.private_places({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}) == ["/c", "/h/.claude.json"]
    assert CLAUDE.find_sessions({"HOME": str(tmp_path)}) == []


def test_two_projects_that_share_a_folder_are_told_apart(claude: ClaudeHome, tmp_path: Path) -> None:
    dotted, dashed = tmp_path / "a.b", tmp_path / "a-b"
    for place, name in ((dotted, FIRST), (dashed, SECOND)):
        place.mkdir()
        begun(claude, place, name)
    assert len(list((claude.root / "projects").iterdir())) == 1
    assert {one.session: one.workspace for one in CLAUDE.find_sessions(claude.environ)} == {
        FIRST: str(dotted),
        SECOND: str(dashed),
    }


def test_the_newest_comes_first(claude: ClaudeHome, project: Path) -> None:
    for session, age in ((FIRST, 100), (SECOND, 200)):
        os.utime(begun(claude, project, session).transcript, (age, age))
    assert [one.session for one in CLAUDE.find_sessions(claude.environ)] == [SECOND, FIRST]


def test_the_workspace_is_the_first_directory_that_a_record_names(claude: ClaudeHome, project: Path) -> None:
    made = claude.session(project, session=FIRST)
    made.append(*[{"type": "mode", "mode": "normal", "sessionId": FIRST}] * 5)
    made.prompt([{"type": "image", "source": {"data": "A" * 2_500_000}}])  # the directory comes behind the image
    made.cwd = str(project / "sub")
    made.prompt("from elsewhere")
    (found,) = CLAUDE.find_sessions(claude.environ)
    assert found.workspace == str(project)


def test_a_head_without_a_directory_is_read_within_bounds_and_again(claude: ClaudeHome, project: Path) -> None:
    made = claude.session(project, session=FIRST)
    made.append({"type": "file-history-snapshot", "messageId": "m"})
    assert CLAUDE.find_sessions(claude.environ)[0].workspace is None
    made.prompt("now it does")
    assert CLAUDE.find_sessions(claude.environ)[0].workspace == str(project)
    late = claude.session(project, session=SECOND)
    late.append(*[{"type": "queue-operation", "sessionId": SECOND}] * 300)
    late.prompt("too late")
    assert CLAUDE.find_by_id(SECOND, claude.environ).workspace is None


def test_what_is_no_session_is_not_found(claude: ClaudeHome, project: Path) -> None:
    made = begun(claude, project)
    folder = made.transcript.parent
    (folder / "notes.jsonl").write_text("{}\n")
    (folder / f"{SECOND}.jsonl").mkdir()
    (folder / "agent-x.jsonl").write_text(json.dumps({"sessionId": FIRST}) + "\n")
    (claude.root / "projects" / "file").write_text("x")
    assert sessions(CLAUDE.find_sessions(claude.environ)) == {FIRST}


# Live processes -----------------------------------------------------------------------------------------------------


def test_a_live_process_is_known_by_number_and_start(claude: ClaudeHome, project: Path, child: int) -> None:
    made = begun(claude, project)
    file = made.live(child)
    (found,) = CLAUDE.find_sessions(claude.environ)
    assert found.pid == child
    assert CLAUDE.live_pid(found) == child
    value = json.loads(file.read_text())
    file.write_text(json.dumps(value | {"procStart": "1"}))  # the number belongs to another process now
    assert CLAUDE.live_pid(found) is None
    file.write_text(json.dumps(value)[:20])  # being written
    assert CLAUDE.live_pid(found) is None
    made.live(child)
    made.exit(child)
    assert CLAUDE.live_pid(found) is None


def test_a_live_process_that_has_written_nothing_is_found(claude: ClaudeHome, project: Path, child: int) -> None:
    made = claude.session(project, session=FIRST)
    made.live(child)
    (found,) = CLAUDE.find_sessions(claude.environ)
    assert (found.session, found.workspace, found.pid) == (FIRST, str(project), child)
    assert found.transcript == str(made.transcript)
    assert not Path(found.transcript).exists()
    assert CLAUDE.transcripts_of(found) == [found.transcript]
    made.transcript.parent.mkdir()
    assert sessions(CLAUDE.find_in(str(made.transcript.parent))) == {FIRST}
    made.prompt("now")
    assert CLAUDE.find_sessions(claude.environ) == [found]


def test_a_session_resumed_elsewhere_keeps_its_transcript(claude: ClaudeHome, project: Path, child: int) -> None:
    made = begun(claude, project)
    other = claude.session(project.parent, session=FIRST)
    other.live(child)
    (found,) = CLAUDE.find_sessions(claude.environ)
    assert (found.transcript, found.pid) == (str(made.transcript), child)


def test_dead_and_odd_numbers_are_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process.pid, None)  # a zombie
    process.wait()
    assert not is_alive(process.pid, None)
    assert not is_alive(0, None)
    assert not is_alive(-1, None)
    assert is_alive(os.getpid(), None)


# Targets ------------------------------------------------------------------------------------------------------------


def test_every_way_to_name_a_session_finds_it(claude: ClaudeHome, project: Path) -> None:
    made = begun(claude, project)
    agent = made.subagent()
    loose = made.subagent(beside=True)
    wanted = CLAUDE.find_sessions(claude.environ)
    assert len(wanted) == 1
    assert agent.file is not None
    assert loose.file is not None
    places = [
        claude.root,
        claude.root / "projects",
        made.transcript.parent,
        made.transcript,
        made.companion,
        made.companion / "subagents",
        agent.file,
        loose.file,
    ]
    for place in places:
        assert CLAUDE.find_in(str(place)) == wanted, place


def test_a_session_to_come_is_named_by_its_place(claude: ClaudeHome, project: Path) -> None:
    made = claude.session(project, session=FIRST)
    made.companion.mkdir(parents=True)
    for place in (made.companion, made.transcript):
        (found,) = CLAUDE.find_in(str(place))
        assert (found.session, found.transcript, found.workspace) == (FIRST, str(made.transcript), None)
    assert CLAUDE.find_in(str(made.transcript.parent)) == []
    assert CLAUDE.find_in(str(claude.root)) == []


def test_a_transcript_outside_any_home_is_read_all_the_same(claude: ClaudeHome, project: Path, tmp_path: Path) -> None:
    made = begun(claude, project)
    moved = tmp_path / "saved" / "copy.jsonl"
    moved.parent.mkdir()
    moved.write_bytes(made.transcript.read_bytes())
    (found,) = CLAUDE.find_in(str(moved))
    assert (found.session, found.workspace, found.history) == (FIRST, str(project), None)
    assert sessions(CLAUDE.find_in(str(moved.parent))) == {FIRST}


@pytest.mark.parametrize("target", ["gone", "gone.jsonl", "fifo.jsonl"])
def test_a_target_that_is_none_is_refused(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / "fifo.jsonl")
    with pytest.raises(NoTranscript):
        CLAUDE.find_in(str(tmp_path / target))


def test_every_subagent_at_any_depth_belongs_to_the_session(claude: ClaudeHome, project: Path, tmp_path: Path) -> None:
    made, other = begun(claude, project), begun(claude, project, SECOND)
    direct, beside = made.subagent(), made.subagent(beside=True)
    other.subagent(beside=True)
    deep = made.companion / "subagents" / "workflows" / "run1"
    deep.mkdir(parents=True)
    (deep / "agent-x.jsonl").write_text("{}\n")
    (made.companion / "subagents" / "loop").symlink_to(made.companion)
    (made.companion / "subagents" / "agent-fifo.jsonl").mkdir()
    (found,) = [one for one in CLAUDE.find_sessions(claude.environ) if one.session == FIRST]
    paths = CLAUDE.transcripts_of(found)
    assert paths[0] == str(made.transcript)
    assert set(paths[1:]) == {str(direct.file), str(beside.file), str(deep / "agent-x.jsonl")}


# Ids ----------------------------------------------------------------------------------------------------------------


def test_an_id_or_a_unique_prefix_names_a_session(claude: ClaudeHome, project: Path) -> None:
    begun(claude, project, FIRST)
    begun(claude, project, SECOND)
    for text, session in ((FIRST, FIRST), (SECOND.upper(), SECOND), ("aaaa1", FIRST), ("aaaa2222-0", SECOND)):
        assert CLAUDE.find_by_id(text, claude.environ).session == session
    with pytest.raises(AmbiguousId, match=f"aaaa fits more than one session: {FIRST}, {SECOND}"):
        CLAUDE.find_by_id("aaaa", claude.environ)
    with pytest.raises(NoSession, match="No conversation found with session ID: bbbb"):
        CLAUDE.find_by_id("bbbb", claude.environ)


@pytest.mark.parametrize("text", ["", " ", "xyz", "aaaa1111_0000", FIRST + "0", "../etc", "aaaa11111", "a-a"])
def test_a_malformed_id_is_refused(claude: ClaudeHome, text: str) -> None:
    with pytest.raises(MalformedId):
        CLAUDE.find_by_id(text, claude.environ)


def test_the_same_session_in_two_places_means_the_newer(claude: ClaudeHome, project: Path, tmp_path: Path) -> None:
    old, new = begun(claude, project), begun(claude, tmp_path)
    os.utime(old.transcript, (1, 1))
    assert CLAUDE.find_by_id(FIRST, claude.environ).transcript == str(new.transcript)


# Rules --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("/home/dev/project", "-home-dev-project"),
        ("/w/a.b_c d", "-w-a-b-c-d"),
        ("/w/é件\N{PARTY POPPER}", "-w-----"),
        ("/W/Aa--1", "-W-Aa--1"),
    ],
)
def test_a_projects_folder_is_named_as_observed(path: str, slug: str) -> None:
    assert slug_of(path) == slug == slug_of_builder(path)


def test_a_long_name_is_cut_and_hashed() -> None:
    path = "/" + "x" * 300
    name = slug_of(path)
    assert name == slug_of_builder(path)
    assert name.startswith("-" + "x" * 199 + "-")
    assert slug_of(path) != slug_of("/" + "x" * 301)


def test_patterns_follow_links_in_fixed_steps_only(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "x.jsonl").touch()
    (tmp_path / "real" / "deep" / "y.jsonl").touch()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "deep" / "up").symlink_to(tmp_path)
    assert list(matching(str(tmp_path), "link/*.jsonl")) == [str(tmp_path / "link" / "x.jsonl")]
    assert list(matching(str(tmp_path), "**/*.jsonl")) == [
        str(tmp_path / "real" / "x.jsonl"),
        str(tmp_path / "real" / "deep" / "y.jsonl"),
    ]
    assert home_of("/c/projects/p/s.jsonl", "projects/*/*.jsonl") == "/c"
    assert home_of("/projects/p/s.jsonl", "projects/*/*.jsonl") == "/"
    assert home_of("/c/other/p/s.jsonl", "projects/*/*.jsonl") is None


def test_a_table_with_an_unknown_key_or_an_ill_type_is_refused() -> None:
    table = dict(load_table("agents/claude_code"))
    for changed in (
        table | {"surprise": 1},
        table | {"name": 5},
        table | {"prompt": {"type": "user", "never": "isMeta"}},
        {key: value for key, value in table.items() if key != "fields"},
    ):
        with pytest.raises(BadPolicy):
            parse_agent(changed, file="test.toml")
