"""Why an engine does not answer, as far as the machine can tell: it listens elsewhere, or its process is stopped.

Asked only when something is wrong. It judges nothing; `agent.watching` does.
"""

from agent.ports import listens_at
from agent.proc import process_at
from agent.readiness import port_answers

LOOK_AFTER_S = 2.0
"""Before, it has simply not begun to listen."""


def answering_host(hosts: tuple[str, ...], port: int) -> str | None:
    """The first of the hosts where something listens on the port, without waiting."""
    return next((host for host in hosts if port_answers(host, port)), None)


def why_unheard(pid: int | None, port: int, hosts: tuple[str, ...]) -> str:
    """In words, to stand before or instead of a reason; empty when nothing is to be seen."""
    process = process_at(pid) if pid is not None else None
    if process is not None and process.stopped:
        return f"its process {pid} is stopped (SIGSTOP, or a debugger)"
    elsewhere = [address for address in listens_at(port) if address not in hosts]
    if elsewhere and answering_host(hosts, port) is None:
        shown = ", ".join(elsewhere[:3])
        return f"it listens on {shown}, not on {hosts[0]}: pass it ${{llmgw:host}}"
    return ""
