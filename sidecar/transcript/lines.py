"""Bytes to records, with their offsets. Pure, and it never raises: a reader must survive every writer.

Rules: lines end at a newline byte and nowhere else (other line separators are legal inside JSON strings); only a JSON
object is a record; two objects glued on one line are two records; whatever is left over is a fragment. Every byte that
is not blank lies in exactly one record or fragment.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

BOM = b"\xef\xbb\xbf"
BLANK = b" \t\r\n"

# A damaged line is searched for whole objects; these bound the search, so that no line costs more than a few readings.
_ATTEMPTS = 1_000  # that failed
_READINGS = 16

# An object inside a torn one is followed by a comma or a bracket; a record only by another, or by nothing.
_AFTER_RECORD = re.compile(r"[ \t\r\0]*(?:\{|\Z)")


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline, and where it begins in its file."""

    offset: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object, the bytes it was read from, and where they begin."""

    offset: int
    raw: bytes
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes that are no record, and where they begin."""

    offset: int
    raw: bytes


def split(buffer: bytes, offset: int) -> tuple[list[Line], bytes]:
    """Cut a buffer that begins at `offset` of its file into whole lines and the torn tail after the last newline."""
    *whole, torn = buffer.split(b"\n")
    lines = []
    for raw in whole:
        lines.append(Line(offset, raw))
        offset += len(raw) + 1
    return lines, torn


def decode(line: Line) -> list[Record | Fragment]:
    """Give the records and fragments of a line, in their order; nothing for a blank one."""
    offset, raw = line.offset, line.raw
    if raw.startswith(BOM):
        offset, raw = offset + len(BOM), raw[len(BOM) :]
    if not raw.strip(BLANK):
        return []
    try:
        value = orjson.loads(raw)
    except (ValueError, RecursionError, MemoryError):
        pass
    else:
        if isinstance(value, dict):
            return [Record(offset, raw, value)]
        return [Fragment(offset, raw)]
    try:
        return _search(offset, raw)
    except (ValueError, RecursionError, MemoryError):
        return [Fragment(offset, raw)]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # longer than Python converts
        return float(text)


# Takes what the strict reader refuses: lone surrogates, NaN, control characters in strings.
_LENIENT = json.JSONDecoder(strict=False, parse_int=_number)


def _search(offset: int, raw: bytes) -> list[Record | Fragment]:
    """Find the whole objects of a line that is not one object."""
    text = raw.decode("utf-8", "surrogateescape")  # gives the same bytes back, whatever they are
    found: list[Record | Fragment] = []
    at, done = 0, 0  # positions in the text: where we look, and up to where everything is placed
    work, attempts = len(text) * _READINGS, _ATTEMPTS
    place = offset  # of `done`, in bytes

    def take(until: int, value: dict[str, Any] | None) -> None:
        nonlocal done, place
        piece = text[done:until].encode("utf-8", "surrogateescape")
        if value is not None:
            found.append(Record(place, piece, value))
        elif piece.strip(BLANK):
            found.append(Fragment(place, piece))
        done, place = until, place + len(piece)

    while work > 0 and attempts > 0:
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, end = _LENIENT.raw_decode(text, at)
        except json.JSONDecodeError as error:
            work, attempts = work - (error.pos - at) - 1, attempts - 1
            at += 1
            continue
        except RecursionError:  # too deep to read: nothing inside it is a record either
            break
        work -= end - at
        if _AFTER_RECORD.match(text, end):
            take(at, None)
            take(end, value)
        at = end
    take(len(text), None)
    return found
