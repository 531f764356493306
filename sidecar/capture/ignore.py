"""Which paths of a workspace are captured: git's rules, a few names of our own, and nothing else. Pure.

    never     .git, our staging, the agent's own places: no rule brings them back
    folders   ignored by a pattern, or named in `pruned`: left out with all that is below, and not watched
    files     ignored by a pattern in a folder that is not: captured while they are small
    captured  the rest

Ignore files are read through `read`, so that one way reaches the workspace; git is never started in it. They count
whether or not there is a repository. What a person told git on this machine alone (`core.excludesFile`, by default
`~/.config/git/ignore`) is left out on purpose: the same tree must give the same checkpoint for everybody, and what
such lists hold (editors' droppings) is small, while a file that they hide is lost for good. So is git's index: a file
that was committed though a pattern ignores its folder is known only when a tool call names it. For a worktree or
submodule, whose `.git` is a file, `info/exclude` lies outside the workspace and is not read.

A folder that holds a repository of its own begins a new scope: inside it only its own ignore files count. The folder
itself is judged from outside, as git does.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sidecar.capture.gitignore import Pattern, Patterns, parse_patterns
from sidecar.policy.tables import IgnorePolicy

IGNORE_FILE = b".gitignore"
_EXCLUDE_FILE = b".git/info/exclude"
_HEAD = b".git/HEAD"
_LINKED = b".git"  # a file, in a worktree or a submodule
_TELLING = frozenset((IGNORE_FILE, _LINKED))  # entries of a folder that say how to judge the others

Read = Callable[[bytes], bytes | None]


class Verdict(StrEnum):
    """What the rules say of one path."""

    CAPTURED = "captured"
    NEVER = "never"
    IGNORED_FOLDER = "ignored-folder"  # the folder, or one above the path: pruned
    IGNORED_FILE = "ignored-file"  # by a pattern of its own, in a folder that is not ignored: captured if small


@dataclass(frozen=True, slots=True)
class OuterFile:
    """An ignore file of the repository that the workspace is a folder of."""

    below: bytes  # the workspace's root, relative to the ignore file's folder
    content: bytes


@dataclass(frozen=True, slots=True)
class _Layer:
    """The patterns of one ignore file, and how a path of the workspace reads from its folder."""

    patterns: Patterns
    cut: int  # bytes to take off
    head: bytes  # bytes to put before


@dataclass(frozen=True, slots=True)
class _Folder:
    """What holds for the entries of one folder."""

    layers: tuple[_Layer, ...]  # the later one wins
    verdict: Verdict | None = None  # of everything below, where the folder itself is left out


class IgnoreRules:
    """The rules of one workspace, read as they are needed and kept until `forget`."""

    def __init__(
        self, policy: IgnorePolicy, read: Read, excluded: Collection[bytes], outer: Sequence[OuterFile] = ()
    ) -> None:
        """Take the policy, a way to read ignore files, and places that are never captured.

        `read` gives the bytes of a file of the workspace, and None where it is absent, a link, no file or too large.
        `excluded` comes from `excluded_within`, `outer` from `outer_files`.
        """
        self._policy = policy
        self._read = read
        self._excluded = frozenset(excluded)
        self._outer = _outer_layers(outer)
        self._never = frozenset(policy.never.names)
        self._prefixes = policy.never.prefixes
        self._pruned = frozenset(policy.pruned.names)
        self._credential_folders = frozenset(name.lower() for name in policy.credentials.folders)
        self._credentials = parse_patterns(b"\n".join(name.lower() for name in policy.credentials.names))
        self._folders: dict[bytes, _Folder] = {}
        self._listed: dict[bytes, frozenset[bytes]] = {}

    def verdict(self, path: bytes, *, is_directory: bool) -> Verdict:
        """Judge one path; for an absolute one, outside the workspace, only NEVER or CAPTURED.

        `is_directory` is what lstat says: a link to a folder is none. The root (`b""`) is NEVER where it is itself an
        excluded place, so that nothing in it may be captured.
        """
        if path.startswith(b"/"):
            return self._outside(path)
        if b"" in self._excluded:
            return Verdict.NEVER
        if not path:
            return Verdict.CAPTURED
        folder = self._folder(path[: max(path.rfind(b"/"), 0)])
        return folder.verdict or self._judge(path, folder, is_directory=is_directory)

    def judging(self, folder: bytes) -> Callable[[bytes, bool], Verdict]:
        """Give what judges the entries of one folder, from path and whether it is a directory, as `verdict` does."""
        scope = self._folder(folder)
        whole = Verdict.NEVER if b"" in self._excluded else scope.verdict
        if whole is not None:
            return lambda _path, _is_directory: whole
        return lambda path, is_directory: self._judge(path, scope, is_directory=is_directory)

    def exclude(self, places: Collection[bytes]) -> None:
        """Leave out other places from now on, given as for a new one of these."""
        if self._excluded != frozenset(places):
            self._excluded = frozenset(places)
            self._folders.clear()

    def saw(self, folder: bytes, names: Iterable[bytes]) -> None:
        """Hear which entries a folder has, from whoever just listed it, before any of them is judged.

        Only saves asking for ignore files that are not there, which is most of the cost of a first scan.
        """
        if folder not in self._folders:
            self._listed[folder] = _TELLING.intersection(names)

    def forget(self, path: bytes) -> bytes:
        """Drop what was read because of `path`; give the folder whose subtree must be judged again.

        `path` is an ignore file (see `is_rule_file`) that came, went or changed, or a folder that did.
        """
        name = path[path.rfind(b"/") + 1 :]
        folder = path
        if is_rule_file(path):
            tail = _EXCLUDE_FILE if _ends_with(path, _EXCLUDE_FILE) else name
            folder = path[: max(len(path) - len(tail) - 1, 0)]
        for known in [known for known in self._folders if _is_below(known, folder)]:
            del self._folders[known]
        for known in [known for known in self._listed if _is_below(known, folder)]:
            del self._listed[known]
        return folder

    def looks_like_a_credential(self, path: bytes) -> bool:
        """Tell whether a file's name, or that of a folder above it, is one under which secrets are kept."""
        *folders, name = path.lower().split(b"/")
        return (
            not self._credential_folders.isdisjoint(folders)
            or self._credentials.last_match(name, is_directory=False) is not None
        )

    def _judge(self, path: bytes, folder: _Folder, *, is_directory: bool) -> Verdict:
        """Judge an entry of a folder that is not itself left out."""
        name = path[path.rfind(b"/") + 1 :]
        if name in self._never or name.startswith(self._prefixes) or path in self._excluded:
            return Verdict.NEVER
        if self._policy.credentials.inside and not is_directory and self.looks_like_a_credential(path):
            return Verdict.NEVER
        match = _last_match(folder.layers, path, is_directory=is_directory)
        if match is not None and not match.negated:
            return Verdict.IGNORED_FOLDER if is_directory else Verdict.IGNORED_FILE
        if is_directory and name in self._pruned and (match is None or match.last_name != name):
            return Verdict.IGNORED_FOLDER  # `!*/` of an allow-list does not mean node_modules; `!node_modules/` does
        return Verdict.CAPTURED

    def _outside(self, path: bytes) -> Verdict:
        parts = path.split(b"/")
        above = (b"/".join(parts[:i]) for i in range(2, len(parts) + 1))
        if any(place in self._excluded for place in above):
            return Verdict.NEVER
        if any(part in self._never or part.startswith(self._prefixes) for part in parts):
            return Verdict.NEVER
        return Verdict.NEVER if self.looks_like_a_credential(path) else Verdict.CAPTURED

    def _folder(self, path: bytes) -> _Folder:
        """Give what holds inside a folder, reading the ignore files on the way to it."""
        known = self._folders.get(path)
        if known is not None:
            return known
        folder = self._folders.get(b"") or self._enter(b"", self._outer)
        if not path:
            return folder
        end = 0
        while end != len(path):  # not by recursion: a path may have two thousand components
            end = path.find(b"/", end + 1)
            end = len(path) if end == -1 else end
            here = path[:end]
            if here in self._folders:
                folder = self._folders[here]
                continue
            verdict = folder.verdict or self._judge(here, folder, is_directory=True)
            if verdict is Verdict.CAPTURED:
                folder = self._enter(here, folder.layers)
            else:
                folder = self._folders[here] = _Folder((), verdict)
        return folder

    def _enter(self, path: bytes, layers: tuple[_Layer, ...]) -> _Folder:
        """Read the ignore files of one folder, beginning a new scope where it holds a repository."""
        cut = len(path) + 1 if path else 0
        before = path + b"/" if path else b""
        there = self._listed.pop(path, _TELLING)
        found: list[bytes | None] = []
        if _LINKED in there:
            if self._read(before + _HEAD) is not None:
                layers = ()
                found.append(self._read(before + _EXCLUDE_FILE))
            elif (self._read(before + _LINKED) or b"").startswith(b"gitdir:"):
                layers = ()
        if IGNORE_FILE in there:
            found.append(self._read(before + IGNORE_FILE))
        own = tuple(_Layer(parse_patterns(content), cut, b"") for content in found if content)
        folder = self._folders[path] = _Folder(layers + own)
        return folder


