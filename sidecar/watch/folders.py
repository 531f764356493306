"""The folders that are watched, as trees of names: which path a watch number stands for now. No I/O.

A kernel's watch belongs to a directory, not to a path; so a folder that was renamed keeps its number, and one that lies
in two places has one number for both. Numbers are never used twice by one descriptor.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sidecar.watch import Place

UNWATCHED = -1


@dataclass(slots=True, eq=False)
class Folder:
    """One directory of a tree."""

    tree: "Tree"
    name: bytes
    parent: "Folder | None"
    wd: int = UNWATCHED
    children: dict[bytes, "Folder"] = field(default_factory=dict)

    def names(self) -> list[bytes]:
        """List the names that lead here from the tree's root."""
        names = []
        folder = self
        while folder.parent is not None:
            names.append(folder.name)
            folder = folder.parent
        names.reverse()
        return names

    def path(self, *names: bytes) -> bytes:
        """Spell the path of this folder, or of a name in it, relative to the root."""
        return b"/".join([*self.names(), *names])

    def all(self) -> Iterator["Folder"]:
        """Go through this folder and all below it."""
        stack = [self]
        while stack:
            folder = stack.pop()
            yield folder
            stack.extend(folder.children.values())

    def is_below(self, other: "Folder") -> bool:
        """Tell whether this folder is the other one or lies in it."""
        folder: Folder | None = self
        while folder is not None and folder is not other:
            folder = folder.parent
        return folder is other


@dataclass(slots=True, eq=False)
class Tree:
    """One place with its folders."""

    place: Place
    identity: tuple[int, int]
    modify: bool
    prune: Callable[[bytes], bool]
    root: Folder = field(init=False)
    lost: bool = False

    def __post_init__(self) -> None:
        self.root = Folder(self, b"", None)


class Folders:
    """All trees of one descriptor, found by watch number."""

    def __init__(self) -> None:
        self._by_wd: dict[int, dict[int, Folder]] = {}
        self.unwatched: dict[Folder, None] = {}  # in the order in which it happened

    def find(self, wd: int) -> list[Folder]:
        """List the folders that a watch number stands for, at most one a tree."""
        return list(self._by_wd.get(wd, {}).values())

    def set_wd(self, folder: Folder, wd: int) -> list[int]:
        """Give a folder its watch number; return the number that is free by that, if any."""
        self.unwatched.pop(folder, None)
        free = self._clear(folder) if folder.wd != wd else []
        folder.wd = wd
        if wd == UNWATCHED:
            self.unwatched[folder] = None
        else:
            self._by_wd.setdefault(wd, {})[folder.tree.place.number] = folder
        return free

    def settle(self, parent: Folder, name: bytes, wd: int) -> tuple[Folder | None, list[int]]:
        """Say that the directory with this number is `name` in `parent` now; return its folder and the numbers freed.

        A folder known elsewhere in the tree moves here with what is known below it. None: the directory holds its own
        parent (a mount that loops), and is left alone.
        """
        tree = parent.tree
        free: list[int] = []
        occupant = parent.children.get(name)
        folder = self._by_wd.get(wd, {}).get(tree.place.number) if wd != UNWATCHED else None
        if folder is not None and parent.is_below(folder):
            return None, free
        if folder is None and occupant is not None and UNWATCHED in (wd, occupant.wd):
            folder = occupant  # the same one, as far as can be known: its watch came or went
        if folder is None:
            folder = Folder(tree, name, parent)
        if occupant is not None and occupant is not folder:
            # A folder that moves up over its own parent must not go with it.
            if folder.parent is not None and folder.is_below(occupant):
                folder.parent.children.pop(folder.name, None)
            free += self.forget(occupant)
        old = folder.parent
        if old is not None and old.children.get(folder.name) is folder:
            del old.children[folder.name]
        folder.parent, folder.name = parent, name
        parent.children[name] = folder
        return folder, free + self.set_wd(folder, wd)

    def forget(self, folder: Folder) -> list[int]:
        """Take a folder and all below it out; return the watch numbers that nobody needs any more."""
        free: list[int] = []
        for each in list(folder.all()):
            free += self._clear(each)
        if folder.parent is not None and folder.parent.children.get(folder.name) is folder:
            del folder.parent.children[folder.name]
        folder.children.clear()
        return free

    def _clear(self, folder: Folder) -> list[int]:
        self.unwatched.pop(folder, None)
        sharing = self._by_wd.get(folder.wd)
        if sharing is None or sharing.get(folder.tree.place.number) is not folder:
            return []
        wd, folder.wd = folder.wd, UNWATCHED
        del sharing[folder.tree.place.number]
        if sharing:
            return []
        del self._by_wd[wd]
        return [wd]
