"""How a command fails: an exit code and sentences that say what to do. Never a traceback."""

from collections.abc import Callable, Mapping

from cli.outside import Target

OK, REFUSED, USAGE, UNREACHABLE, TIMED_OUT, CHANGES = 0, 1, 2, 3, 4, 5
INTERRUPTED = 130


class CommandError(Exception):
    """The command ends with `code`; `sentences` go to standard error, each behind the command's name, but for those
    that begin with two blanks and belong to the one above."""

    def __init__(self, code: int, *sentences: str) -> None:
        super().__init__("; ".join(sentences))
        self.code = code
        self.sentences = sentences


def meaning(error: Exception, target: Target) -> CommandError | None:
    """What `error`, raised while a fleet was asked, means to the operator; None for a mistake of our own."""
    from pydantic import ValidationError  # all late: only a failing command needs them
    from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateFailedError
    from temporalio.service import RPCError

    from llmgw.misfit import misfits
    from workflows.client import UnreachableError

    match error:
        case CommandError():
            return error
        case UnreachableError():
            return CommandError(UNREACHABLE, str(error))
        case WorkflowQueryFailedError() | WorkflowUpdateFailedError():
            return CommandError(REFUSED, f"fleet {target.fleet} cannot answer that: {error.cause or error}{_SKEW}")
        case ValidationError():
            what = misfits(error, document="the answer")
            return CommandError(REFUSED, f"fleet {target.fleet} answers what is not understood here ({what}){_SKEW}")
        case RPCError():
            return _of_rpc(error.status.name, error.message, target)
        case ValueError():  # of the connection's settings
            return CommandError(USAGE, str(error))
        case _:
            return None


_SKEW = ". Are its workers of another version than this `llmgw`?"


def _of_rpc(status: str, message: str, target: Target) -> CommandError:
    fleet = target.fleet
    match status:
        case "NOT_FOUND":
            told = next(say(fleet, target.namespace) for part, say in _NOT_FOUND.items() if part in message)
            return CommandError(UNREACHABLE, told)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            mend = "see --api-key, --tls-cert and the client profile"
            return CommandError(UNREACHABLE, f"Temporal does not accept these credentials ({message}): {mend}")
        case "CANCELLED" | "DEADLINE_EXCEEDED":
            return CommandError(TIMED_OUT, f"Temporal did not answer about fleet {fleet} in time: try again")
        case "UNAVAILABLE":
            return CommandError(UNREACHABLE, f"Temporal went away while fleet {fleet} was asked: try again")
        case _:
            return CommandError(UNREACHABLE, f"Temporal does not do it for fleet {fleet}: {message[:300]}")


_NOT_FOUND: Mapping[str, Callable[[str, str | None], str]] = {
    "Namespace": lambda _, namespace: (
        f"Temporal has no namespace {namespace or 'of that name'}: name another with --namespace or "
        "TEMPORAL_NAMESPACE, or create it (`temporal operator namespace create`)"
    ),
    "already completed": lambda fleet, _: (
        f"fleet {fleet} has ended: `llmgw worker --fleet {fleet} --fresh` starts it anew"
    ),
    "": lambda fleet, _: (
        f"there is no fleet {fleet}: `llmgw worker --fleet {fleet}` starts it, `llmgw dev` a whole one on this "
        "machine; --fleet or LLMGW_FLEET names another"
    ),
}
"""By what Temporal's text holds; the first that does counts."""
