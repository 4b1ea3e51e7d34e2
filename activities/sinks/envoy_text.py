"""The xDS files Envoy reads for a book: clusters, routes, and one file of endpoints per model. Pure.

A model is a cluster; names and aliases are routes on the header `x-llmgw-model`, which the listener's filter sets from
the request's body (docs/routers.md). A route carries the served name as metadata, so that the filter can write it into
the body. Source: Envoy's v3 API reference.
"""

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from activities.sinks.addresses import split
from activities.sinks.book import Book
from llmgw.ids import ModelName, ReplicaId
from llmgw.router_kinds import check_every_s
from llmgw.wire import Endpoint, TableModel

TYPE = "type.googleapis.com/envoy.config"
ROUTES = "llmgw"
"""Name of the route configuration that the listener asks for."""
HEADER = "x-llmgw-model"
FILTER = "envoy.filters.http.lua"
MOST = 1_000_000
"""Requests and connections per cluster: how much an engine takes is its own affair."""

Resource = dict[str, Any]


@functools.lru_cache(maxsize=20_000)
def cluster_of(model: str) -> str:
    """The cluster's name; fit for a file name too."""
    slug = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in model)[:40]
    return f"{slug}.{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def endpoints_file(model: str) -> str:
    return f"eds.{cluster_of(model)}.json"


def files_of(book: Book, directory: Path, changed: Collection[str] | None = None) -> dict[str, bytes]:
    """Every file by its name, in the order in which they are to be put in place: what is named exists before. Of
    endpoints only the files of `changed` models, where that is given. JSON: as YAML, Envoy takes twice as long."""
    groups, gone = by_model(book, changed), _gone(book)
    models = dict.fromkeys((*groups, *(name for name in book.models if changed is None or name in changed)))
    found = {
        endpoints_file(name): _document([_assignment(book, name, groups.get(name, ()), gone.get(name, ()))])
        for name in models
    }
    known = sorted({*book.models, *(e.models[0] for e in book.endpoints.values())})
    found["cds.json"] = _document([_cluster(name, directory, check_every_s(book.settings)) for name in known])
    found["rds.json"] = _document([_routes(book)])
    return found


def version_of(content: bytes) -> str:
    """The version that a file names, at its end; Envoy tells which one it has taken."""
    return content.rpartition(b'"version_info": "')[2].partition(b'"')[0].decode()


def by_model(book: Book, changed: Collection[str] | None = None) -> Mapping[str, tuple[Endpoint, ...]]:
    """Endpoints that can be told, of all models or of some."""
    found: dict[str, list[Endpoint]] = {}
    for endpoint in book.reachable():
        if changed is None or endpoint.models[0] in changed:
            found.setdefault(endpoint.models[0], []).append(endpoint)
    return {name: tuple(endpoints) for name, endpoints in found.items()}


def levels(endpoints: Iterable[Endpoint]) -> dict[int, int]:
    """Envoy's priorities count from 0 without gaps."""
    return {priority: level for level, priority in enumerate(sorted({e.priority for e in endpoints}))}


def weight_of(endpoint: Endpoint) -> int:
    """Envoy knows no weight 0: such an endpoint is DRAINING there."""
    return max(1, endpoint.weight)


def _document(resources: list[Resource]) -> bytes:
    text = json.dumps(resources, sort_keys=True)
    version = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f'{{"resources": {text}, "version_info": "{version}"}}'.encode()


def _gone(book: Book) -> Mapping[str, list[str]]:
    """Addresses that leave, by model."""
    found: dict[str, list[str]] = {}
    for gone in book.leaving.values():
        found.setdefault(gone.endpoint.models[0], []).append(gone.address)
    return found


def _assignment(book: Book, model: str, endpoints: tuple[Endpoint, ...], gone: Iterable[str]) -> Resource:
    """Endpoints of a model by priority; those that leave stay listed, DRAINING, until they are idle."""
    level, groups = levels(endpoints), dict[int, list[Resource]]()
    for endpoint in endpoints:
        state = "HEALTHY" if endpoint.weight else "DRAINING"
        host = _host(book.addresses[endpoint.id], weight_of(endpoint), state)
        groups.setdefault(level[endpoint.priority], []).append(host)
    taken = {book.addresses[e.id] for e in endpoints}
    for address in sorted(set(gone) - taken):
        groups.setdefault(0, []).append(_host(address, 1, "DRAINING"))
    return {
        "@type": f"{TYPE}.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster_of(model),
        "endpoints": [{"priority": level, "lb_endpoints": hosts} for level, hosts in sorted(groups.items())],
    }


