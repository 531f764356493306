"""Policy tables: found, laid over, parsed; each mistake is refused with its file and key."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import BadPolicy
from sidecar.policy import load
from sidecar.policy.parse import overlay, parse_table
from sidecar.policy.tables import CheckpointPolicy, IgnorePolicy, WatchPolicy, at_least

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SHIPPED = [(CheckpointPolicy, "checkpoints"), (IgnorePolicy, "ignore"), (WatchPolicy, "watch")]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a person's own policy directory."""
    place = tmp_path / "policies"
    place.mkdir()
    monkeypatch.setenv("SIDECAR_POLICIES", str(place))
    return place


def refused(call: object, *words: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        call()  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_the_shipped_tables_hold_what_the_specification_says() -> None:
    checkpoints = load.checkpoint_policy()
    assert dict(checkpoints.profiles) == {"short": 20, "default": 100, "long": 500}  # SPEC A3
    assert checkpoints.limits.before_rewind == 20
    assert checkpoints.enabled
    assert b".git" in load.ignore_policy().never.names
    assert load.watch_policy().rescan.period_s > 0


def test_every_shipped_file_is_a_table(own: Path) -> None:
    names = load.table_names()
    assert {"checkpoints", "ignore", "watch"} <= set(names)
    assert len(names) == len(list((CHECKOUT / "policies").rglob("*.toml")))
    for name in names:
        assert load.load_table(name)


def test_a_table_is_parsed_once() -> None:
    assert load.ignore_policy() is load.ignore_policy()


def test_tables_cannot_be_changed_by_those_who_share_them() -> None:
    with pytest.raises(TypeError):
        load.checkpoint_policy().profiles["default"] = 7  # type: ignore[index]


def test_a_persons_own_value_is_laid_over_and_the_rest_stays(own: Path) -> None:
    (own / "watch.toml").write_text("[cookie]\nretry_ms = 7\n")
    policy = load.watch_policy()
    assert policy.cookie.retry_ms == 7
    assert policy.cookie.deadline_ms > 0
    assert policy.cookie.deadline_ms > 0


def test_without_being_moved_it_lies_in_the_configuration_directory(home: Path) -> None:
    place = home / ".config" / "sidecar" / "policies"
    assert load.overlay_directory() in (place, home / "Library/Application Support/sidecar/policies")
    load.overlay_directory().mkdir(parents=True)
    (load.overlay_directory() / "ignore.toml").write_text('[pruned]\nnames = ["bazel-out"]\n')
    assert load.ignore_policy().pruned.names == (b"bazel-out",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cookie]\nretri_ms = 1", ["unknown key cookie.retri_ms"]),
        ("typo = 1", ["unknown key typo"]),
        ("[cookie]\nobserver_grace_ms = true", ["cookie.observer_grace_ms must be a whole number, not true or false"]),
        ('[cookie]\nobserver_grace_ms = "5"', ["cookie.observer_grace_ms must be a whole number, not text"]),
        ("[cookie]\nobserver_grace_ms = 1.5", ["cookie.observer_grace_ms must be a whole number, not a number"]),
        ("[cookie]\nobserver_grace_ms = -1", ["cookie.observer_grace_ms must be at least 0, not -1"]),
        ("[cookie]\nretry_ms = 0", ["cookie.retry_ms must be at least 1, not 0"]),
        ("cookie = 3", ["cookie must be a table, not a whole number"]),
        ("[cookie.observer_grace_ms]\na = 1", ["cookie.observer_grace_ms must be a whole number, not a table"]),
        ("[settle", []),
        ("[cookie]\nobserver_grace_ms = 2020-01-01", ["cookie.observer_grace_ms must be a whole number, not a date"]),
    ],
)
def test_a_mistake_in_a_persons_own_file_names_the_file_and_the_key(own: Path, text: str, words: list[str]) -> None:
    (own / "watch.toml").write_text(text)
    refused(load.watch_policy, str(own / "watch.toml"), *words)


def test_a_list_must_hold_what_the_table_says(own: Path) -> None:
    (own / "ignore.toml").write_text('[never]\nnames = [".git", 3]\n')
    refused(load.ignore_policy, "never.names[1] must be text, not a whole number", "ignore.toml")


