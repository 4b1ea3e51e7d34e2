"""What several sources share that were made for Kubernetes: environment, resources, devices by their names there."""

import re
from collections.abc import Mapping

from llmgw.importing.account import Part
from llmgw.importing.draft import Devices
from llmgw.importing.launching import Launch
from llmgw.importing.quantities import kind_and_memory, memory_size

CLUSTER_ONLY = "Kubernetes' own affair: llmgw runs processes on machines"
A_CONTAINER = "how images are pulled is the affair of the nodes' docker or podman"
NO_CPU_SHARE = "main memory is reserved, CPUs are not"
NO_VOLUMES = "agents keep weights on the node's own disk"

METADATA: Mapping[str, str] = {
    "namespace": CLUSTER_ONLY,
    "labels": CLUSTER_ONLY,
    "annotations": CLUSTER_ONLY,
}


def environment(launch: Launch, listed: Part) -> None:
    """`env` as a list of {name, value | valueFrom}, or as a mapping."""
    for item in listed.items():
        if isinstance(listed.raw, Mapping):
            if (value := item.as_text()) is not None:
                launch.variable(item.key, value, item.at)
            continue
        name = item.text("name")
        if name is None:
            continue
        if item.part("valueFrom", "secretKeyRef").is_mapping:
            _secret(launch, name, item)
        elif item.has("value"):
            value = item.text("value")
            if value is not None:
                launch.variable(name, value, (*item.at, "value"))
        else:
            item.lose("valueFrom", "only a value or a secret can be given to a variable")


def _secret(launch: Launch, variable: str, item: Part) -> None:
    """`secretKeyRef: {name, key}`: the secret is called `name/key` by the agents."""
    reference = item.part("valueFrom", "secretKeyRef")
    named = secret_name(reference.text("name"), reference.text("key"))
    launch.secret(variable, reference.at, "give the secret's value to the agents", named)


def secret_name(*pieces: str | None) -> str | None:
    name = "/".join(piece for piece in pieces if piece)
    return name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}", name) else None


def image_named(part: Part, *keys: str) -> str | None:
    """An image: one text, or `repository` and `tag` joined."""
    pieces = [text for key in keys if (text := part.text(key)) is not None]
    image = ":".join(pieces)
    if not image or (re.fullmatch(r"[A-Za-z0-9][^\s]{0,511}", image) and "{{" not in image and "${" not in image):
        return image or None
    for key in keys:
        part.lose(key, "no name of an image")
    return None


def host_memory(part: Part, key: str) -> str | None:
    """A quantity such as `16Gi`, as the catalog writes it."""
    text = part.text(key)
    if text is None:
        return None
    size = memory_size(text)
    if size is None:
        part.lose(key, "no size of memory")
    return size


_VENDORS = re.compile(r"(?:nvidia|amd|intel|google)[-_.](?:com[/_-])?(?:gpu[-_])?", re.IGNORECASE)


def is_a_make(kind: str) -> bool:
    """Whether `kind` looks like what makers call their devices (`l4`, `rtx 4090`): each word has a digit, or is a word
    that makers use."""
    words = re.findall("[a-z0-9]+", kind.casefold())
    return all(
        re.search("[0-9]", word) or word in ("rtx", "gtx", "mig", "me", "tpu", "gaudi", "quadro") for word in words
    )


def devices_named(name: str, count: int) -> Devices:
    """`nvidia-gpu-a100-80gb` × count; `nvidia-gpu-mig-1g.10gb` is a slice, which there is only one of."""
    if (found := re.search(r"(?:^|[-_.])mig[-_](\d+g\.\d+gb)$", name, re.IGNORECASE)) is not None:
        return Devices(1, f"mig {found[1].casefold()}")
    kind, memory = kind_and_memory(_VENDORS.sub("", name, count=1).casefold())
    return Devices(count, kind[:64] or None, memory)
