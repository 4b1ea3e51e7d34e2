"""`python -m agent.inventory [FILE …]`: what the agent makes of this machine, or of saved outputs of its tools.

Prints the inventory as JSON, as the plane would be told it, with what was left out and why.
"""

import json
import sys
from pathlib import Path

from agent.devices import Holding, Known, Whose, judge
from agent.inventory.dumps import UNKNOWN_FORM, decoded, read_dump
from agent.inventory.seen import Sight
from agent.inventory.sources import Machine
from agent.inventory.topology import read_links, read_slice_profiles
from agent.proc import machine_id


def told(sight: Sight, text: str = "") -> dict[str, object]:
    """The inventory of one look, and links and slice profiles where the text has any."""
    known = judge(sight, Holding(lambda _: Whose.FOREIGN), Known(), machine_id() or "this-machine", {})
    links = {f"GPU{one}-GPU{other}": link for (one, other), link in read_links(text).items()}
    profiles = [vars(profile) for profile in read_slice_profiles(text)]
    if links or profiles:
        return {"links": links, "slice_profiles": profiles, **_told_of(known, sight)}
    return _told_of(known, sight)


def _told_of(known: Known, sight: Sight) -> dict[str, object]:
    """Nothing, for a text that tells of no device and is no complaint of a tool either."""
    if sight.problem.startswith(UNKNOWN_FORM) and not sight.devices:
        return {"problem": sight.problem}
    return known.inventory.model_dump(mode="json") | {"left_out": known.left_out}


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    for file in files:
        text = decoded(file.read_bytes())
        print(json.dumps({"file": file.name, **told(read_dump(text), text)}, indent=2))
    if not files:
        print(json.dumps(told(Machine().look()), indent=2))


if __name__ == "__main__":
    main()
