"""Claude Code: what its table cannot say. How it names a project's folder, and the records of its file history."""

import os
import re
from typing import Any

from sidecar.agents.base import Agent
from sidecar.agents.fields import id_at, path_bytes
from sidecar.agents.reading import Reader
from sidecar.clock import parse_iso
from sidecar.model import Backup, HistoryRecord, SessionFound
from sidecar.policy.load import checkpoint_policy

SLUG_CHARACTERS = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_COMMAND = re.compile(r"<command-name>\s*/?(.*?)\s*</command-name>", re.DOTALL)
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
_BASH = re.compile(r"<bash-input>(.*?)</bash-input>", re.DOTALL)


class ClaudeCode(Agent):
    """Anthropic's Claude Code."""

    def reader(self, found: SessionFound) -> Reader:
        """Make what turns this session's records into events."""
        return ClaudeReader(self.table, found.session, prompt_characters=checkpoint_policy().limits.prompt_characters)

    def expected_transcript(self, home: str, cwd: str, session: str) -> str | None:
        """Say where a session that has written nothing yet will have its transcript."""
        return os.path.join(home, "projects", slug_of(os.path.realpath(cwd)), f"{session}.jsonl")


class ClaudeReader(Reader):
    """Records of Claude Code."""

    def spelled(self, text: str) -> str:
        """Give a command as it was typed: `/name arguments` or `!command`."""
        command = _COMMAND.search(text)
        if command is not None and text.lstrip().startswith("<command-"):
            arguments = _ARGUMENTS.search(text)
            return f"/{command[1]} {arguments[1].strip() if arguments else ''}".rstrip()
        shell = _BASH.match(text.lstrip())
        return f"!{shell[1].strip()}" if shell is not None else text

    def history(self, value: dict[str, Any], kind: str) -> HistoryRecord | None:
        """Give what a snapshot, an update of one, or a delta says."""
        table = self.table.history
        if kind == table.snapshot:
            return self._snapshot(value)
        if kind == table.delta:
            message = id_at(value, "snapshotMessageId")
            backup = backup_of(value.get("trackingPath"), value.get("backup"))
            if message is None or backup is None:
                return None
            at = parse_iso(value.get("timestamp"))
            return HistoryRecord(self.session, message, (backup,), at, partial=True, by=id_at(value, "messageId"))
        return None

    def _snapshot(self, value: dict[str, Any]) -> HistoryRecord | None:
        # In an update the outer id is the record of the tool call; the inner one is always the user message.
        message = id_at(value, "snapshot.messageId") or id_at(value, "messageId")
        inner = value.get("snapshot")
        if message is None or not isinstance(inner, dict):
            return None
        tracked = inner.get("trackedFileBackups")
        found = [backup_of(path, entry) for path, entry in tracked.items()] if isinstance(tracked, dict) else []
        backups = tuple(backup for backup in found if backup is not None)
        update = value.get("isSnapshotUpdate") is True
        by = id_at(value, "messageId") if update else None
        return HistoryRecord(self.session, message, backups, parse_iso(inner.get("timestamp")), partial=update, by=by)


def backup_of(path: object, entry: object) -> Backup | None:
    """Read one entry of the file history; None where it does not say clearly what was there.

    Only an explicit null is an absent file: absence needs evidence.
    """
    spelled = path_bytes(path)
    if spelled is None or not isinstance(entry, dict) or "backupFileName" not in entry:
        return None
    name, version = entry["backupFileName"], entry.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        return None
    if name is not None and (not isinstance(name, str) or not name or "/" in name or "\0" in name):
        return None
    at, parent = parse_iso(entry.get("backupTime")), path_bytes(entry.get("realParentDir"))
    return Backup(spelled, name, version, at, parent)


def slug_of(path: str) -> str:
    """Name the folder of a project's transcripts: lossy, so it is never read backwards.

    `path` is the resolved working directory. Each UTF-16 unit that is no ASCII letter or digit becomes a dash; a long
    name is cut and gets a hash of the path.
    """
    data = path.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
    slug = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(slug) <= SLUG_CHARACTERS:
        return slug
    hashed = 0
    for unit in units:
        hashed = (hashed * 31 + unit) & 0xFFFFFFFF
    number = abs(hashed - (1 << 32) if hashed >= 1 << 31 else hashed)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return f"{slug[:SLUG_CHARACTERS]}-{digits}"
