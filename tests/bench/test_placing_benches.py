"""The benches of placing on small fleets: what they measure is what they say."""

from bench import one_by_one, plan, traces
from bench.fleet import running, synthetic
from bench.fragmentation import run
from llmgw.decide import decide


def test_a_trace_is_placed_within_the_cluster_and_no_worse_than_one_pod_at_a_time() -> None:
    sites = traces.sites(only_gpus=True)[::20]
    trace = traces.whole_only(traces.pods("gpuspec33"))
    total = traces.WHOLE * sum(len(site.slots) for site in sites)
    coming = traces.arrivals(trace, len(trace) * traces.WHOLE, 1)
    short = coming[: total // traces.WHOLE]
    found, floor = run(sites, trace, short, step=0.05), one_by_one.allocated(sites, short)
    assert floor[1] <= found.at_130 <= 100


def test_pods_of_a_trace_ask_for_what_its_file_says() -> None:
    pods = traces.pods("default")
    assert len(pods) == 8_152
    assert round(sum(p.gpu_milli for p in pods) / traces.WHOLE, 1) == 6_086.8
    share = next(p for p in pods if p.gpus == 1 and p.milli < traces.WHOLE)
    assert share.need().asks[0].claim_mib == share.milli
    assert sum(len(site.slots) for site in traces.sites()) == 6_212


def test_a_synthetic_fleet_is_filled_as_far_as_it_is_asked_for() -> None:
    fleet = synthetic.fleet(20, 0.9)
    asked = sum(request.count for request in fleet.requests)
    figures = plan.planner(20, 0.9, 1)
    assert figures["replicas"] + figures["lacking"] == asked
    assert 0 < synthetic.greedy(fleet) <= asked


def test_the_running_world_is_at_rest() -> None:
    world, now_s = running.world(25)
    assert len(world.assignments) == 200
    quiet = decide(world, now_s)
    assert (quiet.assign, quiet.gone, quiet.put_endpoints) == ((), (), ())
    assert decide(running.with_lost_node(world, now_s), now_s).assign
    assert decide(running.with_model(world, "new", 3), now_s).assign
