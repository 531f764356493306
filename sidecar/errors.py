"""Refusals: what is said when something will not be done.

Three kinds of trouble are never mixed. A *refusal* is one of these exceptions: its class docstring is the sentence,
`exit_code` the process's answer, `code` the stable word for scripts. A *fault* is an OSError, translated once by
`at_path`. A *finding* (a skipped link, a torn read) is a value in an outcome and is never raised.
"""

import contextlib
import errno
import os
from collections.abc import Iterator


class Refusal(Exception):
    """The command was refused."""

    exit_code = 1
    code = "refused"

    def __init__(self, **parts: object) -> None:
        doc = type(self).__doc__ or ""
        super().__init__(" ".join(doc.split()).format(**parts))
        self.parts = parts


class UsageError(Refusal):
    """{what}"""

    exit_code = 2
    code = "usage"


class NotEnabled(Refusal):
    """File rewinding is not enabled."""

    code = "not-enabled"


class NoCheckpoint(Refusal):
    """No file checkpoint found for this message."""

    code = "no-checkpoint"

    def __init__(self, *, reason: str) -> None:
        """Take why: evicted, before-attach, unprotected, not-a-prompt, unknown."""
        super().__init__(reason=reason)


class RewindFailed(Refusal):
    """Failed to rewind: {reason}"""

    code = "rewind-failed"


class NoSession(Refusal):
    """No conversation found with session ID: {session}"""

    code = "no-session"


class MalformedId(Refusal):
    """{text} is not a valid {what}"""

    code = "malformed-id"


class AmbiguousId(Refusal):
    """{text} fits more than one {what}: {candidates}"""

    code = "ambiguous-id"


class NoTranscript(Refusal):
    """No transcript to attach to at {path}: {why}"""

    code = "no-transcript"


class NoWorkspace(Refusal):
    """The workspace {path} cannot be used: {why}"""

    code = "no-workspace"


class Busy(Refusal):
    """{what} is already owned by process {pid}"""

    exit_code = 4
    code = "busy"


class StoreTooNew(Refusal):
    """The store {path} was written by a newer sidecar (format {found}, this one reads up to {known})"""

    code = "store-too-new"


class NotOurStore(Refusal):
    """{path} is not a sidecar store: {why}"""

    code = "not-our-store"


class StoreFault(Refusal):
    """The store {path} failed: {why}"""

    code = "store-fault"


class BadPolicy(Refusal):
    """Policy {file}: {why}"""

    code = "bad-policy"


class NothingToUndo(Refusal):
    """There is no rewind left to {what}."""

    code = "nothing-to-undo"


class NeedsYes(Refusal):
    """Nothing was changed: pass --yes to rewind, or --dry-run to see what it would do."""

    code = "needs-yes"


class Fault(Refusal):
    """{path}: {why}"""

    code = "fault"


@contextlib.contextmanager
def at_path(path: bytes | str) -> Iterator[None]:
    """Translate an OSError raised inside into a Fault that names the path."""
    try:
        yield
    except OSError as error:
        raise Fault(path=os.fsdecode(path), why=describe(error)) from error


def describe(error: Exception) -> str:
    """Say what went wrong in a few words of the operating system's own."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno != errno.ENOSPC else "no space left on device"
    return str(error) or type(error).__name__
