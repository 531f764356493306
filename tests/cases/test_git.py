"""C05, C17, C18: works the same without git, never starts it, and never touches a repository's own folder."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.stage import Stage

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle here")

# Installed in every process that a scenario starts: it writes down each program that is about to be run.
SPY = """
import os, sys
def spy(event, arguments, place=os.environ.get("SPY_LOG")):
    kinds = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.forkpty")
    if place and event in kinds:
        handle = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, f"{event} {arguments!r}\\n".encode())
        os.close(handle)
sys.addaudithook(spy)
"""


@pytest.fixture
def spied(tmp_path, monkeypatch):
    """Take git off the PATH, put a tell-tale in its place, and watch every process for programs that it starts."""
    spy, programs, log = tmp_path / "spy", tmp_path / "bin", tmp_path / "started.log"
    spy.mkdir()
    programs.mkdir()
    (spy / "sitecustomize.py").write_text(SPY)
    for name in ("bash", "sed", "mkdir", "rm", "cat"):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "git").write_text(f"#!{programs}/bash\necho git was started >> {log}\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PYTHONPATH", str(spy))
    monkeypatch.setenv("SPY_LOG", str(log))
    proof = subprocess.run([sys.executable, "-c", "import os; os.system('git')"], check=False)
    assert proof.returncode == 0
    assert "os.system" in log.read_text(), "the spy sees what is started"
    assert "git was started" in log.read_text()
    log.unlink()
    return log


def test_case_C05_without_git_and_without_a_repository(tmp_path, spied):
    stage = Stage(tmp_path)
    stage.write("a.txt", "old\n")
    stage.write(".gitignore", "*.log\n")
    assert not (stage.project / ".git").exists()
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        before = stage.tree()
        stage.shell("sed -i s/old/new/ a.txt; mkdir d; echo x > d/x")
        stage.session.say()
        second = stage.session.prompt("next")
        watcher.checkpoint(second)
        after = stage.tree()
        stage.session.say()
        assert stage.json("diff", first)["restored"] == ["a.txt"]
        stage.json("rewind", first, "--yes")
        assert stage.tree() == before
        stage.json("undo", "--yes")
        assert stage.tree() == after
    for verb in (["status"], ["log"], ["show", second], ["mark", "by hand"], ["rewind", first, "--yes"]):
        assert stage.run(*verb).code == 0
    assert stage.tree() == before
    assert not spied.exists(), spied.read_text()


def test_case_C05_not_in_a_repository_either(tmp_path, spied):
    """A folder that looks like a repository, a worktree and a broken one start no program either."""
    stage = Stage(tmp_path)
    stage.write(".git/HEAD", "ref: refs/heads/main\n")
    stage.write("broken/.git/HEAD", b"\x00\xff")
    stage.write("linked/.git", "gitdir: /nowhere/at/all\n")
    for folder in ("", "broken/", "linked/"):
        stage.write(f"{folder}a.txt", "old\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("edit")
        watcher.checkpoint(first)
        before = stage.tree()
        for folder in ("", "broken/", "linked/"):
            stage.write(f"{folder}a.txt", "new\n")
        stage.session.say()
        stage.json("rewind", first, "--yes")
    assert stage.tree() == before
    assert not spied.exists(), spied.read_text()


def git(folder: Path, *args: str) -> str:
    """Run git, which is not to refresh its index while it only looks."""
    command = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always", *args]
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environ).stdout


def repositories(top: Path) -> dict[str, tuple[object, ...]]:
    """Give every file and folder of every repository below a directory: bytes, inode, mode, times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        if ".git" not in path.relative_to(top).parts:
            continue
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        stamps = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode, status.st_nlink)
        found[str(path.relative_to(top))] = (content, *stamps)
    assert found
    return found


