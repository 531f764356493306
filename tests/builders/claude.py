"""Write Claude Code configuration directories as the program itself does: record by record, with its field shapes.

    home = ClaudeHome(tmp_path / "claude")
    session = home.session(tmp_path / "project")
    first = session.prompt("make it blue")
    session.edit("style.css", b"a { color: blue }\\n")
    session.say("done")

Files are really changed (temporary name, then rename, as the agent's tools do), backups are really kept, and records
are appended in one write a batch. Times come from `home.now` (UTC nanoseconds; the machine's clock unless told).
"""

import contextlib
import json
import os
import time
import uuid as uuids
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders.claude_records import (
    VERSION,
    ClaudeTranscript,
    Json,
    agent_write,
    backup_name,
    iso,
    new_uuid,
    original_text,
    slug_of,
)

__all__ = ["VERSION", "ClaudeHome", "ClaudeSession", "agent_write", "backup_name", "iso", "new_uuid", "slug_of"]


@dataclass
class ClaudeHome:
    """A configuration directory (`CLAUDE_CONFIG_DIR`)."""

    root: Path
    now: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for name in ("projects", "file-history", "sessions", "backups"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    @property
    def environ(self) -> dict[str, str]:
        """The environment that makes the agent (and the sidecar) use this directory."""
        return {"CLAUDE_CONFIG_DIR": str(self.root)}

    def settings(self, **values: Any) -> None:
        """Write settings.json."""
        (self.root / "settings.json").write_text(json.dumps(values))

    def session(
        self, cwd: Path | str, *, session: str | None = None, entrypoint: str = "cli", history: bool = True
    ) -> "ClaudeSession":
        """Begin a session in `cwd`: `cli` is the interactive program, `sdk-cli` is print mode and the SDK."""
        return ClaudeSession(self, str(cwd), session or new_uuid(), entrypoint, history)


class ClaudeSession(ClaudeTranscript):
    """One session's transcript and file history, as its process writes them."""

    # -- what a person sends --------------------------------------------------------------------------------------

    def prompt(
        self,
        text: str | list[Json],
        *,
        uuid: str | None = None,
        parent: str | None = "",
        at: int | None = None,
        snapshot: bool = True,
        **fields: Any,
    ) -> str:
        """Send a prompt; returns its uuid. `fields` add to or replace the record's own (None leaves out)."""
        self.prompt_id = new_uuid()
        own: Json = {"promptId": self.prompt_id, "message": {"role": "user", "content": text}}
        typed = self.entrypoint == "cli"
        own |= {"permissionMode": "acceptEdits", "promptSource": "typed" if typed else "sdk"}
        own |= ({"origin": {"kind": "human"}} if typed else {}) | fields
        record = self.node("user", {k: v for k, v in own.items() if v is not None}, uuid=uuid, parent=parent, at=at)
        queue: list[Json] = []
        if not typed:
            queue = [
                {
                    "type": "queue-operation",
                    "operation": operation,
                    "timestamp": record["timestamp"],
                    "sessionId": self.session,
                }
                for operation in ("enqueue", "dequeue")
            ]
        taken = self._snapshot(record["uuid"], at) if snapshot else []
        self.append(*([*taken, record] if typed else [*queue, record, *taken]))
        return str(record["uuid"])

    def command(self, name: str, args: str = "", *, expansion: str = "Do it.", **fields: Any) -> str:
        """Send a custom `/name args`; returns the uuid of its `<command-message>` record."""
        text = f"<command-message>{name}</command-message>\n<command-name>/{name}</command-name>"
        text += f"\n<command-args>{args}</command-args>" if args else ""
        uuid = self._plain(text, snapshot=True, **fields)
        self.append(self.node("user", self._user([{"type": "text", "text": expansion}]) | {"isMeta": True}))
        return uuid

    def bash_mode(self, command: str, effect: Callable[[], object] | None = None, *, output: str = "") -> str:
        """Run `!command`; returns the uuid of its `<bash-input>` record."""
        uuid = self._plain(f"<bash-input>{command}</bash-input>", snapshot=True)
        if effect is not None:
            effect()
        self._plain(f"<bash-stdout>{output}</bash-stdout><bash-stderr></bash-stderr>")
        return uuid

    def builtin(self, name: str, output: str = "") -> str:
        """Run a built-in command such as `/model`; returns the uuid of its `<command-name>` record."""
        self._plain("<local-command-caveat>Caveat: …</local-command-caveat>", isMeta=True)
        pad = "\n            "
        uuid = self._plain(
            f"<command-name>/{name}</command-name>{pad}<command-message>{name}</command-message>{pad}<command-args></command-args>"
        )
        self._plain(f"<local-command-stdout>{output}</local-command-stdout>")
        return uuid

    def queued(
        self, text: str | list[Json], *, source_uuid: str | None = None, at: int | None = None, **fields: Any
    ) -> str:
        """Queue a prompt while the turn runs: an attachment; returns that attachment's uuid."""
        moment = iso(self.home.now() if at is None else at)
        own: Json = {"type": "queued_command", "prompt": text, "source_uuid": source_uuid, "commandMode": "prompt"}
        own |= {"origin": {"kind": "human"} if self.entrypoint == "cli" else None, "timestamp": moment} | fields
        record = self.node("attachment", {"attachment": {k: v for k, v in own.items() if v is not None}}, at=at)
        queue = {"type": "queue-operation", "timestamp": moment, "sessionId": self.session, "content": text}
        self.append(queue | {"operation": "enqueue"}, record, queue | {"operation": "remove"})
        return str(record["uuid"])

    def notification(self, text: str = "<task-notification>\n<task-id>b1</task-id>\n</task-notification>") -> str:
        """Tell the model that a background task ended (no user message)."""
        return self._plain(text, promptSource="sdk", origin={"kind": "task-notification"})

    def meta(self, text: str) -> str:
        """Add a text that the program put in (no user message)."""
        return self._plain([{"type": "text", "text": text}], isMeta=True)

    def interrupt(self, *, during_tool: bool = False) -> str:
        """Stop the turn as a person does (no user message)."""
        suffix = " for tool use" if during_tool else ""
        return self._plain([{"type": "text", "text": f"[Request interrupted by user{suffix}]"}])

    def _user(self, content: str | list[Json]) -> Json:
        return {"promptId": self.prompt_id, "message": {"role": "user", "content": content}}

    def _plain(self, content: str | list[Json], *, snapshot: bool = False, **fields: Any) -> str:
        record = self.node("user", self._user(content) | fields)
        self.append(*(self._snapshot(record["uuid"]) if snapshot else []), record)
        return str(record["uuid"])

    # -- what the agent does --------------------------------------------------------------------------------------

    def assistant(
        self, *blocks: Json, stop_reason: str | None = "tool_use", at: int | None = None, **fields: Any
    ) -> str:
        """Append an answer of the model; returns its uuid."""
        message = {
            "id": f"msg_{uuids.uuid4().hex[:24]}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": list(blocks),
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 20, "service_tier": "standard"},
        }
        record = self.node("assistant", {"message": message} | fields, at=at)
        self.append(record)
        return str(record["uuid"])

    def say(self, text: str = "done", *, at: int | None = None) -> str:
        """End the turn with a text (and, interactively, with its duration); returns the answer's uuid."""
        uuid = self.assistant({"type": "text", "text": text}, stop_reason="end_turn", at=at)
        if self.entrypoint == "cli" and self.agent_id is None:
            self.append(self.node("system", {"subtype": "turn_duration", "durationMs": 700, "isMeta": False}, at=at))
        return uuid

    def tool(self, name: str, given: Json, *, at: int | None = None) -> tuple[str, str]:
        """Call a tool; returns (tool_use id, uuid of the record)."""
        call = f"toolu_{uuids.uuid4().hex[:20]}"
        return call, self.assistant({"type": "tool_use", "id": call, "name": name, "input": given}, at=at)

    def result(
        self,
        call: tuple[str, str],
        text: str,
        details: Any = None,
        *,
        error: bool = False,
        at: int | None = None,
        **fields: Any,
    ) -> str:
        """Answer a tool call; returns the record's uuid."""
        block: Json = {"tool_use_id": call[0], "type": "tool_result", "content": text}
        if error:
            block["is_error"] = True
            details = f"Error: {text}" if details is None else details
        body = self._user([block]) | {"toolUseResult": details, "sourceToolAssistantUUID": call[1]} | fields
        record = self.node("user", {k: v for k, v in body.items() if v is not None}, at=at)
        self.append(record)
        return str(record["uuid"])

    def edit(self, path: str | Path, content: bytes, *, at: int | None = None, apply: bool = True) -> str:
        """Edit (or create, by Write) a file with a tool, really; returns the uuid of the call's record.

        `apply=False` writes the records and the backup only, for workspaces that do not exist.
        """
        target = Path(self.cwd, path)
        before = target.read_bytes() if target.is_file() else None
        text = content.decode("utf-8", "replace")
        with self.batch() if self._held is None else contextlib.nullcontext():
            if before is None:
                call = self.tool("Write", {"file_path": str(target), "content": text}, at=at)
            else:
                given = {"replace_all": False, "file_path": str(target), "old_string": "?", "new_string": "?"}
                call = self.tool("Edit", given, at=at)
            self._track(str(target), call[1], at)
            if apply:
                agent_write(target, content)
            details: Json = {"filePath": str(target), "structuredPatch": [], "userModified": False}
            details |= {"originalFile": original_text(before)}
            details |= {"type": "create", "content": text} if before is None else {"oldString": "?", "newString": "?"}
            self.result(call, f"The file {target} has been updated successfully.", details, at=at)
        return call[1]

    def edit_notebook(self, path: str | Path, content: bytes, *, at: int | None = None) -> str:
        """Edit a notebook with its own tool, really; returns the uuid of the call's record."""
        target = Path(self.cwd, path)
        before = target.read_bytes() if target.is_file() else None
        with self.batch() if self._held is None else contextlib.nullcontext():
            call = self.tool("NotebookEdit", {"notebook_path": str(target), "cell_id": "c1", "new_source": "?"}, at=at)
            self._track(str(target), call[1], at)
            agent_write(target, content)
            details: Json = {"notebook_path": str(target), "original_file": original_text(before), "error": ""}
            self.result(call, "Updated cell c1", details | {"edit_mode": "replace"}, at=at)
        return call[1]

    def failed_edit(self, path: str | Path, why: str = "String to replace not found in file.") -> str:
        """Try an edit that the tool refuses; returns the uuid of the call's record."""
        call = self.tool("Edit", {"file_path": str(Path(self.cwd, path)), "old_string": "a", "new_string": "b"})
        self.result(call, f"<tool_use_error>{why}</tool_use_error>", f"Error: {why}", error=True)
        return call[1]

    def rejected_edit(self, path: str | Path) -> str:
        """Propose an edit that the person refuses; returns the uuid of the call's record."""
        call = self.tool("Edit", {"file_path": str(Path(self.cwd, path)), "old_string": "a", "new_string": "b"})
        text = "The user doesn't want to proceed with this tool use. The tool use was rejected …"
        self.result(call, text, "User rejected tool use", error=True, toolDenialKind="user-rejected")
        return call[1]

    def shell(self, command: str, effect: Callable[[], object] | None = None, *, output: str = "") -> str:
        """Run a command with the Bash tool; `effect` does what it would do. Returns the uuid of the call's record."""
        call = self.tool("Bash", {"command": command, "description": "run"})
        if effect is not None:
            effect()
        details = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        self.result(call, output or "(Bash completed with no output)", details)
        return call[1]

    def api_error(self, text: str = "API Error: 529 Overloaded") -> str:
        """End the turn with an error of the service, as a synthetic answer."""
        return self.assistant({"type": "text", "text": text}, stop_reason="stop_sequence", isApiErrorMessage=True)

    # -- subagents ------------------------------------------------------------------------------------------------

    def subagent(
        self, prompt: str = "do a part", *, agent_id: str | None = None, beside: bool = False
    ) -> "ClaudeSession":
        """Start a subagent with a transcript of its own; `beside` puts it where older versions did.

        It edits, runs and says like a session; its edits are in no file history.
        """
        agent = agent_id or f"a{uuids.uuid4().hex[:16]}"
        folder = self.transcript.parent if beside else self.companion / "subagents"
        folder.mkdir(parents=True, exist_ok=True)
        child = ClaudeSession(self.home, self.cwd, self.session, self.entrypoint, False, agent_id=agent)
        child.file = folder / f"agent-{agent}.jsonl"
        if not beside:
            meta = {"agentType": "general-purpose", "description": prompt, "toolUseId": "toolu_x", "spawnDepth": 1}
            (folder / f"agent-{agent}.meta.json").write_text(json.dumps(meta))
        child.append(child.node("user", child._user(prompt)))
        return child

    # -- the life of the session ----------------------------------------------------------------------------------

    def live(self, pid: int | None = None, *, proc_start: str | None = None) -> Path:
        """Write sessions/<pid>.json as a running process does; returns it. `exit` removes it."""
        number = os.getpid() if pid is None else pid
        if proc_start is None:
            try:
                proc_start = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
            except OSError:
                proc_start = "0"
        milliseconds = self.home.now() // 1_000_000
        record = {
            "pid": number,
            "sessionId": self.session,
            "cwd": self.cwd,
            "startedAt": milliseconds,
            "procStart": proc_start,
            "version": VERSION,
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": self.entrypoint,
            "name": "project-78",
            "nameSource": "derived",
            "nameSince": milliseconds,
        }
        path = self.home.root / "sessions" / f"{number}.json"
        path.write_text(json.dumps(record))
        return path

    def exit(self, pid: int | None = None) -> None:
        """Write what a process writes at its end, and remove its sessions/<pid>.json."""
        self.append(
            {"type": "last-prompt", "lastPrompt": "…", "leafUuid": self.leaf, "sessionId": self.session},
            {"type": "mode", "mode": "normal", "sessionId": self.session},
        )
        (self.home.root / "sessions" / f"{os.getpid() if pid is None else pid}.json").unlink(missing_ok=True)

    def compact(self, summary: str = "This session is being continued …") -> str:
        """Compact the context: boundary and summary; the file history starts anew. Returns the boundary's uuid."""
        kept, anchor = self.leaf, new_uuid()
        metadata = {
            "trigger": "manual",
            "preTokens": 120,
            "durationMs": 136,
            "preservedSegment": {"headUuid": kept, "anchorUuid": anchor, "tailUuid": kept},
            "preservedMessages": {"anchorUuid": anchor, "uuids": [kept], "allUuids": [kept]},
            "postTokens": 693,
            "cumulativeDroppedTokens": 0,
        }
        body = {"logicalParentUuid": kept, "subtype": "compact_boundary", "content": "Conversation compacted"}
        boundary = self.node(
            "system", body | {"isMeta": False, "level": "info", "compactMetadata": metadata}, parent=None
        )
        marks = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        self.append(boundary, self.node("user", self._user(summary) | marks, uuid=anchor))
        self.builtin("compact", "Compacted")
        self.tracked.clear()
        self.snapshots.clear()
        return str(boundary["uuid"])

    def fork(self) -> "ClaudeSession":
        """Fork: a new session with the same records (session id rewritten), full snapshots, and linked backups."""
        other = ClaudeSession(self.home, self.cwd, new_uuid(), self.entrypoint, self.history, self.leaf, self.message)
        other.tracked, other.snapshots = dict(self.tracked), dict(self.snapshots)
        for line in self.transcript.read_text().splitlines():
            record = json.loads(line)
            if record["type"] in ("user", "assistant", "attachment", "system"):
                other.append(record | {"sessionId": other.session})
        other.reemit()
        other.file_history.mkdir(parents=True, exist_ok=True)
        if self.file_history.is_dir():
            for blob in self.file_history.iterdir():
                os.link(blob, other.file_history / blob.name)
        return other
