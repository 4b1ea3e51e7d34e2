"""Catalog sections for a stage of any size. Starts nothing."""

from typing import Any

LARGE = 1000
REPLICAS_PER_MODEL = 40


def whole_device_models(count: int, replicas: int = 1, prefix: str = "m") -> list[dict[str, Any]]:
    """Models of stub replicas, each on a device of its own."""
    profile = {"name": "p", "engine": "stub", "accelerators": [{"count": 1}]}
    return [{"name": f"{prefix}{i}", "replicas": replicas, "profiles": [profile]} for i in range(count)]


def full(nodes: int, devices: int = 8) -> list[dict[str, Any]]:
    """Models that fill every device of `nodes`, 40 replicas each where that divides."""
    return whole_device_models(nodes * devices // REPLICAS_PER_MODEL, REPLICAS_PER_MODEL)
