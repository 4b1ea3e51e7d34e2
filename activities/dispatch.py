"""Telling a node agent its commands: one attempt, one answer. Dispatch accepts and returns; observation reports the
rest. A failure is an answer too (data for the next plan), never an exception into the workflow."""

from pydantic import ValidationError
from temporalio import activity

from activities.outward import Callers, RefusedError, UnansweredError, in_words
from llmgw import batches
from llmgw.calls import CallOutcome, DispatchAnswer, DispatchCall
from llmgw.wire import BatchReply


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
        except (UnansweredError, ValidationError) as error:
            return DispatchAnswer(outcome=CallOutcome.FAILED, text=in_words(error))
        return batches.answer_of(call, reply)
