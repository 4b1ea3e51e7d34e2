"""What is wrong with a table: every problem at once. Pure; a table with any problem is refused whole.

The control plane resolves names before it publishes, so nothing here is expected to fire: it guards the traffic
against a plane that is wrong, or a table that was edited by hand.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from llmgw.table import Table
from llmgw.wire import Endpoint, TableModel, TablePatch

SHOWN = 50
"""Problems named in one message; the rest is counted."""


def table_problems(models: Sequence[TableModel], endpoints: Sequence[Endpoint]) -> list[str]:
    """Problems of one fleet's table, each naming its subject and what would be right."""
    owners = _owners(models)
    return [
        *_repeated("model", (model.name for model in models)),
        *_repeated("endpoint", (endpoint.id for endpoint in endpoints)),
        *_item_problems(models, endpoints),
        *_claim_problems(owners),
        *_naming_problems(endpoints, owners),
    ]


def patch_problems(patch: TablePatch, made: Table) -> list[str]:
    """Problems of a patch, and of the table it makes of a sound one: only what it touches can have become wrong."""
    models = [*(model.name for model in patch.put_models), *patch.drop_models]
    endpoints = [*(endpoint.id for endpoint in patch.put_endpoints), *patch.drop_endpoints]
    owners = _owners(made.models.values())
    return [
        *_repeated("model", models),
        *_repeated("endpoint", endpoints),
        *_item_problems(patch.put_models, patch.put_endpoints),
        *_claim_problems(owners),
        *_naming_problems(made.endpoints.values() if models else patch.put_endpoints, owners),
    ]


def name_conflicts(fleet: str, table: Table, others: Mapping[str, Table]) -> list[str]:
    """Names that are a model in one fleet and an alias in another, both named.

    An alias that two fleets give to different models is no conflict: each fleet says who answers to it, and neither
    could ever move it first otherwise.
    """
    models, aliases = _names(table)
    conflicts = []
    for other, held in others.items():
        if other == fleet:
            continue
        other_models, other_aliases = _names(held)
        conflicts += [_conflict(name, fleet, aliases[name], other) for name in sorted(aliases.keys() & other_models)]
        conflicts += [
            _conflict(name, other, other_aliases[name], fleet) for name in sorted(other_aliases.keys() & models)
        ]
    return conflicts


def told(problems: Sequence[str]) -> str:
    """Problems as one text."""
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    return "; ".join([*problems[:SHOWN], *more])


def _conflict(name: str, alias_fleet: str, target: str, model_fleet: str) -> str:
    return (
        f"{name!r} is an alias of {target!r} in fleet {alias_fleet!r} and a model in fleet {model_fleet!r}: "
        "rename one of them"
    )


def _names(table: Table) -> tuple[set[str], dict[str, str]]:
    """Model names; alias -> model. A model that lists its own name as an alias claims nothing more."""
    models: set[str] = set(table.models)
    aliases: dict[str, str] = {alias: m.name for m in table.models.values() for alias in m.aliases if alias != m.name}
    return models, aliases


def _owners(models: Iterable[TableModel]) -> dict[str, list[str]]:
    """Every name -> the distinct models that claim it, as their name or an alias."""
    owners: dict[str, list[str]] = {}
    for model in models:
        for name in (model.name, *model.aliases):
            claims = owners.setdefault(name, [])
            if model.name not in claims:
                claims.append(model.name)
    return owners


def _repeated(kind: str, names: Iterable[str]) -> list[str]:
    return [f"{kind} {name!r} is given {count} times" for name, count in Counter(names).items() if count > 1]


def _claim_problems(owners: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"name {name!r} is claimed by {' and '.join(map(repr, claims))}: let one model have it"
        for name, claims in owners.items()
        if len(claims) > 1
    ]


def _item_problems(models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> Iterator[str]:
    """What is wrong with a model or an endpoint by itself."""
    for model in models:
        yield from _model_problems(model)
    for endpoint in endpoints:
        yield from _endpoint_problems(endpoint)


def _model_problems(model: TableModel) -> Iterator[str]:
    if not model.name:
        yield "a model has an empty name"
    if "" in model.aliases:
        yield f"model {model.name!r} has an empty alias"
    if model.retry_after_s < 0:
        yield f"model {model.name!r}: retry_after_s {model.retry_after_s} is negative"


def _endpoint_problems(endpoint: Endpoint) -> Iterator[str]:
    if not endpoint.id:
        yield "an endpoint has an empty id"
    if not endpoint.served_name:
        yield f"endpoint {endpoint.id!r} has an empty served_name"
    if not endpoint.models:
        yield f"endpoint {endpoint.id!r} names no model"
    if (wrong := _url_problem(endpoint.url)) is not None:
        yield f"endpoint {endpoint.id!r}: url {endpoint.url!r} {wrong}"


def _naming_problems(endpoints: Iterable[Endpoint], owners: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Names of endpoints that the models do not have."""
    for endpoint in endpoints:
        model, *aliases = endpoint.models or ("",)
        if not model:
            continue
        if model not in owners.get(model, ()):
            yield f"endpoint {endpoint.id!r} names model {model!r}, which the table does not have"
            continue
        for alias in aliases:
            if model not in owners.get(alias, ()):
                yield f"endpoint {endpoint.id!r} answers to {alias!r}, which is no alias of its model {model!r}"


def _url_problem(url: str) -> str | None:
    if url.endswith("/"):
        return "ends with a slash: leave it out"
    if any(character <= " " for character in url):
        return "holds a space or a control character"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"is not a URL: {error}"
    return _url_part_problem(parts)


def _url_part_problem(parts: SplitResult) -> str | None:
    if parts.scheme not in ("http", "https"):
        return "is not http:// or https://"
    if not parts.hostname:
        return "names no host"
    if parts.query or parts.fragment:
        return "has a query or fragment: a path is appended to it"
    if parts.username is not None or parts.password is not None:
        return "carries credentials, which no table may hold"
    return None
