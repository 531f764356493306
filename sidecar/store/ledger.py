"""The timeline's rows: what a path was, from when until when.

Every method that writes belongs inside `database.transaction()`; the caller decides what commits together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sidecar.model import Kind, Reason, Row, Stat, State
from sidecar.store.blobs import Blobs
from sidecar.store.database import LARGEST, SMALLEST, Database

_ROW = (
    "{0}.kind, {0}.blob, {0}.size_bytes, {0}.mode, {0}.reason, {0}.from_at, {0}.to_at, {0}.changed_lo, {0}.changed_at"
)
# A removal is an interval. Rows that a rewind wrote tell of an older author, and are no such rows.
_GONE_ABOUT = (
    "v.kind = 'absent' AND v.from_at > ?1 AND v.changed_lo <= ?1 AND v.changed_at = v.from_at AND NOT EXISTS "
    "(SELECT 1 FROM version u WHERE u.path = v.path AND u.kind = 'unknown' AND u.from_at <= ?1 AND u.to_at > ?1)"
)
_STAT = "kind, mode, device, inode, size_bytes, mtime_ns, ctime_ns, links, uid, gid, seen_at"
_KNOWN = (
    f"SELECT p.name, v.id, v.rewind, {_ROW.format('v')}, s.{_STAT.replace(', ', ', s.')} FROM path p "
    "JOIN version v ON v.path = p.id AND v.to_at IS NULL LEFT JOIN stat s ON s.path = p.id "
)
_KINDS = {kind.value: kind for kind in Kind}  # many times faster than asking the enumeration
_AT_ONCE = 500  # paths in one question


@dataclass(frozen=True, slots=True)
class Known:
    """The row that holds for a path now, and what lstat said when it was last found true."""

    version: int
    row: Row
    stat: Stat | None
    seen_at: int
    rewind: int | None = None

    @property
    def state(self) -> State:
        """What the path is, as far as we know."""
        return self.row.state


@dataclass(frozen=True, slots=True)
class Change:
    """A path with a row that begins after some instant: what it was then (None: nobody knows), and what it is."""

    path: bytes
    then: Row | None
    now: Row
    links: int  # hard links of the present file, as last seen


class Ledger:
    """The versions of one workspace."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self.database = database
        self.blobs = blobs

    # Paths ----------------------------------------------------------------------------------------------------------

    def path_id(self, path: bytes) -> int:
        """Give the number of a path, making one if it has none yet."""
        found = self.find_path(path)
        if found is not None:
            return found
        return int(self.database.execute("INSERT INTO path (name) VALUES (?)", (path,)).lastrowid or 0)

    def find_path(self, path: bytes) -> int | None:
        """Give the number of a path that some row names."""
        row = self.database.one("SELECT id FROM path WHERE name = ?", path)
        return None if row is None else int(row[0])

    # The present ----------------------------------------------------------------------------------------------------

    def known(self, path: bytes) -> Known | None:
        """Give the row that holds for a path now."""
        return next(self._known("WHERE p.name = ?", path), (b"", None))[1]

    def known_among(self, paths: Sequence[bytes]) -> dict[bytes, Known]:
        """Give the present of some paths."""
        found: dict[bytes, Known] = {}
        for start in range(0, len(paths), _AT_ONCE):
            asked = paths[start : start + _AT_ONCE]
            found.update(self._known(f"WHERE p.name IN ({', '.join('?' * len(asked))})", *asked))
        return found

    def known_below(self, folder: bytes) -> dict[bytes, Known]:
        """Give the present of every path below a directory that is not known to be absent."""
        if not folder:
            return dict(self._known("WHERE v.kind <> 'absent'"))
        return dict(self._known("WHERE p.name > ? AND p.name < ? AND v.kind <> 'absent'", folder + b"/", folder + b"0"))

    def _known(self, where: str, *values: object) -> Iterator[tuple[bytes, Known]]:
        for name, version, rewind, *rest in self.database.rows(_KNOWN + where, *values):
            told = rest[9:]
            seen = _stat(told[:10]) if told[0] is not None else None
            yield bytes(name), Known(version, _row(rest[:9]), seen, told[10] or 0, rewind)

    def names_of(self, device: int, inode: int) -> set[bytes]:
        """Give the paths under which a file was last seen."""
        rows = self.database.rows(
            "SELECT p.name FROM stat s JOIN path p ON p.id = s.path WHERE s.inode = ? AND s.device = ?",
            _signed(inode),
            _signed(device),
        )
        return {bytes(name) for (name,) in rows}

    def links_since(self, at: int) -> set[bytes]:
        """Give the links, and files with several names, that something happened to after an instant."""
        rows = self.database.rows(
            "SELECT p.name FROM version v JOIN path p ON p.id = v.path JOIN stat s ON s.path = v.path "
            "WHERE v.to_at IS NULL AND v.kind = 'link' AND s.ctime_ns > ?",
            at,
        )
        return {bytes(name) for (name,) in rows}

    # The past -------------------------------------------------------------------------------------------------------

    def state_at(self, path: bytes, at: int) -> State | None:
        """Give what a path was at an instant; None where no row says."""
        row = self.row_at(path, at)
        return None if row is None else row.state

    def row_at(self, path: bytes, at: int) -> Row | None:
        """Give the row that an instant lies in."""
        row = self.database.one(
            f"SELECT {_ROW.format('v')} FROM version v JOIN path p ON p.id = v.path "
            "WHERE p.name = ? AND v.from_at <= ? AND (v.to_at IS NULL OR v.to_at > ?)",
            path,
            at,
            at,
        )
        return None if row is None else _row(row)

    def changed_after(self, at: int) -> list[Change]:
        """Give every path with a row that begins after an instant, in the order of paths.

        The cost follows the rows that changed, not the size of the tree.
        """
        rows = self.database.rows(
            f"SELECT p.name, COALESCE(s.links, 1), {_ROW.format('n')}, {_ROW.format('t')} "
            "FROM (SELECT DISTINCT path FROM version WHERE from_at > :at) c "
            "JOIN path p ON p.id = c.path JOIN version n ON n.path = c.path AND n.to_at IS NULL "
            "LEFT JOIN version t ON t.path = c.path AND t.from_at <= :at AND t.to_at > :at "
            "LEFT JOIN stat s ON s.path = c.path ORDER BY p.name".replace(":at", str(int(at)))
        )
        return [
            Change(bytes(name), None if rest[9] is None else _row(rest[9:18]), _row(rest[:9]), links)
            for name, links, *rest in rows
        ]

    def changed_between(self, after: int | None, until: int) -> list[tuple[bytes, Row]]:
        """Give the rows that begin in (after, until], oldest first; `after` None: nothing is older."""
        rows = self.database.rows(
            f"SELECT p.name, {_ROW.format('v')} FROM version v JOIN path p ON p.id = v.path "
            "WHERE v.from_at > ? AND v.from_at <= ? ORDER BY v.from_at, p.name",
            SMALLEST if after is None else after,
            until,
        )
        return [(bytes(name), _row(rest)) for name, *rest in rows]

    def count_unstable(self, at: int) -> int:
        """Count the paths whose state at an instant is not sure."""
        return int(
            self.database.one(
                "SELECT (SELECT count(*) FROM version WHERE kind = 'unknown' AND reason = 'unstable' "
                "AND from_at <= ?1 AND (to_at IS NULL OR to_at > ?1)) + "
                f"(SELECT count(*) FROM version v WHERE {_GONE_ABOUT})",
                at,
            )[0]
        )

    def gone_about(self, path: bytes, at: int) -> bool:
        """Tell whether a path may have been removed by an instant, although it counts as present there."""
        sql = f"SELECT 1 FROM version v JOIN path p ON p.id = v.path WHERE {_GONE_ABOUT} AND p.name = ?2"
        return self.database.one(sql, at, path) is not None

    def count_files(self) -> tuple[int, int]:
        """Give the number of files that are there now and stored, and their bytes."""
        row = self.database.one(
            "SELECT count(*), COALESCE(sum(size_bytes), 0) FROM version WHERE to_at IS NULL AND kind = 'file'"
        )
        return int(row[0]), int(row[1])

    # Writing --------------------------------------------------------------------------------------------------------

    def replace(
        self,
        path: bytes,
        old: Known | None,
        rows: Iterable[Row],
        stat: Stat | None,
        seen_at: int,
        rewind: int | None = None,
    ) -> None:
        """Put rows in the place of the one that holds; the first may be that one, ended."""
        number = self.path_id(path)
        for row in rows:
            if old is not None and row.from_at == old.row.from_at:
                self.database.execute("UPDATE version SET to_at = ? WHERE id = ?", (row.to_at, old.version))
            else:
                self._insert(number, row, rewind)
            if row.to_at is not None:
                self._reopen_release(row.to_at)
        self._refresh(number, stat, seen_at)

    def refresh(self, path: bytes, stat: Stat | None, seen_at: int) -> None:
        """Record what lstat says of a path whose row still holds; None: nothing is there."""
        self._refresh(self.path_id(path), stat, seen_at)

    def _refresh(self, number: int, stat: Stat | None, seen_at: int) -> None:
        if stat is None:
            self.database.execute("DELETE FROM stat WHERE path = ?", (number,))
            return
        self.database.execute(
            f"INSERT OR REPLACE INTO stat (path, {_STAT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                stat.kind,
                stat.mode,
                _signed(stat.device),
                _signed(stat.inode),
                stat.size_bytes,
                _stored_time(stat.mtime_ns),
                _stored_time(stat.ctime_ns),
                stat.links,
                stat.uid,
                stat.gid,
                seen_at,
            ),
        )

    def _insert(self, number: int, row: Row, rewind: int | None) -> None:
        state = row.state
        self.database.execute(
            "INSERT INTO version (path, from_at, to_at, changed_lo, changed_at, kind, blob, size_bytes, mode, reason, "
            "rewind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                row.from_at,
                row.to_at,
                row.changed_lo,
                row.changed_at,
                state.kind,
                state.blob,
                state.size_bytes,
                state.mode,
                state.reason,
                rewind,
            ),
        )

    # Folders and coverage -------------------------------------------------------------------------------------------

    def listed_since(self, folder: bytes) -> int | None:
        """Tell since when every name in a directory is known; None: never listed."""
        row = self.database.one(
            "SELECT f.listed_at FROM folder f JOIN path p ON p.id = f.path WHERE p.name = ?", folder
        )
        return None if row is None else int(row[0])

    def list_folder(self, folder: bytes, since: int) -> None:
        """Record since when every name in a directory is known, unless an earlier instant is."""
        self.database.execute(
            "INSERT INTO folder (path, listed_at) VALUES (?, ?) ON CONFLICT (path) DO NOTHING",
            (self.path_id(folder), since),
        )

    def forget_folder(self, folder: bytes) -> None:
        """Record that the names in a directory, and below it, are no longer known."""
        self.database.execute(
            "DELETE FROM folder WHERE path IN (SELECT id FROM path WHERE name = ? OR (name > ? AND name < ?))",
            (folder, folder + b"/", folder + b"0"),
        )

    def begin_coverage(self, at: int) -> int:
        """Record that watching begins, and give the interval's number."""
        return int(
            self.database.execute("INSERT INTO coverage (start_at, end_at) VALUES (?, ?)", (at, at)).lastrowid or 0
        )

    def extend_coverage(self, number: int, until: int) -> None:
        """Record that watching was unbroken until an instant."""
        self.database.execute("UPDATE coverage SET end_at = max(end_at, ?) WHERE id = ?", (until, number))

    def covered_at(self, at: int) -> bool:
        """Tell whether an instant lies inside unbroken watching."""
        return self.database.one("SELECT 1 FROM coverage WHERE start_at <= ? AND end_at >= ?", at, at) is not None

    def coverage_end(self) -> int | None:
        """Give the last instant of any watching; None: nobody ever watched."""
        row = self.database.one("SELECT max(end_at) FROM coverage")
        return None if row is None or row[0] is None else int(row[0])

    def watched_since(self) -> int | None:
        """Give the instant at which the newest watching began."""
        row = self.database.one("SELECT max(start_at) FROM coverage")
        return None if row is None or row[0] is None else int(row[0])

    def coverage_start(self) -> int | None:
        """Give the first instant of any watching."""
        row = self.database.one("SELECT min(start_at) FROM coverage")
        return None if row is None or row[0] is None else int(row[0])

    # Releasing ------------------------------------------------------------------------------------------------------

    def release(self, horizon: int) -> int:
        """Delete rows that ended by `horizon` in which no live instant lies; give their number.

        Looks only at rows that ended since the last call.
        """
        released = self._released()
        if horizon <= released:
            return 0
        count = self.database.execute(
            "DELETE FROM version WHERE to_at > ? AND to_at <= ? AND NOT EXISTS (SELECT 1 FROM message m "
            "WHERE m.timeline = 1 AND m.state = 'live' AND m.at >= version.from_at AND m.at < version.to_at)",
            (released, horizon),
        ).rowcount
        self._set_released(horizon)
        return count

    def release_instant(self, at: int, settled: int = SMALLEST) -> int:
        """Delete the rows that only an instant which is no longer live kept; give their number.

        Looks only at rows that contain it and end between its live neighbours. Those that ended lately are left to
        `release`, because an earlier message may yet turn up; not before the instant `settled`.
        """
        alive = "SELECT {}(at) FROM message WHERE timeline = 1 AND state = 'live' AND at {} ?"
        if self.database.one("SELECT 1 FROM message WHERE timeline = 1 AND state = 'live' AND at = ?", at):
            return 0
        (before,) = self.database.one(alive.format("max", "<"), at)
        (after,) = self.database.one(alive.format("min", ">"), at)
        last = max(self._released(), settled)
        last = last if after is None else min(after, last)
        # `+`: the index of beginnings would find far more rows than that of ends.
        return self.database.execute(
            "DELETE FROM version WHERE to_at > ? AND to_at <= ? AND +from_at <= ? AND +from_at > ?",
            (at, last, at, SMALLEST if before is None else before),
        ).rowcount

    def _released(self) -> int:
        row = self.database.one("SELECT value FROM meta WHERE key = 'released'")
        return 0 if row is None else int(row[0])

    def _set_released(self, at: int) -> None:
        self.database.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('released', ?)", (at,))

    def _reopen_release(self, ended: int) -> None:
        if ended <= self._released():
            self._set_released(ended - 1)


