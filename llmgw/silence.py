"""When silence counts. The witness rule: a sick observer hears nobody, so a silence counts only if, since it began,
at least half of the other targets were heard."""

from llmgw.world import SilenceLevel


def silence_level(
    silent_s: float, heard_others: int, others: int, suspect_after_s: float, lost_after_s: float
) -> SilenceLevel:
    """The level of a target silent for `silent_s`, with `heard_others` of `others` targets heard since it began."""
    if silent_s < suspect_after_s or 2 * heard_others < others:
        return SilenceLevel.HEARD
    return SilenceLevel.LOST if silent_s >= lost_after_s else SilenceLevel.SUSPECT
