"""The policy tables as values: each class mirrors one file in `policies/`, each nested class one section of it.

A field is spelled as its key in the file, so that an error, the file and the code use one name. Whole numbers may not
be negative, and some not less than `at_least`. Names of files are bytes, as all paths are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def at_least(minimum: int) -> Any:
    """Declare a whole number that may not be smaller than `minimum`."""
    return field(metadata={"minimum": minimum})


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """How many, and how big."""

    before_rewind: int
    file_bytes: int
    tree_files: int
    tree_bytes: int
    checkpoint_files: int
    checkpoint_bytes: int
    store_bytes: int
    small_ignored_bytes: int
    scan_files: int
    inline_bytes: int
    prompt_characters: int = at_least(1)


@dataclass(frozen=True, slots=True)
class CheckpointTime:
    """Which instants can be told apart, and how long is waited for an answer."""

    before_slack_ms: int
    after_slack_ms: int
    record_grace_ms: int
    tick_ms: int = at_least(1)
    turn_timeout_s: int = at_least(1)
    capture_answer_ms: int = at_least(1)
    retry_write_ms: int = at_least(0)


@dataclass(frozen=True, slots=True)
class CheckpointBatch:
    """What one write transaction carries, and how often a changing file is read."""

    bytes: int = at_least(1)
    attempts: int = at_least(1)


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """`checkpoints.toml`."""

    enabled: bool
    profiles: Mapping[str, int]  # name -> checkpoints a session may have (SPEC A3)
    limits: CheckpointLimits
    time: CheckpointTime
    batch: CheckpointBatch


@dataclass(frozen=True, slots=True)
class NeverCaptured:
    """Entries that no rule of a workspace can bring back."""

    names: tuple[bytes, ...]  # of a folder or file, at any depth
    prefixes: tuple[bytes, ...]  # of such a name


@dataclass(frozen=True, slots=True)
class PrunedFolders:
    """Folders that are left out unless an ignore file of the workspace brings them back by name."""

    names: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CredentialNames:
    """Files that look like a credential: never followed outside the workspace (SPEC A5)."""

    inside: bool  # leave them out in the workspace too
    names: tuple[bytes, ...]  # whole names or globs of the last component, matched without regard to case
    folders: tuple[bytes, ...]  # a file anywhere below a folder so named


@dataclass(frozen=True, slots=True)
class UnsafeRoots:
    """Places that are too wide to be captured as a whole tree."""

    mount_points: bool  # every mount point is one
    roots: tuple[str, ...]  # absolute, or `~` for the home directory; these folders themselves, not what is below them


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """How much of a workspace's own rules is read."""

    ignore_file_bytes: int = at_least(1)  # a larger ignore file is not read, as git does not read it either


@dataclass(frozen=True, slots=True)
class IgnorePolicy:
    """`ignore.toml`."""

    never: NeverCaptured
    pruned: PrunedFolders
    credentials: CredentialNames
    unsafe: UnsafeRoots
    limits: RuleLimits


@dataclass(frozen=True, slots=True)
class WatchCookie:
    """The barrier that proves every earlier event was seen."""

    deadline_ms: int = at_least(1)
    retry_ms: int = at_least(1)
    observer_grace_ms: int = at_least(0)


@dataclass(frozen=True, slots=True)
class WatchRescan:
    """How often the whole tree is compared with what is known."""

    period_s: int = at_least(1)
    degraded_period_s: int = at_least(1)  # while part of the tree, or all of it, has no watch
    first_pause_ms: int = at_least(1)  # between looks that nobody asked for, when events are lost again and again
    longest_pause_s: int = at_least(1)
    quiet_s: int = at_least(1)  # without a loss: the next look comes at once


@dataclass(frozen=True, slots=True)
class WatchHot:
    """How often a path that changes all the time is captured between messages."""

    period_ms: int = at_least(1)
    burst: int = at_least(1)  # captures in quick succession before that


@dataclass(frozen=True, slots=True)
class WatchPolicy:
    """`watch.toml`."""

    cookie: WatchCookie
    rescan: WatchRescan
    hot: WatchHot
