"""Import what the agent kept of its own (SPEC A6), and call it as a second witness where our own state is not sure.

Backups are copied and checked before the message that they belong to is written down: the agent gives their names to
other bytes later, and its sweep removes them.
"""

from collections.abc import Iterable, Iterator, Sequence

from sidecar.agents.backups import read_backup
from sidecar.agents.history import ImportedFile, ImportedState, fold_history, matches_text
from sidecar.attach.digest import Digest, News
from sidecar.attach.follower import Follower
from sidecar.capture.ignore import IgnoreRules, Verdict
from sidecar.model import ABSENT, HistoryRecord, Kind, Reason, State, ToolEdit, unknown
from sidecar.store.workspace import Workspace

_UNSURE = (None, Reason.UNSTABLE, Reason.UNKNOWN_THEN)


def import_history(
    workspace: Workspace, digest: Digest, follower: Follower, news: Sequence[News], rules: IgnoreRules, batch_bytes: int
) -> set[str]:
    """Copy the backups that new history records name, as far as they can tell us something; give the messages known.

    In transactions of its own, each of at most `batch_bytes` of content: rows without their message are harmless, and
    come again.
    """
    follower.edits.extend(item.event for item in news if isinstance(item.event, ToolEdit))
    records = [item.event for item in news if isinstance(item.event, HistoryRecord)]
    if not records:
        return set()
    states = fold_history(records, cwds=follower.reader.cwds or [digest.session.cwd], edits=follower.edits)
    session, history = follower.session, follower.found.history
    for batch in _batches(_wanted(workspace, digest, states.values(), rules), batch_bytes, history):
        with workspace.blobs.writing(), workspace.database.transaction():
            for state, path, file, content, mode in batch:
                number = workspace.ledger.path_id(path)
                told = _state(workspace, file, content, mode)
                workspace.instants.add_imported(session, state.message, [(number, told, file.real_parent)])
            workspace.blobs.drop_unused()
    return set(states)


def _wanted(
    workspace: Workspace, digest: Digest, states: Iterable[ImportedState], rules: IgnoreRules
) -> Iterator[tuple[ImportedState, bytes, ImportedFile]]:
    """Give the paths of which the agent may know more than we do."""
    session, since = digest.session.session, workspace.ledger.coverage_start()
    for state in states:
        standing = workspace.instants.state_of(session, state.message)
        if standing not in (None, "live"):
            continue
        checkpoint = workspace.instants.get(session, state.message)
        at = checkpoint.at if checkpoint is not None and checkpoint.timeline else None
        if checkpoint is None and since is not None and state.at is not None and state.at >= since:
            at = state.at  # its message comes in the same batch, and the timeline answers for it
        had = {one.path for one in workspace.instants.imported(session, state.message)}
        for file in state.files:
            path = digest.place_path(file.path)
            if path in had or rules.verdict(path, is_directory=False) is Verdict.NEVER:
                continue
            if at is not None and not _unsure(workspace.ledger.state_at(path, at)):
                continue
            yield state, path, file


def _unsure(state: State | None) -> bool:
    return state is None or (state.kind is Kind.UNKNOWN and state.reason in _UNSURE)


def _batches(
    wanted: Iterator[tuple[ImportedState, bytes, ImportedFile]], ceiling: int, history: str | None
) -> Iterator[list[tuple[ImportedState, bytes, ImportedFile, bytes | None, int]]]:
    batch: list[tuple[ImportedState, bytes, ImportedFile, bytes | None, int]] = []
    size = 0
    for state, path, file in wanted:
        content, mode = None, 0
        if file.file_name is not None and file.trusted and history is not None:
            found = read_backup(history, file.file_name)
            if found is not None and matches_text(found.content, file.expected_text):
                content, mode = found.content, found.mode
        batch.append((state, path, file, content, mode))
        size += len(content or b"") + 512
        if size > ceiling:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _state(workspace: Workspace, file: ImportedFile, content: bytes | None, mode: int) -> State:
    if file.file_name is None:
        return ABSENT if file.trusted else unknown(Reason.BLOB_MISSING)
    if content is None:
        return unknown(Reason.BLOB_MISSING)
    return State(Kind.FILE, workspace.blobs.put(content), len(content), mode)
