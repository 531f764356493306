"""What one agent's table (`policies/agents/*.toml`) says: each class mirrors a section, each field a key.

Everything here is data about the agent; what a table cannot say is code in the agent's own module. A section that an
agent has no use for is left out of its file. Fields of records are named by dotted paths (`message.content`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.policy.parse import parse_table
from sidecar.policy.tables import at_least


@dataclass(frozen=True, slots=True)
class StoreTable:
    """Where sessions lie; patterns are relative to the agent's home directory."""

    home: str  # `~` is the person's home directory
    transcripts: str
    session_id: str  # a regular expression for the whole id; a transcript is named after it
    session_sample: str  # completes a prefix to the form of an id
    head_lines: int = at_least(1)
    head_bytes: int = at_least(1)
    home_variable: str = ""
    private: tuple[str, ...] = ()  # further places that are the agent's own
    companion: str = ""  # a directory beside the transcript
    subagents: tuple[str, ...] = ()  # below the companion
    loose_subagents: tuple[str, ...] = ()  # beside the transcript
    history: str = ""  # directory of the agent's own backups


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The file that a running process keeps, and its fields."""

    files: str = ""
    pid: str = ""
    session: str = ""
    cwd: str = ""
    start: str = ""


@dataclass(frozen=True, slots=True)
class FieldTable:
    """Where a record has what."""

    type: str
    session: str
    id: str
    parent: str
    at: str
    cwd: str
    content: str
    sidechain: str = ""


@dataclass(frozen=True, slots=True)
class PromptTable:
    """Which records are a person's prompts."""

    type: str
    source: str = ""
    excluded_sources: tuple[str, ...] = ()
    origin: str = ""
    excluded_origins: tuple[str, ...] = ()
    never: tuple[str, ...] = ()  # flags
    anchors: tuple[str, ...] = ()  # prefixes of prompts whatever else the record says
    refused: tuple[str, ...] = ()  # prefixes, for records without a source
    context: tuple[str, ...] = ()  # prefixes of blocks that an editor puts before the text
    command: str = ""
    builtin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """Prompts sent while a turn ran, where they are records of another kind."""

    type: str = ""
    kind: str = ""
    name: str = ""
    prompt: str = ""
    alias: str = ""
    origin: str = ""
    origins: tuple[str, ...] = ()
    mode: str = ""
    modes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EditTable:
    """Which tool calls change a file that they name, and what their results say."""

    tools: Mapping[str, str]  # name or glob -> field of the input
    result: str = ""
    result_paths: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    kind: str = ""
    created: str = ""
    created_texts: tuple[str, ...] = ()
    updated: str = ""
    error: str = ""
    call: str = ""
    creators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnTable:
    """What ends a turn."""

    answer: str
    stop_reason: str = ""
    final: tuple[str, ...] = ()
    failure: str = ""
    system: str = ""
    subtype: str = ""
    ends: tuple[str, ...] = ()
    interruptions: tuple[str, ...] = ()
    denial: str = ""
    denials: tuple[str, ...] = ()
    denial_texts: tuple[str, ...] = ()
    denial_goes_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """Types of the records of the agent's own file history."""

    snapshot: str = ""
    delta: str = ""


@dataclass(frozen=True, slots=True)
class AgentTable:
    """`agents/<name>.toml`."""

    name: str
    title: str
    store: StoreTable
    fields: FieldTable
    prompt: PromptTable
    edit: EditTable
    turn: TurnTable
    records: tuple[str, ...] = ()
    live: LiveTable = field(default_factory=LiveTable)
    queued: QueuedTable = field(default_factory=QueuedTable)
    history: HistoryTable = field(default_factory=HistoryTable)


def parse_agent(table: Mapping[str, object], *, file: str) -> AgentTable:
    """Read a parsed table. Raises BadPolicy for an unknown key, a missing one or an ill type."""
    return parse_table(AgentTable, table, file=file)
