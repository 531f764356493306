"""The ground that `tests.builders.claude` stands on: appending records, and the agent's own file history."""

import contextlib
import hashlib
import json
import os
import stat
import time
import uuid as uuids
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Json = dict[str, Any]

VERSION = "2.1.235"
PROJECT_NAME_LIMIT = 200


def new_uuid() -> str:
    """Make a random message or session id."""
    return str(uuids.uuid4())


def iso(at: int) -> str:
    """Write UTC nanoseconds as the agent does: milliseconds, cut, and `Z`."""
    seconds, rest = divmod(at, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1_000_000:03d}Z"


def slug_of(cwd: str) -> str:
    """Name the projects folder of a directory (observed rule; lossy)."""
    units = cwd.encode("utf-16-be", "surrogatepass")
    codes = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    text = "".join(chr(c) if c < 128 and chr(c).isalnum() else "-" for c in codes)
    if len(text) <= PROJECT_NAME_LIMIT:
        return text
    value = 0
    for code in codes:
        value = (value * 31 + code) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while True:
        value, rest = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
        if not value:
            return f"{text[:PROJECT_NAME_LIMIT]}-{digits}"


def backup_name(absolute: str, version: int) -> str:
    """Name the backup of a file in the agent's own history."""
    return f"{hashlib.sha256(os.fsencode(absolute)).hexdigest()[:16]}@v{version}"


def agent_write(path: Path, content: bytes) -> None:
    """Write a file as the agent's tools do: a temporary neighbour, then a rename, the mode kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}.{uuids.uuid4().hex[:12]}")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    temporary.write_bytes(content)
    if mode is not None:
        temporary.chmod(mode)
    os.replace(temporary, path)


def original_text(content: bytes | None) -> str | None:
    """Give a file's text as a tool result shows it: CRLF made LF, bad bytes replaced."""
    return None if content is None else content.decode("utf-8", "replace").replace("\r\n", "\n")


@dataclass
class Tracked:
    """What the agent's history knows of one file."""

    file_name: str | None
    version: int
    backup_at: int
    real_parent: str
    content: bytes | None
    mode: int

    def entry(self) -> Json:
        return {
            "backupFileName": self.file_name,
            "version": self.version,
            "backupTime": iso(self.backup_at),
            "realParentDir": self.real_parent,
        }


class Home(Protocol):
    """A configuration directory, as its sessions see it."""

    @property
    def root(self) -> Path: ...

    def now(self) -> int: ...


@dataclass
class ClaudeTranscript:
    """One transcript file and the file history that goes with it."""

    home: Home
    cwd: str
    session: str
    entrypoint: str = "cli"
    history: bool = True  # print mode keeps none unless asked
    leaf: str | None = None
    message: str | None = None  # the newest prompt that has a snapshot
    prompt_id: str = ""
    tracked: dict[str, Tracked] = field(default_factory=dict)
    snapshots: dict[str, Json] = field(default_factory=dict)  # message -> the snapshot as it stands, deltas folded in
    agent_id: str | None = None
    file: Path | None = None
    _held: list[bytes] | None = None

    def __post_init__(self) -> None:
        # A session that is resumed in another directory (set `cwd`) goes on in its first one's folder.
        self.folder = self.home.root / "projects" / slug_of(os.path.realpath(self.cwd))

    @property
    def transcript(self) -> Path:
        """Where the records go."""
        return self.file or self.folder / f"{self.session}.jsonl"

    @property
    def companion(self) -> Path:
        """The directory of subagents and large tool results."""
        return self.folder / self.session

    @property
    def file_history(self) -> Path:
        """The directory of the agent's own backups of this session."""
        return self.home.root / "file-history" / self.session

    def append_bytes(self, data: bytes) -> None:
        """Append bytes as they are (a torn line, garbage), in one write."""
        if self._held is not None:
            self._held.append(data)
            return
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.transcript, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, data)
        finally:
            os.close(handle)

    def append(self, *records: Json) -> None:
        """Append records as lines, in one write."""
        lines = [json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in records]
        self.append_bytes("".join(lines).encode("utf-8", "surrogatepass"))

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Hold what is appended inside back, and write it at once, as a flush does."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            self.append_bytes(b"".join(held))

    def node(
        self, kind: str, body: Json, *, uuid: str | None = None, parent: str | None = "", at: int | None = None
    ) -> Json:
        """Make a record of the graph that hangs on the leaf (or on `parent`), and move the leaf to it."""
        record: Json = {
            "parentUuid": self.leaf if parent == "" else parent,
            "isSidechain": self.agent_id is not None,
            **({"agentId": self.agent_id} if self.agent_id else {}),
            "type": kind,
            **body,
            "uuid": uuid or new_uuid(),
            "timestamp": iso(self.home.now() if at is None else at),
            "userType": "external",
            "entrypoint": self.entrypoint,
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": VERSION,
            "gitBranch": "HEAD",
        }
        self.leaf = record["uuid"]
        return record

    def _snapshot(self, message: str, at: int | None = None) -> list[Json]:
        if not self.history:
            return []
        self.message = message
        moment = self.home.now() if at is None else at
        for path, known in list(self.tracked.items()):
            content, mode = self._look(path)
            # A missing file gets a new version at every prompt, as observed.
            if content is None or (content, mode) != (known.content, known.mode):
                self.tracked[path] = self._backup(path, known.version + 1, moment)
        inner: Json = {
            "messageId": message,
            "trackedFileBackups": {self._spell(path): known.entry() for path, known in self.tracked.items()},
            "timestamp": iso(moment),
        }
        record = {"type": "file-history-snapshot", "messageId": message, "snapshot": inner, "isSnapshotUpdate": False}
        self.snapshots[message] = record
        return [json.loads(json.dumps(record))]

    def _track(self, path: str, call: str, at: int | None) -> None:
        if not self.history or self.message is None or path in self.tracked:
            return
        moment = self.home.now() if at is None else at
        known = self.tracked[path] = self._backup(path, 1, moment)
        self.snapshots[self.message]["snapshot"]["trackedFileBackups"][self._spell(path)] = known.entry()
        self.append(
            {
                "type": "file-history-delta",
                "messageId": call,
                "snapshotMessageId": self.message,
                "trackingPath": self._spell(path),
                "backup": known.entry(),
                "timestamp": iso(moment),
            }
        )

    def _backup(self, path: str, version: int, moment: int) -> Tracked:
        content, mode = self._look(path)
        parent = os.path.realpath(os.path.dirname(path))
        if content is None:
            return Tracked(None, version, moment, parent, None, 0)
        name = backup_name(path, version)
        self.file_history.mkdir(parents=True, exist_ok=True)
        target = self.file_history / name
        target.unlink(missing_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
        return Tracked(name, version, moment, parent, content, mode)

    def _look(self, path: str) -> tuple[bytes | None, int]:
        try:
            return Path(path).read_bytes(), stat.S_IMODE(os.stat(path).st_mode)
        except OSError:
            return None, 0

    def _spell(self, path: str) -> str:
        inside = os.path.relpath(path, self.cwd)
        return path if inside.startswith("..") else inside

    def reemit(self) -> None:
        """Write every snapshot again as a fresh record, deltas folded in, as some resumes do."""
        self.append(*self.snapshots.values())
