"""`llmgw dev` as a person runs it: it serves, is refused twice on one folder, ends without a trace, and after a
kill -9 of everything goes on with the same engines. The check proves the rest."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from workers.devstack.example import ALIAS, FIRST, MODELS
from workers.devstack.layout import free_row, is_free, remembered_ports
from workers.devstack.owned import owned
from workers.devstack.parts import find_programs

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_programs().llama is None, reason="no llama.cpp server is built for this platform"),
]
PROGRAM = [sys.executable, "-m", "workers.devstack.main"]


@contextmanager
def running(root: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A stack that is up; whatever it leaves is ended at the end of the test."""
    argv = [*PROGRAM, "--state-dir", str(root), *flags]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as stack:
        try:
            said = read_until(stack, "Ctrl-C ends everything")
            assert "curl -s" in said
            yield stack
        finally:
            stack.kill()


def read_until(stack: subprocess.Popen[str], text: str) -> str:
    """What it says up to a line with `text`; its own limits end it if that never comes."""
    assert stack.stdout is not None
    said = ""
    for line in stack.stdout:
        said += line
        if text in line:
            return said
    pytest.fail(f"the stack ended without {text!r}:\n{said}")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    for each in owned(tmp_path / "state"):
        each.process.kill()


def engines(root: Path) -> list[int]:
    return sorted(each.process.pid for each in owned(root) if each.part is None)


def ask(root: Path, model: str) -> str:
    ports = remembered_ports(root)
    assert ports is not None
    body = {"model": model, "messages": [{"role": "user", "content": "Hi!"}]}
    answer = httpx.post(f"http://127.0.0.1:{ports['router']}/v1/chat/completions", json=body, timeout=20)
    text: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
    return text.strip()


def test_a_stack_serves_has_its_folder_alone_and_ends_without_a_trace(root: Path) -> None:
    with running(root, "--ports-from", str(free_row())) as stack:
        assert ask(root, FIRST) == ask(root, ALIAS) == MODELS[FIRST].text
        again = subprocess.run([*PROGRAM, "--state-dir", str(root)], capture_output=True, text=True, check=False)
        assert again.returncode == 1
        assert re.search(rf"already runs on {re.escape(str(root))} \(process {stack.pid}\)", again.stdout)
        assert len(engines(root)) == 3
        stack.send_signal(signal.SIGINT)
        read_until(stack, "everything has ended")
        assert stack.wait() == 0
    assert owned(root) == ()
    ports = remembered_ports(root)
    assert ports is not None
    assert [port for port in ports.uses.values() if not is_free(port)] == []


def test_after_a_kill_of_everything_a_second_run_goes_on_with_the_same_engines(root: Path) -> None:
    with running(root, "--ports-from", str(free_row())) as stack:
        before, url = engines(root), remembered_ports(root)
        # The stack first: it would start its parts again.
        stack.kill()
        stack.wait()
        survivors = [each.process for each in owned(root) if each.part is not None]
        for process in survivors[:3]:  # the others have to be found and ended by the next run
            process.kill()
        psutil.wait_procs(survivors[:3], timeout=10)
    assert len(before) == 3
    assert engines(root) == before
    with running(root) as stack:
        assert engines(root) == before
        assert remembered_ports(root) == url
        assert ask(root, FIRST) == MODELS[FIRST].text
        stack.send_signal(signal.SIGTERM)
        read_until(stack, "everything has ended")
        assert stack.wait() == 0
    assert owned(root) == ()


def test_the_check_proves_the_main_job(tmp_path: Path) -> None:
    """In a folder of its own, which is gone afterwards."""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([*PROGRAM, "--check"], capture_output=True, text=True, check=False, env=environ)
    answer = json.loads(done.stdout)
    failed = [step for step in answer["steps"] if not step["ok"]]
    assert (failed, answer["check"], done.returncode) == ([], "ok", 0), done.stderr
    assert answer["ms"] < 60_000
    assert [step["name"] for step in answer["steps"]][-1] == "teardown"
    assert len(answer["steps"]) == 11
    assert all(step["name"] in done.stderr for step in answer["steps"])
    assert list(tmp_path.glob("llmgw-check-*")) == []


def test_a_check_that_cannot_start_says_so_in_its_one_line(root: Path) -> None:
    root.parent.mkdir(exist_ok=True)
    root.write_text("a file, no folder")
    argv = [*PROGRAM, "--check", "--state-dir", str(root), "--ports-from", str(free_row())]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (answer["check"], done.returncode) == ("failed", 1)
    assert str(root) in answer["steps"][0]["detail"]
