"""README, continuous integration and the project file tell one story."""

import os
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'"
COMMAND = f"{INSTALL} && .venv/bin/python -m pytest -q -n 2 --dist loadfile"


def test_readme_has_the_one_test_command_that_ci_runs() -> None:
    lines = (CHECKOUT / "README.md").read_text().splitlines()
    assert lines.count(COMMAND) == 1
    assert [line for line in lines if "-m pytest" in line and line.startswith("python3")] == [COMMAND]


def test_ci_takes_its_test_command_from_readme() -> None:
    script = CHECKOUT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "README.md" in text
    assert "pytest -q -n" not in text  # no second copy
    for tool in ("ruff check", "ruff format --check", "mypy --strict", "tests/test_layers.py"):
        assert tool in text


def test_every_tool_that_ci_starts_is_installed_by_the_test_command() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    wanted = {name.split(">")[0] for name in project["project"]["optional-dependencies"]["test"]}
    assert {"ruff", "mypy", "pytest", "pytest-xdist", "pytest-timeout", "hypothesis", "build", "hatchling"} <= wanted


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    assert "## [Unreleased]" in (CHECKOUT / "CHANGELOG.md").read_text()
