"""How often at most: looks at a whole tree that nobody asks for, and captures of one path. Pure: `now` is given.

Neither may make a checkpoint worse. So a message, and a question, never waits for a pace: it is for what is done
between them, of which nothing is claimed until it is done.
"""

from dataclasses import dataclass, field

from sidecar.clock import MS, SECOND
from sidecar.policy.tables import WatchHot, WatchRescan

# In a timeline's memory, for whoever asks what is protected:
OWED = "rescan_owed"  # the whole tree must be looked at before anything is claimed
UNHEARD = "unheard"  # not all of its folders are watched


@dataclass
class Backoff:
    """When the tree is looked at again after events were lost: at once, then after pauses that double.

    A storm that overflows the kernel's queue for an hour would else mean one look after the other for an hour.
    """

    policy: WatchRescan
    pause: int = 0
    looked_at: int = 0  # when the last look ended
    lost_at: int = 0

    def lose(self, now: int) -> None:
        """Take note of a loss; the first after a quiet time is made good at once."""
        if now - max(self.lost_at, self.looked_at) >= self.policy.quiet_s * SECOND:
            self.pause = 0
        self.lost_at = now

    def is_due(self, now: int) -> bool:
        """Tell whether the pause is over; a clock that was set back ends it too."""
        return not self.looked_at <= now < self.looked_at + self.pause

    def look(self, now: int) -> None:
        """Take note that a look ended."""
        self.looked_at = now
        self.pause = min(max(self.pause * 2, self.policy.first_pause_ms * MS), self.policy.longest_pause_s * SECOND)


@dataclass
class HotPaths:
    """Which paths were captured so often lately that their next capture waits.

    A path may be captured a few times in quick succession: only one that changes all the time is slowed down to one
    capture a period. For each path the instant is kept at which it will have been given that rate again.
    """

    policy: WatchHot
    _even_at: dict[bytes, int] = field(default_factory=dict)
    _swept_at: int = 0

    def is_hot(self, path: bytes, now: int) -> bool:
        """Tell whether a path has had its share."""
        period = self.policy.period_ms * MS
        ahead = self._even_at.get(path, 0) - now
        # More than that ahead of now is a clock that was set back.
        return (self.policy.burst - 1) * period < ahead <= self.policy.burst * period

    def capture(self, path: bytes, now: int) -> None:
        """Take note that a path is captured."""
        period = self.policy.period_ms * MS
        even_at = min(max(self._even_at.get(path, 0), now), now + (self.policy.burst - 1) * period)
        self._even_at[path] = even_at + period
        if not self._swept_at <= now < self._swept_at + period:
            self._swept_at = now
            self._even_at = {path: at for path, at in self._even_at.items() if at > now}
