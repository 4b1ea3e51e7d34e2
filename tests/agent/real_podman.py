"""Real podman with a store of its own, and an image small enough to be made on the spot from busybox.

Podman cannot run where both cgroup hierarchies are mounted; there its commands run in a mount namespace without the
second one. Nothing of the machine's own containers is seen or touched.
"""

import contextlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IMAGE = "localhost/llmgw-test:1"
NEEDED = ("podman", "crun", "busybox")

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

_CONTAINERFILE = """\
FROM scratch
COPY busybox /bin/busybox
COPY engine /engine
RUN ["/bin/busybox", "--install", "/bin"]
ENV PATH=/bin
ENTRYPOINT ["/bin/sh", "/engine"]
"""

_WITHOUT_SECOND_HIERARCHY = "while umount /sys/fs/cgroup/unified 2>/dev/null; do :; done; echo ready; exec sleep 3600"


class Podman:
    """The tool as an agent is told of it, and what a test asks of it."""

    def __init__(self, folder: Path, namespace: int | None = None) -> None:
        self.tool = folder / "podman"
        enter = f"{shutil.which('nsenter')} --target {namespace} --mount -- " if namespace else ""
        store = f"--root {folder}/store --runroot {folder}/run --storage-driver vfs --cgroup-manager cgroupfs"
        self.tool.write_text(
            "#!/bin/sh\n"
            f"export CONTAINERS_CONF={folder}/containers.conf\n"
            f'exec {enter}{shutil.which("podman")} {store} --log-level error "$@"\n'
        )
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def ask(self, *words: str) -> str:
        """What it prints. Raises CalledProcessError, with its words in `stderr`."""
        done = subprocess.run([self.tool, *words], capture_output=True, text=True, check=True, timeout=120)
        return done.stdout

    def boxes(self) -> list[dict[str, Any]]:
        """Its containers, running or not, as `inspect` tells them."""
        names = self.ask("ps", "--all", "--quiet").split()
        found: list[dict[str, Any]] = json.loads(self.ask("inspect", *names)) if names else []
        return found


@contextlib.contextmanager
def podman_in(folder: Path) -> Iterator[Podman]:
    """One that has run the image once. Raises RuntimeError with the tool's words where none can run."""
    limits = "nofile=1024:1024", "nproc=1024:1024"  # a machine may not let it raise its own
    (folder / "containers.conf").write_text(f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n")
    built = folder / "image"
    built.mkdir()
    shutil.copy(str(shutil.which("busybox")), built / "busybox")
    (built / "engine").write_text(_ENGINE)
    (built / "Containerfile").write_text(_CONTAINERFILE)
    complaints = []
    for hides in (False, True):
        with _namespace() if hides else contextlib.nullcontext() as namespace:
            podman = Podman(folder, namespace)
            try:
                podman.ask("build", "--quiet", "--tag", IMAGE, str(built))
                podman.ask("run", "--rm", "--network", "host", "--entrypoint", "/bin/true", IMAGE)
            except subprocess.CalledProcessError as failed:
                complaints.append(str(failed.stderr).strip())
                continue
            try:
                yield podman
            finally:
                podman.ask("rm", "--all", "--force")
            return
    raise RuntimeError(f"podman runs nothing here: {'; '.join(complaints)}")


@contextlib.contextmanager
def _namespace() -> Iterator[int]:
    """The pid of a process in a mount namespace of its own."""
    argv = [str(shutil.which("unshare")), "--mount", "sh", "-c", _WITHOUT_SECOND_HIERARCHY]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            yield holder.pid
        finally:
            holder.kill()
