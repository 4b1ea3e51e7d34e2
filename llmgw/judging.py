"""Judging what people sent: each recorded input gets exactly one verdict, in the order in which they came.

`judge` is a pure step of a pass. One bad input never stops the others, and nothing of it is half-applied. It never
changes anything but the catalog, what is held, the wishes and the inbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmgw import accepted, members, waking
from llmgw.catalog import Catalog, catalog_digest
from llmgw.catalog_input import NotACatalogError, sent_catalog
from llmgw.diff import differences
from llmgw.node_orders import leave
from llmgw.order import Order, Problems
from llmgw.orders import parse_order
from llmgw.plan import Judgement, Verdict
from llmgw.removal_guard import CONFIRM_AFTER_S, is_confirmed, too_many_removed
from llmgw.sentences import cut, cut_list
from llmgw.stamp import plan_hash
from llmgw.validation import check
from llmgw.world import HeldCatalog, Input, InputKind, World

MAX_PROBLEMS = 20
MAX_DIFFERENCES = 50
MAX_VERDICT_BYTES = 24 * 1024
"""Once the verdicts of a pass are this long, the rest of the inbox waits for the next pass."""


@dataclass(frozen=True, slots=True)
class Judged:
    """`world` with everything accepted in force and the judged inputs gone from its inbox.

    What is to be stored follows from `verdicts` alone, read in order: ACCEPTED catalog = the raw of that arrival is
    in force and nothing is held; HELD = that raw is held (its age stays while its digest does); UNCHANGED catalog =
    nothing is held; REFUSED = as before.
    """

    world: World
    verdicts: tuple[Verdict, ...] = ()
    catalog_from: int | None = None
    """Arrival of the catalog now in force, when it came with this inbox."""
    more: bool = False
    """Not all inputs were judged: plan again at once."""


def judge(world: World, now_s: float) -> Judged:
    """Every input of the inbox judged, as far as the verdicts fit into one plan."""
    inbox = world.inbox
    verdicts: list[Verdict] = []
    size = 0
    for index, item in enumerate(inbox):
        if size > MAX_VERDICT_BYTES:
            return _judged(replace(world, inbox=tuple(inbox[index:])), verdicts, more=True)
        world, verdict = _one(world, item, now_s)
        verdicts.append(verdict)
        size += len(verdict.model_dump_json(exclude_defaults=True))
    return _judged(replace(world, inbox=()) if inbox else world, verdicts, more=False)


def _judged(world: World, verdicts: Sequence[Verdict], *, more: bool) -> Judged:
    catalogs = (v.arrival for v in reversed(verdicts) if _is_new_catalog(v))
    return Judged(world, tuple(verdicts), next(catalogs, None), more)


def _is_new_catalog(verdict: Verdict) -> bool:
    return verdict.kind is InputKind.CATALOG and verdict.judgement is Judgement.ACCEPTED


def _one(world: World, item: Input, now_s: float) -> tuple[World, Verdict]:
    try:
        match item.kind:
            case InputKind.CATALOG:
                return _catalog(world, item)
            case InputKind.ORDER:
                return _order(world, item, now_s)
    except Exception as error:  # one input that is not understood never stops the others
        problem = f"internal error while judging this input: {type(error).__name__}: {error}"
        return world, _refused(world, item, (problem,))


# --- catalogs ------------------------------------------------------------------------------------------------------


def _catalog(world: World, item: Input) -> tuple[World, Verdict]:
    if world.ending:
        return world, _refused(world, item, ("the fleet is ending: start it anew before giving it a catalog",))
    try:
        sent = sent_catalog(item.raw)
    except NotACatalogError as error:
        return world, _refused(world, item, (str(error),))
    checked = check(sent.raw, limit_bytes=sent.limit_bytes, like=world.catalog)
    warnings = tuple(problem.sentence() for problem in checked.warnings)
    if checked.catalog is None:
        return world, _refused(world, item, tuple(problem.sentence() for problem in checked.problems), warnings)
    if sent.plan and sent.plan != (now := plan_hash(world, catalog_digest(checked.catalog))):
        return world, _refused(world, item, (MOVED.format(sent=cut(sent.plan, 40), now=now),), warnings)
    accepted.keep(item.raw, checked.catalog)
    return _valid_catalog(world, item, checked.catalog, warnings)


MOVED = (
    "the fleet, or the catalog, is not the one that plan {sent} was made for (it would be {now} now): "
    "look at it again with `llmgw plan`"
)


def _valid_catalog(world: World, item: Input, new: Catalog, warnings: Problems) -> tuple[World, Verdict]:
    digest = catalog_digest(new)
    if digest == world.digest:
        text = "equal to the catalog in force" + ("; the held one is dropped" if world.held is not None else "")
        return replace(world, held=None), _verdict(world, item, Judgement.UNCHANGED, text, warnings=warnings)
    changes = cut_list([str(d) for d in differences(world.catalog, new)], MAX_DIFFERENCES)
    removal = "" if new.allow_removals else too_many_removed(world, new)
    if removal and not is_confirmed(world.held, digest, item.at_s):
        text = f"held: {removal}. To confirm, send it again after {CONFIRM_AFTER_S:g} s or with `allow_removals: true`"
        held = _held(world.held, digest, item, text)
        verdict = _verdict(world, item, Judgement.HELD, text, digest=digest, warnings=warnings, changes=changes)
        return replace(world, held=held), verdict
    after = _in_force(world, new, digest, item.at_s)
    text = f"generation {after.generation} is in force"
    return after, _verdict(
        after,
        item,
        Judgement.ACCEPTED,
        text,
        warnings=(*warnings, *_renamed(world, new), *_shadowed(world, new), *_left_alone(world, after)),
        changes=changes,
    )


def _held(before: HeldCatalog | None, digest: str, item: Input, text: str) -> HeldCatalog:
    since_s = before.since_s if before is not None and before.digest == digest else item.at_s
    return HeldCatalog(digest, item.raw, since_s, cut(text))


def _in_force(world: World, new: Catalog, digest: str, at_s: float) -> World:
    """`new` in force. A declared node that is dropped while it holds anything leaves; it is not forgotten."""
    before = members.declared_nodes(world)
    world = replace(world, wishes=waking.kept_awake(world, new, at_s))
    world = replace(world, catalog=new, digest=digest, generation=world.generation + 1, held=None)
    declared = members.declared_nodes(world)
    for id_ in sorted(before.keys() - declared.keys() - world.wishes.added_nodes.keys()):
        world = replace(world, wishes=leave(world, before[id_]))
    return _without_stale_wishes(world)


def _without_stale_wishes(world: World) -> World:
    """Wishes about models that are neither in the catalog nor running any more go, and nodes declared again stay."""
    alive = {*members.model_names(world), *(a.model for a in world.assignments.values())}
    subjects = {*alive, *world.assignments}
    declared = members.declared_nodes(world)
    wishes = replace(
        world.wishes,
        scales={k: v for k, v in world.wishes.scales.items() if k in alive},
        wakes={k: v for k, v in world.wishes.wakes.items() if k in alive},
        restarts={k: v for k, v in world.wishes.restarts.items() if k in subjects},
        leaving={k: v for k, v in world.wishes.leaving.items() if k not in declared},
    )
    return world if wishes == world.wishes else replace(world, wishes=wishes)


def _renamed(world: World, new: Catalog) -> Problems:
    """An engine knows one name from its start on: a new name is a new model."""
    left = {a.model for a in world.assignments.values()} - {m.name for m in new.models}
    moved = ((name, m.name) for m in new.models for name in sorted(left & set(m.aliases)))
    return tuple(
        f"{old} becomes an alias of {name}: a rename stops {old}'s engines and starts new ones, and nothing serves "
        f"{old} until {name} is ready. To avoid that, keep {old} in the catalog until then"
        for old, name in moved
    )


def _shadowed(world: World, new: Catalog) -> Problems:
    nodes = [n.id for n in new.nodes if world.wishes.added_nodes.get(n.id, n) != n]
    routers = [r.id for r in new.routers if world.wishes.added_routers.get(r.id, r) != r]
    return (
        *(f"node {id_} was also added by an order, with other values: the catalog's count" for id_ in nodes),
        *(f"router {id_} was also added by an order, with other values: the catalog's count" for id_ in routers),
    )


def _left_alone(world: World, after: World) -> Problems:
    """A router is not told to empty its table: it may have been given to another fleet, or be kept as it is."""
    gone = sorted(members.routers(world).keys() - members.routers(after).keys())
    held = (r for r in gone if world.table.endpoints and (facts := world.routers.get(r)) and facts.acked_revision > 0)
    return tuple(
        f"router {router} is told nothing more: it goes on with the table that it holds, whose engines may end. Stop "
        "it, or send its traffic elsewhere"
        for router in held
    )


# --- orders --------------------------------------------------------------------------------------------------------


def _order(world: World, item: Input, now_s: float) -> tuple[World, Verdict]:
    order = parse_order(item.name, _arguments(item.raw))
    if not isinstance(order, Order):
        return world, _refused(world, item, order)
    if world.ending:
        return world, _refused(world, item, ("the fleet is ending: it takes no more orders",))
    if problems := order.check(world):
        return world, _refused(world, item, problems)
    warnings = (*order.warnings(world), *_fenced(world, order))
    changed = order.apply(world, now_s)
    if changed is world:
        return world, _verdict(world, item, Judgement.UNCHANGED, f"{order.line()}: already so", warnings=warnings)
    text = f"{order.line()}; {undo}" if (undo := order.undo()) else order.line()
    return changed, _verdict(changed, item, Judgement.ACCEPTED, text, warnings=warnings)


def _arguments(raw: object) -> Sequence[object]:
    return raw if isinstance(raw, list | tuple) else (raw,)


def _fenced(world: World, order: Order) -> Problems:
    if world.fenced_by is None or order.name == "takeover":
        return ()
    return ("another plane commands this fleet: the order has no effect before `llmgw takeover`",)


# --- verdicts ------------------------------------------------------------------------------------------------------


def _refused(world: World, item: Input, problems: Problems, warnings: Problems = ()) -> Verdict:
    return _verdict(world, item, Judgement.REFUSED, "refused: nothing was changed", problems, warnings)


def _verdict(
    world: World,
    item: Input,
    judgement: Judgement,
    text: str,
    problems: Problems = (),
    warnings: Problems = (),
    changes: tuple[str, ...] = (),
    digest: str = "",
) -> Verdict:
    """`world` is the one after the judgement: its generation and digest are told, or the held catalog's digest."""
    return Verdict(
        arrival=item.arrival,
        kind=item.kind,
        name=cut(item.name, 80),
        judgement=judgement,
        generation=world.generation,
        digest=digest or world.digest,
        problems=cut_list(problems, MAX_PROBLEMS),
        warnings=cut_list(warnings, MAX_PROBLEMS),
        differences=changes,
        text=cut(text),
    )
