"""Numbers, switches and sizes as other tools write them. Gives None for what it does not know; never guesses."""

import re

_MEMORY = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,6})?)(?P<unit>[KMGT]i?)?B?")
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def whole_number(text: str) -> float | None:
    """The number in `text`, or None."""
    return float(text) if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", text.strip()) else None


def switch_in(value: object) -> bool | None:
    """True or false, also as the words that YAML 1.1 takes for them, and as 0 and 1."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _SWITCHES.get(value.casefold())
    return {0: False, 1: True}.get(value) if isinstance(value, int) else None


def memory_size(text: str) -> str | None:
    """A Kubernetes quantity as the catalog writes sizes: `16Gi` → `16GiB`, `8G` → `8GB`, bytes → MiB."""
    matched = _MEMORY.fullmatch(text.strip())
    if matched is None:
        return None
    number, unit = matched["number"], matched["unit"] or ""
    if unit[:1] in ("M", "G", "T"):
        return f"{number}{unit}B" if float(number) > 0 else None
    mib = int(-(-float(number) * {"": 1, "K": 1000, "Ki": 1024}[unit] // (1 << 20)))
    return f"{mib}MiB" if mib > 0 else None


_KIND_MEMORY = re.compile(r"(?P<kind>.+?)[-_ ](?P<memory>[0-9]{1,4})(?:gb?|GB?)")


def kind_and_memory(name: str) -> tuple[str, str | None]:
    """`a100-80gb` → (`a100`, `80GB`); without a size the name alone."""
    matched = _KIND_MEMORY.fullmatch(name)
    return (matched["kind"], f"{matched['memory']}GB") if matched else (name, None)
