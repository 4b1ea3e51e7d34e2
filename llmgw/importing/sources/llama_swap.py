"""llama-swap: one machine whose models are started when they are asked for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from llmgw.importing.account import Part
from llmgw.importing.commands import Started, UnsplittableError, split, started, without_comments
from llmgw.importing.containers import contained, take
from llmgw.importing.draft import FILL_IN, TO_FILL_IN, CatalogDraft, ModelDraft, ProfileDraft, identifier
from llmgw.importing.launching import Launch, launch_of, with_marks
from llmgw.importing.macros import Macros, unused
from llmgw.placeholders import PORT, placeholder
from llmgw.problems import Path

A_ROUTER_S = "llmgw's routers have settings of their own, in docs/processes.md"
UNCHANGED = "requests are passed on unchanged"
BY_DEVICES = "which models run side by side follows from devices, replicas and priorities"
NOT_STARTED = "llmgw publishes what it starts, and nothing else"
NO_LIMIT = "routers do not limit requests: the engine queues them"

NOT_CARRIED: Mapping[str, str] = {
    "logLevel": A_ROUTER_S,
    "logTimeFormat": A_ROUTER_S,
    "logToStdout": A_ROUTER_S,
    "logRequests": A_ROUTER_S,
    "metricsMaxInMemory": A_ROUTER_S,
    "captureBuffer": A_ROUTER_S,
    "ui": A_ROUTER_S,
    "performance": A_ROUTER_S,
    "upstream": A_ROUTER_S,
    "sendLoadingState": A_ROUTER_S,
    "includeAliasesInList": A_ROUTER_S,
    "apiKeys": "keys of clients are in a file of the router's (--api-keys-file), never in a catalog",
    "startPort": "each agent picks ports from a range of its own (--port-range)",
    "profiles": "a profile of llama-swap chooses among models; " + BY_DEVICES,
    "selectors": "a name that stands for several models cannot be expressed: give an alias to one of them",
    "matrix": BY_DEVICES,
    "peers": NOT_STARTED,
}

MODEL: Mapping[str, str] = {
    "cmdStop": "an engine is stopped by TERM, then KILL",
    "proxy": "the node picks the address and port",
    "useModelName": "an engine serves under the model's own name, so nothing has to be replaced",
    "filters": UNCHANGED,
    "concurrencyLimit": NO_LIMIT,
    "timeouts": A_ROUTER_S,
    "compat": A_ROUTER_S,
    "sendLoadingState": A_ROUTER_S,
    "unlisted": "every model is listed",
}

SLEEP = ("sleepMode", "sleepEndpoints", "wakeEndpoints")
METADATA_FIELDS = ("name", "description", "capabilities")


@dataclass(frozen=True, slots=True)
class _Common:
    """What is said once for all models."""

    macros: Macros
    idle_s: float | None
    start_limit_s: float | None
    stop_limit_s: float | None
    preloaded: frozenset[str]
    priorities: Mapping[str, int]
    groups: Mapping[str, str]
    """By model: the group of those that run one at a time."""


def reads(raw: Mapping[str, object]) -> bool:
    models = raw.get("models")
    return isinstance(models, dict) and any(isinstance(model, dict) and "cmd" in model for model in models.values())


def read(document: Part) -> CatalogDraft:
    document.lose_each(NOT_CARRIED)
    common = _common(document)
    models: list[ModelDraft] = []
    engines: dict[str, Mapping[str, object]] = {}
    used: set[Path] = set()
    for entry in document.part("models").items():
        macros = common.macros.within(entry.part("macros"), MODEL_ID=entry.key, PORT=placeholder(PORT))
        for model in _model(entry, common, macros, engines):
            models.append(model)
            used |= macros.used
        for macro in unused(entry.part("macros"), macros.used):
            macro.lose_all("no model uses the macro")
    _note_macros(document, used)
    return CatalogDraft(tuple(models), engines)


def _note_macros(document: Part, used: set[Path]) -> None:
    for at in used:
        document.account.carry(at)
    for macro in unused(document.part("macros"), used):
        macro.lose_all("no model that is carried over uses the macro")


def _common(document: Part) -> _Common:
    start, stop = document.number("healthCheckTimeout"), document.number("unloadTimeout")
    idle = document.number("globalTTL")
    preloaded = document.part("hooks", "on_startup").texts("preload")
    priorities = {}
    queue = document.part("routing", "scheduler", "settings", "fifo", "priority")
    names = {name for entry in document.part("models").items() for name in _names(entry)}
    for item in queue.items():
        if item.key in names and (number := queue.whole(item.key, least=-1_000_000)) is not None:
            priorities[item.key] = number
        elif item.key not in names:
            item.lose_all("there is no model of that name")
    for name, at in preloaded:
        if name not in names:
            document.account.lose(at, "there is no model of that name")
    routing = document.part("routing")
    settings = routing.part("router", "settings")
    groups = {**_groups(document.part("groups"), names), **_groups(settings.part("groups"), names)}
    settings.lose("matrix", BY_DEVICES)
    routing.part("router").lose("use", BY_DEVICES)
    routing.part("scheduler").lose("use", BY_DEVICES)
    return _Common(
        Macros({}, {}).within(document.part("macros")),
        idle or None,
        start or None,
        stop or None,
        frozenset(name for name, _ in preloaded),
        priorities,
        groups,
    )


def _groups(listed: Part, names: set[str]) -> dict[str, str]:
    """Members of groups that swap, of which one runs at a time, as members of a group that keeps apart on each node."""
    found: dict[str, str] = {}
    for group in listed.items():
        group.lose_each({"exclusive": BY_DEVICES, "persistent": "set its models' `replicas: {min: 1}` and a priority"})
        swaps = group.switch("swap")
        members = group.texts("members")
        if group.has("swap") and not any(name in names for name, _ in members):
            group.account.uncarry((*group.at, "swap"))
            group.lose("swap", "it has no member that is a model of this file")
        for name, at in members:
            if name not in names:
                group.account.uncarry(at)
                group.account.lose(at, "there is no model of that name")
            elif swaps is False:
                group.account.uncarry(at)
                group.account.change(at, "it runs beside the others where there are devices, as everything does")
            else:
                found[name] = identifier(group.key)
    return found


def _names(entry: Part) -> tuple[str, ...]:
    aliases = entry.part("aliases").raw
    return (
        (entry.key, *(alias for alias in aliases if isinstance(alias, str)))
        if isinstance(aliases, list)
        else (entry.key,)
    )


def _model(
    entry: Part, common: _Common, macros: Macros, engines: dict[str, Mapping[str, object]]
) -> Iterator[ModelDraft]:
    entry.lose_each(MODEL)
    try:
        argv = split(macros.fill(without_comments(entry.text("cmd") or "")))
    except UnsplittableError as error:
        entry.account.drop(entry.at, f"its cmd cannot be read: {error}")
        return
    if not argv:
        entry.account.drop(entry.at, "it has no cmd: there is nothing to launch")
        return
    box = contained(argv)
    begun = box.begun if box else _with_port(started(argv), entry)
    begun, marks = _with_marks(begun)
    if begun.note:
        entry.account.change((*entry.at, "cmd"), begun.note)
    launch, why = _launch(begun, entry, macros)
    launch.tell(marks, (*entry.at, "cmd"))
    if box is not None:
        take(launch, box, (*entry.at, "cmd"))
    is_told = begun.engine != "command" or any(
        placeholder(PORT) in item for item in (*launch.args, *launch.env.values())
    )
    if not is_told and not why:
        why = f"nothing tells the command its port: {' '.join(ASSUMED_PORT)} is put behind it"
        launch.args += ASSUMED_PORT
    if why:
        entry.account.lose((*entry.at, "cmd"), why)
        entry.account.assume(entry.at, FILL_IN)
    drafted = _drafted(entry, common, macros, begun, launch, _checked_at(entry, begun.engine, engines))
    if why:
        entry.lose("ttl", FILL_IN)
    yield replace(drafted, least=0, most=0, idle_timeout_s=None) if why else drafted


ASSUMED_PORT = ("--port", placeholder(PORT))


def _with_port(begun: Started, entry: Part) -> Started:
    """For a command of its own: the fixed port that `proxy` names, replaced by the one that the node picks."""
    fixed = re.search(r":([0-9]{2,5})/?$", entry.peek("proxy"))
    if begun.engine != "command" or fixed is None or any(placeholder(PORT) in item for item in begun.args):
        return begun
    port = re.compile(rf"(?<![\w.]){fixed[1]}(?![\w.])")
    return replace(begun, args=tuple(port.sub(lambda _: placeholder(PORT), item) for item in begun.args))


def _with_marks(begun: Started) -> tuple[Started, Mapping[str, str]]:
    """A program named by an environment, with a mark where the value belongs."""
    if begun.executable is None:
        return begun, {}
    found, marks = with_marks(begun.executable)
    return replace(begun, executable=found), marks


def _launch(begun: Started, entry: Part, macros: Macros) -> tuple[Launch, str]:
    """The launch, and why it cannot be the command that the file has (else nothing)."""
    launch = launch_of(begun.engine, entry.account, entry.at)
    at, why = (*entry.at, "cmd"), ""
    if begun.engine == "command":
        why = launch.read_command(begun.args, at)
        launch.args = list(TO_FILL_IN) if why else launch.args
    else:
        launch.read([(item, at) for item in begun.args])
    for text, place in entry.texts("env"):
        name, _, value = macros.fill(text).partition("=")
        launch.variable(name.strip(), value, place)
    return launch, why


def _checked_at(entry: Part, engine: str, engines: dict[str, Mapping[str, object]]) -> str:
    """The engine's name; an engine of one's own where it is asked for its health at another path."""
    path = entry.text("checkEndpoint")
    if path is None or path == "/health":
        return engine
    if not path.startswith("/"):
        entry.lose("checkEndpoint", "an engine is always asked whether it is up")
        return engine
    name = identifier(f"{engine}-{path.strip('/') or 'root'}")
    engines[name] = {"base": engine, "health_path": path}
    return name


def _drafted(entry: Part, common: _Common, macros: Macros, begun: Started, launch: Launch, engine: str) -> ModelDraft:
    names = _names(entry)
    least = 1 if common.preloaded & set(names) else 0
    is_command = begun.engine == "command"
    profile = ProfileDraft(
        entry.at,
        "main",
        engine,
        begun.executable,
        command=tuple(launch.args) if is_command else (),
        args=() if is_command else tuple(launch.args),
        env=launch.env,
        secrets=launch.secrets,
        devices=launch.devices(None),
        weights=launch.weights,
        image=begun.image,
        start_limit_s=common.start_limit_s,
        stop_limit_s=entry.number("unloadTimeout") or common.stop_limit_s,
    )
    aliases = [*entry.texts("aliases"), *((name, entry.at) for name in launch.names)]
    idle_s = _idle(entry, common, least)
    return ModelDraft(
        entry.at,
        entry.key,
        (profile,),
        tuple(aliases),
        least,
        1,
        next((common.priorities[name] for name in names if name in common.priorities), None),
        idle_s,
        next((common.groups[name] for name in names if name in common.groups), None),
        _metadata(entry, macros),
        _sleep_level(entry, launch.row.sleep is not None and idle_s is not None),
    )


def _idle(entry: Part, common: _Common, least: int) -> float | None:
    """`ttl`: seconds, 0 never, -1 as for all."""
    if least:
        entry.change("ttl", "it is loaded at the start, and kept running always")
        return None
    ttl = entry.number("ttl", least=-1)
    return common.idle_s if ttl is None or ttl == -1 else ttl or None


def _sleep_level(entry: Part, may_sleep: bool) -> int | None:
    """Sleep in place of a stop, as forks of llama-swap have it."""
    if not entry.has("sleepEndpoints") or entry.peek("sleepMode") == "disable":
        entry.lose_each(dict.fromkeys(SLEEP, "it says of no endpoint that it puts the engine to sleep"))
        return None
    if not may_sleep:
        entry.lose_each(dict.fromkeys(SLEEP, "only vLLM is put to sleep, and what is idle for its ttl"))
        return None
    for key in SLEEP:
        entry.change(key, "`idle: sleep`: how an engine sleeps and wakes is known of it, at level 1 or 2")
    asked = [text for item in entry.part("sleepEndpoints").items() if (text := item.text("endpoint")) is not None]
    return 2 if any("level=2" in text for text in asked) else 1


def _metadata(entry: Part, macros: Macros) -> dict[str, str]:
    found = {key: value for key in METADATA_FIELDS if (value := entry.whole_as_json(key)) is not None}
    own = entry.part("metadata")
    found |= {part.key: value for part in own.items() if (value := own.whole_as_json(part.key)) is not None}
    bare = Macros({name: text for name, text in macros.texts.items() if name != "PORT"}, macros.places)
    filled = {key: bare.fill(value) for key, value in found.items()}
    macros.used |= bare.used
    return filled
