"""A program that swaps a directory of the workspace for a link to outside while files are brought back."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders.probe import opened
from tests.builders.stage import Stage

FILES = 40
RUNS_S = 4.0

# The exchange is one system call: at each instant `d` is either the directory or the link, and never absent.
ATTACKER = """
import os, sys, time
from sidecar.fs import native
root = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
print("swapping", flush=True)
while True:
    try:
        native.rename_exchange(root, b"d", root, b"evil")
    except native.Unsupported:
        os.rename("d", "held", src_dir_fd=root, dst_dir_fd=root)
        os.rename("evil", "d", src_dir_fd=root, dst_dir_fd=root)
        os.rename("held", "evil", src_dir_fd=root, dst_dir_fd=root)
    except FileNotFoundError:
        pass
    time.sleep(float(sys.argv[2]))
"""


def picture(top: Path) -> dict[str, tuple[object, ...]]:
    """Give everything below a directory, with what any touch of it would change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        stamps = (status.st_ino, status.st_mode, status.st_nlink, status.st_mtime_ns, status.st_ctime_ns)
        found[str(path)] = (content, *stamps)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_nothing_outside_changes_while_a_directory_is_swapped_for_a_link(tmp_path, watched):
    stage = Stage(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = os.urandom(3_333)
    for number in range(0, FILES, 2):  # half of the names exist there, half do not: overwritten, removed or created?
        (outside / f"{number}.txt").write_bytes(secret + bytes([number]))
    (outside / "sub").mkdir()
    for number in range(FILES):
        stage.write(f"d/{number}.txt", f"old {number}\n")
        stage.write(f"d/sub/{number}.txt", f"old sub {number}\n")
    with stage.watching() as watcher:
        first = stage.session.prompt("change everything in d")
        watcher.checkpoint(first)
        for number in range(FILES):
            stage.write(f"d/{number}.txt", f"new {number}\n")
            (stage.project / f"d/sub/{number}.txt").unlink()
            stage.write(f"d/made{number}.txt", "made\n")
            if number % 2:
                (outside / f"made{number}.txt").write_bytes(secret)
        stage.session.say()
        second = stage.session.prompt("next")
        watcher.checkpoint(second)
        stage.session.say()
        if not watched:
            watcher.stop()
        (stage.project / "evil").symlink_to(outside)
        before = picture(outside)
        # At full speed the watcher alone would be busy long after the end with what it was told of.
        command = [sys.executable, "-c", ATTACKER, str(stage.project), "0.002" if watched else "0"]
        attacker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "swapping\n"
            until, rounds = time.monotonic() + RUNS_S, 0
            while time.monotonic() < until or rounds < 2:
                answer = stage.run("rewind", (first, second)[rounds % 2], "--all", "--yes", "--json")
                assert answer.code in (0, 1, 3), answer
                assert "Traceback" not in answer.err, answer.err
                rounds += 1
                assert picture(outside) == before
        finally:
            attacker.kill()
            attacker.wait()
        assert picture(outside) == before
        # Once it has stopped, all of it comes back: nothing of the directory was lost on the way.
        if os.path.islink(stage.project / "d"):
            (stage.project / "d").unlink()
            (stage.project / "evil").rename(stage.project / "d")
        else:
            (stage.project / "evil").unlink()
        stage.json("rewind", first, "--all", "--yes")
        assert not [name for name in os.listdir(stage.project) if name.startswith(".sidecar-")]
        for number in range(FILES):
            assert (stage.project / f"d/{number}.txt").read_text() == f"old {number}\n"
            assert (stage.project / f"d/sub/{number}.txt").read_text() == f"old sub {number}\n"
        assert picture(outside) == before
    with opened(stage) as database:
        sizes = {size for (size,) in database.execute("SELECT size_bytes FROM blob")}
    assert not sizes & {len(secret), len(secret) + 1}, "nothing from outside was read into the store"
