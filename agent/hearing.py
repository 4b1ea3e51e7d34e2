"""When this agent last heard of a plane. Moments are on the boot clock; pure.

An agent that is forgotten serves on for ever: nobody may take its silence for an order. It only says so itself, in its
health, figures and log, for whoever looks at the machine.
"""

DAY_S = 86_400.0

ABANDONED_S = DAY_S
"""Without any plane for so long, and it says so; no plane that lives is silent for longer than minutes."""


class Hearing:
    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        """When a stream was last read from, or a batch came."""

    def note(self, now_s: float) -> None:
        self.heard_s = now_s

    def restore(self, heard_s: float | None, now_s: float) -> None:
        """What an earlier agent of this boot heard last."""
        if heard_s is not None:
            self.heard_s = min(heard_s, now_s)

    def silent_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.heard_s)

    def problem(self, now_s: float) -> str:
        """That nobody has asked for days, in whole days; empty before."""
        silent_s = self.silent_s(now_s)
        if silent_s < ABANDONED_S:
            return ""
        days = int(silent_s // DAY_S)
        return f"no plane was heard for {days} day{'s' if days > 1 else ''}: is this node abandoned? Its engines run on"
