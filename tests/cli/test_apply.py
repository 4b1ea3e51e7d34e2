"""Catalogs at the command line: checked here, sent as the fleet takes them, waited for until it is there."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.applying import PATIENCE_S
from cli.progress import Arrived, Going, Halted, Progress, Stuck, lines, progress
from llmgw import kept_catalogs, views
from llmgw.catalog import MAX_PLAIN_BYTES, Catalog, catalog_digest
from llmgw.catalog_input import expand
from llmgw.ids import ModelName, NodeId, RouterId
from llmgw.plan import Judgement, Verdict
from llmgw.recent import Recent
from llmgw.wire import Inventory, Token
from llmgw.world import (
    HeldCatalog,
    InputKind,
    RouterFacts,
    Silence,
    SilenceLevel,
    StopCause,
    StopIntent,
    Waiting,
    World,
)
from tests.cli.fleets import Command, WorldFleet
from tests.core.worlds import NOW, catalog, model, raw_catalog, seen, serving, world

ROOT = Path(__file__).parents[2]
BAD = "models:\n  - name: a\n    profiles:\n      - {name: p, engine: vlm}\n  - name: a\n    profiles: []\n"


def written(tmp_path: Path, raw: object) -> str:
    file = tmp_path / "catalog.json"
    file.write_text(json.dumps(raw))
    return str(file)


# --- validate ------------------------------------------------------------------------------------------------------


def test_a_valid_file_is_told_so() -> None:
    done = Command()("validate", str(ROOT / "examples" / "catalog.yaml"))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("catalog.yaml: valid, 2 models\n")


def test_every_problem_is_one_line_with_file_line_column_path_and_mend(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = Command()("validate", str(file))
    assert done.exit_code == 1
    lines = [line.removeprefix(f"{file}:") for line in done.stdout.splitlines()]
    assert [line.split(": ")[:2] for line in lines[:-1]] == [
        ["4:19", "models[0].profiles[0].engine"],
        ["5:5", "models[1].name"],
        ["6:5", "models[1].profiles"],
    ]
    assert 'did you mean "vllm"' in lines[0]
    assert lines[-1] == " 3 problems"


def test_problems_for_programs_have_the_same_in_fields(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = Command()("validate", str(file), "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["valid"] is False
    assert [(p["path"], p["line"], p["column"]) for p in told["problems"]][1] == ("models[1].name", 5, 5)
    assert all(p["what"] and p["mend"] for p in told["problems"])


def test_warnings_are_shown_and_accepted() -> None:
    done = Command()("validate", "-", stdin='{"models": []}')
    assert done.exit_code == 0
    assert done.stdout.startswith("-:1:2: warning: models: there are no models")
    assert done.stdout.endswith("-: valid, 0 models, 1 warning\n")


def test_a_text_that_is_no_document_is_a_problem_with_its_line() -> None:
    done = Command()("validate", "-", stdin="models:\n\t- name: a\n")
    assert done.exit_code == 1
    assert done.stdout.startswith("-:2:1: ")


def test_a_file_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.yaml"):
        done = Command()("validate", str(path))
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"cannot read {path}" in done.stderr


def test_the_schema_is_printed_as_it_is_committed() -> None:
    assert Command()("schema").stdout == (ROOT / "docs" / "catalog.schema.json").read_text()


# --- apply: what is sent -------------------------------------------------------------------------------------------


def test_a_bad_file_reaches_no_fleet(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = Command()("apply", str(file))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == "llmgw: nothing was sent"
    lines = done.stderr.splitlines()
    assert len(lines) == 3 + 2
    assert all(line.startswith(f"{file}:") for line in lines[:-1])  # as editors find them


def test_an_accepted_catalog_is_told_with_generation_digest_and_differences(tmp_path: Path) -> None:
    fleet = WorldFleet(replace(world("qwen"), generation=4))
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("qwen", "llama")), "--no-wait")
    assert (done.exit_code, done.stderr) == (0, "")
    digest = catalog_digest(catalog("qwen", "llama"))[:12]
    assert done.stdout.splitlines() == [
        f"accepted: generation 5 is in force (digest {digest})",
        "  model llama added",
    ]
    assert fleet.sent == [("apply-catalog", raw_catalog("qwen", "llama"))]


def test_a_large_catalog_travels_compressed_and_whole(tmp_path: Path) -> None:
    labels = {"labels": {f"label-{i}": "x" * 200 for i in range(30)}}
    nodes = [{"id": f"node-{i}", "url": f"http://n{i}:1", **labels} for i in range(60)]
    raw: dict[str, Any] = {"nodes": nodes, "models": [model("qwen")]}
    assert len(json.dumps(raw)) > MAX_PLAIN_BYTES
    fleet = WorldFleet(world("qwen"))
    assert Command(fleet)("apply", written(tmp_path, raw), "--no-wait").exit_code == 0
    ((_, sent),) = fleet.sent
    assert sent != raw
    assert expand(sent) == raw
    assert len(json.dumps(sent)) < MAX_PLAIN_BYTES


def running_three() -> World:
    found = serving("a", "b", "c", "d")
    assert found.catalog is not None
    return replace(found, digest=catalog_digest(found.catalog))


def test_a_held_catalog_ends_with_1_and_says_how_to_confirm(tmp_path: Path) -> None:
    fleet = WorldFleet(running_three())
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("a")))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "held: it removes 3 of the 4 models that run (b, c, d). Look at it with `llmgw plan`, and confirm it with "
        "--allow-removals: sending it again is no confirmation here"
    ]


@pytest.mark.parametrize("command", ["apply", "rollback"])
def test_a_job_that_tries_again_confirms_no_removal(tmp_path: Path, command: str) -> None:
    """The fleet takes a second sending after 30 s for a confirmation: it is not sent a second time."""
    fleet = WorldFleet(running_three())
    file = written(tmp_path, raw_catalog("a"))
    given = file if command == "apply" else "1"
    fleet.kept = kept_catalogs.keep(fleet.kept, raw_catalog("a"), 1, catalog_digest(catalog("a")), NOW)
    assert Command(fleet)("apply", file).exit_code == 1
    assert fleet.world.held is not None
    fleet.world = replace(fleet.world, held=replace(fleet.world.held, since_s=NOW - 300))
    done = Command(fleet)(command, given)
    assert (done.exit_code, len(fleet.sent)) == (1, 1)
    assert done.stderr.startswith("llmgw: held for 5m already: it removes 3 of the 4 models that run (b, c, d). Look")
    assert done.stderr.endswith("llmgw: nothing was sent\n")
    assert Command(fleet)(command, given, "--allow-removals", "--no-wait").exit_code == 0
    assert fleet.world.generation == 1


def test_the_file_itself_may_say_that_removals_are_meant(tmp_path: Path) -> None:
    fleet = WorldFleet(running_three())
    assert Command(fleet)("apply", written(tmp_path, raw_catalog("a"))).exit_code == 1
    again = written(tmp_path, {**raw_catalog("a"), "allow_removals": True})
    assert Command(fleet)("apply", again, "--no-wait").exit_code == 0


def test_removals_are_confirmed_by_a_flag(tmp_path: Path) -> None:
    fleet = WorldFleet(running_three())
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("a")), "--allow-removals", "--no-wait")
    assert done.exit_code == 0
    assert fleet.world.generation == 1


def test_a_warning_is_told_once(tmp_path: Path) -> None:
    """This command and the fleet's judging find the same ones."""
    fleet = WorldFleet(world("qwen"))
    sent = {**raw_catalog("qwen"), "models": [model("qwen", idle_timeout_s=60)]}
    done = Command(fleet)("apply", written(tmp_path, sent), "--no-wait")
    assert (done.exit_code, done.stderr.count("nothing ever stops for being idle")) == (0, 1)
    assert done.stderr.count("warning: ") == 1


