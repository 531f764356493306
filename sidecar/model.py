"""The words of this project as values: what was seen, what was kept, what an agent's transcript said.

Paths are bytes, `/`-separated, relative to the workspace; the root itself is `b""`. A path that begins with `/` is an
absolute one outside the workspace. Instants are UTC nanoseconds (see `sidecar.clock`); sizes are bytes; modes are the
permission bits alone (`st_mode & 0o7777`).
"""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a path is, or was."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"  # a symbolic link, or a file with more than one hard link: never stored, never followed
    ABSENT = "absent"
    UNKNOWN = "unknown"  # always with a reason


class Reason(StrEnum):
    """Why a path's state is unknown, or why a rewind left it alone (`kept.reason` of the command line)."""

    CHANGED_OUTSIDE_TURNS = "changed-outside-turns"
    CREATED_OUTSIDE_TURNS = "created-outside-turns"
    OTHER_SESSION = "other-session"
    UNKNOWN_THEN = "unknown-then"
    UNSTABLE = "unstable"
    TOO_LARGE = "too-large"
    IGNORED = "ignored"
    BLOB_MISSING = "blob-missing"
    CHANGED_SINCE_PLAN = "changed-since-plan"
    WRITE_FAILED = "write-failed"
    OUTSIDE_WORKSPACE = "outside-workspace"
    UNSTORABLE = "unstorable"  # unreadable, a device, a socket, no space for its bytes


class Origin(StrEnum):
    """Who made a change, computed from its instant and the turns."""

    TOOL = "tool"  # a tool call of the session names the path
    TURN = "turn"  # inside one of the session's turns
    IDLE = "idle"  # outside every turn
    OTHER = "other-session"
    REWIND = "rewind"
    BEFORE = "before"  # no later than the target: a rewind brought the old state back


class CheckpointKind(StrEnum):
    """Why an instant is remembered."""

    MESSAGE = "message"
    IMPORTED = "imported"
    MARK = "mark"
    BASELINE = "baseline"
    BEFORE_REWIND = "before-rewind"


@dataclass(frozen=True, slots=True)
class Stat:
    """What lstat said of one path."""

    kind: Kind  # FILE, DIRECTORY, LINK (symbolic only) or UNKNOWN (a device, socket or FIFO)
    mode: int
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    links: int
    uid: int
    gid: int

    def same_file_state(self, other: "Stat") -> bool:
        """Tell whether nothing that a change of bytes, mode or identity must touch differs."""
        return (
            self.kind,
            self.mode,
            self.device,
            self.inode,
            self.size_bytes,
            self.mtime_ns,
            self.ctime_ns,
            self.links,
        ) == (
            other.kind,
            other.mode,
            other.device,
            other.inode,
            other.size_bytes,
            other.mtime_ns,
            other.ctime_ns,
            other.links,
        )


@dataclass(frozen=True, slots=True)
class State:
    """What a path was over an interval. Equal states are no change."""

    kind: Kind
    blob: int | None = None  # the store's number of a content; files only
    size_bytes: int = 0
    mode: int = 0
    reason: Reason | None = None  # UNKNOWN only


ABSENT = State(Kind.ABSENT)


@dataclass(frozen=True, slots=True)
class Row:
    """A stretch of a path's timeline: [from_at, to_at), to_at None while it holds."""

    state: State
    from_at: int
    to_at: int | None
    changed_lo: int  # the earliest and
    changed_at: int  # the latest instant at which the change that began it was made

    @property
    def ends_knowledge(self) -> bool:
        """Tell whether it begins with no change, but because nobody looks at the path any more."""
        return self.state.reason is Reason.UNKNOWN_THEN and self.changed_at == 0


def unknown(reason: Reason) -> State:
    """Make the state of a path about which we cannot say what it was."""
    return State(Kind.UNKNOWN, reason=reason)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A prompt that a person sent, as its transcript tells it."""

    session: str
    uuid: str
    at: int | None  # the record's own time; None where it has none that can be read
    parent: str | None
    offset: int  # of the record in its transcript, bytes
    prompt: str  # first line, at most 200 characters
    alias: str | None = None  # a second id that the agent's client knows it by
    queued: bool = False  # sent while a turn ran: holds for the instant it was written, not for `at`


@dataclass(frozen=True, slots=True)
class ToolEdit:
    """A tool call that named a file to change, and succeeded as far as the transcript says."""

    session: str
    path: bytes  # absolute
    at: int | None  # when its result was written
    message: str | None  # the uuid of the record that made the call
    original: str | None = None  # the text before, where the agent kept it and it is valid text
    created: bool = False  # the agent says that the file was new


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The agent said that it had finished, or was stopped."""

    session: str
    at: int | None
    offset: int | None = None  # of the record in its transcript, bytes; None: no record says so


@dataclass(frozen=True, slots=True)
class Activity:
    """Any other dated record of the session: it still lives."""

    session: str
    at: int | None
    working: bool = False  # the agent itself goes on: where it had finished, something woke it


@dataclass(frozen=True, slots=True)
class Backup:
    """One file in the agent's own history: the bytes it kept, or that there was no file."""

    path: bytes  # as the record spells it: relative to the session's workspace, or absolute
    file_name: str | None  # None: the file did not exist
    version: int
    backup_at: int | None
    real_parent: bytes | None  # the resolved directory, where the record has it


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """What the agent's own history says of one message's files, whole or in part.

    A whole record lists every path known so far; a partial one (a delta) adds paths first touched later.
    """

    session: str
    message: str  # the user message whose state it is
    backups: tuple[Backup, ...]
    at: int | None
    partial: bool
    by: str | None = None  # of a partial one: the uuid of the record whose tool call first touched the paths


Event = UserMessage | ToolEdit | TurnEnd | Activity | HistoryRecord


@dataclass(frozen=True, slots=True)
class SessionFound:
    """A session of some agent, as found on disk."""

    session: str
    agent: str
    transcript: str  # absolute path; may not exist yet for a process that has written nothing
    workspace: str | None  # the cwd it started in; None where no record has said so yet
    companions: tuple[str, ...]  # directories whose transcripts belong to it (subagents)
    pid: int | None  # of the agent's live process, where the agent tells it
    history: str | None  # directory of the agent's own backups, where it keeps any


@dataclass(frozen=True, slots=True)
class Turn:
    """The agent's work on one message: [start, end]; `end` None while it runs."""

    session: str
    start: int
    end: int | None
    message: str | None = None  # the one that it began with


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A remembered instant of one session."""

    session: str
    message: str
    at: int
    kind: CheckpointKind
    prompt: str
    parent: str | None
    pin: str | None
    files: int  # paths that changed since the checkpoint before
    unstable: int  # paths whose state at this instant is not sure
    timeline: bool  # the workspace's timeline answers for this instant; else only imported paths do
