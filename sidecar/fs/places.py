"""Which root a path is walked from: the workspace's, or that of the directory a file outside it lies in.

A path that begins with `/` names a file outside the workspace. Its directory is opened only where it is its own real
path: a link on the way is `Blocked`, as one inside the workspace is.
"""

import os
from typing import Self

from sidecar.errors import NoWorkspace
from sidecar.fs.beneath import Blocked, Root


class Places:
    """The workspace's root, and roots outside it as they are asked for."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._outside: dict[bytes, Root] = {}

    def of(self, path: bytes) -> tuple[Root, bytes]:
        """Give the root to walk from and the path below it.

        Raises Blocked where the directory of an outside path is a link or lies behind one, FileNotFoundError where it
        is not there.
        """
        if not path.startswith(b"/"):
            return self.root, path
        folder, _, name = path.rpartition(b"/")
        folder = folder or b"/"
        if os.path.realpath(folder) != folder or not name:
            raise Blocked(path, "link")
        root = self._outside.get(folder)
        if root is None or not root.same_place():
            try:
                root = self._outside[folder] = Root.open(folder)
            except NoWorkspace as refusal:
                raise FileNotFoundError(2, "no such directory", os.fsdecode(folder)) from refusal
        return root, name

    def close(self) -> None:
        """Give the handles back, the workspace's too."""
        for root in (self.root, *self._outside.values()):
            root.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
