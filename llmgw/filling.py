"""Filling what models lack: models by priority, profiles in order, failed attempts at their time, places by fit."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmgw import attempts, crashes, demand, plan_size, rolling, yielding
from llmgw.catalog import Catalog, Model, Profile
from llmgw.draft import Draft
from llmgw.evidence import is_proof, never_begun
from llmgw.ground import Ground, Spot
from llmgw.ids import Fingerprint, ModelName, NodeId, ReplicaId
from llmgw.launches import launch_of
from llmgw.rolling import Version
from llmgw.sentences import names_shown
from llmgw.world import Assignment, Failure, Part, StopCause

REFUSAL_PATIENCE_S = 30.0
"""A replica that its node has refused for so long goes elsewhere, if there is a place."""
REFUSED_BY_ALL_S = 600.0
"""After this time it may go to nodes that have refused it before: what they lacked may be there."""
MOST_REMEMBERED = 50


def fill(draft: Draft) -> None:
    """Judge every model's replicas and place what is missing: the highest priority first, wakes in order of arrival."""
    catalog = draft.world.catalog
    models = () if catalog is None or draft.world.ending else catalog.models
    _remove(draft, {m.name for m in models})
    if catalog is None:
        return
    crashing = frozenset(crashes.crashing_nodes(draft))
    ground = Ground.of(draft, catalog, crashing)
    for model in sorted(models, key=lambda m: (-m.priority, demand.asked_s(draft.world, m, draft.now_s), m.name)):
        mine = draft.of_model(model.name)
        version = rolling.version(draft, model)
        if demand.is_met(draft, version, mine):
            continue
        alive = [a for a in mine if not (a.unreadable or (a.stop is not None and a.stop.commanded))]
        if draft.hold:
            _hold(draft, model, alive)
        else:
            _Filling(draft, catalog, ground, model, version, crashing).run(alive)
            ground.turn_over(model.name)


def _remove(draft: Draft, wanted: set[ModelName]) -> None:
    unwanted = draft.models_assigned() - wanted
    for assignment in sorted((a for name in unwanted for a in draft.of_model(name)), key=lambda a: a.replica):
        if draft.world.ending:
            draft.want_stop(assignment, StopCause.FLEET_ENDS, "the fleet ends")
        elif draft.world.catalog is not None and not (assignment.unreadable and not assignment.model):
            draft.want_stop(assignment, StopCause.REMOVED, f"{assignment.model} left the catalog")


def _hold(draft: Draft, model: Model, alive: Sequence[Assignment]) -> None:
    """While the plane holds, nothing is placed or given up; a model that is back takes its replicas back."""
    for assignment in alive:
        if assignment.stop is not None and assignment.stop.cause is StopCause.REMOVED:
            draft.take_back(assignment)
    lacking = demand.desired(draft.world, model, draft.now_s) - demand.unread(draft, model) - len(alive)
    if lacking > 0:
        draft.wait(f"model/{model.name}", "hold", f"lacks {lacking}: {draft.hold}")


@dataclass(frozen=True, slots=True)
class _Found:
    """A profile and a spot for it."""

    version: Version
    profile: Profile
    print_: Fingerprint
    spot: Spot


@dataclass(frozen=True, slots=True)
class _NotFound:
    """Why no profile has a spot now. `tried`: profiles that have not been given up."""

    code: str
    text: str
    tried: tuple[Profile, ...]


