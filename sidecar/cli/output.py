"""How answers are given: text for people, one JSON object for scripts, refusals as one sentence.

Paths may hold bytes that are not UTF-8. In JSON each such byte is a `\\udcXX` escape (surrogateescape), so nothing is
lost; on a terminal control characters are shown as escapes, because names are not ours to trust.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from sidecar.errors import Refusal


def show_path(path: bytes) -> str:
    """Give a path as JSON and scripts have it."""
    return os.fsdecode(path) if sys.getfilesystemencoding() == "utf-8" else path.decode("utf-8", "surrogateescape")


def print_json(value: object) -> None:
    """Print one value as one line of ASCII JSON, flushed."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def say(text: str = "") -> None:
    """Print a line for people."""
    sys.stdout.write(printable(text) + "\n")


def warn(text: str) -> None:
    """Print a line beside the answer."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def printable(text: str) -> str:
    """Escape control characters and undecodable bytes; newlines and tabs of our own stay."""
    return "".join(c if c in "\n\t" or c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def one_line(text: str) -> str:
    """Make a name fit on a line of its own."""
    return printable(text.replace("\n", "\\n").replace("\t", "\\t"))


def refuse(refusal: Refusal, empty: Mapping[str, Any] | None, *, as_json: bool) -> int:
    """Say why something was not done and give the exit code; in JSON with all of the verb's keys."""
    if as_json:
        told = dict(empty or {})
        if "reason" in told:
            told["reason"] = refusal.parts.get("reason")
        print_json({**told, "error": str(refusal), "code": refusal.code})
    sys.stderr.write(one_line(str(refusal)) + "\n")
    return refusal.exit_code


def is_terminal() -> bool:
    """Tell whether a person is looking, and may be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
