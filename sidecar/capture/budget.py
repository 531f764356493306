"""How much new content is taken in: for one checkpoint, and for the whole store of a workspace.

What goes beyond is recorded as `too-large`, as a file over the ceiling is: what is not kept is never offered. What the
store has already costs nothing, and nothing that it has is given up for something new.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace

from sidecar.capture.look import Finding
from sidecar.model import Reason, unknown
from sidecar.policy.tables import CheckpointLimits
from sidecar.store.workspace import Workspace


class Budget:
    """What may still be taken in, counted by what the store grew since the last message."""

    def __init__(self, workspace: Workspace, limits: CheckpointLimits) -> None:
        self.workspace = workspace
        self.limits = limits
        self.free = False  # only the store's own budget counts: the first look, or one for a rewind
        self.refused: set[bytes] = set()  # since the last message
        self.warnings: set[str] = set()
        self._blobs = self._bytes = 0  # taken in since the last message
        self._before = (0, 0)

    def admit(self, findings: Iterable[Finding]) -> list[Finding]:
        """Give findings as they may be written down; followed by `spend`, inside one transaction."""
        self._before = self.workspace.blobs.tally()
        store = self.limits.store_bytes - self._before[1]
        checkpoint = sys.maxsize if self.free else self.limits.checkpoint_bytes - self._bytes
        files = sys.maxsize if self.free else self.limits.checkpoint_files - self._blobs
        admitted = []
        for finding in findings:
            size = len(finding.content) if finding.content is not None else 0
            fits = size <= min(store, checkpoint) and files > 0
            if finding.content is None or (not fits and self.workspace.blobs.find(finding.content) is not None):
                admitted.append(finding)
            elif fits:
                store, checkpoint, files = store - size, checkpoint - size, files - 1
                admitted.append(finding)
            else:
                self._refuse(finding.path, full=size > store)
                admitted.append(replace(finding, content=None, state=unknown(Reason.TOO_LARGE)))
        return admitted

    def spend(self) -> None:
        """Count what the store grew by since `admit`."""
        blobs, stored = self.workspace.blobs.tally()
        self._blobs += blobs - self._before[0]
        self._bytes += stored - self._before[1]

    def renew(self) -> set[bytes]:
        """Begin anew with a message, and give the paths that were refused since the one before."""
        refused, self.refused = self.refused, set()
        self._blobs = self._bytes = 0
        return refused

    def _refuse(self, path: bytes, *, full: bool) -> None:
        self.refused.add(path)
        root, limits = self.workspace.root, self.limits
        if full:
            self.warnings.add(
                f"The store of {root} may hold no more than {limits.store_bytes} bytes (limits.store_bytes): "
                "what is old stays, new contents are recorded as too-large and not kept."
            )
        else:
            self.warnings.add(
                f"More than {limits.checkpoint_bytes} bytes or {limits.checkpoint_files} contents are new in {root} "
                "since the last message (limits.checkpoint_bytes, limits.checkpoint_files): the rest is recorded as "
                "too-large, and is kept after the next message, as far as there is room for it then."
            )


def count_refused(workspace: Workspace, limits: CheckpointLimits) -> int:
    """Count the files that are not kept now although each by itself is small enough."""
    row = workspace.database.one(
        "SELECT count(*) FROM version v JOIN stat s ON s.path = v.path WHERE v.to_at IS NULL "
        "AND v.kind = 'unknown' AND v.reason = ? AND s.size_bytes <= ?",
        Reason.TOO_LARGE,
        limits.file_bytes,
    )
    return int(row[0])