def test_what_the_fleet_refuses_is_told_in_full(tmp_path: Path) -> None:
    fleet = WorldFleet(replace(world("qwen"), ending=True))
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("qwen")))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "refused: nothing was changed",
        "  the fleet is ending: start it anew before giving it a catalog",
    ]


# --- apply: waiting ------------------------------------------------------------------------------------------------


def in_force(found: World) -> World:
    """`found` with its catalog as the accepted one, all routers on its table."""
    assert found.catalog is not None
    current = RouterFacts(acked_revision=found.table_revision, held_digest=found.table.digest)
    routers = {RouterId("edge-1"): current}
    return replace(found, digest=catalog_digest(found.catalog), generation=1, routers=routers)


def lacking() -> World:
    """As wanted, but nothing of qwen runs yet."""
    return in_force(world("qwen"))


def test_it_waits_until_everything_is_ready_and_tells_each_change_once(tmp_path: Path) -> None:
    fleet = WorldFleet(lacking(), lacking(), lacking(), in_force(serving("qwen")))
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("qwen")))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "unchanged: equal to the catalog in force",
        "  0s  qwen: 0 of 1 ready",
        "  0s  qwen: ready",
        "  0s  1 model without all replicas: qwen",
        "everything wanted is ready and published after 0.6 s",
    ]


