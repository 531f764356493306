"""Sessions, and the instants of them that are remembered: messages, marks, baselines, before-rewind states.

Every method that writes belongs inside `database.transaction()`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.model import Checkpoint, CheckpointKind, Kind, Reason, State
from sidecar.store.database import LARGEST, SMALLEST, Database

_COLUMNS = "session, uuid, at, kind, prompt, parent, pin, files, unstable, timeline"
CAPPED = ("message", "imported", "mark")  # the kinds that count against the cap (SPEC A3)
_CAPPED = f"state = 'live' AND pin IS NULL AND kind IN {CAPPED}"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session that was attached at least once."""

    session: str
    agent: str
    transcript: str
    cwd: str
    cap: int
    attached_at: int


@dataclass(frozen=True, slots=True)
class ImportedPath:
    """What the agent's own history says of one path at one message."""

    path: bytes
    state: State
    parent: bytes | None


class Instants:
    """The sessions and checkpoints of one workspace."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # Sessions -------------------------------------------------------------------------------------------------------

    def attach(self, session: str, *, agent: str, transcript: str, cwd: str, cap: int, at: int) -> SessionRow:
        """Remember a session, or what changed about it, and give it."""
        self.database.execute(
            "INSERT INTO session (id, agent, transcript, cwd, cap, attached_at) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET transcript = excluded.transcript, cap = excluded.cap",
            (session, agent, os.fsencode(transcript), os.fsencode(cwd), cap, at),
        )
        found = self.session(session)
        assert found is not None
        return found

    def session(self, session: str) -> SessionRow | None:
        """Give one session."""
        return next(iter(self._sessions("WHERE id = ?", session)), None)

    def sessions(self) -> list[SessionRow]:
        """Give all sessions, the one with the newest message first."""
        return self._sessions(
            "ORDER BY (SELECT max(at) FROM message m WHERE m.session = session.id AND m.kind <> 'baseline') DESC, "
            "attached_at DESC"
        )

    def _sessions(self, where: str, *values: object) -> list[SessionRow]:
        rows = self.database.all(f"SELECT id, agent, transcript, cwd, cap, attached_at FROM session {where}", *values)
        return [
            SessionRow(session, agent, os.fsdecode(transcript), os.fsdecode(cwd), cap, at)
            for session, agent, transcript, cwd, cap, at in rows
        ]

    # Checkpoints ----------------------------------------------------------------------------------------------------

    def seen(self, session: str, uuid: str) -> bool:
        """Tell whether a message was ever remembered, evicted ones included."""
        return self.database.one("SELECT 1 FROM message WHERE session = ? AND uuid = ?", session, uuid) is not None

    def add(
        self,
        session: str,
        uuid: str,
        *,
        at: int,
        kind: CheckpointKind,
        timeline: bool,
        state: str = "live",
        alias: str | None = None,
        parent: str | None = None,
        offset: int = 0,
        prompt: str = "",
        files: int = 0,
        unstable: int = 0,
    ) -> None:
        """Remember an instant of a session."""
        self.database.execute(
            "INSERT INTO message (session, uuid, alias, at, kind, state, timeline, parent, offset, prompt, files, "
            "unstable) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (session, uuid, alias, at, kind, state, int(timeline), parent, offset, prompt, files, unstable),
        )

    def move(self, session: str, uuid: str, at: int) -> None:
        """Give a before-rewind state the instant at which the rewind was written down."""
        self._look_again(session, uuid)
        self.database.execute("UPDATE message SET at = ? WHERE session = ? AND uuid = ?", (at, session, uuid))

    def remove(self, session: str, uuid: str) -> None:
        """Forget that there was an instant; for one that nobody was told of."""
        self._look_again(session, uuid)
        self.database.execute("DELETE FROM message WHERE session = ? AND uuid = ?", (session, uuid))

    def _look_again(self, session: str, uuid: str) -> None:
        """Let the next `Ledger.release` look at the versions again that ended since an instant, which may go now."""
        self.database.execute(
            "UPDATE meta SET value = min(value, (SELECT at FROM message WHERE session = ? AND uuid = ?)) "
            "WHERE key = 'released' AND EXISTS (SELECT 1 FROM message WHERE session = ? AND uuid = ?)",
            (session, uuid, session, uuid),
        )

    def get(self, session: str, uuid: str) -> Checkpoint | None:
        """Give one checkpoint that can be restored."""
        row = self.database.one(
            f"SELECT {_COLUMNS} FROM message WHERE session = ? AND uuid = ? AND state = 'live'", session, uuid
        )
        return None if row is None else _checkpoint(row)

    def instant_of(self, session: str, uuid: str) -> int | None:
        """Give the instant of a message, whatever became of it; None: never seen."""
        row = self.database.one("SELECT at FROM message WHERE session = ? AND uuid = ?", session, uuid)
        return None if row is None else int(row[0])

    def state_of(self, session: str, uuid: str) -> str | None:
        """Tell what became of a message: live, evicted, unprotected, before-attach; None: never seen."""
        row = self.database.one("SELECT state FROM message WHERE session = ? AND uuid = ?", session, uuid)
        return None if row is None else str(row[0])

    def find(self, text: str, session: str | None = None) -> list[tuple[str, str]]:
        """Give (session, uuid) of all messages whose uuid or alias is, or else begins with, a text."""
        narrow, values = ("AND session = ?", [session]) if session else ("", [])
        sql = "SELECT session, uuid FROM message WHERE (uuid = ? OR alias = ?) " + narrow
        exact = self.database.all(sql, text, text, *values)
        if exact:
            return [(str(s), str(u)) for s, u in exact]
        end = text + "\U0010ffff"
        sql = (
            "SELECT session, uuid FROM message WHERE ((uuid >= ? AND uuid < ?) OR (alias >= ? AND alias < ?)) "
            "AND kind <> 'baseline' " + narrow
        )
        return [(str(s), str(u)) for s, u in self.database.all(sql, text, end, text, end, *values)]

    def pinned(self, name: str) -> Checkpoint | None:
        """Give the checkpoint with a pin of that name."""
        row = self.database.one(f"SELECT {_COLUMNS} FROM message WHERE pin = ?", name)
        return None if row is None else _checkpoint(row)

    def pin(self, session: str, uuid: str, name: str | None) -> None:
        """Give a checkpoint a pin, or take it away."""
        self.database.execute("UPDATE message SET pin = ? WHERE session = ? AND uuid = ?", (name, session, uuid))

    def checkpoints(self, session: str | None = None, *, all_kinds: bool = False) -> list[Checkpoint]:
        """List what can be restored, newest first."""
        where, values = ["state = 'live'"], []
        if session is not None:
            where.append("session = ?")
            values.append(session)
        if not all_kinds:
            where.append("kind IN ('message', 'imported', 'mark')")
        rows = self.database.all(
            f"SELECT {_COLUMNS} FROM message WHERE {' AND '.join(where)} ORDER BY at DESC, offset DESC", *values
        )
        return [_checkpoint(row) for row in rows]

    def latest(self, session: str) -> Checkpoint | None:
        """Give the newest message or mark of a session."""
        row = self.database.one(
            f"SELECT {_COLUMNS} FROM message WHERE session = ? AND state = 'live' "
            "AND kind IN ('message', 'imported', 'mark') ORDER BY at DESC, offset DESC LIMIT 1",
            session,
        )
        return None if row is None else _checkpoint(row)

    def taken(self, at: int) -> bool:
        """Tell whether a live instant is exactly this one."""
        return (
            self.database.one("SELECT 1 FROM message WHERE timeline = 1 AND state = 'live' AND at = ?", at) is not None
        )

    def first_since(self, session: str, at: int) -> int | None:
        """Give the session's first message since an instant that the timeline answers for."""
        row = self.database.one(
            "SELECT min(at) FROM message WHERE session = ? AND at >= ? AND timeline = 1 AND kind = 'message' "
            "AND state = 'live'",
            session,
            at,
        )
        return None if row is None or row[0] is None else int(row[0])

    def previous(self, session: str, at: int) -> int | None:
        """Give the instant of the session's checkpoint before another instant."""
        row = self.database.one(
            "SELECT max(at) FROM message WHERE session = ? AND at < ? AND timeline = 1 AND kind <> 'before-rewind'",
            session,
            at,
        )
        return None if row is None or row[0] is None else int(row[0])

    def marks_since(self, at: int) -> list[int]:
        """Give the instants of live messages since an instant, oldest first."""
        rows = self.database.all(
            "SELECT at FROM message WHERE timeline = 1 AND state = 'live' AND at >= ? ORDER BY at", at
        )
        return [int(found) for (found,) in rows]

    def close(self, session: str, uuid: str, *, files: int, unstable: int) -> None:
        """Record what a checkpoint holds, once."""
        self.database.execute(
            "UPDATE message SET files = ?, unstable = ? WHERE session = ? AND uuid = ?",
            (files, unstable, session, uuid),
        )

    # Forgetting -----------------------------------------------------------------------------------------------------

    def beyond_cap(self, session: str, cap: int) -> list[Checkpoint]:
        """List the session's checkpoints that are one too many, oldest first.

        Pins do not count. The target of a rewind that is being carried out counts, and is not given as long as it is.
        """
        rows = self.database.all(
            f"SELECT {_COLUMNS} FROM (SELECT * FROM message WHERE session = ? AND {_CAPPED} "
            "ORDER BY at DESC, offset DESC LIMIT -1 OFFSET ?) m "
            "WHERE NOT EXISTS (SELECT 1 FROM journal j WHERE j.session = m.session AND j.message = m.uuid) "
            "ORDER BY at, offset",
            session,
            cap,
        )
        return [_checkpoint(row) for row in rows]

    def settled_until(self) -> int:
        """Give an instant before which no message that turns up late can stay: it would be beyond its session's cap.

        The smallest there is as long as any session has room.
        """
        settled = LARGEST
        for session in self.sessions():
            oldest = self.database.one(
                f"SELECT at FROM message WHERE session = ? AND {_CAPPED} ORDER BY at DESC LIMIT 1 OFFSET ?",
                session.session,
                session.cap - 1,
            )
            if oldest is None:
                return SMALLEST
            settled = min(settled, int(oldest[0]))
        return settled

    def before_rewinds_beyond(self, keep: int) -> list[Checkpoint]:
        """List the before-rewind states beyond the newest `keep`, oldest first; one in use is not given."""
        rows = self.database.all(
            f"SELECT {_COLUMNS} FROM (SELECT * FROM message WHERE kind = 'before-rewind' AND state = 'live' "
            "AND pin IS NULL ORDER BY at DESC LIMIT -1 OFFSET ?) m "
            "WHERE NOT EXISTS (SELECT 1 FROM journal j WHERE j.before = m.uuid OR j.message = m.uuid) ORDER BY at",
            keep,
        )
        return [_checkpoint(row) for row in rows]

    def evict(self, session: str, uuid: str) -> None:
        """Forget what a message's files were, but not that it was seen."""
        self.database.execute("UPDATE message SET state = 'evicted' WHERE session = ? AND uuid = ?", (session, uuid))
        self.database.execute("DELETE FROM imported WHERE session = ? AND message = ?", (session, uuid))

    # The agent's own history ----------------------------------------------------------------------------------------

    def add_imported(self, session: str, message: str, paths: Iterable[tuple[int, State, bytes | None]]) -> None:
        """Store what the agent's history says of a message; a path already there stays as it is."""
        for path, state, parent in paths:
            self.database.execute(
                "INSERT OR IGNORE INTO imported (session, message, path, kind, blob, size_bytes, mode, reason, parent) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (session, message, path, state.kind, state.blob, state.size_bytes, state.mode, state.reason, parent),
            )

    def imported(self, session: str, message: str) -> list[ImportedPath]:
        """Give what the agent's history says of a message."""
        rows = self.database.all(
            "SELECT p.name, i.kind, i.blob, i.size_bytes, i.mode, i.reason, i.parent FROM imported i "
            "JOIN path p ON p.id = i.path WHERE i.session = ? AND i.message = ? ORDER BY p.name",
            session,
            message,
        )
        return [
            ImportedPath(bytes(name), State(Kind(kind), blob, size, mode, Reason(reason) if reason else None), parent)
            for name, kind, blob, size, mode, reason, parent in rows
        ]


def _checkpoint(row: tuple[object, ...]) -> Checkpoint:
    session, uuid, at, kind, prompt, parent, pin, files, unstable, timeline = row
    return Checkpoint(
        session,  # type: ignore[arg-type]
        uuid,  # type: ignore[arg-type]
        at,  # type: ignore[arg-type]
        CheckpointKind(kind),  # type: ignore[arg-type]
        prompt,  # type: ignore[arg-type]
        parent,  # type: ignore[arg-type]
        pin,  # type: ignore[arg-type]
        files,  # type: ignore[arg-type]
        unstable,  # type: ignore[arg-type]
        bool(timeline),
    )
