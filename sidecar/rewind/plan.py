"""What a rewind would do: each path that changed since, and why it is restored, removed or left alone. Pure.

A rewind takes back what the session's turns did. What a person did outside them, what another session did, and what is
not known is kept and reported; `--all`, or naming a path, takes the first two as well. Nothing takes a path whose
state then is unknown, or whose bytes now could not be brought back by an undo.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sidecar.model import Kind, Origin, Reason, Row, State, Turn
from sidecar.rewind.origin import Edits, origin_between, origin_of

Never = Callable[[bytes, bool], bool]  # of a path, and whether it is a directory: is it never captured?


class Do(StrEnum):
    """One thing to do with a path."""

    MAKE_FOLDER = "make-folder"
    WRITE = "write"
    MODE = "mode"  # bytes are right, permissions are not
    REMOVE = "remove"
    REMOVE_FOLDER = "remove-folder"


@dataclass(frozen=True, slots=True)
class Action:
    """What is done with one path: from `now` to `then`."""

    do: Do
    path: bytes
    now: State
    then: State
    row: Row | None = None  # the row whose state is brought back


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path that may differ from what it was."""

    path: bytes
    then: State | None  # None: nobody knows
    now: State
    then_row: Row | None
    now_row: Row | None
    linked: bool = False  # a link, more than one name, or reached through a link, as lstat says now
    ignored: bool = False  # by a pattern, now
    missing: bool = False  # the content to bring back is not in the store, or damaged
    guards: bool = False  # a directory in which something lies that is never captured: a repository, our own staging


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """Everything that a rewind does and leaves; `actions` in the order in which they are carried out."""

    actions: tuple[Action, ...]
    kept: tuple[tuple[bytes, Reason], ...]
    skipped_links: tuple[bytes, ...]

    @property
    def restored(self) -> tuple[bytes, ...]:
        """Paths that are written, made or given their mode back."""
        return tuple(sorted(a.path for a in self.actions if a.do not in (Do.REMOVE, Do.REMOVE_FOLDER)))

    @property
    def removed(self) -> tuple[bytes, ...]:
        """Paths that are removed."""
        return tuple(sorted(a.path for a in self.actions if a.do in (Do.REMOVE, Do.REMOVE_FOLDER)))

    @property
    def files_changed(self) -> tuple[bytes, ...]:
        """Files among them."""
        return tuple(sorted(a.path for a in self.actions if Kind.FILE in (a.now.kind, a.then.kind)))


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asked for."""

    session: str
    at: int
    only: tuple[bytes, ...] = ()  # paths, or directories of paths; empty: all
    everything: bool = False  # --all
    outside: bool = False  # --outside

    def wants(self, path: bytes) -> bool:
        """Tell whether a path is among those asked for."""
        return not self.only or any(not o or path == o or path.startswith(o + b"/") for o in self.only)


@dataclass(frozen=True, slots=True)
class People:
    """Who was at work when."""

    turns: Sequence[Turn]
    edits: Mapping[bytes, Edits]


def plan_rewind(
    candidates: Iterable[Candidate], wish: Wish, people: People, touched_links: Iterable[bytes] = ()
) -> RewindPlan:
    """Decide about every candidate; `touched_links` are links without versions that something happened to."""
    actions: dict[bytes, Action] = {}
    kept: dict[bytes, Reason] = {}
    links = {path for path in touched_links if wish.wants(path)}
    candidates = list(candidates)
    asked = [candidate for candidate in candidates if wish.wants(candidate.path)]
    asked += _folders_to_be_made(candidates, asked)
    for candidate in asked:
        decided = _decide(candidate, wish, people)
        if decided is not None:
            links.discard(candidate.path)
        if isinstance(decided, Action):
            actions[candidate.path] = decided
        elif isinstance(decided, _Link):
            links.add(candidate.path)
        elif decided is not None:
            kept[candidate.path] = decided
    _keep_what_is_in_the_way(actions, kept, links, {c.path for c in asked if c.path in kept and _is_solid(c.now)})
    _keep_folders_in_use(actions, kept, links)
    return RewindPlan(tuple(_in_order(actions.values())), tuple(sorted(kept.items())), tuple(sorted(links)))


def _folders_to_be_made(candidates: Iterable[Candidate], asked: Iterable[Candidate]) -> list[Candidate]:
    """Give the directories that were not asked for but are gone, and in which something is to come back."""
    parents = {
        parent
        for candidate in asked
        if candidate.then is not None and candidate.then.kind in (Kind.FILE, Kind.DIRECTORY)
        for parent in _parents(candidate.path)
    } - {candidate.path for candidate in asked}
    return [
        candidate
        for candidate in candidates
        if candidate.path in parents
        and candidate.now.kind is Kind.ABSENT
        and candidate.then is not None
        and candidate.then.kind is Kind.DIRECTORY
    ]


class _Link:
    pass


_LINK = _Link()


def _is_solid(now: State) -> bool:
    """Tell whether nothing can lie below what is there, as far as anybody looked."""
    return now.kind in (Kind.FILE, Kind.LINK, Kind.UNKNOWN) and now.reason is not Reason.UNKNOWN_THEN


def _decide(candidate: Candidate, wish: Wish, people: People) -> Action | Reason | _Link | None:  # noqa: PLR0911
    then, now = candidate.then, candidate.now
    if then == now:
        return None
    if _is_beyond_us(candidate) and not wish.only:
        return None
    if then is None or then.kind is Kind.UNKNOWN:
        if now.kind is Kind.UNKNOWN and now.reason is Reason.IGNORED:
            return None  # ignored then and now: nobody claims anything of it
        return Reason.UNKNOWN_THEN if then is None else then.reason
    if candidate.path.startswith(b"/") and not wish.outside:
        return Reason.OUTSIDE_WORKSPACE
    if candidate.linked or Kind.LINK in (then.kind, now.kind):
        return _LINK
    if now.kind is Kind.UNKNOWN:
        return now.reason
    if then.kind is Kind.ABSENT and candidate.ignored:
        return Reason.IGNORED
    if candidate.guards and then.kind is not Kind.DIRECTORY:
        return Reason.IGNORED
    if not (wish.everything or wish.only):
        reason = _somebody_elses(candidate, wish, people)
        if reason is not None:
            return reason
    if candidate.missing:
        return Reason.BLOB_MISSING
    return Action(_what(then, now), candidate.path, now, then, candidate.then_row)


def _is_beyond_us(candidate: Candidate) -> bool:
    """Tell whether all that happened to a path is that nobody has looked at it since the tree became too wide."""
    then, now = candidate.then_row, candidate.now_row
    return then is not None and now is not None and now.ends_knowledge and then.to_at == now.from_at


def _somebody_elses(candidate: Candidate, wish: Wish, people: People) -> Reason | None:
    edits = people.edits.get(candidate.path, ())
    outside = Reason.CHANGED_OUTSIDE_TURNS
    asked = [] if candidate.now_row is None else [candidate.now_row]
    found = {origin_of(row, after=wish.at, session=wish.session, turns=people.turns, edits=edits) for row in asked} or {
        Origin.IDLE
    }
    created = candidate.then_row.to_at if candidate.then_row is not None else None
    if candidate.then is not None and candidate.then.kind is Kind.ABSENT:
        outside = Reason.CREATED_OUTSIDE_TURNS
        if created is not None and Origin.BEFORE not in found:
            # What a person made is not removed because a turn wrote to it later.
            found.add(origin_between(created, created, session=wish.session, turns=people.turns, edits=edits))
    if Origin.OTHER in found:
        return Reason.OTHER_SESSION
    return outside if Origin.IDLE in found else None


def _what(then: State, now: State) -> Do:
    match then.kind, now.kind:
        case Kind.DIRECTORY, Kind.DIRECTORY:
            return Do.MODE
        case Kind.DIRECTORY, _:
            return Do.MAKE_FOLDER
        case Kind.FILE, Kind.FILE if then.blob == now.blob:
            return Do.MODE
        case Kind.FILE, _:
            return Do.WRITE
        case _, Kind.DIRECTORY:
            return Do.REMOVE_FOLDER
    return Do.REMOVE


def _keep_what_is_in_the_way(
    actions: dict[bytes, Action], kept: dict[bytes, Reason], links: Collection[bytes], standing: Collection[bytes]
) -> None:
    """A file cannot come back where a directory holds something that stays, nor anything below a file that stays."""
    stays = {**kept, **dict.fromkeys(links, Reason.CHANGED_OUTSIDE_TURNS)}
    for path, action in sorted(actions.items()):
        if action.do in (Do.REMOVE, Do.REMOVE_FOLDER):
            continue
        inside = [stays[other] for other in stays if other.startswith(path + b"/")]
        above = [kept[parent] for parent in _parents(path) if parent in standing]
        in_the_way = above or (inside if action.do is Do.WRITE and action.now.kind is Kind.DIRECTORY else [])
        if in_the_way:
            kept[path] = in_the_way[0]
            del actions[path]


def _keep_folders_in_use(actions: dict[bytes, Action], kept: Mapping[bytes, Reason], links: Collection[bytes]) -> None:
    """A directory in which something stays, stays; that is no news of its own."""
    staying = set(kept) | set(links)
    in_use = {parent for path in staying for parent in _parents(path)}
    for path in [path for path, action in actions.items() if action.do is Do.REMOVE_FOLDER and path in in_use]:
        del actions[path]


def _parents(path: bytes) -> Iterable[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _in_order(actions: Iterable[Action]) -> list[Action]:
    """Folders first, from the top; then files; removals last, from the bottom."""
    rank = {Do.MAKE_FOLDER: 0, Do.WRITE: 1, Do.MODE: 2, Do.REMOVE: 3, Do.REMOVE_FOLDER: 4}
    making = sorted((a for a in actions if a.do is not Do.REMOVE_FOLDER), key=lambda a: (rank[a.do], a.path))
    folders = sorted((a for a in actions if a.do is Do.REMOVE_FOLDER), key=lambda a: a.path, reverse=True)
    return making + folders
