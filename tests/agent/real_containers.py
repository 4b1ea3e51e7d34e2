"""Real container tools with a store of their own, and an image small enough to be made on the spot from busybox.

Podman cannot run where both cgroup hierarchies are mounted; there its commands run in a mount namespace without the
second one. Docker gets a daemon of its own. Nothing of the machine's own containers is seen or touched.
"""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

IMAGE = "localhost/llmgw-test:1"
NEEDED = {"podman": ("podman", "crun", "busybox"), "docker": ("docker", "dockerd", "busybox")}
"""The commands that each takes: Debian's `podman crun`, `docker.io`, `busybox-static`."""

LIMIT_S = 60.0

_ENGINE = """\
#!/bin/sh
# engine NAME PORT [HOW]: lists the model NAME, as every OpenAI-compatible engine does.
mkdir -p /www/v1
echo "{\\"object\\": \\"list\\", \\"data\\": [{\\"id\\": \\"$1\\", \\"object\\": \\"model\\"}]}" > /www/v1/models
env > /www/env
echo ok > /www/health
httpd -f -p "127.0.0.1:$2" -h /www &
case "$3" in
  crash) sleep 1; echo "crashing as told"; exit 7 ;;
  deaf) trap '' TERM ;;
  *) trap 'echo "asked to end"; exit 0' TERM ;;
esac
while true; do sleep 0.1; done
"""

_DOCKERFILE = """\
FROM scratch
COPY busybox /bin/busybox
COPY engine /engine
RUN ["/bin/busybox", "--install", "/bin"]
ENV PATH=/bin
ENTRYPOINT ["/bin/sh", "/engine"]
"""


class RealTool:
    """The tool as an agent is told of it, and what a test asks of it."""

    def __init__(self, folder: Path, name: str, *argv: str, **env: str) -> None:
        """`argv`: the command in full; `env`: what it is run with besides."""
        self.tool = folder / name
        given = "".join(f"export {key}='{value}'\n" for key, value in env.items())
        self.tool.write_text(f'#!/bin/sh\n{given}exec {" ".join(argv)} "$@"\n')
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def ask(self, *words: str) -> str:
        """What it prints. Raises CalledProcessError, with its words in `stderr`."""
        return subprocess.run([self.tool, *words], capture_output=True, text=True, check=True, timeout=120).stdout

    def boxes(self) -> list[dict[str, Any]]:
        """Its containers, running or not, as `inspect` tells them."""
        names = self.ask("ps", "--all", "--quiet").split()
        found: list[dict[str, Any]] = json.loads(self.ask("inspect", *names)) if names else []
        return found

    def clear(self) -> None:
        for box in self.boxes():
            self.ask("rm", "--force", box["Id"])

    def try_out(self, image: Path) -> None:
        """Make the image and run it once. Raises CalledProcessError."""
        self.ask("build", "--quiet", "--tag", IMAGE, str(image))
        self.ask("run", "--rm", "--network", "host", "--entrypoint", "/bin/true", IMAGE)


@contextlib.contextmanager
def real_tool(name: str) -> Iterator[RealTool]:
    """One that has run the image once. Raises RuntimeError with the tool's words where it runs nothing."""
    # pytest's own folders are too deep: podman takes 50 characters for where it runs.
    folder = tempfile.TemporaryDirectory(prefix="box-", ignore_cleanup_errors=True)
    with folder as made, _begun(name, Path(made)) as tool:
        yield tool


@contextlib.contextmanager
def _begun(name: str, folder: Path) -> Iterator[RealTool]:
    image = _image_in(folder)
    complaints = []
    for begun in _WAYS[name]:
        with begun(folder) as tool:
            try:
                tool.try_out(image)
            except subprocess.CalledProcessError as failed:
                complaints.append(str(failed.stderr).strip())
                continue
            try:
                yield tool
            finally:
                tool.clear()
            return
    raise RuntimeError(f"{name} runs nothing here: {'; '.join(complaints)}")


def _image_in(folder: Path) -> Path:
    image = folder / "image"
    image.mkdir()
    shutil.copy(str(shutil.which("busybox")), image / "busybox")
    (image / "engine").write_text(_ENGINE)
    (image / "Dockerfile").write_text(_DOCKERFILE)
    return image


@contextlib.contextmanager
def _podman(folder: Path, *enter: str) -> Iterator[RealTool]:
    limits = "nofile=1024:1024", "nproc=1024:1024"  # a machine may not let it raise its own
    conf = folder / "containers.conf"
    conf.write_text(f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n")
    store = ("--root", f"{folder}/store", "--runroot", f"{folder}/run", "--storage-driver", "vfs")
    argv = (*enter, str(shutil.which("podman")), *store, "--cgroup-manager", "cgroupfs", "--log-level", "error")
    yield RealTool(folder, "podman", *argv, CONTAINERS_CONF=str(conf))


@contextlib.contextmanager
def _podman_of_one_hierarchy(folder: Path) -> Iterator[RealTool]:
    """In a mount namespace, which a process of its own keeps."""
    alone = "while umount /sys/fs/cgroup/unified 2>/dev/null; do :; done; echo ready; exec sleep 3600"
    argv = [str(shutil.which("unshare")), "--mount", "sh", "-c", alone]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            with _podman(folder, str(shutil.which("nsenter")), "--target", str(holder.pid), "--mount", "--") as tool:
                yield tool
        finally:
            holder.kill()


@contextlib.contextmanager
def _docker(folder: Path) -> Iterator[RealTool]:
    socket = folder / "sock"
    told = ("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid")
    alone = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false", "--storage-driver", "vfs")
    # What it mounts ends with it, however it ends.
    argv = ["unshare", "--mount", str(shutil.which("dockerd")), "--host", f"unix://{socket}", *told, *alone]
    with (folder / "dockerd.log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as daemon:
        try:
            give_up = time.monotonic() + LIMIT_S
            tool = RealTool(
                folder, "docker", str(shutil.which("docker")), DOCKER_HOST=f"unix://{socket}", DOCKER_BUILDKIT="0"
            )
            while True:
                with contextlib.suppress(subprocess.CalledProcessError):
                    tool.ask("version")
                    break
                if daemon.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError((folder / "dockerd.log").read_text()[-1000:])
                time.sleep(0.1)
            yield tool
        finally:
            daemon.terminate()


_WAYS: dict[str, tuple[Callable[[Path], AbstractContextManager[RealTool]], ...]] = {
    "podman": (_podman, _podman_of_one_hierarchy),
    "docker": (_docker,),
}
