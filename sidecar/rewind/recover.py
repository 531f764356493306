"""Take up a rewind that died: nothing displaced is lost, nothing old goes over today's.

What lies in its staging folder either goes back to a path where nothing is, or is saved in the store and discarded;
what can be neither stays where it is. A rewind is idempotent: afterwards it is simply run again.
"""

import os
import stat as bits
from collections.abc import Callable, Iterator, Sequence

from sidecar.fs.beneath import Blocked, Root, stat_of
from sidecar.fs.places import Places
from sidecar.fs.scan import scan
from sidecar.fs.write import DISPLACED_SUFFIX, Staging
from sidecar.model import Kind, Stat
from sidecar.rewind.plan import Do
from sidecar.store.rewinds import Step
from sidecar.store.workspace import Workspace

TREE_SUFFIX = b".tree"  # of a parked directory where a file comes back; its own name holds that file


def recover(workspace: Workspace, places: Places, save: Callable[[bytes, bytes, Stat], None]) -> int | None:
    """Close the journal of a rewind that died and give the number of entries that were put back; None: there was none.

    Survives: dying again; the next call goes on.
    """
    journal = workspace.rewinds.journal()
    if journal is None:
        return None
    steps = {os.fsencode(step.staged): step for step in workspace.rewinds.steps()}
    for suffix in (TREE_SUFFIX, DISPLACED_SUFFIX):
        steps.update({name + suffix: step for name, step in list(steps.items())})
    put_back = 0
    for root in _roots_of(places, [step.path for step in steps.values()]):
        try:
            staging = Staging.adopt(root, os.fsencode(journal.staging))
        except (FileNotFoundError, Blocked):
            continue
        for name in staging.names():
            put_back += _rescue(workspace, places, staging, name, steps.get(name), save)
        staging.close()
    with workspace.database.transaction():
        workspace.rewinds.close_journal()
    return put_back


def _roots_of(places: Places, paths: Sequence[bytes]) -> Iterator[Root]:
    seen: set[bytes] = set()
    for path in [b".", *paths]:
        try:
            root = places.root if path == b"." else places.of(path)[0]
        except (Blocked, FileNotFoundError):
            continue
        if root.path not in seen:
            seen.add(root.path)
            yield root


def _rescue(
    workspace: Workspace,
    places: Places,
    staging: Staging,
    name: bytes,
    step: Step | None,
    save: Callable[[bytes, bytes, Stat], None],
) -> int:
    """Put one entry of a dead rewind's folder back, save it, or leave it there; discard only what the store has."""
    stat = staging.stat(name)
    if stat is None:
        return 0
    path = step.path if step is not None else None
    below = places.of(path)[1] if path is not None else None
    is_original = step is not None and (step.step != Do.WRITE or not _is_staged_name(name))
    if is_original and below is not None and staging.root.stat(below) is None:
        staging.unpark(name, below)
        return 1
    for entry, found in _files_of(staging, name, stat):
        if found.kind is not Kind.FILE or found.links > 1:
            continue  # what cannot be stored stays there, and is found by whoever looks
        content = staging.read(entry)
        if workspace.blobs.find(content) is None:
            save((path or name) + entry[len(name) :], content, found)
        if staging.stat(entry) == found:
            staging.discard(entry)
    for folder in reversed(_folders_of(staging, name, stat)):
        staging.discard_empty_directory(folder)
    return 0


def _is_staged_name(name: bytes) -> bool:
    return not name.endswith((TREE_SUFFIX, DISPLACED_SUFFIX))


def _folders_of(staging: Staging, name: bytes, stat: Stat) -> list[bytes]:
    if stat.kind is not Kind.DIRECTORY:
        return []
    return [listing.path for listing in scan(staging.inside, name, lambda _path, _stat: True)]


def _files_of(staging: Staging, name: bytes, stat: Stat) -> Iterator[tuple[bytes, Stat]]:
    if stat.kind is not Kind.DIRECTORY:
        yield name, stat
        return
    for listing in scan(staging.inside, name, lambda _path, _stat: True):
        for entry, found in listing.entries:
            if not bits.S_ISDIR(found.st_mode):
                yield listing.path + b"/" + entry, stat_of(found)
