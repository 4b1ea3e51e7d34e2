"""Which vendors' devices the PCI bus shows, so that a tool that is missing or late is not taken for an empty machine.

Reads sysfs. A device handed to a virtual machine is not ours to look for.
"""

from contextlib import suppress
from pathlib import Path

SYSFS = Path("/sys/bus/pci/devices")

# PCI-SIG's vendor ids and class codes: 0x03xx display, 0x12xx processing accelerators.
_VENDORS = {"0x10de": ("nvidia", ("0x0300", "0x0302")), "0x19e5": ("ascend", ("0x1200",))}
# Of AMD only what can be nothing else: a display controller may be a graphics unit nobody computes on.
_VENDORS["0x1002"] = ("amd", ("0x0380", "0x1200"))
_AWAY = frozenset({"vfio-pci", "xen-pciback", "pci-stub"})


def devices_on_bus(root: Path = SYSFS) -> dict[str, int]:
    """Vendor -> how many of its devices this system may drive."""
    found: dict[str, int] = {}
    for device in root.iterdir() if root.is_dir() else ():
        with suppress(OSError):
            vendor, classes = _VENDORS.get((device / "vendor").read_text().strip(), ("", ()))
            if not vendor or not (device / "class").read_text().startswith(classes):
                continue
            driver = device / "driver"
            if not (driver.exists() and driver.resolve().name in _AWAY):
                found[vendor] = found.get(vendor, 0) + 1
    return found
