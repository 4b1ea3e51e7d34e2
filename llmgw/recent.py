"""What is kept for people beside the world: recent refusals, verdicts, events and results. Decides nothing."""

from pydantic import BaseModel, ConfigDict

from llmgw.calls import TaskResult
from llmgw.ids import NodeId
from llmgw.plan import Judgement, Plan, Verdict
from llmgw.world import Event


class Refusal(BaseModel):
    """An input that was not taken: by name, when, and every problem."""

    model_config = ConfigDict(frozen=True)

    name: str
    at_s: float
    problems: tuple[str, ...]


class FinishedTask(BaseModel):
    """What a node answered to a remove-weights or a pull."""

    model_config = ConfigDict(frozen=True)

    node: NodeId
    at_s: float
    result: TaskResult


class Recent(BaseModel):
    """Newest last in each list; the lists are short and bounded."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    refusals: tuple[Refusal, ...] = ()
    events: tuple[Event, ...] = ()
    event_count: int = 0
    """Of all events that ever were: the number of the newest one kept."""
    tasks: tuple[FinishedTask, ...] = ()
    last_catalog: Verdict | None = None
    """The last verdict on a catalog, whatever it was."""
    acting: str = ""
    """Identity of the worker that observes."""
    safe_mode: str = ""
    """Why nothing is started or stopped; empty when deciding works."""
    unreadable: dict[str, str] = {}
    shed: tuple[str, ...] = ()
    """What was too large to be carried over to this run, in words."""
    """Carried records that could not be understood, with the reason."""

    def with_refusal(self, name: str, problems: tuple[str, ...], now_s: float) -> "Recent":
        refusal = Refusal(name=name, at_s=now_s, problems=problems)
        return self.model_copy(update={"refusals": (*self.refusals, refusal)[-KEPT_REFUSALS:]})

    def with_plan(self, plan: Plan, now_s: float) -> "Recent":
        """The verdicts, events and safe mode of a plan."""
        catalogs = [v for v in plan.verdicts if v.kind == "catalog"]
        new = self.model_copy(
            update={
                "events": (*self.events, *plan.events)[-KEPT_EVENTS:],
                "event_count": self.event_count + len(plan.events),
                "last_catalog": catalogs[-1] if catalogs else self.last_catalog,
                "safe_mode": plan.safe_mode,
            }
        )
        for verdict in plan.verdicts:
            if verdict.judgement is Judgement.REFUSED:
                new = new.with_refusal(verdict.name, verdict.problems, now_s)
        return new

    def with_tasks(self, node: NodeId, results: tuple[TaskResult, ...], now_s: float) -> "Recent":
        done = tuple(FinishedTask(node=node, at_s=now_s, result=result) for result in results)
        return self.model_copy(update={"tasks": (*self.tasks, *done)[-KEPT_TASKS:]})

    def with_acting(self, acting: str, now_s: float) -> "Recent":
        """The worker that observes; that another does so now is an event."""
        if acting == self.acting:
            return self
        new = self.model_copy(update={"acting": acting})
        return (
            new.with_event(Event(now_s, "fleet", f"worker {acting} acts now, in place of {self.acting}"))
            if self.acting
            else new
        )

    def with_event(self, event: Event) -> "Recent":
        events = (*self.events, event)[-KEPT_EVENTS:]
        return self.model_copy(update={"events": events, "event_count": self.event_count + 1})


KEPT_REFUSALS = 20
KEPT_EVENTS = 100
KEPT_TASKS = 20
