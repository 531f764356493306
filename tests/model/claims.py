"""What must hold at any time, and what a rewind must have done: the claims of the store against the truth."""

import os
from collections.abc import Collection

from sidecar.clock import MS
from sidecar.fs.scan import is_staging_name
from sidecar.model import Checkpoint, Kind, State
from sidecar.store.workspace import Workspace
from tests.model.world import BEFORE_REWINDS, CAP, Sent, Span, Tree, Went, World

APART = 20 * MS  # so far apart, a change and a message must be told apart


def entry_of(workspace: Workspace, state: State | None) -> tuple[object, ...] | str | None:
    """Say a state as the truth spells it: None for absent, a word for unknown."""
    if state is None or state.kind is Kind.UNKNOWN:
        return "unknown"
    if state.kind is Kind.ABSENT:
        return None
    if state.kind is Kind.FILE:
        return ("file", state.mode, workspace.blobs.get(state.blob or 0))
    return (str(state.kind), state.mode)


def short(value: object) -> str:
    """Show a state in a line."""
    return repr(value)[:60]


def states(
    workspace: Workspace, checkpoint: Checkpoint, paths: Collection[bytes], *, counted: bool = False
) -> dict[bytes, object]:
    """Give what the store says of paths at a checkpoint, the agent's own backups included.

    `counted`: as a rewind counts it, to which a path that may have been removed by then is present.
    """
    told = {one.path: one.state for one in workspace.instants.imported(checkpoint.session, checkpoint.message)}
    found: dict[bytes, object] = {}
    for path in paths:
        state = workspace.ledger.state_at(path, checkpoint.at) if checkpoint.timeline else None
        if not counted and checkpoint.timeline and workspace.ledger.gone_about(path, checkpoint.at):
            state = None
        if (state is None or state.kind is Kind.UNKNOWN) and path in told:
            state = told[path]
        found[path] = entry_of(workspace, state)
    return found


def check_states(world: World) -> None:
    """Nothing wrong is said of any message; what can be known is known."""
    paths = {path for touch in world.touches for path in touch.paths} | set(world.tree())
    with world.store() as workspace:
        for sent in world.sent:
            checkpoint = workspace.instants.get(world.session.session, sent.uuid)
            if checkpoint is not None:
                check_said(world, workspace, sent, checkpoint, states(workspace, checkpoint, paths))


def check_said(
    world: World, workspace: Workspace, sent: Sent, checkpoint: Checkpoint, said: dict[bytes, object]
) -> None:
    """Prove what the store says of a message."""
    told = {one.path for one in workspace.instants.imported(checkpoint.session, checkpoint.message)}
    for path, found in sorted(said.items()):
        true = sent.tree.get(path)
        # The agent's own history knows of no change but its tools'; what it tells is its own, true or not (SPEC A6).
        if found == true or path in told:
            continue
        if found == "unknown" and true is None and workspace.ledger.known(path) is None:
            continue  # a path that never was has no row, and no rewind looks at it
        known = must_be_known(world, path, sent, checkpoint)
        # A removal that may be later counts as later: what it took can be removed again, but not the other way round.
        straddles = true is None and found in last_entries(world, path, sent)
        what = f"{path!r} at {sent.uuid[:8]}: {short(found)} instead of {short(true)}"
        assert not known and (found == "unknown" or straddles), what


def last_entries(world: World, path: bytes, sent: Sent) -> list[object]:
    """Give what a path was before the newest removals of it before a message that may have been later."""
    found: list[object] = []
    for touch in reversed([one for one in world.touches if path in one.paths and one.ended <= sent.at]):
        found.append(touch.before.get(path))
        if any(round_.began >= touch.ended and round_.ended <= sent.at for round_ in world.rounds):
            break
    return found


def must_be_known(world: World, path: bytes, sent: Sent, checkpoint: Checkpoint) -> bool:
    """Tell whether everything that happened to a path left room enough around a message for it to be told."""
    if not checkpoint.timeline or not world.rounds:
        return False
    mine = [touch for touch in world.touches if path in touch.paths]
    last = max((touch.ended for touch in mine if touch.ended <= sent.at), default=world.entered)
    first = min((touch.began for touch in mine if touch.ended > sent.at), default=None)
    if sent.at - last < APART or (first is not None and first - sent.at < APART):
        return False
    # Of a record that came too late the order of events says nothing: a round must have proved what was there.
    late = (sent.told or 0) - sent.at > APART
    if late and first is not None and not any(r.began >= sent.at and r.ended <= first for r in world.rounds):
        return False
    end = first if first is not None else max(sent.told or 0, world.rounds[-1].ended)
    if any(outage.overlaps(last, end) for outage in world.outages):
        return False
    # While a round can be had in between, the state was there to be read.
    return any(round_.began >= last and round_.ended <= end for round_ in world.rounds)