@dataclass
class _Filling:
    """One model in this pass."""

    draft: Draft
    catalog: Catalog
    ground: Ground
    model: Model
    version: Version
    crashing: frozenset[NodeId]
    """Nodes on which many models failed."""

    @property
    def subject(self) -> str:
        return f"model/{self.model.name}"

    def run(self, alive: Sequence[Assignment]) -> None:
        if self.draft.world.refused:
            stay = [a for a in alive if not self._goes_elsewhere(a)]
            alive = [*stay, *self._placed()]
        lacking = demand.assess(self.draft, self.version, alive)
        short = self._place(self.version, lacking.missing, lacking.to_place)
        if isinstance(short, _NotFound) and lacking.urgent:
            yielding.make_room(self.draft, self.ground, self.model, short.tried)
        if lacking.former and (former := rolling.last_good(self.draft.world, self.model)) is not None:
            self._place(former, lacking.former, lacking.former)
        if isinstance(short, _NotFound) and lacking.urgent == 0:
            demand.give_way(self.draft, lacking, lambda a: self._helps(short, a))
        else:
            demand.stay(self.draft, lacking)
        if self.draft.survey.has_lost:
            mine = {a.replica: self.draft.assignments[a.replica] for a in (*alive, *self._placed())}
            demand.drop_lost(self.draft, self.model, list(mine.values()))
        if self.version.back:
            self.draft.wait(self.subject, "rolled_back", f"the last good version runs: {self.version.back}")

    def _placed(self) -> list[Assignment]:
        """The model's new replicas of this pass."""
        return [a for a in self.draft.fresh if a.model == self.model.name]

    def _place(self, version: Version, missing: int, to_place: int) -> _NotFound | None:
        """Place what may be placed now of what is missing of a version; why no more where places are short."""
        failures = [f for f in self._failures() if f.fingerprint in version.prints]
        failed = attempts.open_failures(failures)
        due = [f for f in failed if self._is_due(f, failures)]
        afresh = max(0, missing - len(failed))
        follows: list[Failure | None] = [*due, *[None] * afresh]
        for failure in follows[:to_place]:
            if self.draft.fresh_bytes >= plan_size.MAX_START_BYTES:
                self.draft.more = True
                return None
            found = self._search(version)
            if isinstance(found, _NotFound):
                self.draft.wait(self.subject, found.code, found.text)
                return found
            self._assign(found, failure)
        if len(follows) < to_place:
            self._backing_off(next(f for f in failed if f not in due))
        return None

    def _failures(self) -> tuple[Failure, ...]:
        known = self.draft.failures.get(self.model.name, ())
        return attempts.counted(self.draft.world, self.model, known)

    def _is_due(self, failure: Failure, failures: Sequence[Failure]) -> bool:
        """After the last attempt with a profile the next profile is tried at once."""
        due = attempts.due_s(failure) <= self.draft.now_s
        return due or self._given_up(failures, failure.fingerprint) is not None

    def _backing_off(self, failure: Failure) -> None:
        text = f"attempt {failure.attempt} failed on {failure.node}: {failure.text}{_last_line(failure)}"
        self.draft.wait(self.subject, "backing_off", text, attempts.due_s(failure))

    # --- searching ---

    def _search(self, version: Version, never: frozenset[NodeId] = frozenset()) -> _Found | _NotFound:
        """The first profile with a spot. One whose devices are only being released still comes before a later profile
        with free ones: preference counts more than a short wait."""
        failures = self._failures()
        words: list[str] = []
        tried: list[tuple[Fingerprint, Profile]] = []
        for print_, index in version.prints.items():
            profile = version.model.profiles[index]
            if (lost := self._given_up(failures, print_)) is not None:
                last = f"last: {lost.text}{_last_line(lost)}"
                how = attempts.how_given_up(failures, lost, self.catalog.policy.max_attempts)
                words.append(f"given up: {profile.name} {how}, {last}")
            else:
                tried.append((print_, profile))
        avoid, profiles = frozenset(f.node for f in failures), [profile for _, profile in tried]
        spot = self.ground.find(version.model, profiles, avoid=avoid, never=never)
        if isinstance(spot, Spot):
            print_, profile = tried[spot.profile]
            if launch_of(version.catalog, version.model, profile, spot.vendor)[1] is not None:
                return _Found(version, profile, print_, spot)
            words.append(f"{profile.name}: engine {profile.engine} cannot name devices of vendor {spot.vendor}")
            return _NotFound("no_place", ". ".join(words), tuple(profiles))
        crashing = f" (left out for crashes: {names_shown(sorted(self.crashing))})" if self.crashing else ""
        words += [f"{profile.name} {text}{crashing}" for profile, text in zip(profiles, spot, strict=True)]
        return _NotFound("no_place" if tried else "failed", ". ".join(words), tuple(profiles))

    def _given_up(self, failures: Sequence[Failure], print_: Fingerprint) -> Failure | None:
        """The failure by which a profile was given up; while it serves elsewhere, the place was at fault."""
        lost = attempts.given_up(failures, print_, self.catalog.policy.max_attempts)
        if lost is None:
            return None
        mine = (a for a in self.draft.assignments.values() if a.model == self.model.name and a.fingerprint == print_)
        return None if any(demand.is_serving(self.draft, a) for a in mine) else lost

    def _helps(self, short: _NotFound, assignment: Assignment) -> bool:
        """Whether the place of `assignment` would do for one of the profiles that found none."""
        return any(self.ground.would_fit(self.model, profile, assignment) for profile in short.tried)

    # --- placing ---

    def _goes_elsewhere(self, assignment: Assignment) -> bool:
        """Give up a start that its node has refused for long, where another node has a place for it: once to each node
        that has one, and then no more for a long while, lest what can start nowhere walks from node to node."""
        view, refused = self.draft.survey.of(assignment.node), self.draft.world.refused.get(assignment.replica)
        if refused is None or assignment.stop is not None or view is None or not view.judges:
            return False
        if assignment.replica in view.rows or not is_proof(self.draft, assignment, view):
            return False
        if not self._has_waited(assignment, REFUSAL_PATIENCE_S):
            return False
        before = assignment.refused_by
        found = self._search(self.version, never=frozenset({*before, assignment.node}))
        if isinstance(found, _NotFound) and before and self._has_waited(assignment, REFUSED_BY_ALL_S):
            before = ()
            found = self._search(self.version, never=frozenset({assignment.node}))
        if isinstance(found, _NotFound) or not never_begun(self.draft, assignment):
            return False
        self.draft.gone(assignment, f"is refused by {assignment.node} ({refused.text}) and goes elsewhere")
        self.ground.give_back(assignment)
        self._assign(found, None, refused_by=(*before, assignment.node)[-MOST_REMEMBERED:])
        return True

    def _has_waited(self, assignment: Assignment, patience_s: float) -> bool:
        over_s = assignment.created_s + patience_s
        if self.draft.now_s < over_s:
            self.draft.wake(over_s)
        return self.draft.now_s >= over_s

    def _assign(self, found: _Found, follows: Failure | None, refused_by: tuple[NodeId, ...] = ()) -> None:
        spec_id, spec = launch_of(found.version.catalog, found.version.model, found.profile, found.spot.vendor)
        view = found.spot.view
        assert spec is not None, "the search asked for it"  # noqa: S101 - a programming error, not bad input
        assert view.seen is not None, "a node that was not heard takes nothing"  # noqa: S101
        assignment = Assignment(
            replica=_new_id(self.draft, self.model),
            model=self.model.name,
            profile=found.profile.name,
            fingerprint=found.print_,
            attempt=self._attempt(found.print_, follows),
            spec=spec_id,
            parts=(Part(view.node.id, found.spot.claims),),
            boot=view.seen.boot,
            created_s=self.draft.now_s,
            host_memory_mib=found.profile.host_memory_mib or 0,
            refused_by=refused_by,
        )
        self.draft.specs[spec_id] = spec
        self.draft.place(assignment)
        self.ground.take(assignment)

    def _attempt(self, print_: Fingerprint, follows: Failure | None) -> int:
        """Which attempt in a row this is; the failure it follows is answered."""
        if follows is None:
            return 1
        known = self.draft.failures.get(self.model.name, ())
        answered = tuple(replace(f, replaced=True) if f == follows else f for f in known)
        self.draft.set_failures(self.model.name, answered)
        return follows.attempt + 1 if follows.fingerprint == print_ else 1


def _last_line(failure: Failure) -> str:
    return f"; last log line: {failure.log_tail[-1]}" if failure.log_tail else ""


def _new_id(draft: Draft, model: Model) -> ReplicaId:
    """`slug-number`: safe in paths and labels, unique for ever since the number is never used again."""
    slug = re.sub(r"[^a-z0-9]+", "-", model.name.casefold()).strip("-")[:40].strip("-") or "model"
    while True:
        replica = ReplicaId(f"{slug}-{_numeral(draft.next_replica)}")
        draft.next_replica += 1
        if not draft.is_known(replica):
            return replica


DIGITS = "0123456789abcdefghjkmnpqrstuvwxyz"
"""Without i, l and o, which read aloud, or in many fonts, are 1 and 0. Ids made with all 36 stay unique: as a number of
33 digits each of them is smaller than the one it was made of, and that one is used up."""


def _numeral(number: int) -> str:
    text = ""
    while True:
        number, rest = divmod(number, len(DIGITS))
        text = DIGITS[rest] + text
        if number == 0:
            return text
