"""The patterns of one ignore file, with git's exact meaning: which of them speaks last about a name. Pure.

The meaning is that of `gitignore(5)` and of git's matcher, on bytes: `?` and a class match one byte, never a slash; a
pattern with a broken bracket or a trailing backslash matches nothing; a class may hold POSIX classes (of ASCII alone)
and escapes; `**` is special only where it fills a component. Each pattern becomes one regular expression whose stars do
not try again what cannot help, so that no ignore file makes a name take long.

Where versions of git differ, the newest is followed: before 2.52 `ab**/c` (a literal directly before `**/`) crossed
slashes, against the manual. Names are compared exactly; a git told to ignore case ignores more than we do.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_WILD = frozenset(b"*?[\\")
_SLASH = b"/"[0]
_NEVER = b"(?!)"

# git's own tables: `space` has no vertical tab or form feed.
_CLASSES: dict[bytes, frozenset[int]] = {
    b"alnum": frozenset(b for b in range(128) if chr(b).isalnum()),
    b"alpha": frozenset(b for b in range(128) if chr(b).isalpha()),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset([*range(32), 127]),
    b"digit": frozenset(b"0123456789"),
    b"graph": frozenset(range(33, 127)),
    b"lower": frozenset(b"abcdefghijklmnopqrstuvwxyz"),
    b"print": frozenset(range(32, 127)),
    b"punct": frozenset(b for b in range(33, 127) if not chr(b).isalnum()),
    b"space": frozenset(b" \t\n\r"),
    b"upper": frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}


class _Broken(Exception):
    """A pattern that can match nothing."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file."""

    negated: bool
    directories_only: bool
    by_name: bool  # compared with the last component alone, at any depth
    regex: bytes  # of the whole name, or of the whole path below the ignore file's folder
    last_name: bytes | None  # the last component where it has no wildcard: the entry that the pattern names


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one ignore file in their order."""

    all: tuple[Pattern, ...]
    _compiled: tuple[tuple[Pattern, "re.Pattern[bytes]"], ...] = field(init=False, repr=False, compare=False)
    _any_name: "re.Pattern[bytes]" = field(init=False, repr=False, compare=False)
    _any_path: "re.Pattern[bytes]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        compiled = tuple((p, re.compile(p.regex, re.DOTALL)) for p in reversed(self.all))
        object.__setattr__(self, "_compiled", compiled)
        object.__setattr__(self, "_any_name", _union(p.regex for p in self.all if p.by_name))
        object.__setattr__(self, "_any_path", _union(p.regex for p in self.all if not p.by_name))

    def last_match(self, path: bytes, *, is_directory: bool) -> Pattern | None:
        """Find the pattern that decides about `path` (below the ignore file's folder); None where none speaks of it.

        Speaks of this entry alone: whether a folder above it is ignored is the caller's question.
        """
        name = path[path.rfind(b"/") + 1 :]
        if not (self._any_name.fullmatch(name) or self._any_path.fullmatch(path)):
            return None  # the common case, in two steps instead of one a pattern
        for pattern, regex in self._compiled:
            if pattern.directories_only and not is_directory:
                continue
            if regex.fullmatch(name if pattern.by_name else path):
                return pattern
        return None


def parse_patterns(content: bytes) -> Patterns:
    """Read the bytes of an ignore file."""
    return Patterns(tuple(_lines(content.removeprefix(b"\xef\xbb\xbf"))))


def _lines(content: bytes) -> Iterator[Pattern]:
    for line in content.split(b"\n"):
        if not line or line.startswith(b"#"):
            continue
        text = _trimmed(line.removesuffix(b"\r").split(b"\0")[0])  # git's lines end at a NUL
        pattern = _pattern(text)
        if pattern is not None:
            yield pattern


def _trimmed(text: bytes) -> bytes:
    """Cut trailing spaces, but not one that a backslash protects."""
    cut = text.rstrip(b" ")
    backslashes = len(cut) - len(cut.rstrip(b"\\"))
    return text[: len(cut) + 1] if backslashes % 2 else cut


def _pattern(text: bytes) -> Pattern | None:
    negated = text.startswith(b"!")
    text = text[negated:]
    directories_only = text.endswith(b"/")
    text = text[: len(text) - directories_only]
    by_name = b"/" not in text
    text = text.removeprefix(b"/")
    if not text:
        return None
    try:
        regex = _regex(text)
    except _Broken:
        return None
    last = text[text.rfind(b"/") + 1 :]
    return Pattern(negated, directories_only, by_name, regex, None if _WILD & set(last) else last)


def _regex(text: bytes) -> bytes:
    """Translate one pattern.

    It is cut at every deep `**`. What stands between two of them spans a fixed number of components, and the deep one
    after it takes whatever follows: its first place is as good as any, so it is matched atomically.
    """
    parts = list(_deep_parts(text))
    out = b""
    for i, (way, chunk) in enumerate(parts):
        last = i == len(parts) - 1
        body = _flat(chunk)
        if way == b"":
            out += body
        elif last:
            out += {b"**/": b"(?:.*/)?", b"**\\/": b".*/", b"**": b".*"}[way] + body
        else:
            out += b"(?>" + {b"**/": b"(?:.*?/)??", b"**\\/": b".*?/"}[way] + body + b")"
    return out


def _deep_parts(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Cut a pattern into (the deep stars before it, the rest up to the next ones)."""
    way, start, i = b"", 0, 0
    while i < len(text):
        if text[i : i + 1] == b"\\":
            i += 2
        elif text[i : i + 1] == b"[":
            i = _bracket(text, i)[1]
        elif text[i : i + 1] == b"*":
            end = i
            while text[end : end + 1] == b"*":
                end += 1
            begins = i == 0 or text[i - 1] == _SLASH
            after = next((a for a in (b"/", b"\\/") if text.startswith(a, end)), b"")
            if end - i >= 2 and begins and (after or end == len(text)):
                yield way, text[start:i]
                way = b"**" + after
                end += len(after)
                start = end
            i = end
        else:
            i += 1
    yield way, text[start:]


def _flat(text: bytes) -> bytes:
    """Translate a part without deep stars.

    A run between two stars of one component is matched where it first fits, and never elsewhere: the later star takes
    the rest.
    """
    out, run, starred, i = b"", b"", False, 0
    while i < len(text):
        c = text[i : i + 1]
        if c == b"*":
            out += _starred(run, lazily=True) if starred else run
            run, starred = b"", True
            while text[i : i + 1] == b"*":
                i += 1
            continue
        if c == b"[":
            members, i = _bracket(text, i)
            run += _class(members)
            continue
        if c == b"\\":
            i += 1
            c = text[i : i + 1]
            if not c:
                raise _Broken
            run += re.escape(c)
        else:
            run += b"[^/]" if c == b"?" else re.escape(c)
        i += 1
        if c == b"/":
            out += _starred(run, lazily=False) if starred else run
            run, starred = b"", False
    return out + (_starred(run, lazily=False) if starred else run)


def _starred(run: bytes, *, lazily: bool) -> bytes:
    return b"(?>[^/]*?" + run + b")" if lazily else b"[^/]*" + run


def _bracket(text: bytes, start: int) -> tuple[frozenset[int], int]:
    """Read the class that begins at `start`: its members, and where the pattern goes on. Raises _Broken."""
    i = start + 1
    negated = text[i : i + 1] in (b"!", b"^")
    i += negated
    first = i
    members: set[int] = set()
    before: int | None = None  # what a following `-` would range from
    while i == first or text[i : i + 1] != b"]":
        if text[i : i + 2] == b"[:" and (named := text.find(b"]", i + 2)) != -1:
            if text[named - 1 : named] == b":" and named - 1 >= i + 2:
                members |= _posix(text[i + 2 : named - 1])
                before, i = None, named + 1
                continue
        elif text[i : i + 2] == b"[:":
            raise _Broken
        if text[i : i + 1] == b"-" and before is not None and text[i + 1 : i + 2] not in (b"", b"]"):
            high, i = _member(text, i + 1)
            members.update(range(before, high + 1))
            before = None
            continue
        before, i = _member(text, i)
        members.add(before)
    return (frozenset(range(256)) - members if negated else frozenset(members)), i + 1


def _member(text: bytes, i: int) -> tuple[int, int]:
    """Read one byte of a class, escaped or not."""
    i += text[i : i + 1] == b"\\"
    if i >= len(text):
        raise _Broken
    return text[i], i + 1


def _posix(name: bytes) -> frozenset[int]:
    if name not in _CLASSES:
        raise _Broken
    return _CLASSES[name]


def _class(members: frozenset[int]) -> bytes:
    """Write a set of bytes as a regular expression; a slash is never a member."""
    ordered = sorted(members - {_SLASH})
    return b"[" + b"".join(b"\\x%02x" % byte for byte in ordered) + b"]" if ordered else _NEVER


def _union(regexes: Iterable[bytes]) -> "re.Pattern[bytes]":
    return re.compile(b"|".join(b"(?:%s)" % regex for regex in regexes) or _NEVER, re.DOTALL)