def _row(columns: Iterable[object]) -> Row:
    kind, blob, size, mode, reason, from_at, to_at, lo, at = columns
    state = State(Kind(kind), blob, size, mode, Reason(reason) if reason else None)  # type: ignore[arg-type]
    return Row(state, from_at, to_at, lo, at)  # type: ignore[arg-type]


def _stat(columns: list[object]) -> Stat:
    kind, mode, device, inode, size, mtime, ctime, links, uid, gid = columns
    return Stat(
        _KINDS[kind],  # type: ignore[index]
        mode,  # type: ignore[arg-type]
        _unsigned(device),
        _unsigned(inode),
        size,  # type: ignore[arg-type]
        int(mtime),  # type: ignore[call-overload]
        int(ctime),  # type: ignore[call-overload]
        links,  # type: ignore[arg-type]
        uid,  # type: ignore[arg-type]
        gid,  # type: ignore[arg-type]
    )


def _stored_time(nanoseconds: int) -> int | bytes:
    """Anybody may date a file in the year 2400: what no column holds as a number is kept as its digits."""
    return nanoseconds if SMALLEST <= nanoseconds <= LARGEST else str(nanoseconds).encode()


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _unsigned(number: object) -> int:
    assert isinstance(number, int)
    return number + 2**64 if number < 0 else number
