"""Take single values out of records that may hold anything at all. Pure; nothing here raises.

Rule: what is not of the expected kind is not there. Text that goes on into the store must be text that it can hold.
"""

import posixpath
from collections.abc import Iterable
from typing import Any

LONGEST_ID = 256  # characters; anything longer is no id but an accident


def at_path(value: object, path: str) -> Any:
    """Give what lies at a dotted path; None where any step is missing. An empty path leads nowhere."""
    if not path:
        return None
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def text_at(value: object, path: str) -> str | None:
    """Give the text at a dotted path; None for anything else."""
    found = at_path(value, path)
    return found if isinstance(found, str) else None


def id_at(value: object, path: str) -> str | None:
    """Give the id at a dotted path: a text that is not empty, not endless, and can be stored."""
    found = text_at(value, path)
    if not found or len(found) > LONGEST_ID or "\0" in found:
        return None
    return found if plain(found) == found else None


def plain(text: str) -> str:
    """Replace what no encoding has (lone surrogates)."""
    return text.encode("utf-8", "replace").decode()


def path_bytes(text: object) -> bytes | None:
    """Give a path as bytes; None for what can be no path."""
    if not isinstance(text, str) or not text or "\0" in text:
        return None
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def absolute(path: object, cwd: object) -> bytes | None:
    """Give a path from a record as an absolute one, without `.` and `..`; None where that cannot be said."""
    found, base = path_bytes(path), path_bytes(cwd)
    if found is None:
        return None
    if not found.startswith(b"/"):
        if base is None or not base.startswith(b"/"):
            return None
        found = posixpath.join(base, found)
    normal = posixpath.normpath(found)
    return normal[1:] if normal.startswith(b"//") else normal


def blocks_of(content: object) -> list[dict[str, Any]]:
    """Give the blocks of a message's content; a plain text is one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [block for block in content if isinstance(block, dict)]
    return []


def first_line(text: str, characters: int) -> str:
    """Give the first line that is not blank, cut to so many characters."""
    return plain(text.strip().split("\n", 1)[0].rstrip()[:characters])


def starts(text: str, prefixes: Iterable[str]) -> bool:
    """Tell whether a text begins with one of the prefixes, blanks before it aside."""
    return text.lstrip().startswith(tuple(prefixes))
