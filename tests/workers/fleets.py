"""Fleets that answer like a real one, for what a worker serves: no Temporal, real views."""

from tests.cli import scenes
from tests.cli.fleets import WorldFleet
from tests.core.fleets import catalog, model, running


def troubled() -> WorldFleet:
    """A model short of a replica, one stopping, a silent node, a router behind, sick devices, a refused catalog."""
    return WorldFleet(scenes.troubled(), recent=scenes.recent())


def rolling() -> WorldFleet:
    """Two models in the middle of an edit, on three nodes with four devices each."""
    sim = running(model("qwen3-32b", 3), model("llama", 2, 2), nodes="abc", count=4)
    sim.catalog(catalog(sim, model("qwen3-32b", 3, args=["--new"]), model("llama", 2, 2), model("bge", 2)))
    sim.order("cordon", node="c")
    return WorldFleet(sim.world, name="main")
