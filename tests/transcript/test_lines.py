"""Bytes to records: nothing is lost, nothing raises."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.transcript.lines import BLANK, BOM, Fragment, Line, Record, decode, split

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)


def rejoin(line: Line, pieces: list[Record | Fragment]) -> None:
    """Every byte that is not blank lies in exactly one piece, at its offset."""
    at = line.offset
    for piece in pieces:
        gap = line.raw[at - line.offset : piece.offset - line.offset]
        assert piece.offset >= at
        assert not gap.removeprefix(BOM).strip(BLANK)
        assert line.raw[piece.offset - line.offset :].startswith(piece.raw)
        at = piece.offset + len(piece.raw)
    assert not line.raw[at - line.offset :].removeprefix(BOM).strip(BLANK)


@given(st.binary(), st.integers(0, 1 << 60))
def test_split_cuts_at_newlines_only_and_rejoins(buffer: bytes, offset: int) -> None:
    lines, torn = split(buffer, offset)
    assert b"".join(line.raw + b"\n" for line in lines) + torn == buffer
    assert b"\n" not in torn
    for line in lines:
        assert buffer[line.offset - offset :].startswith(line.raw + b"\n")


@given(
    st.lists(
        st.binary(max_size=20)
        | st.sampled_from([b"{", b'{"a":', b"\0\0", b"\xed\xa0\x80", BOM, b'"', b'{"t":1}', b"}", b" ", b"NaN", b"[1]"])
        | json_objects.map(lambda value: json.dumps(value).encode()),
        max_size=6,
    ).map(b"".join),
    st.integers(0, 1 << 40),
)
def test_decode_never_raises_and_keeps_every_byte(raw: bytes, offset: int) -> None:
    line = Line(offset, raw)
    pieces = decode(line)
    rejoin(line, pieces)
    assert all(isinstance(piece.value, dict) for piece in pieces if isinstance(piece, Record))


@given(st.lists(json_objects, min_size=1, max_size=4), st.sampled_from([b"", b" ", b"\0\0\0"]))
def test_glued_objects_are_records_of_their_own(values: list[dict[str, object]], glue: bytes) -> None:
    raw = glue.join(json.dumps(value).encode() for value in values)
    records = [piece for piece in decode(Line(7, raw)) if isinstance(piece, Record)]
    assert [json.dumps(record.value) for record in records] == [json.dumps(value) for value in values]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":"\\ud800"}', {"a": "\ud800"}),
        (BOM + b'{"a":1}', {"a": 1}),
        (b'{"a":Infinity}', {"a": math.inf}),
        (b'{"a":-Infinity}\r', {"a": -math.inf}),
        (b'{"a":1e999}', {"a": math.inf}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":"x\ty"}', {"a": "x\ty"}),
        (b'\0\0\0{"a":1}', {"a": 1}),
        (b'{"a":1}\0\0', {"a": 1}),
        ('{"a":"\u2028\u0085"}'.encode(), {"a": "\u2028\u0085"}),
        (b'{"a":"\xed\xa0\x80"}', {"a": b"\xed\xa0\x80".decode("utf-8", "surrogateescape")}),
        (b"{}", {}),
    ],
)
def test_odd_but_whole_objects_are_read(raw: bytes, value: dict[str, object]) -> None:
    records = [piece.value for piece in decode(Line(0, raw)) if isinstance(piece, Record)]
    assert records == [value]


def test_nan_and_very_long_numbers_are_read() -> None:
    (record,) = decode(Line(0, b'{"a":NaN,"b":' + b"9" * 5000 + b"}"))
    assert isinstance(record, Record)
    assert math.isnan(record.value["a"])
    assert math.isinf(record.value["b"])


@pytest.mark.parametrize("raw", [b"[1,2]", b"42", b'"text"', b"null", b"garbage", b'{"a":', b"\xff\xfe{\0", b"\0" * 40])
def test_what_is_no_object_is_a_fragment(raw: bytes) -> None:
    assert decode(Line(3, raw)) == [Fragment(3, raw)]


def test_a_torn_prefix_does_not_take_the_whole_object_behind_it_along() -> None:
    torn = b'{"type":"user","message":{"role":"user","content":[{"type":"text"},"half a sen'
    whole = b'{"type":"assistant","uuid":"a1"}'
    fragment, record = decode(Line(100, torn + whole))
    assert fragment == Fragment(100, torn)
    assert record == Record(100 + len(torn), whole, {"type": "assistant", "uuid": "a1"})


def test_a_line_cut_in_its_middle_gives_no_false_record() -> None:
    raw = b'"content":[{"type":"text","text":"x"}]},"uuid":"u"}'
    assert decode(Line(0, raw)) == [Fragment(0, raw)]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":' * 200_000,
        b"[" * 500_000,
        b"{" * 500_000,
        b'{"a":"' * 200_000,
        b'{"a":1},' * 100_000,
        b"{} " * 100_000,
        b'{"a":{"b":' + b"{" * 300_000,
    ],
)
def test_hostile_lines_cost_little(raw: bytes) -> None:
    started = time.monotonic()
    line = Line(0, raw)
    rejoin_cheap = sum(len(piece.raw.strip(BLANK)) for piece in decode(line))
    assert rejoin_cheap == len(raw.replace(b" ", b""))
    assert time.monotonic() - started < 20
