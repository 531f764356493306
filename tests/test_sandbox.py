"""The ground that other tests stand on: no test reaches the real home, and `alone` means alone."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def test_every_place_that_the_program_looks_for_lies_in_the_tests_own_home(home: Path) -> None:
    for name in ("HOME", "SIDECAR_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        assert os.environ[name].startswith(str(home)), name
    assert Path.home() == home
    assert list(home.iterdir()) == []
    assert "SIDECAR_DISABLE" not in os.environ


def test_platform_directories_follow(home: Path) -> None:
    for found in (platformdirs.user_config_path("sidecar"), platformdirs.user_data_path("sidecar")):
        assert found.is_relative_to(home)


@pytest.mark.parametrize("place", [".claude/projects/x.jsonl", ".local/share/sidecar/store.db"])
def test_the_real_places_cannot_be_opened(place: str, pytestconfig: pytest.Config) -> None:
    conftest = next(p for p in pytestconfig.pluginmanager.get_plugins() if hasattr(p, "REAL_HOME"))
    path = f"{conftest.REAL_HOME}/{place}"
    for act in (
        lambda: Path(path).write_bytes(b""),
        lambda: os.open(os.fsencode(path), os.O_RDONLY),
        lambda: os.listdir(os.path.dirname(path)),
        lambda: os.mkdir(path),
        lambda: os.rename("/nowhere", path),
        lambda: sqlite3.connect(path),
    ):
        with pytest.raises(PermissionError, match="a test reached for"):
            act()


def test_a_test_sees_nothing_of_the_callers_environment(tmp_path: Path) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(
        "import os\n"
        "def test_probe():\n"
        "    assert 'SIDECAR_DISABLE' not in os.environ and 'GIT_DIR' not in os.environ\n"
        "    assert '/caller' not in os.environ['CLAUDE_CONFIG_DIR']\n"
        "    assert os.environ['SIDECAR_SAMPLES'] == '/caller/samples'\n"
    )
    assert (
        _pytest(
            probe,
            SIDECAR_DISABLE="1",
            GIT_DIR="/caller",
            CLAUDE_CONFIG_DIR="/caller",
            SIDECAR_SAMPLES="/caller/samples",
        )
        == 0
    )


@pytest.mark.parametrize(("ci", "code"), [("true", 1), ("", 0)])
def test_a_test_that_needs_root_fails_in_ci_without_it_and_is_skipped_else(tmp_path: Path, ci: str, code: int) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(
        "import os, pytest\nos.geteuid = lambda: 1\n@pytest.mark.root\ndef test_probe(): raise SystemExit\n"
    )
    assert _pytest(probe, CI=ci) == code


def test_a_test_marked_alone_meets_no_other(tmp_path: Path) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(
        "import os, pathlib, time, pytest\n"
        "HERE = pathlib.Path(__file__).parent\n"
        "@pytest.mark.parametrize('i', range(30))\n"
        "def test_other(i):\n"
        "    (HERE / f'running-{i}').touch(); time.sleep(0.01); (HERE / f'running-{i}').unlink()\n"
        "@pytest.mark.parametrize('i', range(4))\n"
        "@pytest.mark.alone\n"
        "def test_alone(i):\n"
        "    for _ in range(20):\n"
        "        assert not list(HERE.glob('running-*')); time.sleep(0.005)\n"
    )
    assert _pytest(probe, "-n", "2", "--dist", "load") == 0


def _pytest(probe: Path, *options: str, **environment: str) -> int:
    """Run one test file of its own under the project's conftest."""
    (probe.parent / "conftest.py").write_bytes((CHECKOUT / "tests" / "conftest.py").read_bytes())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(CHECKOUT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "--rootdir", str(probe.parent), *options, str(probe)],
        env={**os.environ, "TMPDIR": str(probe.parent), **environment},  # its own lock: this test holds the other
        cwd=probe.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout, done.stderr)
    return done.returncode
