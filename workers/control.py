"""The control process: a Temporal worker for one fleet. Any number may run; Temporal gives one owner.

Its process is `workers.main` (`llmgw worker`).
"""

import asyncio
import contextlib
import logging
import signal
import time
import uuid
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig, WorkflowRunner

from activities.dispatch import Dispatch
from activities.observe import Observe
from activities.outward import Callers
from activities.plan import Planner
from activities.pools import Pools
from activities.publish import Publish
from activities.settings import Outward, peer_context, read_bearer
from workers.meters import Metering, Meters
from workers.serving import served
from workers.settings import WorkerSettings, installation_id, page_tokens
from workers.tidying import Tidying, keep_tidy
from workflows import names
from workflows.client import Fleet, connect
from workflows.ensure import FleetEndedError, ensure
from workflows.guard import GuardInterceptor
from workflows.reconcile import ReconcileWorkflow

log = logging.getLogger(__name__)

ENSURE_EVERY_S = 30.0


def runner() -> WorkflowRunner:
    """No sandbox: it watches only what it imports anew, and our packages would have to pass through (220 ms and 1.6 MB
    a run otherwise), so it cost a quarter of each task's CPU and guarded nothing. Import contracts and
    `tests/test_determinism.py` hold what runs in a workflow to the values it is given."""
    return UnsandboxedWorkflowRunner()


def make_worker(
    client: Client, settings: WorkerSettings, callers: Callers, pools: Pools, meters: Meters | None = None
) -> Worker:
    """A worker with everything a fleet needs. What it does is counted in `meters`."""
    versioning = None
    if settings.deployment is not None and settings.build_id is not None:
        versioning = WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(settings.deployment, settings.build_id),
            use_worker_versioning=True,
            default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
        )
    return Worker(
        client,
        task_queue=names.task_queue(settings.fleet),
        workflows=[ReconcileWorkflow],
        activities=[
            Planner(pools).plan,
            Observe(client, pools).observe,
            Dispatch(callers).dispatch,
            Publish(client, callers).publish,
        ],
        workflow_runner=runner(),
        interceptors=[GuardInterceptor(), Metering(meters or Meters(settings.fleet))],
        identity=settings.identity,
        max_cached_workflows=20,
        max_concurrent_workflow_tasks=10,
        max_concurrent_activities=250,
        max_concurrent_local_activities=8,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
        graceful_shutdown_timeout=timedelta(seconds=5),
        max_heartbeat_throttle_interval=timedelta(seconds=1),
        default_heartbeat_throttle_interval=timedelta(seconds=1),
        deployment_config=versioning,
    )


async def keep_running(client: Client, settings: WorkerSettings, installation: str, unwatched: asyncio.Event) -> None:
    """Start the fleet's workflow, and start it again whenever it was closed by anything but its end: at once where this
    process observed for it (`unwatched` is set then), else within half a minute.

    Raises `FleetEndedError` when it was ended on purpose: then there is nothing to work for.
    """
    fresh = settings.fresh
    while True:
        try:
            await ensure(
                client,
                settings.fleet,
                installation,
                now_s=time.time(),
                fresh=fresh,
                max_history=settings.max_history,
            )
            fresh = False
        except FleetEndedError:
            raise
        except Exception as error:
            log.warning("the fleet's workflow could not be ensured: %s", error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(unwatched.wait(), ENSURE_EVERY_S)
        unwatched.clear()


async def run(settings: WorkerSettings, stop: asyncio.Event | None = None) -> None:
    """Work until `stop` is set.

    Raises `UnreachableError` or ValueError when Temporal cannot be connected to, `FleetEndedError` when the fleet was
    ended, and whatever else ends the worker.
    """
    client = await connect(settings.connection)
    installation = installation_id(settings, uuid.uuid4().hex[:12])
    tls = peer_context(settings.peer_ca, settings.peer_cert, settings.peer_key)
    outward = Outward(bearer=read_bearer(settings.token_file), tls=tls)
    callers, pools, meters = Callers(outward), Pools(outward), Meters(settings.fleet)
    stop = stop or asyncio.Event()
    try:
        async with make_worker(client, settings, callers, pools, meters), contextlib.AsyncExitStack() as stack:
            if settings.metrics_listen is not None:
                tokens = page_tokens(settings)
                fleet = Fleet(client, settings.fleet)
                url = await stack.enter_async_context(served(fleet, meters, settings.metrics_listen, tokens))
                log.info("the page is at %s, metrics at %smetrics", url, url)
            waits: list[asyncio.Task[Any]] = [
                asyncio.create_task(stop.wait()),
                asyncio.create_task(keep_tidy(Tidying())),
            ]
            if settings.ensure:
                waits.append(asyncio.create_task(keep_running(client, settings, installation, pools.unwatched)))
            for task in waits:
                stack.callback(task.cancel)
            log.info("working for fleet %s, installation %s", settings.fleet, installation)
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
    finally:
        await pools.close()
        await callers.close()


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT end the process in order."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
