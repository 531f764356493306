"""Turn a parsed policy file into its table, or refuse with the file and the key. Pure.

The table's own field types are the grammar: whole numbers, booleans, floats, text, names (bytes), enumerations, lists,
sections (nested tables) and open mappings. Nothing is converted silently: a boolean is no number, a number no text.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sidecar.errors import BadPolicy

T = TypeVar("T")

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", bytes: "text"}


def parse_table(shape: type[T], table: Mapping[str, object], *, file: str, at: str = "") -> T:
    """Read `table` as a value of the dataclass `shape`.

    `file` names the source in refusals, `at` is the key of the section that the table is. A field with a default may be
    missing; any other missing, unknown or ill-typed key raises BadPolicy.
    """
    known = {f.name: f for f in fields(cast(Any, shape))}
    for key in table:
        if key not in known:
            raise BadPolicy(file=file, why=f"unknown key {_join(at, key)}")
    hints = get_type_hints(shape)
    values: dict[str, object] = {}
    for name, f in known.items():
        if name in table:
            values[name] = _value(hints[name], table[name], file, _join(at, name), f)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise BadPolicy(file=file, why=f"missing key {_join(at, name)}")
    return shape(**values)


def overlay(base: Mapping[str, object], own: Mapping[str, object], *, file: str, at: str = "") -> dict[str, object]:
    """Lay a person's own table over a shipped one, section by section.

    A list is replaced whole. `file` is the person's file. A key that the shipped table lacks, or a value of another
    type, raises BadPolicy.
    """
    merged = dict(base)
    for key, value in own.items():
        where = _join(at, key)
        if key not in base:
            raise BadPolicy(file=file, why=f"unknown key {where}")
        old = base[key]
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = overlay(old, value, file=file, at=where)
        elif type(value) is type(old):
            merged[key] = value
        else:
            raise BadPolicy(file=file, why=f"{where} must be {_described(old)}, not {_described(value)}")
    return merged


def _value(kind: Any, value: object, file: str, at: str, f: "Field[Any] | None" = None) -> object:
    """Check one value against one type."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):  # TOML has no null: an optional key is one that may be missing
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
        return _value(kind, value, file, at, f)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(file, at, "a list", value)
        return tuple(_value(get_args(kind)[0], item, file, f"{at}[{i}]", f) for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _wrong(file, at, "a table", value)
        return MappingProxyType({k: _value(get_args(kind)[1], v, file, _join(at, k), f) for k, v in value.items()})
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise _wrong(file, at, "a table", value)
        return parse_table(cast(type[Any], kind), value, file=file, at=at)
    if issubclass(kind, Enum):
        allowed = [member.value for member in kind]
        if not isinstance(value, str) or value not in allowed:
            raise BadPolicy(file=file, why=f"{at} must be one of {', '.join(allowed)}, not {value!r}")
        return kind(value)
    return _scalar(kind, value, file, at, f)


def _scalar(kind: Any, value: object, file: str, at: str, f: "Field[Any] | None") -> object:
    """Check a value that has no parts."""
    if kind is bytes and type(value) is str:
        return value.encode()
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise _wrong(file, at, _WORDS[kind], value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        minimum = f.metadata.get("minimum", 0) if f else 0
        if not value >= minimum:  # not `<`: NaN is smaller than nothing
            raise BadPolicy(file=file, why=f"{at} must be at least {minimum}, not {value}")
    return value


def _wrong(file: str, at: str, wanted: str, value: object) -> BadPolicy:
    return BadPolicy(file=file, why=f"{at} must be {wanted}, not {_described(value)}")


def _described(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    return _WORDS.get(type(value), f"a {type(value).__name__}")


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