def _host(address: str, weight: int, state: str) -> Resource:
    ip, port = split(address)
    return {
        "endpoint": {"address": {"socket_address": {"address": ip, "port_value": port}}},
        "health_status": state,
        "load_balancing_weight": weight,
    }


def _cluster(model: str, directory: Path, every_s: int) -> Resource:
    # Without `watched_directory`: with it, each file put in place would have Envoy read those of all models again.
    source = {"path": str(directory / endpoints_file(model))}
    limits = {"max_connections": MOST, "max_pending_requests": MOST, "max_requests": MOST, "max_retries": 100}
    return {
        "@type": f"{TYPE}.cluster.v3.Cluster",
        "name": cluster_of(model),
        "type": "EDS",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "2s",
        "eds_cluster_config": {"eds_config": {"resource_api_version": "V3", "path_config_source": source}},
        # Else a host that was taken out goes on getting requests as long as it passes its health check.
        "ignore_health_on_host_removal": True,
        "circuit_breakers": {"thresholds": [limits]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        # Connects only: whether an engine is ready is its agent's word, and engines differ in their health paths.
        "health_checks": [
            {
                "timeout": "1s",
                "interval": f"{every_s}s",
                "no_traffic_interval": f"{every_s}s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "tcp_health_check": {},
            }
        ],
    }


def _routes(book: Book) -> Resource:
    """Exact names before everything else; a model without endpoints answers 503, an unknown name 404."""
    serving = {e.models[0]: e.served_name for e in reversed(book.reachable())}
    routes = [
        _route(public, model, serving.get(name))
        for name, model in sorted(book.models.items())
        for public in (name, *model.aliases)
    ]
    unknown = _answer(404, "there is no such model")
    routes.append({"match": {"prefix": "/"}, "direct_response": unknown})
    return {
        "@type": f"{TYPE}.route.v3.RouteConfiguration",
        "name": ROUTES,
        "virtual_hosts": [{"name": "models", "domains": ["*"], "routes": routes}],
    }


def _route(public: str, model: TableModel, served_name: str | None) -> Resource:
    match = {"prefix": "/", "headers": [{"name": HEADER, "string_match": {"exact": public}}]}
    if served_name is None:
        header = {"key": "retry-after", "value": str(model.retry_after_s)}
        response = _answer(503, "the model is known and has no ready replica")
        return {"match": match, "direct_response": response, "response_headers_to_add": [{"header": header}]}
    retry = {"retry_on": "connect-failure,refused-stream", "num_retries": 2}
    return {
        "match": match,
        "route": {"cluster": cluster_of(model.name), "timeout": "0s", "retry_policy": retry},
        "metadata": {"filter_metadata": {FILTER: {"served_name": served_name}}},
    }


def _answer(status: int, text: str) -> Resource:
    body = json.dumps({"error": {"message": text, "code": status}})
    return {"status": status, "body": {"inline_string": body}}


def hosts_of(book: Book, changed: Collection[str] | None = None) -> dict[tuple[ModelName, str], tuple[int, int, bool]]:
    """(model, address) -> weight, level and whether it is picked: what Envoy should list. Without leaving ones."""
    found = {}
    for model, endpoints in by_model(book, changed).items():
        level = levels(endpoints)
        for e in endpoints:
            found[ModelName(model), book.addresses[e.id]] = (weight_of(e), level[e.priority], e.weight > 0)
    return found


def places_of(book: Book) -> dict[ReplicaId, tuple[str, str]]:
    """Cluster and address of every endpoint, leaving ones too."""
    held = {e.id: (cluster_of(e.models[0]), book.addresses[e.id]) for e in book.reachable()}
    return {**leaving_places(book), **held}


def leaving_places(book: Book) -> dict[ReplicaId, tuple[str, str]]:
    return {id_: (cluster_of(g.endpoint.models[0]), g.address) for id_, g in book.leaving.items()}
