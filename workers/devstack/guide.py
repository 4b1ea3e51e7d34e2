"""What to do with a dev stack that is up: addresses, a request, a signal, and what to try next. Text only."""

import json
import os
import shlex
import shutil
from pathlib import Path

from workers.devstack.example import ALIAS, FIRST, SECOND, STORY
from workers.devstack.layout import Layout
from workers.devstack.parts import FLEET, ROUTER, WORKER, Programs
from workflows import names

DEFAULT_PORT = 7233


def signal_argv(layout: Layout, temporal: str, file: Path) -> tuple[str, ...]:
    """The command that replaces the catalog by the one in `file`."""
    return (
        *(temporal, "workflow", "signal", "--address", layout.temporal_address),
        *("--workflow-id", names.workflow_id(FLEET), "--name", names.REPLACE_CATALOG, "--input-file", str(file)),
    )


def curl(layout: Layout, model: str, *, stream: bool = False) -> str:
    """A request that `model` answers, as a line for a shell."""
    body: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": "Hi!"}]}
    if stream:
        body |= {"stream": True, "max_tokens": 200}
    flags = "-sN" if stream else "-s"
    url = f"{layout.url(ROUTER)}/v1/chat/completions"
    return f"curl {flags} {url} -H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"


def guide(layout: Layout, programs: Programs, worker_pid: int, is_example: bool) -> str:
    """The page shown when everything is up. `is_example`: the example catalog is the one in force."""
    signal = shlex.join(signal_argv(layout, typed(programs.temporal), layout.next_catalog))
    llmgw = typed(str(Path(programs.python).parent / "llmgw")) + _address(layout)
    ask = _ask(layout) if is_example else f"  curl -s {layout.url(ROUTER)}/v1/models\n"
    return f"""
The fleet is up.

  router        {layout.url(ROUTER)}/v1
  Temporal UI   {layout.url("ui")}/namespaces/default/workflows/{names.workflow_id(FLEET)}
  page          {layout.url("metrics")}/
  metrics       {layout.url("metrics")}/metrics (worker), {layout.url(ROUTER)}/metrics, {layout.url("node-a")}/metrics
  logs          {layout.logs}

Ask it:

{ask}
Replace the catalog by one with a model more, {SECOND}, and ask for that:

  {signal}

  {curl(layout, SECOND)}

Try next:

  {llmgw} status
  {llmgw} explain model/{FIRST}
  {llmgw} apply {layout.catalog}    after editing it
  kill -9 {worker_pid}    ends the {WORKER}: requests go on, another one takes over, nothing is lost

Ctrl-C ends everything; `llmgw dev` then goes on where this was.
"""


def typed(program: str) -> str:
    """The shortest way to type a program here: its name where a shell finds it, else its path."""
    name = Path(program).name
    found = shutil.which(name)
    if found is not None and Path(found).samefile(program):
        return name
    here = os.path.relpath(program)
    return program if here.startswith("..") else here


def _ask(layout: Layout) -> str:
    lines = (curl(layout, FIRST), f"(the same as model {ALIAS})", curl(layout, STORY, stream=True))
    return "".join(f"  {line}\n" for line in lines)


def _address(layout: Layout) -> str:
    """Nothing where Temporal is at the port that everybody expects."""
    return "" if layout.ports["temporal"] == DEFAULT_PORT else f" --address {layout.temporal_address}"
