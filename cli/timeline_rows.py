"""One replica's life, or all of a model's, out of what the fleet did: who decided, told, answered, reported what."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, PublishAnswer, PublishCall
from llmgw.ids import ReplicaId
from llmgw.observation import Observation
from llmgw.plan import Plan
from llmgw.wire import ReplicaReport


@dataclass(frozen=True, slots=True)
class Moment:
    """`who`: the plane, a node or a router."""

    at_s: float
    replica: str
    who: str
    what: str


class Timeline:
    """Fed with what happened in order; `moments` are those of the replicas asked for."""

    def __init__(self, replica: str = "", model: str = "") -> None:
        self._replica = replica
        self._model = model
        self._known: set[str] = {replica} if replica else set()
        self._reported: dict[tuple[str, str], str] = {}
        self.moments: list[Moment] = []

    @property
    def has_begun(self) -> bool:
        """Whether the decision that made the replica is among the moments."""
        return any(" goes to " in moment.what for moment in self.moments)

    def plan(self, at_s: float, plan: Plan) -> None:
        self._known |= {a.replica for a in plan.assign if self._model and a.model == self._model}
        for event in plan.events:
            replica = event.subject.removeprefix("replica/")
            if event.subject.startswith("replica/") and replica in self._known:
                self._say(at_s, replica, "plane", event.text)
        for model, failures in plan.failures.items():
            del model
            for failure in failures:
                if failure.replica in self._known and failure.at_s >= at_s - 1.0:
                    self._say(at_s, failure.replica, "plane", f"counts it as failed attempt {failure.attempt}")

    def told(self, at_s: float, call: DispatchCall) -> None:
        for replica, what in _commands(call):
            if replica in self._known:
                self._say(at_s, replica, "plane", f"tells {call.node} to {what}")

    def answered(self, at_s: float, call: DispatchCall, answer: DispatchAnswer | None) -> None:
        refused = {} if answer is None else {r.subject: r.refusal for r in answer.refused}
        for replica, _ in _commands(call):
            if replica in self._known:
                self._say(at_s, replica, call.node, _answer(answer, refused.get(replica)))

    def published(self, at_s: float, call: PublishCall, answer: PublishAnswer | None) -> None:
        delta = call.delta
        if delta is None:
            return
        done = answer is not None and answer.outcome is CallOutcome.ANSWERED
        changes: list[tuple[str, str]] = [(e.id, "routes to it") for e in delta.put_endpoints]
        changes += [(id_, "has taken it out") for id_ in delta.drop_endpoints]
        for replica, what in changes:
            if replica in self._known:
                busy = "" if answer is None or replica not in answer.draining else ", with requests still in flight"
                said = f"{what}{busy} (revision {call.revision})"
                failed = "no answer" if answer is None else answer.text or str(answer.outcome)
                self._say(at_s, replica, call.router, said if done else f"was not told: {failed}")

    def observed(self, at_s: float, observation: Observation) -> None:
        for node in observation.nodes:
            rows = {row.replica: row for row in node.replicas}
            for replica, row in rows.items():
                if row.model == self._model:
                    self._known.add(replica)
            for id_ in sorted(self._known):
                replica = ReplicaId(id_)
                said = _report(rows[replica]) if replica in rows else ""
                before = self._reported.get((node.node, replica), "")
                if said != before:
                    self._reported[node.node, replica] = said
                    self._say(at_s, replica, node.node, said or "nothing of it is left")
        for silence in observation.silence:
            kind, _, name = silence.target.partition("/")
            for (where, id_), said in self._reported.items():
                if kind == "node" and where == name and said:
                    self._say(at_s, id_, where, f"is {silence.level}: silent for {silence.silent_s:.0f} s")

    def _say(self, at_s: float, replica: str, who: str, what: str) -> None:
        self.moments.append(Moment(at_s, replica, who, what))


def _commands(call: DispatchCall) -> Iterator[tuple[str, str]]:
    for start in call.starts:
        devices = ", ".join(claim.device for claim in start.claims)
        yield start.replica, f"start it, attempt {start.attempt}" + (f", on {devices}" if devices else "")
    for stop in call.stops:
        yield stop.replica, f"{'kill' if stop.force else 'stop'} it: {stop.reason}"


def _answer(answer: DispatchAnswer | None, refusal: object) -> str:
    if answer is None:
        return "no answer in time"
    if answer.outcome is not CallOutcome.ANSWERED:
        return f"does not take it: {answer.text or answer.outcome}"
    return "takes it" if refusal is None else f"refuses: {getattr(refusal, 'message', refusal)}"


def _report(row: ReplicaReport) -> str:
    code = f", exit code {row.exit_code}" if row.exit_code is not None else ""
    reason = f": {row.reason}" if row.reason else ""
    return f"reports it {row.state}{code}{reason}"


def lines(moments: Iterable[Moment]) -> list[Moment]:
    """Each thing once: what is repeated unchanged by the same one says nothing new."""
    found: list[Moment] = []
    last: dict[tuple[str, str], str] = {}
    for moment in moments:
        key = (moment.replica, moment.who)
        if last.get(key) != moment.what:
            found.append(moment)
        last[key] = moment.what
    return found
