"""Before the first TERM: an engine that by its own gauge still works on requests may finish them.

No router has any in flight by then; whoever asks an engine past the routers is not cut off either. A gauge that stands
still while no counter of work moves is not believed: engines were seen that keep showing the last request for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from agent.liveness import Activity, next_activity
from llmgw.wire import LaunchSpec

STILL_S = 5.0
"""Without progress for so long, what the gauge shows is nothing that could be finished."""
_POLL_S = (0.05, 0.5)

Figures = Callable[[], Awaitable[Mapping[str, float] | None]]


async def let_finish(figures: Figures, launch: LaunchSpec, limit_s: float, tell: Callable[[int], None]) -> None:
    """Return when nothing runs, nothing moves, nobody tells, or `limit_s` has passed. `tell` gets the number of
    requests whenever it is another one."""
    clock = asyncio.get_running_loop().time
    deadline_s, told = clock() + limit_s, 0
    pause_s, slowest_s = _POLL_S
    activity: Activity | None = None
    while clock() < deadline_s and (found := await figures()) is not None:
        activity = next_activity(activity, found, launch, clock())
        if activity is None or not activity.in_flight or clock() - activity.worked_s >= STILL_S:
            return
        if activity.in_flight != told:
            told = activity.in_flight
            tell(told)
        await asyncio.sleep(min(pause_s, max(0.0, deadline_s - clock())))
        pause_s = min(slowest_s, pause_s * 2)
