"""Records to events, as a table says. No I/O; the only state is what must be paired.

Rules: a record of another session is set apart and counted; a record seen twice (same id) speaks once; a tool call
changed a file only when its result says so; whatever is not understood but has a time is a sign of life. Nothing here
raises, whatever a record holds.
"""

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from sidecar.agents.fields import absolute, at_path, blocks_of, first_line, id_at, starts, text_at
from sidecar.agents.table import AgentTable
from sidecar.clock import parse_iso
from sidecar.model import Activity, Event, HistoryRecord, ToolEdit, TurnEnd, UserMessage
from sidecar.transcript.lines import Record

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that the agent could not read


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call that names a file, until its result comes."""

    tool: str
    path: str | None
    record: str | None


class Reader:
    """Turns the records of one session into events; one for all of its transcripts, so that calls find their results.

    A transcript that is read again from its start may be given to the same reader: what it knows speaks only once
    (history records, which have no id, speak again and say the same).
    """

    def __init__(self, table: AgentTable, session: str, *, prompt_characters: int) -> None:
        self.table = table
        self.session = session
        self.foreign = 0  # records of other sessions
        self.unknown: Counter[str] = Counter()  # types that the table does not know
        self.cwds: list[str] = []  # every working directory, in the order they came up
        self._prompt_characters = prompt_characters
        self._seen: set[str] = set()
        self._calls: dict[str, _Call] = {}

    def events(self, record: Record, *, subagent: bool = False) -> list[Event]:
        """Give what a record means. `subagent`: it stands in a subagent's own file, where nobody types."""
        value, fields = record.value, self.table.fields
        if self._is_foreign(value):
            self.foreign += 1
            return []
        kind = text_at(value, fields.type) or ""
        if kind not in self.table.records:
            self.unknown[kind] += 1
        history = self.history(value, kind)
        if history is not None:
            return [history]
        uuid = id_at(value, fields.id)
        if uuid is not None:
            if uuid in self._seen:
                return []
            self._seen.add(uuid)
        cwd = text_at(value, fields.cwd)
        if cwd is not None and cwd not in self.cwds:
            self.cwds.append(cwd)
        aside = subagent or bool(at_path(value, fields.sidechain))
        at = parse_iso(at_path(value, fields.at))
        found: list[Event] = []
        if not aside:
            message = self.user_message(record, kind, at)
            if message is not None:
                found.append(message)
        found += self.tool_edits(value, kind, at)
        if not aside and self.ends_turn(value, kind):
            found.append(TurnEnd(self.session, at, record.offset))
        if not found and at is not None:
            found.append(Activity(self.session, at, working=not aside and kind == self.table.turn.answer))
        return found

    def _is_foreign(self, value: dict[str, Any]) -> bool:
        named = text_at(value, self.table.fields.session)
        return named is not None and named != self.session

    # What a person sent ---------------------------------------------------------------------------------------------

    def user_message(self, record: Record, kind: str, at: int | None) -> UserMessage | None:
        """Give the user message that a record of the main thread is, if it is one."""
        value, fields, queued = record.value, self.table.fields, self.table.queued
        uuid = id_at(value, fields.id)
        if uuid is None:
            return None
        parent = id_at(value, fields.parent)
        if kind == queued.type and text_at(value, queued.kind) == queued.name and self._is_queued_prompt(value):
            prompt = self.shown(at_path(value, queued.prompt))
            alias = id_at(value, queued.alias)
            return UserMessage(self.session, uuid, at, parent, record.offset, prompt, alias=alias, queued=True)
        if kind == self.table.prompt.type and self.is_prompt(value):
            prompt = self.shown(at_path(value, fields.content))
            return UserMessage(self.session, uuid, at, parent, record.offset, prompt)
        return None

    def is_prompt(self, value: dict[str, Any]) -> bool:
        """Tell whether a record of the prompts' type is one that a person sent."""
        table = self.table.prompt
        content = at_path(value, self.table.fields.content)
        blocks = blocks_of(content)
        if any(at_path(value, flag) for flag in table.never) or not content:
            return False
        if any(block.get("type") == "tool_result" for block in blocks):
            return False
        if text_at(value, table.origin) in table.excluded_origins:
            return False
        source = at_path(value, table.source)
        if source is not None:
            return source not in table.excluded_sources
        return self._reads_as_prompt(blocks)

    def _is_queued_prompt(self, value: dict[str, Any]) -> bool:
        table = self.table.queued
        content = at_path(value, table.prompt)
        if not content:
            return False
        origin = text_at(value, table.origin)
        if origin is not None:
            return origin in table.origins
        return text_at(value, table.mode) in table.modes and self._reads_as_prompt(blocks_of(content))

    def _reads_as_prompt(self, blocks: list[dict[str, Any]]) -> bool:
        """Judge by the text alone, as older records need it."""
        table = self.table.prompt
        text = _own_text(blocks, table.context)
        if text is None:  # no text of its own: an image or a document is a prompt, an editor's note is not
            return any(block.get("type") not in ("text", None) for block in blocks)
        if starts(text, table.anchors):
            return True
        if table.command and starts(text, (table.command,)):
            name = text.lstrip()[len(table.command) :].partition("<")[0].strip().lstrip("/")
            return bool(name) and name not in table.builtin
        return not starts(text, table.refused)

    def shown(self, content: object) -> str:
        """Give the first line of a prompt, as it is shown."""
        blocks = blocks_of(content)
        text = _own_text(blocks, self.table.prompt.context)
        if text is None:
            kinds = [
                block["type"] for block in blocks if isinstance(block.get("type"), str) and block["type"] != "text"
            ]
            text = f"[{kinds[0]}]" if kinds else _own_text(blocks, ()) or ""
        return first_line(self.spelled(text), self._prompt_characters)

    def spelled(self, text: str) -> str:
        """Give a prompt as the person spelled it; an agent may wrap commands up."""
        return text

    # What the agent did ---------------------------------------------------------------------------------------------

    def tool_edits(self, value: dict[str, Any], kind: str, at: int | None) -> list[Event]:
        """Remember the calls that a record makes; give the edits whose results it brings."""
        found: list[Event] = []
        for block in blocks_of(at_path(value, self.table.fields.content)):
            if block.get("type") == "tool_use" and kind == self.table.turn.answer:
                self._remember(value, block)
            elif block.get("type") == "tool_result":
                edit = self._edit(value, block, at)
                if edit is not None:
                    found.append(edit)
        return found

    def _remember(self, value: dict[str, Any], block: dict[str, Any]) -> None:
        call, tool = id_at(block, "id"), text_at(block, "name")
        if call is None or tool is None:
            return
        path = text_at(block, f"input.{name}") if (name := self._path_field(tool)) else None
        self._calls[call] = _Call(tool, path, id_at(value, self.table.fields.id))

    def _path_field(self, tool: str) -> str | None:
        tools = self.table.edit.tools
        return tools.get(tool) or next((name for glob, name in tools.items() if fnmatchcase(tool, glob)), None)

    def _edit(self, value: dict[str, Any], block: dict[str, Any], at: int | None) -> ToolEdit | None:
        table = self.table.edit
        call = self._calls.pop(id_at(block, "tool_use_id") or "", None)
        result = at_path(value, table.result)
        details: dict[str, Any] = result if isinstance(result, dict) else {}
        if block.get("is_error") or details.get(table.error):
            return None
        if call is None:  # made before we began to read
            if not any(mark in details for mark in table.marks):
                return None
            call = _Call("", None, id_at(value, table.call))
        elif self._path_field(call.tool) is None:
            return None
        told = next((details[name] for name in table.result_paths if isinstance(details.get(name), str)), call.path)
        path = absolute(told, at_path(value, self.table.fields.cwd))
        if path is None:
            return None
        texts = [details[name] for name in table.originals if name in details]
        created = self._is_new_file(call.tool, details, texts, block.get("content"))
        original = next((text for text in texts if isinstance(text, str)), None)
        if created or (original is not None and REPLACEMENT in original):
            original = None
        return ToolEdit(self.session, path, at, call.record, original=original, created=created)

    def _is_new_file(self, tool: str, details: dict[str, Any], originals: list[Any], answer: object) -> bool:
        table = self.table.edit
        if not any(fnmatchcase(tool, glob) for glob in table.creators):
            return details.get(table.kind) == table.created
        if not details:
            return isinstance(answer, str) and answer.startswith(table.created_texts)
        # A big file has no original either; then the result says that it was updated.
        return details.get(table.kind) == table.created or (
            originals == [None] and details.get(table.kind) != table.updated
        )

    def ends_turn(self, value: dict[str, Any], kind: str) -> bool:
        """Tell whether a record of the main thread says that the agent finished or was stopped."""
        table = self.table.turn
        if kind == table.answer:
            return text_at(value, table.stop_reason) in table.final or bool(at_path(value, table.failure))
        if kind == table.system:
            return text_at(value, table.subtype) in table.ends
        if kind != self.table.prompt.type or self.is_prompt(value):
            return False
        blocks = blocks_of(at_path(value, self.table.fields.content))
        texts = [
            text for block in blocks for text in (block.get("text"), block.get("content")) if isinstance(text, str)
        ]
        result = at_path(value, self.table.edit.result)
        if text_at(value, table.denial) in table.denials or (
            isinstance(result, str) and result.startswith(table.denial_texts)
        ):
            return not any(phrase in text for text in texts for phrase in table.denial_goes_on)
        own = [text for block in blocks if isinstance(text := block.get("text"), str)]
        return any(starts(text, table.interruptions) for text in own)

    # The agent's own file history -----------------------------------------------------------------------------------

    def history(self, value: dict[str, Any], kind: str) -> HistoryRecord | None:  # noqa: ARG002 - most agents keep none
        """Give what a record says of the agent's own backups; most agents keep none."""
        return None


def _own_text(blocks: list[dict[str, Any]], context: tuple[str, ...]) -> str | None:
    """Give the first text that is not blank and not an editor's note."""
    texts = (block.get("text") for block in blocks if block.get("type") == "text")
    own = (text for text in texts if isinstance(text, str) and text.strip())
    return next((text for text in own if not starts(text, context)), None)
