"""Whatever way it is installed, the package finds its tables: from an sdist's wheel, and in place.

Each way gets a fresh environment that sees the present one's libraries (but not its sidecar), and is asked from `/`,
so that nothing is found because of where one stands.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent
POLICIES = CHECKOUT / "policies"
TABLES = sorted(file.relative_to(POLICIES).with_suffix("").as_posix() for file in POLICIES.rglob("*.toml"))
QUESTION = """
import json, sidecar
from sidecar.policy import load
names = load.table_names()
tables = [load.load_table(name) for name in names]
load.checkpoint_policy(), load.ignore_policy(), load.watch_policy()
print(json.dumps({"file": sidecar.__file__, "version": sidecar.__version__, "names": names, "all": all(tables)}))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: object, cwd: Path | str = "/") -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out, CHECKOUT)
    (built,) = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the sdist alone, as an index's user does."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    (tree,) = (path for path in out.iterdir() if path.is_dir())
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, tree)
    (built,) = out.glob("*.whl")
    return built


def fresh(place: Path, *what: object) -> Path:
    """Make an environment, lend it the libraries of this one, and install into it; give its `bin`."""
    venv.create(place, with_pip=False, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    # A path, not a site directory: its .pth files, among them that of an editable sidecar, are not followed.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = place / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--no-index")
    run(*pip, "--no-deps", "--no-build-isolation", *what)
    return place / "bin"


def ask(binaries: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(binaries / "python", "-I", "-c", QUESTION))
    assert found["names"] == TABLES
    assert found["all"]
    assert "rewind" in run(binaries / "sidecar", "--help")
    return found


def test_a_wheel_built_from_the_sdist_holds_every_table(wheel: Path, tmp_path: Path) -> None:
    found = ask(fresh(tmp_path / "env", wheel))
    assert str(found["file"]).startswith(str(tmp_path))
    names = zipfile.ZipFile(wheel).namelist()
    assert {"sidecar/py.typed", "sidecar/store/schema.sql"} <= set(names)
    assert {name.split("/")[0] for name in names} == {"sidecar", f"sidecar-{found['version']}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("sidecar/tests")]


def test_the_sdist_holds_what_is_needed_to_test_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "tests/conftest.py", ".ci/run"} <= names
    assert {f"policies/{name}.toml" for name in TABLES} <= names


def test_an_editable_install_reads_the_checkouts_tables(tmp_path: Path) -> None:
    found = ask(fresh(tmp_path / "env", "-e", CHECKOUT))
    assert os.path.samefile(str(found["file"]), CHECKOUT / "sidecar" / "__init__.py")


def test_an_install_without_its_tables_says_so(wheel: Path, tmp_path: Path) -> None:
    binaries = fresh(tmp_path / "env", wheel)
    (policies,) = tmp_path.glob("env/lib/python*/site-packages/sidecar/policies")
    policies.rename(policies.parent.parent / "policies")  # a stray folder beside the package is not believed
    asked = (str(binaries / "python"), "-I", "-c", QUESTION)
    done = subprocess.run(asked, cwd="/", capture_output=True, text=True, check=False)
    assert "this installation has no policy files" in done.stderr
