"""Random trees with random ignore files: what we leave out is what git leaves out, path by path.

git is the oracle, started in throw-away repositories only. Trees test how ignore files work together; single patterns
against names made from them, and every class against every byte, test the matcher. A failure prints the seed;
`SIDECAR_TEST_TREES` sets how many trees the slow run makes (10000 take a few minutes).
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.policy import load
from sidecar.policy.tables import IgnorePolicy, NeverCaptured, PrunedFolders

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")

NAMES = [
    *(b"a", b"b", b"c", b"ab", b"abc", b"aab", b"A", b"B", b"a.b", b"x.py", b"x.pyc", b".a", b"..a", b"a-b", b"-"),
    *(b"a b", b"a ", b" a", b"\xc3\xa9", b"\xff", b"[a]", b"a]", b"!a", b"#a", b"a\\b", b"a\r", b"*", b"?", b"^", b"1"),
    *(b"a\tb", b"\t", b"\x0b", b"\x0c", b"\x7f", b"_", b"build", b"foo", b"foobar", b"bar"),
]
SETS = [
    *(b"[ab]", b"[!a]", b"[^a]", b"[a-c]", b"[c-a]", b"[]]", b"[!]]", b"[]-a]", b"[a-]", b"[-a]", b"[--0]", b"[\\]a]"),
    *(b"[[:alpha:]]", b"[[:digit:]a]", b"[![:space:]]", b"[[:punct:]]", b"[[:upper:]]", b"[[:cntrl:]]"),
    *(b"[[:xdigit:]]", b"[[:print:]]", b"[[:graph:]]", b"[[:blank:]]", b"[[:alnum:]]", b"[[:space:]]", b"[[:foo:]]"),
    *(b"[[:lower:]-z]", b"[[:alpha:]", b"[[:]", b"[[:a]", b"[[:]]", b"[[::]]", b"[[a]", b"[[]", b"[a", b"[", b"[]"),
    *(b"[!]", b"[!", b"[\\", b"[a\\-c]", b"[\\a-c]", b"[a-\\c]", b"[a-c-e]", b"[!a-b]", b"[/]", b"[a/b]", b"[!/]"),
    *(b"[\xc3\xa9]", b"[\x80-\xff]", b"[[.a.]]", b"[[=a=]]", b"[*]", b"[?]", b"[.]", b"[,--]", b"[+--]", b"[Z-a]"),
    *(b"[[:alpha:][:digit:]]", b"[[:ALPHA:]]", b"[[:digit:]-a]", b"[%--]", b"[!-+]", b"[^-+]", b"[.-0]"),
]
ATOMS = [b"*", b"*", b"*", b"?", b"**", b"***", b"\\*", b"\\?", b"\\a", b"\\[", b"\\\\", b"\\ ", b"\\#", b"\\!", b"\\"]
TAILS = [
    *(b"", b"", b"", b"", b"", b"", b"/", b"/", b"/", b" ", b"  ", b"\\ ", b" \\ ", b"\\  ", b"\\\\ ", b"\t", b"\r"),
    *(b" \r", b"\r\r", b"//", b"\\", b"\0x"),
]
WHOLE = [
    *(b"*", b"!*", b"*/", b"!*/", b"/*", b"!/*", b"**", b"**/", b"/**", b"!**/", b"!", b"!!a", b"/", b"//", b"#a", b""),
    *(
        b" ",
        b"\r",
        b"*.py",
        b"!*.py",
        b"**/*.py",
        b"a/",
        b"!a/",
        b"/a",
        b"!/a/",
        b"a/**",
        b"a/**/b",
        b"**/a/**",
        b"/a/*",
    ),
    *(b"/a/*", b"!/a/b", b"*.py[co]"),
]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
ENVIRONMENT = {**CLEAN, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
# Before 2.52 git took `ab**/c` for `ab` and then a deep star, against its manual; we follow the manual.
LITERAL_THEN_DEEP = re.compile(rb"!?/?[^*?\[\\]*[^*?\[\\/]\*\*")


def _version_dependent(line: bytes) -> bool:
    return LITERAL_THEN_DEEP.match(line) is not None


def _policy() -> IgnorePolicy:
    shipped = load.ignore_policy()
    return replace(shipped, never=NeverCaptured((b".git",), ()), pruned=PrunedFolders(()))


def _component(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(NAMES)
    if kind < 0.45:
        return b"**"
    parts = []
    for _ in range(rng.randint(1, 4)):
        parts.append(
            rng.choice((rng.choice(NAMES), rng.choice(NAMES), rng.choice(ATOMS), rng.choice(ATOMS), rng.choice(SETS)))
        )
    return b"".join(parts)


def _line(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.choice(WHOLE)
    body = b"/".join(_component(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))))
    if rng.random() < 0.05:
        body = body.replace(b"/", b"\\/")
    start = rng.choice((b"", b"", b"", b"/", b"/", b"**/"))
    return rng.choice((b"", b"", b"!")) + start + body + rng.choice(TAILS)


def _ignore_file(rng: random.Random) -> bytes:
    lines = [line for line in (_line(rng) for _ in range(rng.randint(1, 7))) if not _version_dependent(line)]
    content = rng.choice((b"", b"", b"", b"", b"\xef\xbb\xbf")) + rng.choice((b"\n", b"\n", b"\r\n")).join(lines)
    return content + rng.choice((b"", b"\n"))


def _tree(rng: random.Random, top: bytes) -> Iterator[tuple[bytes, bool]]:
    """Make a random tree; give its paths and whether each is a folder. Nested repositories are begun in it."""
    folders = [b""]
    seen: set[bytes] = set()
    few = rng.sample(NAMES, rng.randint(3, 12))  # few names make patterns meet them often
    for _ in range(rng.randint(5, 45)):
        parent = rng.choice(folders)
        path = (parent + b"/" if parent else b"") + rng.choice(few)
        if path in seen or len(path.split(b"/")) > 6:
            continue
        seen.add(path)
        is_folder = rng.random() < 0.4
        if is_folder:
            os.mkdir(top + path)
            folders.append(path)
        else:
            os.close(os.open(top + path, os.O_CREAT | os.O_WRONLY))
        yield path, is_folder
    _repository(top)
    for folder in folders:
        place = top + folder + (b"/" if folder else b"")
        if not folder or rng.random() < 0.3:
            with open(place + b".gitignore", "wb") as file:
                file.write(_ignore_file(rng))
            yield place[len(top) :] + b".gitignore", False
        if folder and rng.random() < 0.04:
            _repository(place)
            if rng.random() < 0.5:
                _exclude(place, _ignore_file(rng))
    if rng.random() < 0.3:
        _exclude(top, _ignore_file(rng))


def _repository(place: bytes) -> None:
    """Begin an empty repository; `git init` would take most of the run's time."""
    for name in (b".git", b".git/objects", b".git/refs", b".git/info"):
        os.mkdir(place + name)
    with open(place + b".git/HEAD", "wb") as file:
        file.write(b"ref: refs/heads/main\n")
    with open(place + b".git/config", "wb") as file:
        file.write(b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n")


def _exclude(place: bytes, content: bytes) -> None:
    with open(place + b".git/info/exclude", "wb") as file:
        file.write(content)


def _git(top: bytes, *arguments: str, feed: bytes = b"") -> list[bytes]:
    command = ["git", "-c", "core.fsmonitor=false", *arguments]
    done = subprocess.run(command, cwd=top, env=ENVIRONMENT, input=feed, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split(b"\0")[:-1]


def _kept_by_listing(top: bytes, repository: bytes = b"") -> set[bytes]:
    """List the files that git would show, entering nested repositories with their own git."""
    kept = set()
    for entry in _git(top + repository, "ls-files", "-co", "--exclude-standard", "-z"):
        kept |= _kept_by_listing(top, repository + entry) if entry.endswith(b"/") else {repository + entry}
    return kept


def _ignored_by_question(top: bytes, paths: list[bytes]) -> set[bytes]:
    fields = _git(
        top, "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin", feed=b"".join(p + b"\0" for p in paths)
    )
    rows = [fields[i : i + 4] for i in range(0, len(fields), 4)]
    return {path for _source, _number, pattern, path in rows if pattern and not pattern.startswith(b"!")}


def _name_from(rng: random.Random, pattern: bytes) -> bytes:
    """Make a path that the pattern matches, or nearly so."""
    out, i = b"", 0
    while i < len(pattern):
        c = pattern[i : i + 1]
        end = pattern.find(b"]", i + 2)
        if pattern.startswith(b"**", i):
            out += rng.choice((b"", b"a", b"a/b", b"a/b/c", b"ab"))
            i += 1
        elif c == b"*":
            out += rng.choice((b"", b"a", b"ab", b"aab", b"/", b"b"))
        elif c == b"?":
            out += rng.choice((b"a", b"\xc3", b"\xc3\xa9", b" ", b"/", b""))
        elif c == b"[" and end > 0:
            out += bytes([rng.choice(pattern[i + 1 : end] + b"ab]-[:")])
            i = end
        elif c == b"\\":
            i += 1
            out += pattern[i : i + 1]
        else:
            out += c
        i += 1
    if out and rng.random() < 0.3:
        at = rng.randrange(len(out))
        out = out[:at] + rng.choice((b"", b"a", b"/", b" ", b"]", b"[", out[at : at + 1] * 2)) + out[at + 1 :]
    return out


def _usable(path: bytes) -> bool:
    parts = path.split(b"/")
    return b"\0" not in path and not {b"", b".", b"..", b".git"} & set(parts) and max(map(len, parts)) < 200


def _pattern_differences(top: bytes, cases: list[tuple[bytes, list[bytes]]]) -> list[str]:
    """Ask about (content of an ignore file, paths below its folder), each case in a folder of its own."""
    _repository(top)
    files, paths = {}, []
    for i, (content, below) in enumerate(cases):
        folder = b"f%d" % i
        os.mkdir(top + folder)
        files[folder + b"/.gitignore"] = content
        with open(top + folder + b"/.gitignore", "wb") as file:
            file.write(content)
        paths += [folder + b"/" + path for path in dict.fromkeys(below) if _usable(path)]
    rules = IgnoreRules(_policy(), files.get, ())
    ignored = _ignored_by_question(top, paths)
    return [
        f"{cases[int(path[1 : path.index(b'/')])][0]!r} on {path!r}: git {path in ignored}"
        for path in paths
        if (path in ignored) != (rules.verdict(path, is_directory=False) is not Verdict.CAPTURED)
    ]


def _random_cases(seed: int, patterns: int) -> list[tuple[bytes, list[bytes]]]:
    rng = random.Random(seed)
    cases = []
    for _ in range(patterns):
        lines = [line for line in (_line(rng) for _ in range(rng.choice((1, 1, 1, 2)))) if not _version_dependent(line)]
        texts = [line.removeprefix(b"!").strip(b"/ ") for line in lines]
        below = [_name_from(rng, text) for text in texts for _ in range(25)]
        below += [prefix + path for path in below[:5] for prefix in (b"a/", b"x/y/")]
        cases.append((b"\n".join(lines), below))
    return cases


def _differences(seed: int, top: bytes) -> list[str]:
    rng = random.Random(seed)
    paths = list(_tree(rng, top))

    def read(path: bytes) -> bytes | None:
        try:
            with open(top + path, "rb") as file:
                return file.read()
        except OSError:
            return None

    rules = IgnoreRules(_policy(), read, ())
    for folder in [b"", *(path for path, is_folder in paths if is_folder)]:
        if rng.random() < 0.5:
            rules.saw(folder, os.listdir(top + folder))
    ours = {path: rules.verdict(path, is_directory=is_folder) for path, is_folder in paths}
    found = []
    kept = _kept_by_listing(top)
    for path, is_folder in paths:
        if not is_folder and (path in kept) != (ours[path] is Verdict.CAPTURED):
            found.append(f"listing: {path!r} kept by git: {path in kept}, ours: {ours[path]}")
    nested = tuple(path for path, is_folder in paths if is_folder and os.path.isdir(top + path + b"/.git"))
    outer = [path for path, _ in paths if not any(path.startswith(n + b"/") for n in nested)]
    ignored = _ignored_by_question(top, outer)
    for path in outer:
        if (path in ignored) != (ours[path] is not Verdict.CAPTURED):
            found.append(f"question: {path!r} ignored by git: {path in ignored}, ours: {ours[path]}")
    return [f"seed {seed}: {line}" for line in found]


def _run(base: Path, seeds: range) -> list[str]:
    found: list[str] = []
    for seed in seeds:
        top = base / str(seed)
        top.mkdir()
        found += _differences(seed, os.fsencode(top) + b"/")
        shutil.rmtree(top)
    return found


def test_every_class_holds_the_bytes_that_git_says(tmp_path: Path) -> None:
    every = [b"x" + bytes([byte]) for byte in range(1, 256)] + [b"x", b"xab", b"x]", b"xa]", b"x[a]"]
    assert _pattern_differences(os.fsencode(tmp_path) + b"/", [(b"x" + members, every) for members in SETS]) == []


def test_random_patterns_match_what_git_matches(tmp_path: Path) -> None:
    assert _pattern_differences(os.fsencode(tmp_path) + b"/", _random_cases(1, 1500)) == []


@pytest.mark.slow
def test_many_random_patterns_match_what_git_matches(tmp_path: Path) -> None:
    found: list[str] = []
    for seed in range(2, 12):
        top = tmp_path / str(seed)
        top.mkdir()
        found += _pattern_differences(os.fsencode(top) + b"/", _random_cases(seed, 2000))
    assert found == []


def test_a_few_random_trees_are_judged_as_git_judges_them(tmp_path: Path) -> None:
    assert _run(tmp_path, range(120)) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_trees_are_judged_as_git_judges_them(tmp_path: Path) -> None:
    first = 1_000_000
    assert _run(tmp_path, range(first, first + int(os.environ.get("SIDECAR_TEST_TREES", "1500")))) == []
