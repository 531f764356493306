"""A timeline of its own for each test of the store."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.store.workspace import Workspace
from tests.store.timeline import open_timeline


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give the directory that the timeline's home is."""
    (tmp_path / "store").mkdir(mode=0o700)
    return tmp_path / "store"


@pytest.fixture
def workspace(place: Path) -> Iterator[Workspace]:
    opened = open_timeline(str(place))
    with opened.opened():
        yield opened


@pytest.fixture
def mount() -> Iterator[Callable[..., None]]:
    """Mount for the length of a test: `mount("-t", "tmpfs", "none", where)`."""
    mounted: list[str] = []

    def do(*arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True)
        mounted.append(arguments[-1])

    yield do
    for where in reversed(mounted):
        subprocess.run(["umount", "-l", where], check=True)