def is_rule_file(path: bytes) -> bool:
    """Tell whether a change of this path changes what is ignored, so that `forget` must hear of it.

    Of a repository's own folder only its coming and going counts: its HEAD changes with every commit and means nothing.
    """
    return any(_ends_with(path, tail) for tail in (IGNORE_FILE, _EXCLUDE_FILE, _LINKED))


def excluded_within(root: bytes, places: Iterable[bytes]) -> frozenset[bytes]:
    """Translate absolute places that must never be captured into the words of the workspace at `root`.

    A place below the root becomes relative to it, the root itself `b""`, another one stays absolute. All are resolved
    paths. A place *above* the root does not cover the workspace: agents make worktrees inside their own directories,
    and a person who works there means it.
    """
    return frozenset(
        b"" if place == root else place[len(root.rstrip(b"/")) + 1 :] if _is_below(place, root) else place
        for place in (place.rstrip(b"/") or b"/" for place in places)
        if place != b"/"
    )


def outer_files(root: bytes, read: Read) -> tuple[OuterFile, ...]:
    """Collect the ignore files above a workspace that is a folder of a larger repository, the weakest first.

    `root` and what `read` is asked for are absolute. Empty where the root is a repository itself, or in none.
    """
    files: list[OuterFile] = []
    parts = root.rstrip(b"/").split(b"/")
    for depth in range(len(parts), 0, -1):
        folder = b"/".join(parts[:depth])
        below = b"/".join(parts[depth:])
        if below and (content := read(folder + b"/" + IGNORE_FILE)):
            files.append(OuterFile(below, content))
        repository = read(folder + b"/" + _HEAD) is not None
        if repository or (read(folder + b"/" + _LINKED) or b"").startswith(b"gitdir:"):
            if below and repository and (content := read(folder + b"/" + _EXCLUDE_FILE)):
                files.append(OuterFile(below, content))
            return tuple(reversed(files))
    return ()


