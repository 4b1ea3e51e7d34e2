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
        *(problem for model in models for problem in _model_problems(model)),
        *(
            f"name {name!r} is claimed by {_and(claims)}: let one model have it"
            for name, claims in owners.items()
            if len(claims) > 1
        ),
        *_repeated("endpoint", (endpoint.id for endpoint in endpoints)),
        *(problem for endpoint in endpoints for problem in _endpoint_problems(endpoint, owners)),
    ]


def patch_problems(patch: TablePatch) -> list[str]:
    """Problems of a patch in itself: what it says twice, or both puts and drops."""
    models = [*(model.name for model in patch.put_models), *patch.drop_models]
    endpoints = [*(endpoint.id for endpoint in patch.put_endpoints), *patch.drop_endpoints]
    return [*_repeated("model", models), *_repeated("endpoint", endpoints)]


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


def _and(names: Iterable[str]) -> str:
    return " and ".join(repr(name) for name in names)


def _model_problems(model: TableModel) -> Iterator[str]:
    if not model.name:
        yield "a model has an empty name"
    if "" in model.aliases:
        yield f"model {model.name!r} has an empty alias"
    if model.retry_after_s < 0:
        yield f"model {model.name!r}: retry_after_s {model.retry_after_s} is negative"


def _endpoint_problems(endpoint: Endpoint, owners: Mapping[str, Sequence[str]]) -> Iterator[str]:
    who = f"endpoint {endpoint.id!r}"
    if not endpoint.id:
        yield "an endpoint has an empty id"
    if not endpoint.served_name:
        yield f"{who} has an empty served_name"
    if (wrong := _url_problem(endpoint.url)) is not None:
        yield f"{who}: url {endpoint.url!r} {wrong}"
    if not endpoint.models:
        yield f"{who} names no model"
        return
    model = endpoint.models[0]
    if model not in owners.get(model, ()):
        yield f"{who} names model {model!r}, which the table does not have"
        return
    for alias in endpoint.models[1:]:
        if model not in owners.get(alias, ()):
            yield f"{who} answers to {alias!r}, which is no alias of its model {model!r}"


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
