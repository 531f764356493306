"""Capture where a tree is too wide to be captured: only the paths that tool calls name, each looked at by itself.

No directory is listed, so no path is ever absent for want of a name in a listing; what was not named is not looked at,
and nothing is said of it. No event tells of a change: the state before is proved by the look before, and nothing is
claimed of the time between.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace

from sidecar.capture.apply import Capturer
from sidecar.capture.look import Finding, Suspect, dirname
from sidecar.capture.place import Evidence
from sidecar.fs.beneath import Blocked
from sidecar.model import Kind, Reason, Stat, State, unknown
from sidecar.store.ledger import Known

_BLOCKED = unknown(Reason.UNSTORABLE)


class NamedCapturer(Capturer):
    """Reads named paths, inside the workspace as outside, and nothing else."""

    refused: Container[bytes] = ()  # their bytes were read, and there was no room for them

    def look(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """Find what became of suspects, as far as they were named."""
        for suspect in sorted(suspects, key=lambda suspect: suspect.path):
            if suspect.path in self.named:
                yield from self._examine_at(suspect, self.ledger.known(suspect.path))

    def survey(
        self,
        evidence: Evidence,
        progress: Callable[[int], None] = lambda _files: None,
        until: int | None = None,  # noqa: ARG002 - no event of these paths will come
    ) -> Iterator[Finding]:
        """Look at every named path, and at the folders above them that a rewind made again."""
        paths = sorted(self.named)
        above = sorted({folder for path in paths for folder in _folders_above(path)} - self.named)
        known = self.ledger.known_among(paths + above)
        made = [path for path in above if path in known and known[path].state.kind is Kind.DIRECTORY]
        for path in sorted(paths + made):
            yield from self._examine_at(Suspect(path, evidence), known.get(path))
        progress(len(paths))

    def _stat(self, path: bytes) -> Stat | None:
        """Look at a path; one behind a link or another mount is neither there nor gone."""
        try:
            root, below = self.places.of(path)
            return root.stat(below)
        except FileNotFoundError:
            return None
        except Blocked as blocked:
            if blocked.why == "not-a-directory":
                return None
            raise blocked.as_fault() from blocked

    def _examine(self, suspect: Suspect, known: Known | None, now: Stat | None) -> Finding | None:
        was_folder = known is not None and known.state.kind is Kind.DIRECTORY
        if now is not None and now.kind is Kind.DIRECTORY and not was_folder:  # nobody knows what lies in it
            same = known is not None and known.state == _BLOCKED
            return None if same else self._found(suspect, known, _BLOCKED, now)
        if suspect.path in self.refused and _is_as_it_was(known, now):
            return None
        return super()._examine(suspect, known, now)

    def _found(
        self,
        suspect: Suspect,
        known: Known | None,
        state: State | None,
        stat: Stat | None,
        content: bytes | None = None,
    ) -> Finding:
        """Note what was found; a stamp older than the look before came along with a moved file, and tells nothing."""
        found = super()._found(suspect, known, state, stat, content)
        proved = suspect.evidence.proved_until
        seen_before = known is not None and known.state.kind is not Kind.UNKNOWN
        differs = known is not None and (content is not None or (state is not None and state != known.state))
        if seen_before and differs and found.changed_at < proved - self.slack.before:
            return replace(found, changed_at=found.seen_at)
        return found


def _is_as_it_was(known: Known | None, now: Stat | None) -> bool:
    was = known.stat if known is not None and known.state.reason is Reason.TOO_LARGE else None
    return was is not None and now is not None and was.same_file_state(now)


def _folders_above(path: bytes) -> Iterator[bytes]:
    """Give the directories of the workspace that a path is in, but for the root."""
    folder = dirname(path) if not path.startswith(b"/") else b""
    while folder:
        yield folder
        folder = dirname(folder)
