"""What the tests of this room share: an open root, both ways to walk and rename, and root's rights where needed."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.fs import native
from sidecar.fs.beneath import Root


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        if os.environ.get("CI"):
            pytest.fail("this test needs root, and CI must have it")
        pytest.skip("needs root")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def root(work: Path) -> Iterator[Root]:
    with Root.open(os.fsencode(work)) as opened:
        yield opened


@pytest.fixture(params=["openat2", "walk"])
def both_walks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(native, "OPENAT2", False)
    return str(request.param)


@pytest.fixture(params=["renameat2", "links"])
def both_renames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "links":
        monkeypatch.setattr(native, "RENAME_FLAGS", False)
    return str(request.param)


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


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Give a folder that is not the workspace, with a file that nobody may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder
