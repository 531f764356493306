"""What sidecar asks of a coding agent; the default answers come from the agent's table.

An agent whose sessions are JSON lines needs a table and little code: override `expected_transcript`, `history_of` or
the reader where the table cannot say it. Finding never fails for what is broken on disk, it only does not find it.
"""

import os
import re
from collections.abc import Mapping

from sidecar.agents.fields import id_at, text_at
from sidecar.agents.finding import Head, head_records, home_of, is_regular, matching, read_head, read_json
from sidecar.agents.processes import is_alive
from sidecar.agents.reading import Reader
from sidecar.agents.table import AgentTable, parse_agent
from sidecar.errors import AmbiguousId, MalformedId, NoSession, NoTranscript
from sidecar.model import SessionFound
from sidecar.policy.load import checkpoint_policy

__all__ = ["Agent", "AgentTable", "Reader", "parse_agent"]

_SHOWN_CANDIDATES = 5


class Agent:
    """One kind of coding agent."""

    def __init__(self, table: AgentTable) -> None:
        self.table = table
        self._heads: dict[tuple[str, int], Head] = {}  # by path and inode: a transcript's head does not change

    @property
    def name(self) -> str:
        """The agent's name in the store and on the command line."""
        return self.table.name

    # Where things are -----------------------------------------------------------------------------------------------

    def home(self, environ: Mapping[str, str]) -> str:
        """Give the agent's home directory: its own variable, else the default below the person's home."""
        variable = self.table.store.home_variable
        named = environ.get(variable) if variable else None
        return os.path.abspath(named) if named else _expanded(self.table.store.home, environ)

    def private_places(self, environ: Mapping[str, str]) -> list[str]:
        """Give the directories and files that are the agent's own affair: settings, transcripts, credentials."""
        return [self.home(environ), *(_expanded(place, environ) for place in self.table.store.private)]

    def nurseries(self, environ: Mapping[str, str]) -> list[str]:
        """Give the directories in which new sessions show themselves: of transcripts, and of live processes."""
        home, found = self.home(environ), set[str]()
        for pattern in filter(None, (self.table.store.transcripts, self.table.live.files)):
            steps = pattern.split("/")[:-1]
            for depth in range(len(steps) + 1):
                found.update(matching(home, "/".join(steps[:depth])) if depth else [home])
        return sorted(path for path in found if os.path.isdir(path))

    def find_sessions(self, environ: Mapping[str, str]) -> list[SessionFound]:
        """Find every session in the agent's home, newest first; those without a transcript yet come before."""
        return self._sessions_in(self.home(environ))

    def find_by_id(self, text: str, environ: Mapping[str, str]) -> SessionFound:
        """Find a session by its id or a unique prefix of it.

        Raises MalformedId, NoSession, or AmbiguousId. The same id in two places means the newer transcript.
        """
        wanted = text.strip().lower()
        store = self.table.store
        if not wanted or not re.fullmatch(store.session_id, wanted + store.session_sample[len(wanted) :]):
            raise MalformedId(what="session ID", text=text)
        fitting: dict[str, SessionFound] = {}
        for found in self.find_sessions(environ):
            if found.session.startswith(wanted):
                fitting.setdefault(found.session, found)
        if wanted in fitting:
            return fitting[wanted]
        if not fitting:
            raise NoSession(session=text)
        if len(fitting) > 1:
            names = sorted(fitting)
            shown = ", ".join(names[:_SHOWN_CANDIDATES]) + (", …" if len(names) > _SHOWN_CANDIDATES else "")
            raise AmbiguousId(text=text, what="session", candidates=shown)
        return next(iter(fitting.values()))

    def find_in(self, path: str) -> list[SessionFound]:
        """Find the sessions of an explicit target, newest first.

        A transcript (the file may still be missing), a directory of transcripts, the agent's home, a session's
        companion directory, or a file or directory in it. A directory without any gives none: it may be waited on.
        Raises NoTranscript where nothing is there, or what is there is nothing of this agent's.
        """
        path = os.path.abspath(path)
        store = self.table.store
        if os.path.isdir(path) and path.endswith(self._suffix) and self._session_named(path) is not None:
            raise NoTranscript(path=path, why="it is a directory")
        if os.path.isdir(path):
            first = store.transcripts.partition("/")[0]
            if os.path.isdir(os.path.join(path, first)):
                return self._sessions_in(path)
            if os.path.basename(path) == first:
                return self._sessions_in(os.path.dirname(path))
            owner = self._owner_of(path)
            if owner is not None:
                return [self._found(owner, live=self._live(home_of(owner, store.transcripts)))]
            return self._in_directory(path)
        if is_regular(path):
            owner = self._owner_of(path)
            if owner is None and self._is_loose(path):
                owner = self._parent_of_loose(path)
            return [self._found(owner or path, live=self._live(home_of(owner or path, store.transcripts)))]
        if not os.path.lexists(path) and self._session_named(path) is not None and path.endswith(self._suffix):
            return [self._found(path, live=self._live(home_of(path, store.transcripts)))]
        why = "it is not a file" if os.path.lexists(path) else "there is nothing"
        raise NoTranscript(path=path, why=why)

    def transcripts_of(self, found: SessionFound) -> list[str]:
        """Give the session's transcript and those of its subagents that exist; the main one comes first, always."""
        store = self.table.store
        paths = [found.transcript]
        for companion in found.companions:
            for pattern in store.subagents:
                paths += matching(companion, pattern)
        beside = os.path.dirname(found.transcript)
        for pattern in store.loose_subagents:
            paths += [path for path in matching(beside, pattern) if found.session in self._head(path).sessions]
        return list(dict.fromkeys(path for path in paths if path == found.transcript or is_regular(path)))

    def holds_records(self, path: str) -> bool:
        """Tell whether a record of a kind that this agent writes is near a transcript's beginning."""
        store = self.table.store
        records = head_records(path, store.head_lines, store.head_bytes)
        return any(text_at(record.value, self.table.fields.type) in self.table.records for record in records)

    def live_pid(self, found: SessionFound) -> int | None:
        """Give the process that runs the session now, where the agent tells."""
        live = self._live(home_of(found.transcript, self.table.store.transcripts))
        return live[found.session][0] if found.session in live else None

    def reader(self, found: SessionFound) -> Reader:
        """Make what turns this session's records into events; one for all of its transcripts."""
        return Reader(self.table, found.session, prompt_characters=checkpoint_policy().limits.prompt_characters)

    def expected_transcript(self, home: str, cwd: str, session: str) -> str | None:  # noqa: ARG002
        """Say where a session that has written nothing yet will have its transcript; None: found when it is there."""
        return None

    # How it is done -------------------------------------------------------------------------------------------------

    @property
    def _suffix(self) -> str:
        return os.path.splitext(self.table.store.transcripts)[1]

    def _sessions_in(self, home: str) -> list[SessionFound]:
        live = self._live(home)
        paths = [path for path in matching(home, self.table.store.transcripts) if self._session_named(path)]
        found = [self._found(path, live=live) for path in paths if is_regular(path)]
        known = {one.session for one in found}
        waiting = []
        for session, (_, cwd) in live.items():
            expected = None if session in known or not cwd else self.expected_transcript(home, cwd, session)
            if expected is not None:
                waiting.append(self._found(expected, live=live))
        return waiting + _newest_first(found)

    def _in_directory(self, directory: str) -> list[SessionFound]:
        paths = [path for path in matching(directory, f"*{self._suffix}") if is_regular(path)]
        live = self._live(home_of(os.path.join(directory, f"x{self._suffix}"), self.table.store.transcripts))
        mine = [p for p in paths if not self._is_loose(p) and (self._session_named(p) or self._head(p).sessions)]
        found = [self._found(path, live=live) for path in mine]
        for session, (_, cwd) in live.items():
            expected = self.expected_transcript("", cwd, session) if cwd else None
            path = os.path.join(directory, f"{session}{self._suffix}")
            # A process that has written nothing yet belongs here if its directory is filed under this one's name.
            if expected and os.path.dirname(expected).endswith(f"/{os.path.basename(directory)}") and path not in paths:
                found.append(self._found(path, live=live))
        return _newest_first(found)

    def _found(self, transcript: str, *, live: Mapping[str, tuple[int, str | None]]) -> SessionFound:
        store = self.table.store
        named, head = self._session_named(transcript), self._head(transcript)
        # A transcript is named after its session, but for files that were moved or renamed: then the records say it.
        session = named if named and (named in head.sessions or not head.sessions) else None
        session = session or next(iter(head.sessions), None) or _stem(transcript)
        pid, cwd = live.get(session, (None, None))
        home = home_of(transcript, store.transcripts)
        companion = os.path.join(os.path.dirname(transcript), store.companion.format(session=_stem(transcript)))
        return SessionFound(
            session=session,
            agent=self.name,
            transcript=transcript,
            workspace=head.cwd or cwd,
            companions=(companion,) if store.companion else (),
            pid=pid,
            history=os.path.join(home, store.history.format(session=session)) if home and store.history else None,
        )

    def _session_named(self, path: str) -> str | None:
        stem = _stem(path)
        return stem if re.fullmatch(self.table.store.session_id, stem) else None

    def _is_loose(self, path: str) -> bool:
        beside = os.path.dirname(path)
        return any(home_of(path, pattern) == beside for pattern in self.table.store.loose_subagents)

    def _parent_of_loose(self, path: str) -> str | None:
        beside = os.path.dirname(path)
        places = [os.path.join(beside, f"{session}{self._suffix}") for session in self._head(path).sessions]
        return next((place for place in places if is_regular(place)), None)

    def _owner_of(self, path: str) -> str | None:
        """Give the transcript whose companion directory a path is, or lies in."""
        if not self.table.store.companion:
            return None
        inside = path
        while inside != os.path.dirname(inside):
            transcript = f"{inside}{self._suffix}"
            if os.path.isdir(inside) and self._session_named(transcript):
                own = any(matching(inside, f"*{self._suffix}"))
                if is_regular(transcript) or (inside == path and not own):
                    return transcript
            inside = os.path.dirname(inside)
        return None

    def _head(self, path: str) -> Head:
        store = self.table.store
        try:
            key = (path, os.stat(path).st_ino)
        except (OSError, ValueError):
            return Head((), None)
        if key not in self._heads:
            head = read_head(path, self.table.fields, lines=store.head_lines, size_bytes=store.head_bytes)
            if head.cwd is None:  # it may still come
                return head
            self._heads[key] = head
        return self._heads[key]

    def _live(self, home: str | None) -> dict[str, tuple[int, str | None]]:
        """Give the sessions that a living process runs: process and working directory."""
        table, found = self.table.live, {}
        if not table.files or home is None:
            return {}
        for path in matching(home, table.files):
            value = read_json(path)
            pid, session = value.get(table.pid), id_at(value, table.session)
            if isinstance(pid, int) and session is not None and is_alive(pid, text_at(value, table.start)):
                found[session] = (pid, text_at(value, table.cwd))
        return found


def _expanded(place: str, environ: Mapping[str, str]) -> str:
    if place == "~" or place.startswith("~/"):
        return os.path.abspath((environ.get("HOME") or os.path.expanduser("~")) + place[1:])
    return os.path.abspath(place)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _newest_first(found: list[SessionFound]) -> list[SessionFound]:
    def age(one: SessionFound) -> float:
        try:
            return -os.stat(one.transcript).st_mtime
        except OSError:
            return float("-inf")

    return sorted(found, key=age)
