"""Fold the agent's own file history into what it says of each user message (SPEC A6). Pure.

Rules, as observed of Claude Code (snapshots, updates and deltas, in the order of the transcript):

* A message's state is its snapshot; a second one of the same message replaces entries, and what it lacks stays; an
  update or a delta only adds paths.
* A path that the state does not name takes the first entry that a later message has for it, if that is version 1: the
  file as it was when a tool first touched it. A later version means that the first was lost: the path is unknown.
* Names of backups are used again after a compaction, with other bytes. So a backup is trusted for a state only where
  nobody claimed its name later with another time. Where the claims contradict each other, none is trusted.
* With the session's tool edits at hand, a first touch is also not trusted for messages before an edit that the history
  did not see (a subagent's, or one whose record was lost).
"""

import hashlib
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sidecar.model import Backup, HistoryRecord, ToolEdit

HASH_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """What the agent's history says of one path at one message."""

    path: bytes  # relative to the session's workspace, or absolute where it lies outside
    file_name: str | None  # of the backup; None: the file did not exist
    version: int
    backup_at: int | None
    real_parent: bytes | None  # the resolved directory at that time, where the record has it
    trusted: bool  # False: the bytes under that name are another version's, or nobody can say (`blob-missing`)
    expected_text: str | None = None  # what the agent's tool read when it made the backup; see `matches_text`
    later: bool = False  # told by a later message: the path was first touched after this one


@dataclass(frozen=True, slots=True)
class ImportedState:
    """What the agent's history says of one user message's files; nothing about any other path."""

    session: str
    message: str
    at: int | None  # of the snapshot
    files: tuple[ImportedFile, ...]  # by path


def fold_history(
    records: Iterable[HistoryRecord], *, cwds: Sequence[str], edits: Sequence[ToolEdit] = ()
) -> dict[str, ImportedState]:
    """Give the state of each message that the records name, in the order in which they first name it.

    `records` of one session, in the transcript's order; `cwds` the session's working directories, the first one its
    workspace; `edits` the tool edits of all of its transcripts, for the checks that need them.
    """
    fold = _Fold(cwds, edits)
    for index, record in enumerate(records):
        fold.add(index, record)
    return fold.states()


def matches_text(content: bytes, expected: str | None) -> bool:
    """Tell whether a backup can be the text that a tool read: line ends and byte order mark aside, the same."""
    if expected is None:
        return True
    encodings = ("utf-16", "utf-8") if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8",)
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return _plain(text) == _plain(expected)
    return False


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


@dataclass(slots=True)
class _State:
    """A message's state while it is folded."""

    session: str
    at: int | None
    files: dict[bytes, Backup]


