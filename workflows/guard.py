"""Belt and braces: whatever a signal handler raises becomes a visible refusal instead of a dead or wedged workflow."""

import asyncio

from temporalio import workflow
from temporalio.worker import (
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)


class _Guard(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:  # noqa: A002 - the SDK's name
        try:
            await super().handle_signal(input)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            note = getattr(workflow.instance(), "note_refusal", None)
            if note is not None:
                note(input.signal, f"{type(error).__name__}: {error}"[:200])


class GuardInterceptor(Interceptor):
    """Install in every worker and replayer of this workflow."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        del input
        return _Guard
