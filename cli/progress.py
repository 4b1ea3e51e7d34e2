"""Is the fleet where a catalog wants it? A judgement of one look at it; pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmgw import views
from llmgw.plan import Verdict
from llmgw.sentences import brief, names_shown
from llmgw.views import Phase

GIVEN_UP = "failed"
"""Code of a model that is not tried again by itself."""
ROLLED_BACK = "rolled_back"
"""Code of a model whose new version was given up, or reverted."""
CANARY = "canary"
"""Code of a model whose new version has as many replicas as it may have for now."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Arrived:
    text: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """It will not come by itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Halted:
    """Nothing is under way, and something is lacking for want of a place or a person. `text` is stable. It counts when
    it lasts: a node that is just coming up may change it."""

    text: str
    lacking: tuple[views.ModelRow, ...]


@dataclass(frozen=True, slots=True)
class Going:
    """What it still waits for. `text` is stable while nothing changes."""

    text: str
    lacking: tuple[views.ModelRow, ...]


Progress = Arrived | Stuck | Halted | Going


def progress(status: views.Status, models: Sequence[views.ModelRow], verdict: Verdict) -> Progress:
    """How far the catalog that `verdict` is about has come. The first rule that has something to say counts."""
    lacking = tuple(m for m in models if m.ready < m.wanted or _waits_to_roll(m))
    back = [m for m in models if m.waiting is not None and m.waiting.code == ROLLED_BACK]
    for rule in _RULES:
        if (found := rule(status, lacking, verdict)) is not None:
            return _rolled_back(back) if back and isinstance(found, Arrived) else found
    return Going(_line(status), lacking)


def _waits_to_roll(model: views.ModelRow) -> bool:
    """It serves, but as it was before the catalog changed it, and nobody said that it may stay so."""
    return model.former > 0 and (model.waiting is None or model.waiting.code not in (ROLLED_BACK, CANARY))


def _superseded(status: views.Status, _: Sequence[views.ModelRow], verdict: Verdict) -> Progress | None:
    if status.digest == verdict.digest:
        return None
    return Stuck(f"another catalog, generation {status.generation}, was put in force meanwhile")


def _out_of_our_hands(status: views.Status, *_: object) -> Progress | None:
    return Stuck(status.phase_text) if status.phase in (Phase.ENDING, Phase.FENCED, Phase.PAUSED) else None


def _there(status: views.Status, lacking: Sequence[views.ModelRow], _: Verdict) -> Progress | None:
    if status.phase is Phase.STEADY or (status.phase is Phase.DEGRADED and not lacking):
        return Arrived("everything wanted is ready and published")
    # A further catalog that is held hides the phase of the one in force.
    if status.phase is Phase.HELD and not lacking and all(r.current for r in status.routers if r.heard):
        return Arrived("everything wanted is ready and published; a further catalog is held")
    return None


def _given_up(_: views.Status, lacking: Sequence[views.ModelRow], __: Verdict) -> Progress | None:
    """Not before everything else is there: what failed is told together with what did not."""
    if not lacking or any(m.waiting is None or m.waiting.code != GIVEN_UP for m in lacking):
        return None
    names = [m.name for m in lacking]
    return Stuck(f"given up after repeated failures: {names_shown(names)}. `llmgw explain {names[0]}` says why")


def _halted(status: views.Status, lacking: Sequence[views.ModelRow], _: Verdict) -> Progress | None:
    """The fleet is as far as it comes by itself."""
    if status.phase is not Phase.DEGRADED or status.coming_up:
        return None
    said = [f"{m.name}: {_why(m)}" for m in lacking[:SHOWN]]
    more = [f"and {len(lacking) - SHOWN} more"] if len(lacking) > SHOWN else []
    text = f"nothing more comes by itself. {'; '.join([*said, *more])}. `llmgw explain {lacking[0].name}` says more"
    return Halted(text, tuple(lacking))


def _why(model: views.ModelRow) -> str:
    counts = f"{model.ready - model.former} of {model.wanted} ready"
    if model.waiting is None:
        return counts
    return "; ".join(part for part in (f"{counts}; {model.waiting.text}", model.waiting.meanwhile) if part)


def _rolled_back(models: Sequence[views.ModelRow]) -> Stuck:
    """Everything serves, and some of it not as the catalog has it."""
    texts = [f"{m.name}: {m.waiting.text}" for m in models[:SHOWN] if m.waiting is not None]
    return Stuck(f"rolled back: {'; '.join(texts)}. `llmgw explain {models[0].name}` says why")


_RULES: tuple[Callable[[views.Status, Sequence[views.ModelRow], Verdict], Progress | None], ...] = (
    _superseded,
    _out_of_our_hands,
    _there,
    _given_up,
    _halted,
)


def lines(found: Going | Halted) -> dict[str, str]:
    """How far each model is that lacks something, by name: a short line that is stable while nothing changes. Where
    none lacks anything, what the fleet does, under no name."""
    if not found.lacking:
        return {"": brief(found.text, MAX_LINE_CHARS)}
    return {model.name: _far(model) for model in found.lacking}


MAX_LINE_CHARS = 70


def _far(model: views.ModelRow) -> str:
    states = ", ".join(f"{count} {state}" for state, count in model.replicas.items() if state != "ready")
    waits = "" if model.waiting is None else brief(model.waiting.text, MAX_LINE_CHARS)
    counts = f"{model.ready - model.former} of {model.wanted} ready"
    return "; ".join(part for part in (counts + (f", {states}" if states else ""), waits) if part)


def _line(status: views.Status) -> str:
    waits = [f"{w.subject}: {brief(w.text, MAX_LINE_CHARS)}" for w in status.waiting[:SHOWN]]
    return "; ".join(part for part in (status.phase_text or status.phase.replace("_", " "), *waits) if part)