def _outer_layers(outer: Sequence[OuterFile]) -> tuple[_Layer, ...]:
    """Prepare the ignore files above the root; none counts where they ignore the root itself.

    Whoever works in an ignored folder (a worktree, a scratch copy) wants that work kept.
    """
    layers = tuple(_Layer(parse_patterns(file.content), 0, file.below + b"/") for file in outer)
    widest = max((file.below.split(b"/") for file in outer), key=len, default=[])
    for missing in range(len(widest)):  # the root, then the folders above it
        reachable = tuple(
            _Layer(layer.patterns, 0, b"/".join(parts[: len(parts) - missing]))
            for layer, file in zip(layers, outer, strict=True)
            if len(parts := file.below.split(b"/")) > missing
        )
        match = _last_match(reachable, b"", is_directory=True)
        if match is not None and not match.negated:
            return ()
    return layers


def _last_match(layers: tuple[_Layer, ...], path: bytes, *, is_directory: bool) -> Pattern | None:
    for layer in reversed(layers):
        match = layer.patterns.last_match(layer.head + path[layer.cut :], is_directory=is_directory)
        if match is not None:
            return match
    return None


def _is_below(path: bytes, folder: bytes) -> bool:
    """Tell whether a path is the folder or lies below it."""
    return not folder or path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _ends_with(path: bytes, tail: bytes) -> bool:
    return path == tail or path.endswith(b"/" + tail)
