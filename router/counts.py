"""What a process has counted, as one value: for metrics, and to be added up over the processes of a router. Pure."""

from collections import Counter
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from llmgw.ids import ModelName, ReplicaId
from router.traffic import FIRST_BYTE_BUCKETS_S, Traffic


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class EndpointCounts(_Value):
    fleet: str
    id: ReplicaId
    model: ModelName
    in_flight: int = 0
    withdrawn: bool = False
    ejections: int = 0
    aborts: int = 0
    answers: dict[int, int] = {}


class ModelTotals(_Value):
    """`first_bytes`: as `router.traffic.ModelCounts`."""

    misses: dict[str, int] = {}
    retries: dict[str, int] = {}
    first_bytes: tuple[int, ...] = (0,) * (len(FIRST_BYTE_BUCKETS_S) + 1)
    first_byte_sum_s: float = 0.0
    waiting: int = 0


class Counts(_Value):
    """`misses`: those that no known model can be blamed for, by cause."""

    endpoints: tuple[EndpointCounts, ...] = ()
    models: dict[ModelName, ModelTotals] = {}
    misses: dict[str, int] = {}


def taken(traffic: Traffic) -> Counts:
    """This process's own counts at this moment. Safe in any thread: maps are listed before they are walked."""
    waiting = dict(traffic.asks.waiting())
    return Counts(
        endpoints=tuple(
            EndpointCounts(
                fleet=use.fleet,
                id=use.id,
                model=use.model,
                in_flight=use.mine,
                withdrawn=use.withdrawn,
                ejections=use.ejections,
                aborts=use.aborts,
                answers=dict(list(use.answers.items())),
            )
            for use in traffic.everything_used()
        ),
        models={
            name: ModelTotals(
                misses=dict(list(counts.misses.items())),
                retries=dict(list(counts.retries.items())),
                first_bytes=tuple(counts.first_bytes),
                first_byte_sum_s=counts.first_byte_sum_s,
                waiting=waiting.get(name, 0),
            )
            for name, counts in list(traffic.models.items())
        },
        misses=dict(list(traffic.misses.items())),
    )


def lean(counts: Counts) -> Counts:
    """Without the endpoints of which nothing was counted: there may be thousands."""
    zero = EndpointCounts.model_fields.keys() - {"fleet", "id", "model"}
    rows = (row for row in counts.endpoints if any(getattr(row, name) for name in zero))
    return counts.model_copy(update={"endpoints": tuple(rows)})


def ended(counts: Counts) -> Counts:
    """What stays of a process that is no more: totals, but nothing in flight and nobody who waits."""
    endpoints = (e.model_copy(update={"in_flight": 0, "withdrawn": False}) for e in counts.endpoints)
    models = {name: m.model_copy(update={"waiting": 0}) for name, m in counts.models.items()}
    return counts.model_copy(update={"endpoints": tuple(endpoints), "models": models})


def added(several: Iterable[Counts]) -> Counts:
    """The sum."""
    endpoints: dict[tuple[str, ReplicaId], EndpointCounts] = {}
    models: dict[ModelName, ModelTotals] = {}
    misses: Counter[str] = Counter()
    for counts in several:
        for row in counts.endpoints:
            before = endpoints.get((row.fleet, row.id))
            endpoints[row.fleet, row.id] = row if before is None else _both(before, row)
        for name, totals in counts.models.items():
            known = models.get(name)
            models[name] = totals if known is None else _totals(known, totals)
        misses.update(counts.misses)
    return Counts(endpoints=tuple(endpoints.values()), models=models, misses=dict(misses))


def _both(one: EndpointCounts, other: EndpointCounts) -> EndpointCounts:
    return other.model_copy(
        update={
            "in_flight": one.in_flight + other.in_flight,
            "withdrawn": one.withdrawn or other.withdrawn,
            "ejections": one.ejections + other.ejections,
            "aborts": one.aborts + other.aborts,
            "answers": dict(Counter(one.answers) + Counter(other.answers)),
        }
    )


def _totals(one: ModelTotals, other: ModelTotals) -> ModelTotals:
    return ModelTotals(
        misses=dict(Counter(one.misses) + Counter(other.misses)),
        retries=dict(Counter(one.retries) + Counter(other.retries)),
        first_bytes=tuple(a + b for a, b in zip(one.first_bytes, other.first_bytes, strict=True)),
        first_byte_sum_s=one.first_byte_sum_s + other.first_byte_sum_s,
        waiting=one.waiting + other.waiting,
    )
