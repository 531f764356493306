"""Follow a file through everything that its writer may do to it."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.transcript.lines import Record
from sidecar.transcript.tail import PROBE_BYTES, Tail, TailRead, TailState


def line(number: int, size: int = 0) -> bytes:
    return json.dumps({"n": number, "pad": "x" * size}).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def rewrite_in_place(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


def numbers(*reads: TailRead) -> list[int]:
    return [record.value["n"] for read in reads for record in read.records]


def drain(tail: Tail) -> list[TailRead]:
    reads = [tail.poll()]
    while reads[-1].more:
        reads.append(tail.poll())
    return reads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=8),
    st.lists(st.integers(1, 30), max_size=30),
    st.integers(1, 64),
)
def test_appends_in_any_pieces_give_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cuts: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "t.jsonl"
    content = b"".join(line(number, size) for number, size in enumerate(sizes)) + b'{"torn'
    tail = Tail(str(path), chunk_bytes=chunk)
    records: list[Record] = []
    at = 0
    for cut in [*cuts, len(content)]:
        append(path, content[at : at + cut])
        at += cut
        for read in drain(tail):
            assert not read.restarted
            assert not read.fragments
            records += read.records
    assert [record.value["n"] for record in records] == list(range(len(sizes)))
    assert all(content[record.offset :].startswith(record.raw + b"\n") for record in records)
    assert tail.unfinished() == b'{"torn'
    assert tail.state().probe == content[: tail.offset][-PROBE_BYTES:]


def test_a_missing_file_is_waited_for(path: Path) -> None:
    tail = Tail(str(path))
    assert tail.poll().missing
    append(path, line(1))
    read = tail.poll()
    assert numbers(read) == [1]
    assert not read.restarted
    path.unlink()
    assert tail.poll().missing
    append(path, line(2))
    read = tail.poll()
    assert read.restarted
    assert numbers(read) == [2]


def test_the_ctime_is_told_only_where_all_was_given_out(path: Path) -> None:
    append(path, line(1))
    tail = Tail(str(path))
    assert tail.poll().at_eof_ctime_ns == path.stat().st_ctime_ns
    append(path, b'{"half')
    read = tail.poll()
    assert read.at_eof_ctime_ns is None
    assert read.end_offset == len(line(1))


def test_truncation_restarts(path: Path) -> None:
    append(path, line(1) + line(2))
    tail = Tail(str(path))
    tail.poll()
    rewrite_in_place(path, line(3))
    read = tail.poll()
    assert (read.restarted, numbers(read)) == (True, [3])
    assert not tail.poll().restarted


def test_a_rewrite_in_place_to_a_bigger_size_restarts(path: Path) -> None:
    append(path, line(1) + line(2))
    tail = Tail(str(path))
    tail.poll()
    rewrite_in_place(path, line(3) + line(4) + line(5))
    read = tail.poll()
    assert (read.restarted, numbers(read)) == (True, [3, 4, 5])


def test_a_rewrite_under_a_torn_tail_restarts(path: Path) -> None:
    append(path, line(1) + b'{"n":2')
    tail = Tail(str(path))
    tail.poll()
    rewrite_in_place(path, line(1) + b'{"n":7,"long":1}\n')
    read = tail.poll()
    assert (read.restarted, numbers(read)) == (True, [1, 7])


def test_replacement_by_rename_restarts_even_with_the_same_bytes(path: Path) -> None:
    append(path, line(1))
    tail = Tail(str(path))
    tail.poll()
    other = path.with_name("new")
    append(other, line(1) + line(2))
    other.replace(path)
    read = tail.poll()
    assert (read.restarted, numbers(read)) == (True, [1, 2])


def test_a_saved_place_is_resumed_and_the_torn_tail_read_again(path: Path) -> None:
    append(path, line(1) + line(2) + b'{"n":3')
    first = Tail(str(path))
    assert numbers(first.poll()) == [1, 2]
    second = Tail(str(path))
    second.seek(first.state())
    append(path, b',"pad":""}\n')
    read = second.poll()
    assert (read.restarted, numbers(read)) == (False, [3])


@pytest.mark.parametrize("wrong", ["offset", "probe", "inode"])
def test_a_saved_place_in_another_file_restarts(path: Path, wrong: str) -> None:
    append(path, line(1) + line(2))
    tail = Tail(str(path))
    tail.poll()
    state = tail.state()
    assert state.inode is not None
    changed = {
        "offset": TailState(state.offset + 1, state.probe, state.inode),
        "probe": TailState(state.offset, state.probe[:-1] + b"?", state.inode),
        "inode": TailState(state.offset, state.probe, state.inode + 1),
    }[wrong]
    other = Tail(str(path))
    other.seek(changed)
    read = other.poll()
    assert (read.restarted, numbers(read)) == (True, [1, 2])


def test_a_saved_place_holds_across_another_device_number(path: Path) -> None:
    append(path, line(1))
    tail = Tail(str(path))
    tail.poll()
    fresh = Tail(str(path))
    fresh.seek(tail.state())  # a place has no device: those change at reboot
    assert fresh.poll().records == []


def test_a_backlog_comes_in_chunks(path: Path) -> None:
    append(path, b"".join(line(number, 100) for number in range(50)))
    tail = Tail(str(path), chunk_bytes=1000)
    reads = drain(tail)
    assert len(reads) >= 5
    assert numbers(*reads) == list(range(50))
    assert [read.more for read in reads] == [True] * (len(reads) - 1) + [False]
    assert reads[-1].at_eof_ctime_ns is not None


def test_one_very_long_line_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, line(1, 40_000_000))
    asked = 0
    real = os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal asked
        data = real(fd, size, offset)
        asked += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    reads = drain(Tail(str(path), chunk_bytes=100_000))
    assert numbers(*reads) == [1]
    assert asked < 1.1 * path.stat().st_size


def test_garbage_is_set_apart_and_the_rest_is_read(path: Path) -> None:
    append(path, line(1) + b"\0\0\0garbage\n" + line(2))
    read = Tail(str(path)).poll()
    assert numbers(read) == [1, 2]
    assert [fragment.raw for fragment in read.fragments] == [b"\0\0\0garbage"]
    assert read.fragments[0].offset == len(line(1))


def test_a_link_to_a_transcript_is_followed(path: Path, tmp_path: Path) -> None:
    append(path, line(1))
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    assert numbers(Tail(str(link)).poll()) == [1]


def test_what_is_no_file_is_a_fault_and_never_blocks(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.jsonl"
    os.mkfifo(fifo)
    loop = tmp_path / "loop.jsonl"
    loop.symlink_to(loop)
    assert Tail(str(fifo)).poll().fault == "not a regular file"
    assert Tail(str(tmp_path)).poll().fault is not None
    assert Tail(str(loop)).poll().fault is not None
    assert Tail("/dev/null").poll().fault == "not a regular file"
    assert Tail(str(tmp_path / "fifo.jsonl" / "x")).poll().missing


def test_a_file_that_may_not_be_read_is_a_fault(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "no")

    tail = Tail(str(path))
    monkeypatch.setattr(os, "open", refuse)
    assert tail.poll().fault == "Permission denied"