class _Fold:
    def __init__(self, cwds: Sequence[str], edits: Sequence[ToolEdit]) -> None:
        self._cwds = [cwd.encode("utf-8", "surrogateescape").rstrip(b"/") or b"/" for cwd in cwds]
        self._messages: dict[str, _State] = {}
        self._claims: dict[str, dict[int | None, int]] = {}  # name -> time of the backup -> the first record to say so
        self._makers: dict[tuple[str, int | None], tuple[str, bytes]] = {}  # backup -> (call, path) that made it
        self._places: dict[tuple[bytes, str, bytes | None], bytes] = {}
        self._edits: dict[bytes, list[int]] = {}
        self._originals: dict[tuple[str, bytes], str] = {}
        for edit in edits:
            path = self._inside(edit.path)
            if edit.at is not None:
                self._edits.setdefault(path, []).append(edit.at)
            if edit.message is not None and edit.original is not None:
                self._originals[edit.message, path] = edit.original

    def add(self, index: int, record: HistoryRecord) -> None:
        """Take one record in."""
        state = self._messages.setdefault(record.message, _State(record.session, None, {}))
        if not record.partial or state.at is None:
            state.at = record.at
        for backup in record.backups:
            path = self.place(backup)
            if path.startswith(b"../"):  # from a directory that nobody names
                continue
            if record.partial:
                state.files.setdefault(path, backup)
            else:
                state.files[path] = backup
            if backup.file_name is not None:
                self._claims.setdefault(backup.file_name, {}).setdefault(backup.backup_at, index)
                if record.by is not None:
                    self._makers.setdefault((backup.file_name, backup.backup_at), (record.by, path))

    def place(self, backup: Backup) -> bytes:
        """Give a backup's path relative to the workspace, or absolute.

        A session that was resumed in another directory spells its paths from there; the backup's name, a hash of the
        absolute path, tells from which, or the resolved parent where there is no backup.
        """
        if backup.path.startswith(b"/") or not self._cwds:
            return self._inside(posixpath.normpath(backup.path))
        sign = (backup.file_name or "").partition("@")[0]
        key = (backup.path, sign, backup.real_parent)
        if key not in self._places:
            self._places[key] = self._inside(self._absolute(backup.path, sign, backup.real_parent))
        return self._places[key]

    def _absolute(self, path: bytes, sign: str, real_parent: bytes | None) -> bytes:
        joined = [posixpath.normpath(posixpath.join(cwd, path)) for cwd in self._cwds]
        for cwd, normal in zip(self._cwds, joined, strict=True):
            # The hash is of the path as the tool spelled it, which need not be its shortest form.
            if sign in (_hash(normal), _hash(posixpath.join(cwd, path))):
                return normal
            if not sign and real_parent == posixpath.dirname(normal):
                return normal
        return joined[0]

    def _inside(self, path: bytes) -> bytes:
        workspace = self._cwds[0] if self._cwds else b""
        if workspace and path.startswith(workspace.rstrip(b"/") + b"/"):
            return path[len(workspace.rstrip(b"/")) + 1 :]
        return path

    def states(self) -> dict[str, ImportedState]:
        """Work out every message's state, from the last to the first."""
        trusted = {name: at for name, claims in self._claims.items() for at in _standing(claims)}
        first: dict[bytes, Backup] = {}  # each path's first entry in the messages behind
        found: dict[str, ImportedState] = {}
        for message, state in reversed(self._messages.items()):
            files = [self._file(path, backup, state, trusted, later=False) for path, backup in state.files.items()]
            files += [
                self._file(path, backup, state, trusted, later=True)
                for path, backup in first.items()
                if path not in state.files and backup.version == 1
            ]
            files.sort(key=lambda file: file.path)
            found[message] = ImportedState(state.session, message, state.at, tuple(files))
            first.update(state.files)
        return dict(reversed(found.items()))

    def _file(
        self, path: bytes, backup: Backup, state: _State, trusted: dict[str, int | None], *, later: bool
    ) -> ImportedFile:
        name = backup.file_name
        sure = not (later and self._edited_before(path, state.at, backup.backup_at))
        expected = None
        if name is not None:
            number = name.rpartition("@v")[2]
            standing = name in trusted and trusted[name] == backup.backup_at
            sure = sure and standing and number == str(backup.version)
            maker = self._makers.get((name, backup.backup_at))
            expected = self._originals.get(maker) if maker else None
        return ImportedFile(path, name, backup.version, backup.backup_at, backup.real_parent, sure, expected, later)

    def _edited_before(self, path: bytes, since: int | None, until: int | None) -> bool:
        """Tell whether a tool edited a path in between; unknown times prove nothing."""
        if since is None or until is None:
            return False
        return any(since <= at < until for at in self._edits.get(path, ()))


def _standing(claims: dict[int | None, int]) -> list[int | None]:
    """Give the time of the backup that a name stands for now; none where the claims contradict each other."""
    if len(claims) == 1:
        return list(claims)
    known = [at for at in claims if at is not None]
    newest = max(known, default=None)
    return [newest] if len(known) == len(claims) and claims[newest] == max(claims.values()) else []


def _hash(path: bytes) -> str:
    return hashlib.sha256(path).hexdigest()[:HASH_CHARACTERS]
