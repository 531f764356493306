"""Case C15: what a checkpoint costs follows what changed, not what is there; counted in bytes read, never in time."""

import os
import re
from pathlib import Path

import pytest

from tests.builders.acting import pause
from tests.builders.probe import settle
from tests.builders.stage import Stage, Watcher
from tests.builders.truth import Truth

SPARSE = 4 << 30


def bytes_read(watcher: Watcher) -> int:
    """Give how many bytes a process has read through system calls, whatever from."""
    found = re.search(r"^rchar: (\d+)$", Path(f"/proc/{watcher.process.pid}/io").read_text(), re.M)
    assert found is not None
    return int(found[1])


def populate(stage: Stage, files: int) -> None:
    for number in range(files):
        folder = stage.project / f"data/{number // 200}"
        if number % 200 == 0:
            folder.mkdir(parents=True)
        (folder / f"{number}.txt").write_text(f"small file {number}\n" * 20)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs the kernel's count of bytes read")
def test_case_C15_a_big_file_and_many_small_ones_are_read_no_second_time(tmp_path):
    stage = Stage(tmp_path)
    populate(stage, 20_000)
    with (stage.project / "big.bin").open("wb") as file:
        file.truncate(SPARSE)
    stage.write("edited.txt", "at first\n")
    with stage.watching() as watcher:
        messages = [stage.session.prompt("hello")]
        watcher.checkpoint(messages[0])
        spent = []
        for number in range(10):
            before = bytes_read(watcher)
            pause()
            stage.write("edited.txt", f"in turn {number}\n")
            pause()
            messages.append(stage.session.prompt(f"message {number}"))
            watcher.checkpoint(messages[-1])
            spent.append(bytes_read(watcher) - before)
        assert max(spent[1:]) < 1_000_000, spent
        # The same size and the same mtime, but another ctime: it is read again.
        path = stage.project / "data/7/1500.txt"
        old, status = path.read_bytes(), path.stat()
        new = old.replace(b"small", b"SMALL")
        path.write_bytes(new)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
        pause()
        last = stage.session.prompt("after the sly one")
        watcher.checkpoint(last)
        assert stage.run("show", f"{last}:data/7/1500.txt").out.encode() == new
        assert stage.run("show", f"{messages[-1]}:data/7/1500.txt").out.encode() == old
        # What is too large is said to be so, and was not read: sparse or not.
        told = stage.run("show", f"{last}:big.bin")
        assert (told.code, told.out) == (1, "")
        assert bytes_read(watcher) < 100_000_000
    # Nor is anything read again by a second attach, but the transcript and the store.
    with stage.watching() as watcher:
        assert bytes_read(watcher) < 30_000_000, bytes_read(watcher)
        watcher.checkpoint(stage.session.prompt("attached again"))
    assert stage.json("check")["ok"]


@pytest.mark.slow
def test_thirty_thousand_files_in_a_folder_that_nobody_ignored(tmp_path):
    """What a tool pours into the tree keeps no edited file from being protected, before, meanwhile or after."""
    stage = Stage(tmp_path)
    for number in range(20):
        stage.write(f"src/{number}.txt", "at first\n")
    edited = Truth(stage)

    def state() -> dict[bytes, bytes]:
        return {b"src/%d.txt" % number: (stage.project / f"src/{number}.txt").read_bytes() for number in range(20)}

    def send(text: str) -> str:
        now = state()
        message = stage.session.prompt(text)
        edited.note(message, now)
        return message

    edited.files = state  # type: ignore[method-assign] - only the edited ones are compared
    with stage.watching() as watcher:
        watcher.checkpoint(send("hello"))
        for number in range(30_000):
            if number % 1_000 == 0:
                (stage.project / f"out/{number // 1_000}").mkdir(parents=True)
            (stage.project / f"out/{number // 1_000}/{number}").write_text(f"generated {number}\n")
            if number % 3_000 == 1_500:
                stage.write(f"src/{number // 3_000}.txt", f"edited meanwhile, {number}\n")
                pause()
                send(f"meanwhile {number}")
                pause()
                stage.write(f"src/{10 + number // 3_000}.txt", f"edited after it, {number}\n")
        pause()
        last = send("the last one")
        watcher.checkpoint(last)
        unsure = edited.prove()
        assert len(unsure) <= 10, unsure  # one edit each may meet its message on a busy machine
        assert not [one for one in unsure if one.startswith(last)]
        assert not [event for event in watcher.events if event["event"] == "warning"]
        answer = stage.json("rewind", last, "--dry-run")
        assert (answer["filesChanged"], answer["kept"]) == ([], [])
        stage.write("src/3.txt", "after the last one\n")
        settle(stage)
        assert stage.json("rewind", last, "src", "--yes")["restored"] == ["src/3.txt"]
    assert stage.json("check")["ok"]
