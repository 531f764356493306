"""Whether a workspace's tree is captured, or too wide for it, so that only what tool calls name is (case C13).

It is decided when a process begins to capture, and remembered: whoever looks at the workspace later keeps to it.
"""

import os
import stat as bits

from sidecar.attach.settings import Settings
from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.fs.beneath import Root
from sidecar.fs.scan import join, scan
from sidecar.model import Stat
from sidecar.store.narrowing import end_knowledge
from sidecar.store.workspace import Workspace

EDITED_ONLY = "Only files that tool calls name are kept, from then on; of everything else nothing is known."
_REMEMBERED = "wide"


def remembered_mode(workspace: Workspace) -> str | None:
    """Tell why a workspace's tree is not captured; None: it is."""
    why = workspace.meta(_REMEMBERED)
    return why if isinstance(why, str) else None


def remember_mode(workspace: Workspace, why: str | None, now: int) -> None:
    """Remember why a tree is not captured (None: it is), and end what was known of it where it was until now.

    Survives: a crash at any point; either all of it is remembered, or nothing.
    """
    before = remembered_mode(workspace)
    if why == before:
        return
    with workspace.database.transaction():
        if before is None:
            last = workspace.ledger.coverage_end()
            end_knowledge(workspace.database, now if last is None else last)
        workspace.set_meta(_REMEMBERED, why)


def unsafe_root(root: str, settings: Settings) -> str | None:
    """Tell why a place is too wide to be captured as a tree, whatever lies in it; None: it is not."""
    real = os.path.realpath(root)
    if real in {os.path.realpath(os.path.expanduser(wide)) for wide in settings.ignore.unsafe.roots}:
        return "it is too wide a place"
    # A project that is mounted whole (in a container, say) is no wider for that.
    repository = os.path.lexists(os.path.join(real, ".git"))
    if settings.ignore.unsafe.mount_points and os.path.ismount(real) and not repository:
        return "it is a mount point"
    return None


def too_much(root: Root, rules: IgnoreRules, settings: Settings) -> str | None:
    """Tell why a tree is too large to be captured; None: it is not. Reads no file, and stops where it is too much.

    Counted before anything is captured or watched: what is too much would have filled the disk by then.
    """
    limits = settings.checkpoints.limits
    files = size = 0

    def enter(path: bytes, _stat: Stat) -> bool:
        return rules.verdict(path, is_directory=True) is Verdict.CAPTURED

    def weight(path: bytes, found: os.stat_result) -> int:
        if not bits.S_ISREG(found.st_mode) or found.st_size > limits.file_bytes:
            return 0
        small = found.st_size <= limits.small_ignored_bytes
        return found.st_size if small or rules.verdict(path, is_directory=False) is Verdict.CAPTURED else 0

    for listing in scan(root, b"", enter):
        rules.saw(listing.path, (name for name, _ in listing.entries))
        files += len(listing.entries)
        size += sum(weight(join(listing.path, name), found) for name, found in listing.entries)
        if files > limits.tree_files:
            return f"it holds more than {limits.tree_files} files"
        if size > limits.tree_bytes:
            return f"it holds more than {limits.tree_bytes} bytes"
    return None
