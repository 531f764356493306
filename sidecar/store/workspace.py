"""One workspace's timeline, opened: the tables behind one door."""

import contextlib
import os
from collections.abc import Iterator

from sidecar import errors
from sidecar.policy.tables import CheckpointPolicy
from sidecar.store import home as homes
from sidecar.store.blobs import Blobs
from sidecar.store.database import Database, open_database
from sidecar.store.instants import Instants
from sidecar.store.ledger import Ledger
from sidecar.store.rewinds import Rewinds
from sidecar.store.turns import Turns


class Workspace:
    """A timeline and the directory whose timeline it is."""

    def __init__(self, database: Database, key: str, home: str, policy: CheckpointPolicy) -> None:
        self.database = database
        self.key = key
        self._opened_at: str | None = None
        self.home = home
        self.policy = policy
        self.blobs = Blobs(database, inline_bytes=policy.limits.inline_bytes)
        self.ledger = Ledger(database, self.blobs)
        self.instants = Instants(database)
        self.turns = Turns(database)
        self.rewinds = Rewinds(database)

    @property
    def root(self) -> str:
        """The path at which the directory was opened, or else last seen."""
        if self._opened_at is not None:
            return self._opened_at
        row = self.database.one("SELECT value FROM meta WHERE key = 'root'")
        return "" if row is None else os.fsdecode(row[0])

    def opened_at(self, root: str) -> None:
        """Go by this path from now on, without writing it down."""
        self._opened_at = root

    def label(self, root: str) -> None:
        """Remember where the directory is now."""
        if self.root != root:
            self.set_meta("root", os.fsencode(root))

    def meta(self, key: str) -> object:
        """Give a remembered value, or None."""
        row = self.database.one("SELECT value FROM meta WHERE key = ?", key)
        return None if row is None else row[0]

    def set_meta(self, key: str, value: object) -> None:
        """Remember a value."""
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def give_back(self) -> None:
        """Give the space of what was forgotten back to the disk, now that its forgetting is committed."""
        self.blobs.bury()
        self.database.reclaim()

    def lock_path(self, name: str) -> str:
        """Give the path of one of this workspace's locks: `capture`, `rewind`."""
        return os.path.join(self.home, "locks", f"{self.key}.{name}")

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Close it in the end."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def open_for_root(root: str, policy: CheckpointPolicy, *, create: bool) -> Workspace | None:
    """Open the timeline of a directory; None if it has none and none is to be made."""
    home = homes.open_home(create=create)
    if home is None:
        return None
    try:
        key = homes.identify(root).key
    except OSError as error:
        raise errors.NoWorkspace(path=root, why=errors.describe(error)) from error
    directory = homes.workspace_directory(home, key)
    if not create and not os.path.exists(os.path.join(directory, "store.db")):
        return None
    workspace = Workspace(open_database(directory, create=create), key, home, policy)
    if create:
        workspace.label(os.path.realpath(root))
    workspace.opened_at(os.path.realpath(root))
    return workspace


def open_containing(directory: str, policy: CheckpointPolicy) -> Workspace | None:
    """Open the timeline of the nearest directory, going up, that has one."""
    path = os.path.realpath(directory)
    while True:
        if os.path.isdir(path):
            found = open_for_root(path, policy, create=False)
            if found is not None:
                return found
        parent = os.path.dirname(path)
        if parent == path:
            return None
        path = parent


def open_by_key(key: str, policy: CheckpointPolicy) -> Workspace:
    """Open a timeline by its key."""
    home = homes.open_home(create=False)
    if home is None:
        raise errors.NotOurStore(path=homes.home_directory(), why="there is none")
    return Workspace(open_database(homes.workspace_directory(home, key), create=False), key, home, policy)


@contextlib.contextmanager
def every_workspace(policy: CheckpointPolicy, broken: list[errors.Refusal]) -> Iterator[Iterator[Workspace]]:
    """Go through all timelines of the store, each closed before the next is opened.

    One that cannot be opened keeps nobody from the others: why not is put into `broken`.
    """
    home = homes.open_home(create=False)

    def walk() -> Iterator[Workspace]:
        for key in homes.known_workspaces(home) if home is not None else []:
            try:
                workspace = open_by_key(key, policy)
            except errors.Refusal as refusal:
                broken.append(refusal)
                continue
            try:
                yield workspace
            finally:
                workspace.close()

    yield walk()
