"""The kernel's own record of what was done: every open below the root refuses links, and flushes come before names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from sidecar.fs import native
from sidecar.fs.beneath import Root
from sidecar.fs.read import Whole, read_whole
from sidecar.fs.scan import scan
from sidecar.fs.write import Staging
native.OPENAT2, native.RENAME_FLAGS = sys.argv[2] == "calls", sys.argv[2] == "calls"
with Root.open(sys.argv[1]) as root:
    assert sum(1 for _ in scan(root, b"", lambda path, stat: True)) == 3
    assert isinstance(read_whole(root, b"a/b/file", ceiling_bytes=9, attempts=3), Whole)
    staging = Staging.create(root)
    name = staging.stage(b"new", 0o640, root.stat(b"a/b/file"), like_path=b"a/b/file")
    staging.exchange(name, b"a/b/file")
    staging.place(staging.stage(b"more", 0o600), b"a/b/more")
    parked = staging.park(b"a/b/other")
    staging.sync()
    root.make_directory(b"a/made", 0o755)
    root.chmod(b"a/b/more", 0o644)
    root.remove_directory(b"a/made")
    staging.discard(name)
    staging.discard(parked)
    assert staging.close()
"""


@pytest.mark.parametrize("how", ["calls", "without"])
def test_the_kernel_saw_no_open_that_follows_links(work: Path, tmp_path: Path, how: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    (work / "a/b").mkdir(parents=True)
    (work / "a/b/file").write_bytes(b"old")
    (work / "a/b/other").write_bytes(b"other")
    log = tmp_path / "log"
    calls = "trace=%file,fsync,fdatasync,ftruncate,fchmod"
    command = ["strace", "-f", "-y", "-qq", "-s", "4096", "-o", str(log), "-e", calls]
    command += [sys.executable, "-c", PROGRAM, str(work), how]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip("may not trace here")
    assert done.returncode == 0, done.stderr
    real = os.path.realpath(work)
    lines = [line for line in log.read_text().splitlines() if f"<{real}" in line or f'"{real}' in line]
    lines = lines[next(number for number, line in enumerate(lines) if "O_DIRECTORY" in line) :]
    opens = [line for line in lines if re.search(r"\bopen(at2?)?\(", line)]
    assert len(opens) > 20
    assert [line for line in opens if "O_NOFOLLOW" not in line and '".", ' not in line] == []
    by_path = [line for line in lines[1:] if f'"{real}' in line]  # all but the first went by handle
    assert by_path == []
    for line in lines:
        for name in re.findall(r'>, "([^"]*)"', line):
            assert ".." not in name.split("/")
    with_staged = [n for n, line in enumerate(lines) if re.search(r"\b(rename|link)", line) and ".sidecar-" in line]
    flushes = [n for n, line in enumerate(lines) if "fsync(" in line]
    unlinks = [n for n, line in enumerate(lines) if re.search(r"\bunlinkat\(.*, 0\)", line)]
    assert with_staged and flushes[0] < with_staged[0]  # the content first, then its name
    discards = [n for n in unlinks if n > with_staged[-1] + 1]
    assert len(discards) == 2 and any(with_staged[-1] < n < discards[0] for n in flushes)
    assert all(".sidecar-" in lines[n] for n in unlinks)  # nothing is unlinked anywhere else
