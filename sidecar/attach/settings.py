"""What a running command needs to know: the policies, the clock, the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar import errors
from sidecar.clock import Clock, SystemClock
from sidecar.policy import load
from sidecar.policy.tables import CheckpointPolicy, IgnorePolicy, WatchPolicy


@dataclass(frozen=True, slots=True)
class Settings:
    """The policies of one process, and where it gets the time from."""

    checkpoints: CheckpointPolicy
    ignore: IgnorePolicy
    watch: WatchPolicy
    clock: Clock = field(default_factory=SystemClock)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def enabled(self) -> bool:
        """Tell whether checkpoints are kept and rewound at all (SPEC B2)."""
        return self.checkpoints.enabled and self.environ.get("SIDECAR_DISABLE", "") in ("", "0")

    def cap(self, profile: str) -> int:
        """Give a profile's number of checkpoints; refuses any other name (SPEC A3)."""
        if profile not in self.checkpoints.profiles:
            known = ", ".join(self.checkpoints.profiles)
            raise errors.UsageError(what=f"There is no profile {profile}; choose one of {known}")
        return self.checkpoints.profiles[profile]


def load_settings() -> Settings:
    """Read the policies."""
    return Settings(load.checkpoint_policy(), load.ignore_policy(), load.watch_policy())


def require_enabled(settings: Settings) -> None:
    """Refuse where checkpoints are switched off."""
    if not settings.enabled:
        raise errors.NotEnabled