def make_repository(stage: Stage) -> None:
    """Make a repository with staged and unstaged changes, a worktree, a submodule and a stash."""
    library = stage.directory / "library"
    library.mkdir()
    git(library, "init", "-q", "-b", "main")
    (library / "lib.c").write_text("library\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "library")
    project = stage.project
    git(project, "init", "-q", "-b", "main")
    for name in ("staged.txt", "unstaged.txt", "clean.txt", "stashed.txt"):
        stage.write(name, "committed\n")
    stage.write(".gitignore", "/wt/ignored\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    git(project, "submodule", "--quiet", "add", str(library), "sub")
    git(project, "commit", "-qm", "submodule")
    git(project, "worktree", "add", "-q", "-b", "side", "wt")
    stage.write("stashed.txt", "stashed\n")
    git(project, "stash", "-q")
    stage.write("staged.txt", "staged\n")
    git(project, "add", "staged.txt")
    stage.write("staged.txt", "staged, then changed\n")
    stage.write("unstaged.txt", "unstaged\n")
    stage.write("untracked.txt", "untracked\n")
    stage.write("sub/lib.c", "changed in the submodule\n")
    stage.write("wt/clean.txt", "changed in the worktree\n")


@needs_git
def test_case_C17_nothing_in_any_repository_changes_and_status_is_as_it_was(tmp_path):
    stage = Stage(tmp_path)
    make_repository(stage)
    places = [stage.project, stage.project / "wt", stage.project / "sub"]

    def status() -> list[str]:
        return [git(place, "status", "--porcelain=2", "--branch", "--untracked-files=all") for place in places]

    was, inside = status(), repositories(stage.project)
    with stage.watching() as watcher:
        first = stage.session.prompt("edit everywhere")
        watcher.checkpoint(first)
        before = stage.tree()
        stage.shell("echo agent > staged.txt; echo agent > clean.txt; rm untracked.txt; echo agent > new.txt")
        stage.shell("echo agent >> sub/lib.c; echo agent > sub/new.c; echo agent > wt/clean.txt; rm wt/unstaged.txt")
        stage.session.say()
        second = stage.session.prompt("next")
        watcher.checkpoint(second)
        stage.session.say()
        assert repositories(stage.project) == inside
        watcher.stop(signal.SIGKILL)
    answer = stage.json("rewind", first, "--yes")
    assert stage.tree() == before, answer
    assert repositories(stage.project) == inside
    assert status() == was
    stage.json("rewind", second, "--yes")
    stage.json("undo", "--yes")
    stage.run("check")
    assert repositories(stage.project) == inside
    assert status() == was
    assert git(stage.project, "fsck", "--full", "--strict").strip() in ("", "notice: HEAD points to an unborn branch")


@needs_git
def test_case_C17_what_the_turn_did_in_git_itself_stays(tmp_path):
    stage = Stage(tmp_path)
    make_repository(stage)
    with stage.watching() as watcher:
        first = stage.session.prompt("commit")
        watcher.checkpoint(first)
        stage.write("clean.txt", "agent\n")
        git(stage.project, "commit", "-qam", "by the agent")
        git(stage.project, "branch", "extra")
        stage.session.say()
        inside = repositories(stage.project)
        head = git(stage.project, "rev-parse", "HEAD")
        assert stage.json("rewind", first, "--yes")["restored"] == ["clean.txt"]
        assert repositories(stage.project) == inside
        assert git(stage.project, "rev-parse", "HEAD") == head
        assert git(stage.project, "diff", "--name-only", "--ignore-submodules").split() == ["clean.txt"]


@needs_git
@pytest.mark.parametrize("watched", [True, False])
def test_case_C17_a_repository_that_the_turn_made_is_not_taken_apart(tmp_path, watched):
    """Its files go, since they were not there; the repository itself is nothing that an undo could bring back."""
    stage = Stage(tmp_path)
    stage.write("f", "a file that becomes a repository\n")
    stage.write("keep.txt", "keep\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("make repositories")
        watcher.checkpoint(first)
        stage.shell("rm f; git init -q f; git init -q g; mkdir -p h/deep; git init -q h/deep/repo")
        for folder in ("f", "g", "h/deep/repo"):
            stage.write(f"{folder}/work.txt", f"work in {folder}\n")
            git(stage.project / folder, "add", ".")
            git(stage.project / folder, "commit", "-qm", "precious")
        stage.session.say()
        watcher.checkpoint(stage.session.prompt("next"))
        stage.session.say()
        here = stage.tree()
        if not watched:
            watcher.stop()
        inside = repositories(stage.project)
        answer = stage.json("rewind", first, "--yes")
        assert repositories(stage.project) == inside
        assert {"g/work.txt", "h/deep/repo/work.txt"} <= set(answer["removed"])
        left = {one["path"]: one["reason"] for one in answer["kept"]}
        assert left["g"] == left["h/deep/repo"] == "ignored"
        assert left["f"] == "ignored", "a file cannot come back where a repository is"
        assert git(stage.project / "g", "log", "--format=%s").strip() == "precious"
        stage.json("undo", "--yes")
        assert stage.tree() == here
        assert repositories(stage.project) == inside


@pytest.mark.parametrize("root_is_repository", [True, False])
def test_case_C18_nested_repositories_are_captured_and_restored(tmp_path, root_is_repository):
    stage = Stage(tmp_path)
    heads = ["fe/.git", "be/.git", "deep/down/lib/.git"] + ([".git"] if root_is_repository else [])
    for head in heads:
        stage.write(f"{head}/HEAD", "ref: refs/heads/main\n")
        stage.write(f"{head}/config", "[core]\n")
        stage.write(f"{head}/index", os.urandom(500))
    stage.write("mod/.git", "gitdir: ../.git/modules/mod\n")
    stage.write("fe/.gitignore", "dist/\n")
    if root_is_repository:
        stage.write(".gitignore", "*.tmp\n")
    files = ["notes.txt", "fe/app.js", "be/app.py", "deep/down/lib/l.c", "mod/m.c", "be/dist/kept.txt"]
    for name in files:
        stage.write(name, f"old {name}\n")
    stage.write("fe/dist/built.js", "built\n")
    inside = repositories(stage.project)
    with stage.watching() as watcher:
        first = stage.session.prompt("one edit in each")
        watcher.checkpoint(first)
        before = stage.tree()
        for name in files[:3]:
            stage.session.edit(name, b"new\n")
        for name in files[3:]:
            stage.write(name, "new\n")
        stage.shell("rm be/app.py; echo made > fe/made.js")
        stage.session.say()
        answer = stage.json("rewind", first, "--yes")
        assert sorted(answer["restored"]) == sorted(files)
        assert answer["removed"] == ["fe/made.js"]
        assert answer["kept"] == []
        assert stage.tree() == before
        assert repositories(stage.project) == inside