def test_lines_of_progress_are_short_and_come_only_when_a_model_is_further() -> None:
    waits = Waiting("model/qwen", "no_place", "needs 4 × h100: 3 nodes with 1 free " * 8 + "; and so on", NOW - 9)
    before, after = lacking(), replace(lacking(), waiting={"model/qwen": waits})
    told = [lines(Going("x", (views.models(w, NOW).models[0],))) for w in (before, before, after)]
    assert told[0] == told[1] == {"qwen": "0 of 1 ready"}
    assert told[2]["qwen"].startswith("0 of 1 ready; needs 4 × h100: 3 nodes")
    assert len(told[2]["qwen"]) < 100


def test_when_the_time_is_over_it_ends_with_4_and_says_what_is_missing(tmp_path: Path) -> None:
    done = Command(WorldFleet(lacking()))("apply", written(tmp_path, raw_catalog("qwen")), "--timeout", "3s")
    assert done.exit_code == 4
    assert done.stderr.startswith("not there after 3 s: 1 model without all replicas: qwen;")


def test_what_nothing_present_will_mend_ends_soon_with_1_and_tells_why_once(tmp_path: Path) -> None:
    command = Command(WorldFleet(given_up(lacking(), "no_place")))
    done = command("apply", written(tmp_path, raw_catalog("qwen")))
    assert done.exit_code == 1
    assert PATIENCE_S <= command.now_s < 2 * PATIENCE_S
    assert done.stdout.splitlines() == ["unchanged: equal to the catalog in force"]
    assert done.stderr.splitlines() == [
        "nothing more comes by itself. qwen: 0 of 1 ready; given up: failed 5 times. `llmgw explain qwen` says more; "
        "the catalog stays in force"
    ]


def test_what_is_mended_within_seconds_is_waited_for(tmp_path: Path) -> None:
    """As by a node whose devices are just coming up."""
    short = given_up(lacking(), "no_place")
    fleet = WorldFleet(short, short, short, short, lacking(), short, in_force(serving("qwen")))
    done = Command(fleet)("apply", written(tmp_path, raw_catalog("qwen")))
    assert (done.exit_code, done.stderr) == (0, "")


def test_ctrl_c_ends_the_waiting_not_the_catalog(tmp_path: Path) -> None:
    done = Command(WorldFleet(lacking()), pauses=3)("apply", written(tmp_path, raw_catalog("qwen")))
    assert done.exit_code == 130
    assert done.stderr == "no longer waiting; the catalog stays in force\n"


def test_for_programs_one_document_tells_the_verdict_and_the_end(tmp_path: Path) -> None:
    for later, code, there in ((in_force(serving("qwen")), 0, True), (lacking(), 4, False)):
        fleet = WorldFleet(lacking(), later)
        done = Command(fleet)("apply", written(tmp_path, raw_catalog("qwen")), "--json", "--timeout", "2")
        told = json.loads(done.stdout)
        assert (done.exit_code, done.stderr) == (code, "")
        assert (told["verdict"]["judgement"], told["there"]) == ("unchanged", there)


def test_a_fleet_that_falls_silent_while_it_is_waited_for_is_told(tmp_path: Path) -> None:
    class FallsSilent(WorldFleet):
        async def query(self, name: str, *args: object, answer: type[Any] | None = None) -> Any:
            raise TimeoutError

        async def workers(self) -> dict[str, float]:
            return {}

    done = Command(FallsSilent(lacking()))("apply", written(tmp_path, raw_catalog("qwen")))
    assert done.exit_code == 4
    assert "no worker runs for fleet main" in done.stderr


# --- progress ------------------------------------------------------------------------------------------------------


