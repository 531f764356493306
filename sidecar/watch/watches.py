"""Which folders are watched: what is on the disk, brought into `Folders` and into the kernel.

The rule: whatever was heard of a directory, look at what is under that name now, watch it, then list it. Events tell
only where to look, never what is there; so a queue that lags behind the disk can mislead for a moment but not for good:
whatever came to a name after the look has an event of its own still in the queue.

Everything is walked by handles, without following a link below the root.
"""

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from sidecar.watch import Event, Lost, What, Why
from sidecar.watch.descriptor import MASK_MODIFY, MASK_TREE, Descriptor
from sidecar.watch.folders import UNWATCHED, Folder, Folders, Tree

_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BELOW = _ROOT | os.O_NOFOLLOW
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES}  # not there, or not to be read: nothing to watch


class When(NamedTuple):
    """The place in the order of what was heard."""

    position: int
    read_at: int


def open_root(path: bytes) -> tuple[int, tuple[int, int]]:
    """Open a place's folder; return the handle and which folder it is. Raises OSError."""
    handle = os.open(path, _ROOT)
    found = os.fstat(handle)
    return handle, (found.st_dev, found.st_ino)


class Watches:
    """The watched folders of one descriptor; `say` is given FOLDER events and the Lost of a limit."""

    def __init__(self, descriptor: Descriptor, now: Callable[[], When], say: Callable[[Event | Lost], None]) -> None:
        self.folders = Folders()
        self._descriptor = descriptor
        self._now = now
        self._say = say
        self._limited = False  # Lost was said for the folders that have no watch now

    def begin(self, tree: Tree, handle: int, when: When | None) -> None:
        """Watch a tree from its open root down, and bring what is known of it already in line.

        Takes the handle over. FOLDER is said of each folder if `when` is given.
        """
        wd = self._watch(tree, handle)
        self._free(self.folders.set_wd(tree.root, wd))
        if wd == UNWATCHED:
            self._limit(tree.root)
        self._grow(tree.root, handle, when)

    def again(self, folder: Folder, when: When | None) -> None:
        """Look again at a folder and all below it, to watch what has no watch."""
        if folder.parent is not None and when is not None:
            self.look(folder.parent, folder.name, when, again=True)
            return
        handle = self._open(folder.tree.root)
        if handle is not None:
            self.begin(folder.tree, handle, when)

    def look(self, parent: Folder, name: bytes, when: When, *, again: bool) -> bool:
        """Bring a folder in line with what is under its name now; tell whether FOLDER was said of it.

        One that is known under this name was listed after it was watched, and is only listed `again` if asked.
        """
        tree = parent.tree
        if not tree.place.recursive:
            self._say(Event(*when, tree.place, parent.path(name), What.FOLDER, True))
            return True
        handle = self._open(parent)
        if handle is None:
            return False
        try:
            before = parent.children.get(name)
            before_wd = UNWATCHED if before is None else before.wd
            step = self._step(parent, handle, name)
        finally:
            os.close(handle)
        if step is None:
            return False
        folder, inner = step
        if not again and folder is before and folder.wd == before_wd != UNWATCHED:
            os.close(inner)
            return False
        self._grow(folder, inner, when)
        return True

    def ended(self, folder: Folder) -> None:
        """Take note that the kernel removed a folder's watch."""
        self._free(self.folders.set_wd(folder, UNWATCHED))

    def forget(self, folder: Folder) -> None:
        """Watch a folder and all below it no longer."""
        self._free(self.folders.forget(folder))

    def unwatched(self) -> list[Folder]:
        """List the folders without a watch; with none left, the next one without is worth a Lost again."""
        self._limited = self._limited and bool(self.folders.unwatched)
        return list(self.folders.unwatched)

    def _grow(self, top: Folder, handle: int, when: When | None) -> None:
        """List a folder just watched, then watch and list all below it; takes the handle over.

        As deep as there are handles; what lies deeper counts as unwatched.
        """
        stack: list[tuple[Folder, int, list[bytes]]] = []
        entering: tuple[Folder, int] | None = (top, handle)
        try:
            while entering or stack:
                if entering is not None:
                    folder, handle = entering
                    names: list[bytes] = []
                    stack.append((folder, handle, names))
                    if when is not None:
                        self._say(Event(*when, folder.tree.place, folder.path(), What.FOLDER, True))
                    names.extend(self._list(folder, handle))
                folder, handle, names = stack[-1]
                entering = None
                if names:
                    entering = self._step(folder, handle, names.pop())
                else:
                    os.close(stack.pop()[1])
        finally:
            for _folder, handle, _names in stack:
                os.close(handle)

    def _list(self, folder: Folder, handle: int) -> set[bytes]:
        """Name the directories in a folder that are to be watched; forget those known that are not there."""
        tree = folder.tree
        if not tree.place.recursive:
            return set()
        try:
            with os.scandir(handle) as entries:
                found = [os.fsencode(each.name) for each in entries if each.is_dir(follow_symlinks=False)]
        except OSError:  # no handles left, or a fault of the disk
            self._limit(folder)
            return set()
        names = {each for each in found if not tree.prune(folder.path(each))}
        for name in [each for each in folder.children if each not in names]:
            self.forget(folder.children[name])
        return names

    def _step(self, parent: Folder, handle: int, name: bytes) -> tuple[Folder, int] | None:
        """Watch one folder in an open parent; return it with a handle of its own, None if there is nothing to watch."""
        known = parent.children.get(name)
        inner = None
        if not parent.tree.prune(parent.path(name)):
            try:
                inner = os.open(name, _BELOW, dir_fd=handle)
            except OSError as error:
                if error.errno not in _GONE:  # no handles left, or no memory
                    folder, free = self.folders.settle(parent, name, UNWATCHED)
                    self._free(free)
                    self._limit(folder or parent)
                    return None
        if inner is None:
            if known is not None:
                self.forget(known)
            return None
        wd = self._watch(parent.tree, inner)
        folder, free = self.folders.settle(parent, name, wd)
        self._free(free)
        if folder is None:
            os.close(inner)
            return None
        if wd == UNWATCHED:
            self._limit(folder)
        return folder, inner

    def _open(self, folder: Folder) -> int | None:
        """Open a folder by the names that lead to it; None if it is not there, or the root is another one."""
        tree = folder.tree
        try:
            handle, found = open_root(tree.place.path)
        except OSError:
            return None  # the watcher's next check says what became of the root
        if found != tree.identity:
            os.close(handle)
            return None
        for name in folder.names():
            try:
                inner = os.open(name, _BELOW, dir_fd=handle)
            except OSError as error:
                if error.errno not in _GONE:
                    self._limit(folder)
                return None
            finally:
                os.close(handle)
            handle = inner
        return handle

    def _watch(self, tree: Tree, handle: int) -> int:
        try:
            if tree.modify:
                return self._descriptor.add(handle, MASK_MODIFY, measured=tree.place.path)
            return self._descriptor.add(handle, MASK_TREE)
        except OSError:
            return UNWATCHED

    def _limit(self, folder: Folder) -> None:
        """Remember a folder that could not be watched, and say so once until there is none of them."""
        self.folders.unwatched[folder] = None
        if not self._limited:
            self._limited = True
            self._say(Lost(*self._now(), folder.tree.place, Why.WATCH_LIMIT, folder.path()))

    def _free(self, numbers: list[int]) -> None:
        for wd in numbers:
            self._descriptor.remove(wd)
