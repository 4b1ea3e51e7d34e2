"""One look at this machine: which tool to ask for each vendor, and how. Blocking; never raises.

A vendor without a tool is absent, unless the PCI bus shows its devices: then its driver or tool is missing, late, or
broken, and the look is incomplete. It judges no device.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.inventory import amd, apple, ascend, intel, nvidia_smi
from agent.inventory.nvml import NvmlReader, load_nvml
from agent.inventory.pci import devices_on_bus
from agent.inventory.seen import Seen, Sight, first_lines, joined, sober

TOOL_LIMIT_S = 20.0
"""A sick driver hangs its tool; then the look fails, and the agent goes on."""


class Machine:
    """What this machine's tools tell, look after look."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._nvml: NvmlReader | None = None

    def look(self) -> Sight:
        on_bus = devices_on_bus()
        asked: Mapping[str, Callable[[], Sight | None]] = {
            "nvidia": self._nvidia,
            "amd": self._amd,
            "ascend": self._ascend,
            "apple": self._apple,
            "intel": self._intel,
        }
        return joined(complete(vendor, _told(vendor, ask), on_bus.get(vendor, 0)) for vendor, ask in asked.items())

    def _nvidia(self) -> Sight | None:
        if self._nvml is None and (library := load_nvml()) is not None:
            self._nvml = NvmlReader(library)
        sight = self._nvml.read() if self._nvml is not None else None
        if sight is not None and (sight.devices or not sight.problem):
            return sight
        self._nvml = None  # initialised anew at the next look: a driver was loaded or changed under us
        document = self._run("nvidia-smi", "-q", "-x")
        if document is None:
            return sight
        code, text = document
        if problem := nvidia_smi.failure(text, code):
            return Sight(problem=problem)
        _, listed = (self._run("nvidia-smi", "-L") if "<mig_device>" in text else None) or (0, "")
        return nvidia_smi.read_xml(text, listed)

    def _amd(self) -> Sight | None:
        """rocm-smi, or amd-smi where that is missing or tells of no card: it is being retired."""
        first = self._rocm_smi()
        if first is not None and first.devices:
            return first
        second = self._amd_smi()
        return second if second is not None and (second.devices or first is None) else first

    def _rocm_smi(self) -> Sight | None:
        said = self._run("rocm-smi", "--showallinfo", "--json")
        if said is None:
            return None
        code, text = said
        sight = amd.read(text)
        return replace(sight, problem=sight.problem or (f"rocm-smi ended with {code}" if code else ""))

    def _amd_smi(self) -> Sight | None:
        asked = (
            ("list", "-e"),
            ("static", "--asic", "--bus", "--vram", "--partition"),
            ("metric", "--mem-usage", "--ecc"),
            ("process",),
        )
        answers = [said for words in asked if (said := self._run("amd-smi", *words, "--json")) is not None]
        if not answers:
            return None
        documents = [amd.document_in(text) for code, text in answers if code == 0]
        sight = amd.read_amd_smi([document for document in documents if document is not None])
        complaint = next((first_lines(text, 200) for code, text in answers if code), "")
        return replace(sight, problem=f"amd-smi: {complaint}") if sight.problem and complaint else sight

    def _ascend(self) -> Sight | None:
        return self._table("npu-smi", ("info",), ascend.read)

    def _apple(self) -> Sight | None:
        return self._table("system_profiler", ("SPDisplaysDataType", "-json"), apple.read)

    def _intel(self) -> Sight | None:
        """The list, and what it lacks (memory, in older versions) of each device."""
        said = self._run("xpu-smi", "discovery", "-j")
        if said is None:
            return None
        code, text = said
        listed = intel.read(text, code)
        if listed.problem:
            return listed
        bare = [device.index for device in carried(listed) if device.total_mib is None]
        more = [self._run("xpu-smi", "discovery", "-d", str(index), "-j") or (1, "") for index in bare]
        told = [amd.document_in(answer) for answer_code, answer in more if answer_code == 0]
        return intel.read_json([amd.document_in(text), *told])

    def _table(self, tool: str, words: tuple[str, ...], read: Callable[[str], Sight]) -> Sight | None:
        said = self._run(tool, *words)
        if said is None:
            return None
        code, text = said
        return read(text) if code == 0 else Sight(problem=f"{tool}: {first_lines(text, 200) or f'exit code {code}'}")

    def _run(self, tool: str, *words: str) -> tuple[int, str] | None:
        """(exit code, what it printed); None where there is no such tool."""
        found = shutil.which(tool, path=self._path)
        if found is None:
            return None
        try:
            done = subprocess.run(
                [found, *words], capture_output=True, timeout=TOOL_LIMIT_S, stdin=subprocess.DEVNULL, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"{tool} did not answer within {TOOL_LIMIT_S:g} s"
        except OSError as error:
            return 126, f"{tool}: {error.strerror}"
        text = done.stdout.decode(errors="replace")
        return done.returncode, text if done.returncode == 0 else text + done.stderr.decode(errors="replace")


def _told(vendor: str, ask: Callable[[], Sight | None]) -> Sight | None:
    """What a vendor's tool tells. What nobody foresaw of one tool says nothing of the other vendors' devices."""
    try:
        sight = ask()
    except Exception as error:  # a tool may print anything
        return Sight(problem=f"what the {vendor} tool tells cannot be read: {type(error).__name__}: {error}"[:300])
    return sober(sight) if sight is not None else None


def complete(vendor: str, sight: Sight | None, on_bus: int) -> Sight:
    """What a tool told, held against the bus. None: there is no tool."""
    if sight is None and not on_bus:
        return Sight()
    if sight is None:
        return Sight(
            problem=f"the PCI bus shows {on_bus} {vendor} devices, and no driver or tool tells of them "
            "(declare devices, or none, with --devices)"
        )
    cards = {device.bus or device.uuid or str(device.index): device for device in sight.devices}
    if not sight.problem and len(cards) < on_bus and (vendor == "nvidia" or not cards):
        return replace(sight, problem=f"the PCI bus shows {on_bus} {vendor} devices, the driver {len(cards)}")
    return sight


def carried(sight: Sight) -> tuple[Seen, ...]:
    """The devices that work may run on."""
    return tuple(device for device in sight.devices if not device.unfit)