def judged(found: World, of: Catalog | None = None) -> Progress:
    made = of or found.catalog
    assert made is not None
    verdict = Verdict(
        arrival=1,
        kind=InputKind.CATALOG,
        name="apply-catalog",
        judgement=Judgement.ACCEPTED,
        digest=catalog_digest(made),
    )
    return progress(views.status(found, Recent(), NOW), views.models(found, NOW).models, verdict)


def stopping(found: World) -> World:
    gone = {id_: replace(a, stop=StopIntent(StopCause.CHANGED, "x", NOW, 1)) for id_, a in found.assignments.items()}
    return replace(found, assignments=gone)


def given_up(found: World, code: str = "failed") -> World:
    return replace(found, waiting={"model/qwen": Waiting("model/qwen", code, "given up: failed 5 times", NOW)})


def old_version(found: World) -> World:
    """What serves in `found` is what the catalog had before it was edited."""
    return replace(found, good={ModelName("qwen"): catalog("qwen")})


def coming_up(found: World) -> World:
    return replace(found, seen={NodeId("node-a"): seen("node-a", inventory=Inventory(complete=False))})


OTHER = Token(installation="other", fleet="main", epoch=9, seq=1)
HEARD = {"router/edge-1": Silence(SilenceLevel.HEARD, NOW)}
HELD = HeldCatalog("d", {}, NOW, "held: too many leave")
SCENES: dict[str, tuple[World, type[Progress], str]] = {
    "as wanted": (in_force(serving("qwen")), Arrived, "everything wanted is ready"),
    "nothing yet": (lacking(), Going, "1 model without all replicas: qwen"),
    "old replicas still leave": (stopping(in_force(serving("qwen"))), Going, "1 replica on the way out"),
    "a router lags": (
        replace(in_force(serving("qwen")), routers={}, silence=HEARD),
        Going,
        "without the newest table: edge-1",
    ),
    "settling": (replace(lacking(), settling_since_s=NOW), Going, "nothing is started or stopped before"),
    "no room": (given_up(lacking(), "no_place"), Halted, "qwen: 0 of 1 ready; given up: failed 5 times. `llmgw exp"),
    "no room while the devices of a node come up": (
        coming_up(given_up(lacking(), "no_place")),
        Going,
        "given up: failed 5 times",
    ),
    "one without room, one on its way": (given_up(in_force(world("qwen", "llama")), "no_place"), Going, "llama, qwen"),
    "no room for the new version": (
        given_up(old_version(in_force(serving("qwen"))), "no_place"),
        Halted,
        "qwen: 0 of 1 ready; given up: failed 5 times; the version before the edit serves meanwhile, with 1 endpoint",
    ),
    "back to the last good version": (
        given_up(old_version(in_force(serving("qwen"))), "rolled_back"),
        Stuck,
        "rolled back: qwen",
    ),
    "given up": (given_up(lacking()), Stuck, "`llmgw explain qwen` says why"),
    "given up beside another that lacks": (given_up(in_force(world("qwen", "llama"))), Going, "llama, qwen"),
    "ending": (replace(lacking(), ending=True), Stuck, "everything is withdrawn"),
    "fenced": (replace(lacking(), fenced_by=OTHER), Stuck, "llmgw takeover"),
    "there, and a further one held": (
        replace(in_force(serving("qwen")), held=HELD),
        Arrived,
        "a further catalog is held",
    ),
    "not there, and a further one held": (replace(lacking(), held=HELD), Going, "a catalog waits for a confirmation"),
}


@pytest.mark.parametrize("scene", SCENES)
def test_progress_of(scene: str) -> None:
    found, kind, said = SCENES[scene]
    made = judged(found)
    assert type(made) is kind
    assert said in made.text


def test_a_catalog_that_was_replaced_meanwhile_never_arrives() -> None:
    made = judged(in_force(serving("qwen")), of=catalog("qwen", "llama"))
    assert isinstance(made, Stuck)
    assert "generation 1, was put in force meanwhile" in made.text


def test_a_failure_while_it_is_sent_is_told(tmp_path: Path) -> None:
    class Deaf(WorldFleet):
        async def _update(self, name: str, *args: object) -> Verdict:
            raise TimeoutError

        async def workers(self) -> dict[str, float]:
            return {}

    done = Command(Deaf(lacking()))("apply", written(tmp_path, raw_catalog("qwen")))
    assert done.exit_code == 4
    assert "Whether it was taken is not known" in done.stderr
