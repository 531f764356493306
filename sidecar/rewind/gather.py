"""What a rewind has to decide about: the paths that changed since, as the store and the disk see them now."""

import os
from collections.abc import Callable, Iterable, Iterator

from sidecar.fs.beneath import Blocked
from sidecar.fs.places import Places
from sidecar.model import ABSENT, Checkpoint, Kind, Reason, Row, Stat, State, unknown
from sidecar.rewind.apply import FOLDER_MODE
from sidecar.rewind.plan import Candidate, Never
from sidecar.store.outage import unwatched_since, was_perhaps_there
from sidecar.store.workspace import Workspace

_UNSURE = (Reason.UNSTABLE, Reason.UNKNOWN_THEN)


class Gatherer:
    """Reads the store and looks at the paths; changes nothing."""

    def __init__(
        self, workspace: Workspace, places: Places, ignored: Callable[[bytes, bool], bool], never: Never
    ) -> None:
        self.workspace = workspace
        self.places = places
        self.ignored = ignored
        self.never = never

    def candidates(self, checkpoint: Checkpoint) -> list[Candidate]:
        """Give every path that may differ from what it was at a checkpoint."""
        told = {i.path: i for i in self.workspace.instants.imported(checkpoint.session, checkpoint.message)}
        found: dict[bytes, Candidate] = {}
        if checkpoint.timeline:
            unwatched = unwatched_since(self.workspace, checkpoint)
            for change in self.workspace.ledger.changed_after(checkpoint.at):
                then = None if was_perhaps_there(change.then, unwatched) else change.then
                found[change.path] = self._candidate(change.path, then.state if then else None, then, change.now)
        for path, imported in told.items():
            mine = found.get(path)
            if checkpoint.timeline and (mine is None or not _unsure(mine.then)):
                continue  # the agent's own backup never replaces what is sure
            known = self.workspace.ledger.known(path)
            row = None if known is None else known.row
            moved = imported.parent is not None and imported.parent != self._parent(checkpoint.session, path)
            found[path] = self._candidate(path, imported.state, None, row, linked=moved)
        for candidate in self._implied([path for path in told if path in found], found):
            found[candidate.path] = candidate
        if not checkpoint.timeline:
            for candidate in self._emptied(checkpoint, found):
                found[candidate.path] = candidate
        return [found[path] for path in sorted(found) if not self.never(path, found[path].now.kind is Kind.DIRECTORY)]

    def links(self, checkpoint: Checkpoint) -> set[bytes]:
        """Give links that something happened to since: they have no versions, and are to be told of all the same.

        Also what the session's tool calls named and reached through a link.
        """
        found = self.workspace.ledger.links_since(checkpoint.at) if checkpoint.timeline else set()
        for path, edits in self.workspace.turns.edits().items():
            mine = any(who == checkpoint.session and at > checkpoint.at for who, at in edits)
            if mine and not path.startswith(b"/") and self._is_linked(*self._look(path)):
                found.add(path)
        return found

    def _candidate(
        self, path: bytes, then: State | None, then_row: Row | None, now_row: Row | None, *, linked: bool = False
    ) -> Candidate:
        stat, blocked = self._look(path)
        now = now_row.state if now_row is not None else (ABSENT if stat is None else unknown(Reason.UNSTORABLE))
        if blocked == "mount":
            now = unknown(Reason.OUTSIDE_WORKSPACE)
        linked = linked or self._is_linked(stat, blocked)
        return Candidate(
            path,
            then,
            now,
            then_row,
            now_row,
            linked=linked,
            ignored=self.ignored(path, stat is not None and stat.kind is Kind.DIRECTORY),
            missing=then is not None
            and then.kind is Kind.FILE
            and then != now
            and not self.workspace.blobs.is_whole(then.blob or 0),
            guards=now.kind is Kind.DIRECTORY and then != now and self._guards(path),
        )

    def _guards(self, folder: bytes) -> bool:
        """Tell whether something lies in a directory that is never captured, so that no undo could bring it back."""
        try:
            root, below = self.places.of(folder)
            entries = root.list(below)
        except (OSError, Blocked):
            return False  # what is wrong with it is said by whoever tries
        return any(self.never(folder + b"/" + name, stat.kind is Kind.DIRECTORY) for name, stat in entries)

    def _is_linked(self, stat: Stat | None, blocked: str | None) -> bool:
        return blocked == "link" or (stat is not None and (stat.kind is Kind.LINK or _many_names(stat)))

    def _look(self, path: bytes) -> tuple[Stat | None, str | None]:
        try:
            root, below = self.places.of(path)
            return root.stat(below), None
        except Blocked as blocked:
            return None, blocked.why
        except FileNotFoundError:
            return None, None

    def _parent(self, session: str, path: bytes) -> bytes:
        """Give the directory that the agent would call a path's, were no link on the way."""
        row = self.workspace.instants.session(session)
        base = os.fsencode(row.cwd) if row is not None else b""
        return os.path.dirname(path if path.startswith(b"/") else base + b"/" + path)

    def _implied(self, told: Iterable[bytes], found: dict[bytes, Candidate]) -> Iterator[Candidate]:
        """Find what stands where a directory must have been, since a file in it is known only from an import."""
        files = [path for path in told if (then := found[path].then) is not None and then.kind is Kind.FILE]
        for folder in sorted(_parents_of(files)):
            known = self.workspace.ledger.known(folder)
            mine = found.get(folder)
            if known is None or known.state.kind in (Kind.DIRECTORY, Kind.ABSENT) or (mine and not _unsure(mine.then)):
                continue
            if known.state.reason is Reason.UNKNOWN_THEN:  # whoever carries it out sees what stands there
                continue
            then = State(Kind.DIRECTORY, mode=FOLDER_MODE)
            yield self._candidate(folder, then, None, known.row)

    def _emptied(self, checkpoint: Checkpoint, found: dict[bytes, Candidate]) -> Iterator[Candidate]:
        """Find the directories that removing the imported files empties, unless they are known to have been there."""
        removed = {path for path, candidate in found.items() if candidate.then == ABSENT and candidate.now != ABSENT}
        for folder in sorted(_parents_of(removed), key=len, reverse=True):
            known = self.workspace.ledger.known(folder)
            then = self.workspace.ledger.state_at(folder, checkpoint.at)
            if known is None or known.state.kind is not Kind.DIRECTORY or (then and then.kind is Kind.DIRECTORY):
                continue
            if set(self.workspace.ledger.known_below(folder)) <= removed:
                removed.add(folder)
                yield Candidate(folder, ABSENT, known.state, None, known.row)


def _unsure(state: State | None) -> bool:
    return state is None or (state.kind is Kind.UNKNOWN and state.reason in _UNSURE)


def _many_names(stat: Stat) -> bool:
    return stat.kind is Kind.FILE and stat.links > 1


def _parents_of(paths: Iterable[bytes]) -> set[bytes]:
    parents: set[bytes] = set()
    for path in paths:
        parts = path.split(b"/")
        if parts[0]:  # outside the workspace no directory is removed
            parents.update(b"/".join(parts[:depth]) for depth in range(1, len(parts)))
    return parents
