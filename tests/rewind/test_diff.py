"""Lines added and taken away: exact, and fast on long files."""

import random
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.rewind.diff import count_lines, patch, split_lines

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d\r\n"]), max_size=12).map(b"".join)


@pytest.mark.parametrize(
    ("now", "then", "counts"),
    [
        (b"a\nb\nc\n", b"a\nx\nc\n", (1, 1)),
        (b"", b"a\nb\n", (2, 0)),
        (None, b"a\nb", (2, 0)),  # created again: every line of it
        (b"a\nb\n", None, (0, 2)),  # removed: every line of it
        (b"a\nb", b"a\nb\n", (1, 1)),  # the last newline is part of the line
        (b"a\r\nb\r\n", b"a\nb\n", (2, 2)),
        (b"\0\1", b"\0\2", (0, 0)),
        (b"text\n", b"\0", (0, 0)),
        (None, None, (0, 0)),
        ("a\u2028b\n".encode(), "a\u2028c\n".encode(), (1, 1)),  # one line each: only a newline ends one
    ],
)
def test_counts(now, then, counts):
    assert count_lines(now, then) == counts


@given(LINES, LINES)
def test_the_count_is_the_shortest_way(now, then):
    insertions, deletions = count_lines(now, then)
    old, new = split_lines(now), split_lines(then)
    table = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, one in enumerate(old):
        for j, other in enumerate(new):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    common = table[-1][-1]
    assert (insertions, deletions) == (len(new) - common, len(old) - common)


@given(st.binary(max_size=200))
def test_lines_join_to_what_they_were(content):
    assert b"".join(split_lines(content)) == content


def test_a_long_file_is_counted_exactly():
    chance = random.Random(7)
    old = [f"line {chance.randrange(500)}\n".encode() for _ in range(10_000)]
    new = [line for line in old if chance.random() > 0.05]
    assert count_lines(b"".join(old), b"".join(new)) == (0, len(old) - len(new))


@given(LINES, LINES)
def test_a_patch_applies(now, then):
    if now == then or b"\r" in now + then:
        return
    text = patch(now, then, "f")
    assert text.startswith("--- a/f\n+++ b/f\n@@ ")


def test_a_patch_is_one_that_git_takes(tmp_path):
    now, then = b"one\ntwo\nthree", b"one\n2\nthree\n"
    (tmp_path / "f").write_bytes(now)
    subprocess.run(["git", "apply", "-"], input=patch(now, then, "f").encode(), cwd=tmp_path, check=True)
    assert (tmp_path / "f").read_bytes() == then
