"""Telling a node agent its commands: one attempt, one answer. Dispatch accepts and returns; observation reports the
rest. A failure is an answer too (data for the next plan), never an exception into the workflow."""

import httpx
from pydantic import ValidationError
from temporalio import activity

from activities.outward import Callers, RefusedError, in_words
from llmgw import batches
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall, TaskResult, cut
from llmgw.wire import BatchReply, CommandResult, Outcome


class Dispatch:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    @activity.defn(name="dispatch")
    async def dispatch(self, call: DispatchCall) -> DispatchAnswer:
        """Send one node's batch once."""
        batch = batches.command_batch(call)
        try:
            body = await self._callers.send("POST", call.url, "/v1/commands", batch)
            reply = BatchReply.model_validate_json(body)
        except RefusedError as refusal:
            held = refusal.reply.held if refusal.reply else None
            owner = refusal.reply.owner if refusal.reply else None
            return DispatchAnswer(outcome=refusal.outcome, held=held, owner=owner, text=str(refusal))
        except (httpx.HTTPError, ValidationError, OSError) as error:
            return DispatchAnswer(outcome=CallOutcome.FAILED, text=in_words(error))
        return answer_of(call, reply)


def answer_of(call: DispatchCall, reply: BatchReply) -> DispatchAnswer:
    """The answer in short: only refusals and finished tasks enter the history. Results come in command order."""
    replicas = len(call.stops) + len(call.starts)
    refused = tuple(
        _short(result) for result in reply.results[:replicas] if result.outcome is Outcome.REFUSED and result.refusal
    )
    tasks = tuple(
        TaskResult(task=task, result=_short(result))
        for task, result in zip(call.tasks, reply.results[replicas:], strict=False)
    )
    return DispatchAnswer(outcome=CallOutcome.ANSWERED, refused=refused, tasks=tasks, held=reply.token)


MAX_PATHS = 100


def _short(result: CommandResult) -> CommandResult:
    refusal = result.refusal and result.refusal.model_copy(update={"message": cut(result.refusal.message)})
    return result.model_copy(update={"refusal": refusal, "paths": result.paths[:MAX_PATHS]})
