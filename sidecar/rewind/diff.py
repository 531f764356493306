"""Lines added and taken away between two contents. Pure.

The count is the exact minimum (longest common subsequence of lines), after the common head and tail are set aside.
"""

import difflib
from collections.abc import Sequence

PROBE_BYTES = 8_000  # a NUL byte within so much of the beginning makes a content binary, as git decides it


def is_binary(content: bytes) -> bool:
    """Tell whether a content is to be counted as changed without lines."""
    return b"\0" in content[:PROBE_BYTES]


def split_lines(content: bytes) -> list[bytes]:
    r"""Split by `\n` alone, each line with its own; the last one may lack it."""
    lines = [line + b"\n" for line in content.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def count_lines(now: bytes | None, then: bytes | None) -> tuple[int, int]:
    """Give (insertions, deletions) of going from one content to another; None: no file. Binary ones count 0, 0."""
    if any(content is not None and is_binary(content) for content in (now, then)):
        return 0, 0
    old = split_lines(now or b"")
    new = split_lines(then or b"")
    head = _common(old, new)
    old, new = old[head:], new[head:]
    tail = _common(old[::-1], new[::-1])
    if tail:
        old, new = old[:-tail], new[:-tail]
    same = _common_subsequence(old, new)
    return len(new) - same, len(old) - same


def patch(now: bytes | None, then: bytes | None, path: str) -> str:
    """Write the change from one text to another as a unified diff; a binary one in a sentence."""
    if any(content is not None and is_binary(content) for content in (now, then)):
        return f"Binary file {path} differs\n"
    old, new = _texts(now), _texts(then)
    source = "/dev/null" if now is None else f"a/{path}"
    target = "/dev/null" if then is None else f"b/{path}"
    lines: list[str] = []
    for line in difflib.unified_diff(old, new, source, target):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def _texts(content: bytes | None) -> list[str]:
    return [line.decode("utf-8", "replace") for line in split_lines(content or b"")]


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _common_subsequence(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    if not old or not new:
        return 0
    from rapidfuzz.distance import LCSseq  # noqa: PLC0415 - costs start-up time, and many rewinds need no count

    numbers: dict[bytes, int] = {}
    first = [numbers.setdefault(line, len(numbers)) for line in old]
    second = [numbers.setdefault(line, len(numbers)) for line in new]
    return int(LCSseq.similarity(first, second))
