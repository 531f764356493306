"""A workspace that this process is in: as its capturer, or beside the one that is."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar import errors
from sidecar.agents import registry
from sidecar.attach import owner
from sidecar.attach.asking import ask_capturer
from sidecar.attach.catchup import make_capturer, never_captured
from sidecar.attach.digest import Digest
from sidecar.attach.follower import Follower
from sidecar.attach.pace import OWED, UNHEARD, Backoff, HotPaths
from sidecar.attach.rescue import put_in_order
from sidecar.attach.settings import Settings
from sidecar.attach.station import EXTEND_AFTER, Station
from sidecar.attach.wide import remember_mode, remembered_mode, too_much, unsafe_root
from sidecar.capture.ignore import Verdict
from sidecar.clock import SECOND
from sidecar.fs.beneath import Root
from sidecar.fs.lock import FileLock
from sidecar.fs.places import Places
from sidecar.store.home import home_directory
from sidecar.store.workspace import Workspace, open_for_root
from sidecar.watch import Place, Watcher


@dataclass
class Room:
    """An open workspace, who is followed in it, and what is due."""

    workspace: Workspace
    places: Places
    station: Station
    settings: Settings
    lock: FileLock | None  # None: another process captures
    wide: str | None  # why the tree is not captured; None: it is
    place: Place | None = None
    asks: Place | None = None
    followers: dict[str, Follower] = field(default_factory=dict)
    digests: dict[str, Digest] = field(default_factory=dict)
    rescan_after: int = 0
    lost: bool = False
    at_once: bool = False  # the look that is owed waits for no pause
    owed: bool = False  # and that it is owed can be read in the store
    unheard: bool | None = None  # not all folders are watched; None: the store does not say so yet
    rules_changed: bool = False
    gone: bool = False
    held_until: int = 0

    def __post_init__(self) -> None:
        self.backoff = Backoff(self.settings.watch.rescan)

    def leave_out(self) -> None:
        """Leave out also the places of the sessions that came since."""
        self.station.capturer.rules.exclude(never_captured(self.workspace, self.places, self.settings))

    def prunes(self, path: bytes) -> bool:
        """Tell whether a folder is left out, and so not watched."""
        return self.station.capturer.rules.verdict(path, is_directory=True) is not Verdict.CAPTURED

    def leave(self) -> None:
        """Stop capturing, and say so to whoever asks: the directory is not the one that was opened any more."""
        self.gone = True
        for digest in self.digests.values():
            digest.unprotected = True
        with contextlib.suppress(errors.StoreFault):  # what is not written down is not claimed
            self.station.end_coverage()
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def lose(self, *, at_once: bool = False) -> None:
        """Take note that events were lost; `at_once`: looking again is how this tree is watched, at its own pace."""
        if self.lock is not None and not self.gone:
            self.lost = True
            self.at_once = self.at_once or at_once
            self.backoff.lose(self.settings.clock.now())

    def was_replaced(self) -> bool:
        """Tell whether another directory has taken the place of one that no event tells of."""
        captures = self.lock is not None and not self.gone
        return captures and self.wide is not None and not self.places.root.same_place()

    def begin_capture(self, watcher: Watcher | None, progress: Callable[[int], None]) -> None:
        """Watch first, then scan: what changes meanwhile is heard of.

        Of a tree that is too wide nothing is watched, and only what tool calls name is looked at.
        """
        rules = self.station.capturer.rules
        why = unsafe_root(self.workspace.root, self.settings) or too_much(self.places.root, rules, self.settings)
        remember_mode(self.workspace, why, self.settings.clock.now())
        self.wide = why
        self.station.capturer = make_capturer(self.workspace, self.places, self.settings)
        if watcher is not None:
            if why is None:
                self.place = watcher.add_tree(self.places.root.path, self.prunes)
            self.asks = watcher.add_folder(os.fsencode(self.workspace.database.asks), modify=False)
        self.station.hot = HotPaths(self.settings.watch.hot)
        watched_from = self.settings.clock.now()
        last = self.workspace.ledger.coverage_end()
        first = last is None
        self.station.budget.free = True
        self.station.survey(covered=first, proved_until=watched_from if last is None else last, progress=progress)
        self.station.budget.free = False
        self.station.begin_coverage(watched_from)
        self.station.proved_until = watched_from
        self._settle_debt()

    def write(
        self, finish: Callable[[], None] | None, *, has_message: bool, asked: bool, watcher: Watcher | None
    ) -> None:
        """Write down what happened; `finish` joins the last transaction.

        `asked`: somebody waits for all of it, as a message does; else what has a pace keeps it.
        """
        if self.held:
            return
        if self.gone:
            if finish is not None:
                with self.workspace.database.transaction():
                    finish()
        elif self.lock is None and finish is not None:
            ask_capturer(self.workspace, answer_ms=self.settings.checkpoints.time.capture_answer_ms)
            with self.workspace.database.transaction():
                finish()
        if self.lock is not None and not self.gone:
            self._capture(finish, has_message=has_message, asked=asked, watcher=watcher)
            if has_message:
                self.station.renew_budget()

    def _capture(
        self, finish: Callable[[], None] | None, *, has_message: bool, asked: bool, watcher: Watcher | None
    ) -> None:
        blind = self.wide is None and self._is_partly_unheard(watcher)
        if self.wide is not None:
            self._look_at_named(finish, asked=asked)
        elif self.lost or self.rules_changed:
            if has_message or asked or self.at_once or self.backoff.is_due(self.settings.clock.now()):
                self._look_again(finish, watcher)
            else:
                self._owe_a_look(finish)
        elif blind and (has_message or asked):
            self._look_at_all(finish)
        elif has_message and self.station.small:
            self.station.write_down(unstable=True)
            self.station.rescan(finish)
        elif finish is not None or self.station.busy:
            self.station.write_down(finish, unstable=has_message, everything=has_message or asked)

    def _look_at_named(self, finish: Callable[[], None] | None, *, asked: bool) -> None:
        """Look at what tool calls named: each time where that costs little, else where somebody waits for it."""
        pause = self.settings.watch.rescan.degraded_period_s * SECOND
        due = self.settings.clock.now() >= self.station.scanned_at + pause
        if finish is not None or self.station.small or due or asked:
            self.station.look_at_named(finish, extend_after=EXTEND_AFTER)
        self.lost = False

    def _is_partly_unheard(self, watcher: Watcher | None) -> bool:
        """Tell whether folders are not watched because of a limit, and let the store say so.

        What changes in them is told of now and then, which is not good enough for a message or a question.
        """
        top = self.places.root.path
        blind = watcher is not None and any((folder + b"/").startswith(top + b"/") for folder in watcher.unwatched())
        unheard = blind or (watcher is not None and watcher.kind == "poll")
        if unheard != self.unheard:
            if unheard != bool(self.workspace.meta(UNHEARD)):
                self.workspace.set_meta(UNHEARD, int(unheard))
            self.unheard = unheard
        return blind

    def _look_at_all(self, finish: Callable[[], None] | None = None) -> None:
        """Look at the whole tree where no event tells of a part of it; events that come later only add to that."""
        self.station.write_down(unstable=True, listings=False)
        now = self.settings.clock.now()
        self.station.survey(covered=True, proved_until=self.station.scanned_at, finish=finish)
        self.station.proved_until = max(self.station.proved_until, now)

    def _owe_a_look(self, finish: Callable[[], None] | None) -> None:
        """Claim nothing until the tree is looked at; what the transcripts said is written down all the same."""
        self.station.end_coverage()
        if not self.owed:
            self.workspace.set_meta(OWED, 1)
            self.owed = True
        if finish is not None:
            with self.workspace.database.transaction():
                finish()

    def _look_again(self, finish: Callable[[], None] | None, watcher: Watcher | None) -> None:
        """Events were missed: nothing is claimed of the time since the last proof; the tree says what is now."""
        last = self.station.known_until
        self.station.end_coverage()
        if self.rules_changed and watcher is not None and self.place is not None:
            watcher.drop(self.place)  # the rules let in other folders now
            self.place = watcher.add_tree(self.places.root.path, self.prunes)
        now = self.settings.clock.now()
        self.station.survey(covered=False, proved_until=last, finish=finish)
        self.station.begin_coverage(now)
        self.station.proved_until = now
        self.backoff.look(self.settings.clock.now())
        count = self.workspace.meta("rescans")
        self.workspace.set_meta("rescans", (count if isinstance(count, int) else 0) + 1)
        self._settle_debt()

    def _settle_debt(self) -> None:
        """Take note that the whole tree has been looked at."""
        self.lost = self.at_once = self.rules_changed = self.owed = False
        if self.workspace.meta(OWED):  # also one that a process before this left
            self.workspace.set_meta(OWED, 0)
        self._rescan_later()

    @property
    def held(self) -> bool:
        """Tell whether the store failed so lately that it is not tried again yet."""
        return self.settings.clock.now() < self.held_until

    def hold_back(self) -> None:
        """Try again a little later, and look at everything then."""
        self.lose()
        self.held_until = self.settings.clock.now() + self.settings.watch.rescan.degraded_period_s * SECOND

    def take_over(self, watcher: Watcher | None) -> bool:
        """Become the capturer if the one that was is gone."""
        if self.lock is not None or self.gone or self.held or owner.capturer(self.workspace) is not None:
            return False
        self.lock = owner.own_capture(self.workspace)
        if self.lock is None:
            return False
        self.begin_capture(watcher, lambda _files: None)
        return True

    def look_if_due(self) -> None:
        """Look at the whole tree now and then, although events are heard."""
        whole = self.lock is not None and not (self.gone or self.held or self.lost or self.rules_changed or self.wide)
        if whole and self.settings.clock.now() >= self.rescan_after:
            if self.unheard:
                self._look_at_all()
            else:
                self.station.write_down()
                self.station.rescan()
            self._rescan_later()

    def _rescan_later(self) -> None:
        self.rescan_after = self.settings.clock.now() + self.settings.watch.rescan.period_s * SECOND

    def close(self) -> None:
        """Write down how far watching reached, and give everything back."""
        if self.lock is not None and not self.gone:
            self.station.end_coverage()
            self.workspace.give_back()
            self.lock.release()
        for follower in self.followers.values():
            if follower.lock is not None:
                follower.lock.release()
        self.places.close()
        self.workspace.close()


def open_room(directory: str, settings: Settings, prepare: Callable[[Workspace], None]) -> Room:
    """Open the timeline of a workspace, put an interrupted rewind in order, and try to become the capturer.

    `prepare` writes down who is to be followed, before anything is looked at: a transcript is never captured.
    """
    refuse_private(directory, settings)
    workspace = open_for_root(directory, settings.checkpoints, create=True)
    assert workspace is not None
    prepare(workspace)
    workspace.blobs.remove_strays()
    workspace.blobs.bury()
    places = Places(Root.open(directory))
    put_in_order(workspace, places, settings)
    station = Station(workspace, make_capturer(workspace, places, settings), settings.checkpoints, settings.clock)
    return Room(workspace, places, station, settings, owner.own_capture(workspace), remembered_mode(workspace))


def refuse_private(directory: str, settings: Settings) -> None:
    """Refuse a root in which nothing is ever captured."""
    real = os.path.realpath(directory)
    store = os.path.realpath(home_directory())
    agents = {place for agent in registry().values() for place in agent.private_places(settings.environ)}
    if real == store or real.startswith(store.rstrip("/") + "/") or real in map(os.path.realpath, agents):
        raise errors.NoWorkspace(path=directory, why="nothing in it is captured: it is the store's, or the agent's own")
