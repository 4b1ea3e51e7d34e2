"""Asking engines of their use through the agents, for routers that tell nothing. Only reads.

An agent's held stream tells no figures of use by themselves: here it is asked for one whole report.
"""

import asyncio
from collections.abc import Collection, Mapping

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from activities.settings import Outward
from llmgw.ids import ReplicaId
from llmgw.observation import NodeSeen
from llmgw.wire import EngineState, EngineUsage, NodeReport

ASK_LIMIT_S = 2.0
AT_ONCE = 32


async def use_of(
    session: aiohttp.ClientSession,
    outward: Outward,
    nodes: Mapping[str, NodeSeen | None],
    replicas: Collection[ReplicaId],
) -> Mapping[ReplicaId, EngineUsage]:
    """Use of `replicas`. `nodes`: the last report by agent URL; None: not heard yet.

    A replica that no report lists, where every node was heard, has ended: it is idle. One whose agent does not answer
    now is left out.
    """
    wanted = set(replicas)
    hosts = {url: wanted & {r.replica for r in seen.replicas} for url, seen in nodes.items() if seen is not None}
    asked = [url for url, here in hosts.items() if here]
    gate = asyncio.Semaphore(AT_ONCE)
    reports = await asyncio.gather(*(_report(session, outward, url, gate) for url in asked))
    found: dict[ReplicaId, EngineUsage] = {}
    for url, report in zip(asked, reports, strict=True):
        if report is not None:
            found |= {id_: _use(report, id_) for id_ in hosts[url]}
    if nodes and all(seen is not None for seen in nodes.values()):
        listed = set[ReplicaId]().union(*hosts.values())
        found |= {id_: EngineUsage(in_flight=0) for id_ in wanted - listed}
    return found


def _use(report: NodeReport, replica: ReplicaId) -> EngineUsage:
    """The engine's word; an engine that ended has nothing in flight, one that says nothing is not known to be idle."""
    row = next((r for r in report.replicas if r.replica == replica), None)
    if row is None or row.state is EngineState.FAILED:
        return EngineUsage(in_flight=0)
    return row.usage or EngineUsage()


async def _report(
    session: aiohttp.ClientSession, outward: Outward, url: str, gate: asyncio.Semaphore
) -> NodeReport | None:
    """The agent's report as it is now; None when it does not answer."""
    timeout = aiohttp.ClientTimeout(total=ASK_LIMIT_S)
    try:
        async with (
            gate,
            session.get(
                f"{url}/v1/state",
                headers=outward.headers(),
                timeout=timeout,
                ssl=outward.tls or True,
                allow_redirects=False,
            ) as answer,
        ):
            async for line in answer.content:
                if line.strip():
                    return NodeReport.model_validate_json(line)
    except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError):
        return None
    return None
