"""Which sink speaks to routers of which kind: one row per row of `llmgw.router_kinds`."""

from collections.abc import Mapping

from activities.outward import Callers
from activities.settings import Outward
from activities.sinks import envoy, files, haproxy, smg
from activities.sinks.kept import KeptSink
from activities.sinks.native import NativeSink
from activities.sinks.sink import Sink, Watching


def kept(outward: Outward) -> Mapping[str, KeptSink]:
    """Sinks of routers that keep no token and do not tell their state by themselves."""
    del outward
    return {
        "envoy": KeptSink(envoy.controlled),
        "haproxy": KeptSink(haproxy.controlled),
        "smg": KeptSink(smg.through_api),
        "smg-file": KeptSink(smg.through_file),
        **{kind: KeptSink(files.controlling(layout)) for kind, layout in files.LAYOUTS.items()},
    }


def sinks(callers: Callers) -> Mapping[str, Sink]:
    """Every sink, by kind."""
    return {"native": NativeSink(callers), **kept(callers.outward)}


def watching(outward: Outward) -> Mapping[str, Watching]:
    """The sinks that look at their routers, by kind."""
    return kept(outward)