def check_store(world: World) -> None:
    """Caps hold, counts are right, and nothing of ours lies in the workspace."""
    with world.store() as workspace:
        database = workspace.database
        live = workspace.instants.checkpoints(world.session.session, all_kinds=True)
        capped = [one for one in live if one.pin is None and one.kind in ("message", "imported", "mark")]
        assert len(capped) <= CAP
        assert len([one for one in live if one.kind == "before-rewind"]) <= BEFORE_REWINDS
        counted = database.all(
            "SELECT id, refs, (SELECT count(*) FROM version WHERE blob = b.id) + "
            "(SELECT count(*) FROM imported WHERE blob = b.id) AS n FROM blob b WHERE refs <> n OR n = 0"
        )
        assert counted == []
        wrong = database.all(
            "SELECT v.path, v.from_at, v.to_at, w.from_at FROM version v JOIN version w ON w.path = v.path "
            "AND w.from_at > v.from_at AND (v.to_at IS NULL OR v.to_at > w.from_at)"
        )
        assert wrong == [], "rows of one path overlap"
        horizon = database.one("SELECT value FROM meta WHERE key = 'released'")
        kept = database.all(
            "SELECT * FROM version v WHERE to_at <= ? AND NOT EXISTS (SELECT 1 FROM message m WHERE m.timeline = 1 "
            "AND m.state = 'live' AND m.at >= v.from_at AND m.at < v.to_at)",
            horizon[0] if horizon is not None else 0,
        )
        assert kept == [], "rows are kept in which no live instant lies"
        named = {name for (name,) in database.all("SELECT file FROM blob WHERE file IS NOT NULL")}
        doomed = {name for (name,) in database.all("SELECT file FROM doomed")}
        assert set(os.listdir(database.blobs)) - {"lock"} - doomed == named
        assert workspace.rewinds.journal() is None
    assert not [name for name in os.listdir(os.fsencode(world.project)) if is_staging_name(name)]


# Rewinds ------------------------------------------------------------------------------------------------------------


def related(path: bytes, others: Collection[bytes]) -> bool:
    """Tell whether a path is one of the others, above one, or below one."""
    return any(
        path == other or path.startswith(other + b"/") or other.startswith(path + b"/") or not other for other in others
    )


def blocked(path: bytes, tree: Tree) -> bool:
    """Tell whether a path lies below what is no directory."""
    parents = [path.rsplit(b"/", depth)[0] for depth in range(1, path.count(b"/") + 1)]
    return any(tree.get(parent, ("directory",))[0] != "directory" for parent in parents)


def check_rewound(world: World, sent: Sent, went: Went, said: dict[bytes, object], only: Collection[bytes]) -> None:
    """After a rewind of everything: what was known is as it was, and everything else is as it is."""
    outcome = went.done.outcome
    failed = {path for path, _ in outcome.failed}
    # A path alone was asked for, and something else stands where its directory was.
    assert all(only and blocked(path, went.after) for path in failed), outcome.failed
    assert not went.done.prepared.plan.skipped_links
    unknown = {path for path, state in said.items() if state == "unknown"}
    kept = {path for path, _ in outcome.kept} | failed
    assert all(related(path, unknown | failed) for path in kept), f"kept although all was known: {outcome.kept}"
    for path in went.before.keys() | sent.tree.keys() | went.after.keys():
        if any(other.startswith(path + b"/") for other in (*outcome.restored, *outcome.removed)):
            continue  # a directory that something came back to, or that was emptied
        asked = not only or any(path == one or path.startswith(one + b"/") for one in only)
        if path in kept or path in unknown or (not asked and not related(path, only)):
            assert went.after.get(path) == went.before.get(path), f"{path!r} was touched"
        elif asked and not related(path, kept | unknown):
            assert went.after.get(path) == said[path], (
                f"{path!r}: {short(went.after.get(path))} instead of {short(said[path])}"
            )


def check_not_ours(world: World, sent: Sent, went: Went) -> None:
    """After a plain rewind: what was changed last outside the turns is untouched."""
    for path in went.before.keys() | went.after.keys():
        if went.before.get(path) != went.after.get(path):
            assert not changed_outside(world, path, went), f"{path!r} was changed last outside all turns"


def changed_outside(world: World, path: bytes, went: Went) -> bool:
    """Tell whether the last change of a path certainly lies outside every turn."""
    mine = [touch for touch in world.touches[: went.touches - 1] if path in touch.changed]
    if not mine or mine[-1].by_rewind:
        return False
    last = mine[-1]
    for turn in world.turns:
        if turn.ended is None:
            if last.ended >= turn.began - APART:
                return False
        elif Span(turn.began - APART, turn.ended + APART).overlaps(last.began, last.ended):
            return False
    # A removal is told from the turn before it only if somebody looked in between.
    ended = max((turn.ended for turn in world.turns if turn.ended is not None and turn.ended < last.began), default=0)
    if any(outage.overlaps(ended, last.ended) for outage in world.outages):
        return False
    return ended == 0 or any(round_.began > ended and round_.ended < last.began for round_ in world.rounds)


def same_as_before(went: Went, back: Went) -> None:
    """An undo gives back what was there, byte for byte."""
    assert not back.done.outcome.failed
    for path in went.before.keys() | back.after.keys():
        was, is_ = went.before.get(path), back.after.get(path)
        assert is_ == was, f"{path!r}: {short(is_)} instead of {short(was)} (kept {back.done.outcome.kept})"


def untouched(
    stamps: dict[bytes, tuple[int, int]], now: dict[bytes, tuple[int, int]], before: Tree, after: Tree
) -> None:
    """Files that needed no change keep inode and mtime."""
    for path, stamp in stamps.items():
        # A change of the mode alone makes no other file of it.
        if before.get(path) == after.get(path):
            assert now[path] == stamp, f"{path!r} was written again"
