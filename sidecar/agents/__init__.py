"""The coding agents that sidecar knows, each by its table and, where a table is not enough, a module of its own.

`base` answers from the table, `reading` turns records into events, `history` folds the agent's own file history, and
`finding` and `backups` are the parts that touch the disk. A new agent is a file in `policies/agents/`, and an entry in
`_CLASSES` only if it needs code.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType

from sidecar.agents.base import Agent
from sidecar.agents.claude_code import ClaudeCode
from sidecar.agents.table import parse_agent
from sidecar.policy.load import load_table, overlay_directory, table_names

__all__ = ["Agent", "registry"]

_CLASSES: Mapping[str, type[Agent]] = MappingProxyType({"claude-code": ClaudeCode})


def registry() -> Mapping[str, Agent]:
    """Give every known agent by its name; the tables are read once a process. Raises BadPolicy."""
    return _registry(str(overlay_directory()))


@functools.cache
def _registry(overlay: str) -> Mapping[str, Agent]:  # noqa: ARG001 - so that moved tables are read anew
    found = {}
    for name in table_names("agents"):
        table = parse_agent(load_table(name), file=f"{name}.toml")
        found[table.name] = _CLASSES.get(table.name, Agent)(table)
    return MappingProxyType(found)