def test_a_file_that_cannot_be_read_is_refused_and_not_passed_over(own: Path) -> None:
    (own / "watch.toml").write_bytes(b"\xff\xfe")
    refused(load.watch_policy, "watch.toml")
    (own / "watch.toml").unlink()
    (own / "watch.toml").mkdir()
    refused(load.watch_policy, "watch.toml")


@pytest.mark.parametrize("name", ["nothing", "../pyproject", "/etc/passwd", "", "a//b", "Agents", "agents/none"])
def test_what_is_no_table_is_refused(name: str) -> None:
    refused(lambda: load.load_table(name), name)


def test_a_person_may_add_an_agent_and_no_other_table(own: Path) -> None:
    (own / "agents").mkdir()
    (own / "agents" / "mine.toml").write_text("home = 'x'\n")
    (own / "extra.toml").write_text("x = 1\n")
    assert load.load_table("agents/mine") == {"home": "x"}
    assert "agents/mine" in load.table_names("agents")
    refused(lambda: load.load_table("extra"), "extra")


def test_the_tables_lie_in_the_package_or_beside_it_in_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "site" / "sidecar"
    package.mkdir(parents=True)
    refused(lambda: load.shipped_directory(package), "no policy files")
    (tmp_path / "site" / "policies").mkdir()
    refused(lambda: load.shipped_directory(package), "no policy files")  # a stray folder in site-packages
    (tmp_path / "site" / "pyproject.toml").touch()
    assert load.shipped_directory(package) == tmp_path / "site" / "policies"
    (package / "policies").mkdir()
    assert load.shipped_directory(package) == package / "policies"


class Colour(StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    """A section."""

    name: str
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Everything:
    """Each kind of value that a table may hold."""

    colour: Colour
    inner: Inner
    count: int = at_least(0)
    many: tuple[Inner, ...] = ()
    maybe: int | None = None


def test_sections_lists_of_sections_choices_and_missing_values() -> None:
    given_table = {"colour": "red", "inner": {"name": "a", "share": 1}, "many": [{"name": "b"}], "count": 0}
    parsed = parse_table(Everything, given_table, file="f")
    assert parsed.colour is Colour.RED
    assert parsed.inner == Inner("a", 1.0)
    assert parsed.many == (Inner("b"),)
    assert parsed.maybe is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "green"}, "colour must be one of red, blue, not 'green'"),
        ({"colour": 1}, "colour must be one of"),
        ({"inner": {}}, "missing key inner.name"),
        ({"many": [{"name": "b"}, {"name": 1}]}, "many[1].name must be text"),
        ({"many": {}}, "many must be a list, not a table"),
        ({"inner": {"name": "a", "share": float("nan")}}, "inner.share must be at least 0, not nan"),
        ({"maybe": "x"}, "maybe must be a whole number"),
        ({"other": 1}, "unknown key other"),
    ],
)
def test_each_mistake_is_named(change: dict[str, object], words: str) -> None:
    good = {"colour": "red", "inner": {"name": "a"}, "count": 1}
    refused(lambda: parse_table(Everything, {**good, **change}, file="some.toml"), "some.toml", words)


VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(("shape", "name"), SHIPPED)
def test_any_value_in_any_place_is_read_or_refused(shape: type, name: str) -> None:
    base = tomllib.loads((CHECKOUT / "policies" / f"{name}.toml").read_text())
    sections = [key for key, value in base.items() if isinstance(value, dict)]

    @given(st.sampled_from(sections), st.data(), VALUES)
    def check(section: str, data: st.DataObject, value: object) -> None:
        key = data.draw(st.sampled_from(sorted(base[section])))
        changed = {**base, section: {**base[section], key: value}}
        try:
            parsed = parse_table(shape, changed, file="f.toml")
        except BadPolicy as refusal:
            assert "f.toml" in str(refusal)
            assert key in str(refusal)
        else:
            held = getattr(parsed, section)
            assert (held[key] if name == "checkpoints" and section == "profiles" else getattr(held, key)) is not None

    check()


@given(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3))
def test_laying_a_table_over_itself_changes_nothing(table: dict[str, object]) -> None:
    assert repr(overlay(table, table, file="f")) == repr(table)
