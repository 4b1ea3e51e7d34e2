"""A pretended docker: real processes, real state, and the manners of a real client. `fake_containers.py FOLDER words…`.

Each container is a file of FOLDER, a supervisor, and the process within; the client of `run` and `attach` only passes
output and signals on, so a container outlives it. Bad manners, by files in FOLDER: `down` (the daemon does not
answer), `slow` (a removed container is listed for half a second more). `calls` holds every command line.
"""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAMS = {"stub:1": [sys.executable, "-m", "agent.stub_engine"]}
"""What an image runs where no entrypoint is named."""

TAKES_VALUE = frozenset(
    {"--name", "--label", "--network", "--ipc", "--restart", "--gpus", "--device", "--group-add", "--mount"}
    | {"--env", "--entrypoint", "--user", "--ulimit"}
)


def run(folder: Path, words: list[str]) -> int:
    given: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        flag = words.pop(0)
        if flag == "--init":
            continue
        assert flag in TAKES_VALUE, flag
        given.setdefault(flag, []).append(words.pop(0))
    (name,), image = given["--name"], words.pop(0)
    if (folder / f"{name}.json").exists():
        print(f'docker: Conflict. The container name "/{name}" is already in use', file=sys.stderr)
        return 125
    for mount in given.get("--mount", []):
        (fields,) = csv.reader([mount])
        source = next(field.removeprefix("source=") for field in fields if field.startswith("source="))
        if not Path(source).exists():
            print(f"docker: invalid mount config: bind source path does not exist: {source}", file=sys.stderr)
            return 125
    if image not in PROGRAMS:
        print(f"Unable to find image '{image}' locally\ndocker: pull access denied", file=sys.stderr)
        return 125
    program = given["--entrypoint"] if "--entrypoint" in given else PROGRAMS[image]
    env = {"PATH": os.environ["PATH"]}
    for item in given.get("--env", []):
        key, has_value, value = item.partition("=")
        env[key] = value if has_value else os.environ[key]
    (folder / f"{name}.log").touch()
    labels = dict(item.split("=", 1) for item in given.get("--label", []))
    write(folder, name, {"status": "created", "labels": labels, "argv": [*program, *words], "env": env})
    subprocess.Popen([sys.executable, __file__, str(folder), "supervise", name], env={}, start_new_session=True)
    return attach(folder, name, 0)


def supervise(folder: Path, name: str) -> int:
    box = read(folder, name)
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(box["argv"], env=box["env"], stdout=log, stderr=log, start_new_session=True)
    write(folder, name, {**box, "status": "running", "pid": process.pid})
    code = process.wait()
    with contextlib.suppress(OSError):  # removed meanwhile
        write(
            folder,
            name,
            {**read(folder, name), "status": "exited", "code": code if code >= 0 else 128 - code, "pid": 0},
        )
    return 0


def attach(folder: Path, name: str, position: int) -> int:
    def pass_on(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            os.kill(read(folder, name)["pid"], number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        try:
            box = read(folder, name)
            with (folder / f"{name}.log").open("rb") as log:
                log.seek(position)
                fresh = log.read()
        except OSError:
            return 137
        position += len(fresh)
        sys.stdout.buffer.write(fresh)
        sys.stdout.buffer.flush()
        if box["status"] == "exited" and not fresh:
            return int(box["code"])
        time.sleep(0.02)


def ps(folder: Path, words: list[str]) -> int:
    wanted = [words[n + 1].removeprefix("label=") for n, word in enumerate(words) if word == "--filter"]
    for file in folder.glob("*.json"):
        with contextlib.suppress(OSError):
            labels = [f"{key}={value}" for key, value in read(folder, file.stem)["labels"].items()]
            if all(label in labels for label in wanted):
                print(file.stem)
    return 0


def inspect(folder: Path, words: list[str]) -> int:
    rows: list[dict[str, Any]] = []
    missing = 0
    for name in words[2:]:
        try:
            box = read(folder, name)
        except OSError:
            print(f"Error: No such container: {name}", file=sys.stderr)
            missing = 1
            continue
        state = {"Status": box["status"], "Pid": box.get("pid", 0), "ExitCode": box.get("code", 0)}
        state["OOMKilled"] = (folder / "oom").exists() and box.get("code") == 137
        rows.append({"Name": f"/{name}", "State": state, "Config": {"Labels": box["labels"]}})
    print(json.dumps(rows))
    return missing


def kill(folder: Path, words: list[str]) -> int:
    with contextlib.suppress(OSError):
        if pid := read(folder, words[-1]).get("pid"):
            os.kill(pid, signal.SIGKILL)
            return 0
    print(f"Error: cannot kill container: {words[-1]}", file=sys.stderr)
    return 1


def rm(folder: Path, words: list[str]) -> int:
    name = words[-1]
    try:
        while (box := read(folder, name))["status"] != "exited":
            with contextlib.suppress(ProcessLookupError):
                if box.get("pid"):
                    os.kill(box["pid"], signal.SIGKILL)
            time.sleep(0.02)
    except OSError:
        print(f"Error: No such container: {name}", file=sys.stderr)
        return 1
    if (folder / "slow").exists() and not box.get("leaving"):
        write(folder, name, {**box, "leaving": True})
        later = f"import os, time; time.sleep(0.5); os.unlink({str(folder / f'{name}.json')!r})"
        subprocess.Popen([sys.executable, "-c", later], env={}, start_new_session=True)
        return 0
    if not box.get("leaving"):
        (folder / f"{name}.json").unlink()
    return 0


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def write(folder: Path, name: str, box: dict[str, Any]) -> None:
    draft = folder / f"{name}.{os.getpid()}"
    draft.write_text(json.dumps(box))
    draft.replace(folder / f"{name}.json")


def main() -> int:
    folder, verb, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([verb, *words]) + "\n")
    if (folder / "down").exists() and verb != "supervise":
        print("Cannot connect to the Docker daemon at unix:///var/run/docker.sock", file=sys.stderr)
        return 1
    if verb == "supervise":
        return supervise(folder, words[0])
    if verb == "attach":
        name = words[-1]
        return attach(folder, name, (folder / f"{name}.log").stat().st_size)
    return {"run": run, "ps": ps, "inspect": inspect, "kill": kill, "rm": rm}[verb](folder, words)


if __name__ == "__main__":
    sys.exit(main())
