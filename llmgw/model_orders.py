"""Orders about models: wake, scale, restart."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, StrictInt

from llmgw import members, rolling, wire
from llmgw.ids import ModelName, ReplicaId
from llmgw.order import Limit, Name, Order, Problems, same_end, with_item, without
from llmgw.sentences import counted, unknown
from llmgw.world import Scale, Wishes, World


class _ModelOrder(Order, ABC):
    model: Name
    """Name or alias of the model."""

    def check(self, world: World) -> Problems:
        if members.model_of(world, self.model) is None:
            return (unknown("model", self.model, members.model_names(world)),)
        return ()

    def model_name(self, world: World) -> ModelName:
        model = members.model_of(world, self.model)
        assert model is not None, "check comes first"  # noqa: S101 - a programming error, not bad input
        return model.name


class Wake(_ModelOrder):
    name = "wake"
    description = "Start a sleeping model, or try a failed one again now"
    example: ClassVar[Mapping[str, object]] = {"model": "qwen3-32b"}

    def wish(self, world: World, now_s: float) -> Wishes:
        name = self.model_name(world)
        published = world.table.models.get(name)
        if published is not None and published.state is wire.ModelState.READY:
            return world.wishes
        asked = world.wishes.wakes.get(name)
        if asked is not None and not any(f.at_s >= asked for f in world.failures.get(name, ())):
            return world.wishes
        wishes, scale = world.wishes, world.wishes.scales.get(name)
        scales = without(wishes.scales, name) if scale is not None and scale.replicas == 0 else wishes.scales
        return replace(wishes, wakes=with_item(wishes.wakes, name, now_s), scales=scales)


class ScaleModel(_ModelOrder):
    name = "scale"
    description = "Keep this many replicas of a model, within its bounds; without a number, the catalog's count again"
    example: ClassVar[Mapping[str, object]] = {"model": "qwen3-32b", "replicas": 3, "for_s": 3600.0}

    replicas: Annotated[StrictInt, Field(ge=0, le=10_000)] | None = None
    """How many, between the model's min and max. Absent or null: no override."""
    for_s: Limit | None = None
    """Seconds from now for which it holds. Absent: until it is taken back."""

    def undo(self) -> str:
        return "" if self.replicas is None else f"`llmgw scale {self.model}` takes it back"

    def check(self, world: World) -> Problems:
        problems = list(super().check(world))
        if self.replicas is None and self.for_s is not None:
            problems.append("`for_s` without `replicas` means nothing: give a number of replicas, or leave both out")
        model = members.model_of(world, self.model)
        if model is not None and self.replicas is not None:
            low, high = model.replicas.min, model.replicas.max
            if not low <= self.replicas <= high:
                bounds = f"exactly {low}" if low == high else f"{low} to {high}"
                problems.append(
                    f"{counted(self.replicas, 'replica')} of {model.name} {'is' if self.replicas == 1 else 'are'} "
                    f"outside its bounds ({bounds}): "
                    "widen `replicas` in the catalog first"
                )
        return tuple(problems)

    def wish(self, world: World, now_s: float) -> Wishes:
        name, scales = self.model_name(world), world.wishes.scales
        if self.replicas is None:
            return replace(world.wishes, scales=without(scales, name))
        until = None if self.for_s is None else now_s + self.for_s
        held = scales.get(name)
        if held is not None and held.replicas == self.replicas and same_end(held.until_s, until):
            return world.wishes
        wakes = without(world.wishes.wakes, name) if self.replicas == 0 else world.wishes.wakes
        return replace(world.wishes, scales=with_item(scales, name, Scale(self.replicas, until)), wakes=wakes)


class _VersionOrder(_ModelOrder, ABC):
    """An order about the version of a model that is being rolled out. It ends with the next edit of the model."""

    def check(self, world: World) -> Problems:
        model = members.model_of(world, self.model)
        if model is None:
            return super().check(world)
        if model.name not in world.good:
            return (f"{model.name} is not being rolled out: all its replicas are of the version in force",)
        return ()

    def version(self, world: World) -> str:
        return rolling.present_name(world, self.model_name(world))


class Promote(_VersionOrder):
    name = "promote"
    description = "Let the new version of a model go on from its canaries to all replicas"
    example: ClassVar[Mapping[str, object]] = {"model": "qwen3-32b"}

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        name, wishes = self.model_name(world), world.wishes
        promoted = with_item(wishes.promoted, name, self.version(world))
        return replace(wishes, promoted=promoted, reverted=without(wishes.reverted, name))


class Revert(_VersionOrder):
    name = "revert"
    description = "Bring the last good version of a model back; the next edit of the model ends it"
    example: ClassVar[Mapping[str, object]] = {"model": "qwen3-32b"}

    def wish(self, world: World, now_s: float) -> Wishes:  # noqa: ARG002
        name, wishes = self.model_name(world), world.wishes
        reverted = with_item(wishes.reverted, name, self.version(world))
        return replace(wishes, reverted=reverted, promoted=without(wishes.promoted, name))


class Restart(Order):
    name = "restart"
    description = "Replace the running replicas of a model, or one replica, by new ones"
    example: ClassVar[Mapping[str, object]] = {"target": "qwen3-32b"}

    target: Name
    """Name or alias of a model, or the id of a replica."""

    def check(self, world: World) -> Problems:
        if self._subject(world) is not None:
            return ()
        return (unknown("model or replica", self.target, [*members.model_names(world), *world.assignments]),)

    def wish(self, world: World, now_s: float) -> Wishes:
        subject = self._subject(world)
        assert subject is not None, "check comes first"  # noqa: S101 - a programming error, not bad input
        asked = world.wishes.restarts.get(subject)
        if asked is not None and self._is_pending(world, subject, asked):
            return world.wishes
        return replace(world.wishes, restarts=with_item(world.wishes.restarts, subject, now_s))

    def _subject(self, world: World) -> str | None:
        if (model := members.model_of(world, self.target)) is not None:
            return model.name
        return self.target if ReplicaId(self.target) in world.assignments else None

    @staticmethod
    def _is_pending(world: World, subject: str, asked_s: float) -> bool:
        """Whether the wish is still to be done: an older replica runs, or nothing was started since."""
        replica = world.assignments.get(ReplicaId(subject))
        mine = [a for a in world.assignments.values() if a.model == subject] if replica is None else [replica]
        failed = (f.at_s for f in world.failures.get(ModelName(subject), ()))
        since = [t for t in (*(a.created_s for a in mine), *failed) if t >= asked_s]
        return any(a.created_s < asked_s for a in mine) or not since
