"""What watching one engine has found so far, and what follows: when to look again, and when it is to be ended. No I/O
but reading its log; `agent.replica` looks, and acts on what this says. Moments are on the loop's clock.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agent.finishing import STILL_S
from agent.liveness import Activity, next_activity
from agent.progress import MOST_TIMES, Progress, window_s
from agent.readiness import ready_interval_s
from llmgw.wire import EngineUsage, LaunchSpec


class Vitals:
    def __init__(self, launch: LaunchSpec, log: Path, clock: Callable[[], float]) -> None:
        self.failures = 0
        """Failed probes in a row since it was last ready."""
        self._launch = launch
        self._clock = clock
        self._heard_s = clock()
        self._activity: Activity | None = None
        self._progress = Progress(log, launch.readiness, clock())

    def hear(self) -> None:
        """It said something."""
        self._heard_s = self._clock()

    def take_figures(self, figures: Mapping[str, float]) -> None:
        self.hear()
        self._activity = next_activity(self._activity, figures, self._launch, self._clock())

    @property
    def usage(self) -> EngineUsage | None:
        return self._activity.usage(self._clock()) if self._activity is not None else None

    def pause_s(self, ready_since_s: float) -> float:
        """Between two probes of a ready engine: the longer it rests, the rarer."""
        moved_s = max(ready_since_s, self._activity.moved_s if self._activity else 0.0)
        at_work = self._activity is not None and self._activity.in_flight > 0
        stall_limit_s = self._launch.stall_limit_s if at_work else None
        pause_s = ready_interval_s(self._clock() - moved_s, self.failures, stall_limit_s)
        return min(pause_s, self._launch.start_limit_s / 4)  # after which its silence would be a hang

    @property
    def in_use(self) -> bool:
        """It has requests that it makes progress with."""
        known = self._activity
        return known is not None and known.in_flight > 0 and self._clock() - known.worked_s < STILL_S

    def why_hung(self) -> str:
        """Why an engine that was ready counts as hung; empty while it does not."""
        if self._clock() - self._heard_s >= self._launch.start_limit_s:
            return f"hung: it has answered nothing for {self._launch.start_limit_s:g} s"
        return self._activity.why_hung(self._launch.stall_limit_s) if self._activity else ""

    # --- while it starts -------------------------------------------------------------------------------------------

    def start_left_s(self, age_s: float) -> float:
        """Until the start has failed, as far as is known now: progress extends a limit that is passed or near."""
        limit_s = self._launch.start_limit_s
        left_s, window = limit_s - age_s, window_s(limit_s)
        self._progress.read_log(self._clock())
        if left_s > window or age_s >= limit_s * MOST_TIMES:
            return left_s
        return max(left_s, window - (self._clock() - self._progress.last_s))

    def wants_io(self, age_s: float) -> bool:
        """Near and past its limit, what its processes read and write is looked at too."""
        window = window_s(self._launch.start_limit_s)
        return self._launch.start_limit_s - age_s <= window and self._progress.wants_io(window, self._clock())

    def take_io(self, pids: Iterable[int]) -> None:
        self._progress.take_io(pids, self._clock())

    def extension(self, age_s: float) -> str:
        """That its start limit has passed, and why it lives; empty before."""
        limit_s = self._launch.start_limit_s
        return f"start limit {limit_s:g} s passed, extended while it makes progress; " if age_s > limit_s else ""
