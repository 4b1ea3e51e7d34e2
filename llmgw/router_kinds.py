"""The kinds of routers there are: how each is addressed, what it has to be told, and what it cannot express.

What a router cannot express is never dropped in silence: `limits` says it, from the table that is in force. To add a
kind, add a row here and a file in `activities/sinks/`; the conformance test runs over every row.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from llmgw.problems import did_you_mean, quoted
from llmgw.sentences import names_shown
from llmgw.wire import Endpoint, ModelState, TableModel

ANY_LEVELS = 1000
SCHEMES = ("http", "https", "unix", "file")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of `settings` that a kind takes."""

    name: str
    help: str
    required: bool = False
    is_path: bool = False
    """An absolute path on the host of the worker."""
    is_seconds: bool = False
    """A whole number of seconds, up to an hour."""


@dataclass(frozen=True, slots=True)
class RouterKind:
    """One kind. The texts are for people: how exact its drain is, where its usage comes from, how far it is fenced."""

    name: str
    what: str
    schemes: tuple[str, ...]
    """Of its address."""
    address: str
    """What the address is."""
    settings: tuple[Setting, ...] = ()
    carries_traffic: bool = True
    """False: nothing waits for it before an engine is stopped."""
    weights: bool = False
    levels: int = 1
    """How many priorities it can tell apart."""
    aliases: bool = False
    renames: bool = False
    """Writes the served name into the request, where the client used another."""
    states: bool = False
    """Tells a model that is known and not ready (503) from one that is unknown (404)."""
    names: bool = True
    """Chooses by the model's name."""
    one_model_per_address: bool = False
    """Several models behind one address are more than it can tell apart."""
    drain: str = ""
    usage: str = ""
    fencing: str = ""

    @property
    def holds_everything(self) -> bool:
        """Nothing that a table says is lost on it."""
        return all((self.weights, self.levels >= ANY_LEVELS, self.aliases, self.renames, self.states, self.names))


_STATE_FILE = Setting(
    "state", "file where the workers keep what they told it; default: beside the file they write", is_path=True
)
ACTIVATOR = "activator"
_ACTIVATOR = Setting(ACTIVATOR, "base URL of an llmgw router, told in place of models that sleep: it wakes them")
CHECK_EVERY = "check_every_s"
CHECK_EVERY_S = 2
_CHECK_EVERY = Setting(
    CHECK_EVERY, f"seconds between two checks of an endpoint, by connecting; default {CHECK_EVERY_S}", is_seconds=True
)
_FENCED_BY_FILE = (
    "the token is kept in a file of the workers, under a lock: exact among workers of one host or one shared "
    "directory; the router itself refuses nothing"
)

_ROWS = (
    RouterKind(
        "native",
        "llmgw's own router",
        ("http", "https"),
        "base URL of its control API",
        weights=True,
        levels=ANY_LEVELS,
        aliases=True,
        renames=True,
        states=True,
        drain="exact: requests are counted from their pick to their end",
        usage="its own count, per endpoint",
        fencing="exact: the router keeps the highest token on disk and refuses older ones",
    ),
    RouterKind(
        "haproxy",
        "HAProxy 2.6 or newer, told through its master socket and two files",
        ("unix",),
        "its master socket (`haproxy -W -S PATH`)",
        (
            Setting("file", "configuration file with the backends, which HAProxy reads with `-f`", True, True),
            Setting("map", "map from model name to backend; default: the file's name with .map", is_path=True),
            _ACTIVATOR,
            _CHECK_EVERY,
            _STATE_FILE,
        ),
        weights=True,
        levels=2,
        states=True,
        drain="exact: a server in use is refused to be deleted; former processes are asked too",
        usage="seconds since the last session of each server (`lastsess`)",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "envoy",
        "Envoy, told through xDS files",
        ("http", "https"),
        "base URL of its admin interface",
        (
            Setting("directory", "watched directory of cds.json, rds.json and one EDS file per model", True, True),
            _ACTIVATOR,
            _CHECK_EVERY,
            _STATE_FILE,
        ),
        weights=True,
        levels=ANY_LEVELS,
        aliases=True,
        renames=True,
        states=True,
        drain="exact: DRAINING hosts stay listed with their active requests",
        usage="the request counter of each host, by its change",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "smg",
        "Shepherd Model Gateway (the successor of sglang's router), told through its REST API",
        ("http", "https"),
        "its base URL",
        (
            Setting("state", "file where the workers keep what they told it", True, True),
            Setting("key_file", "file with its control plane key", is_path=True),
            Setting("metrics", "base URL of its Prometheus port: makes its usage exact"),
            _ACTIVATOR,
        ),
        aliases=True,
        renames=True,
        one_model_per_address=True,
        drain="exact: a draining worker stays listed with its load",
        usage="its load each second, and its counter of outcomes where `metrics` is given",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "smg-file",
        "Shepherd Model Gateway, told through its discovery file",
        ("http", "https"),
        "its base URL, where what it has read is read back",
        (
            Setting("file", "the file of `--discovery-file`", True, True),
            Setting("key_file", "file with its control plane key", is_path=True),
            Setting("metrics", "base URL of its Prometheus port: makes its usage exact"),
            _ACTIVATOR,
            _STATE_FILE,
        ),
        one_model_per_address=True,
        drain="by its load for some seconds, then by the engine's own gauge",
        usage="its load each second, and its counter of outcomes where `metrics` is given",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "llm-d",
        "the endpoint picker of llm-d, told through its discovery file",
        ("file",),
        "the file it watches",
        (_STATE_FILE,),
        names=False,
        drain="by the engine's own gauge, after the file has had time to be read",
        usage="the engines' own gauges, through the agents",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "production-stack",
        "the router of vLLM's production stack, told through its dynamic configuration",
        ("file",),
        "the file of `--dynamic-config-json`",
        (
            Setting("health", "base URL of the router: what it has read is then confirmed, not presumed"),
            Setting("routing_logic", "routing_logic of the file; default: roundrobin"),
            _ACTIVATOR,
            _STATE_FILE,
        ),
        drain="by the engine's own gauge, after the file has had time to be read",
        usage="the engines' own gauges, through the agents",
        fencing=_FENCED_BY_FILE,
    ),
    RouterKind(
        "prometheus",
        "Prometheus: scrapes the engines, with labels for model, replica, engine and pool",
        ("file",),
        "a file named in `file_sd_configs`",
        (_STATE_FILE,),
        carries_traffic=False,
        drain="carries no requests: nothing waits for it",
        usage="carries no requests",
        fencing=_FENCED_BY_FILE,
    ),
)

KINDS: Mapping[str, RouterKind] = {row.name: row for row in _ROWS}
"""Every kind by its name."""


def kind_of(name: str) -> RouterKind:
    """The kind called `name`; one that is no longer known expresses nothing."""
    return KINDS.get(name, RouterKind(name, "", (), ""))


def check_every_s(settings: Mapping[str, str]) -> int:
    """Of a router whose declaration has no faults."""
    return int(settings.get(CHECK_EVERY, CHECK_EVERY_S))


# --- is it declared rightly? ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a declared router: the field (and the setting in it), what, and how to mend it."""

    field: tuple[str, ...]
    what: str
    mend: str

    def __str__(self) -> str:
        return f"`{'.'.join(self.field)}`: {self.what}; {self.mend}"


def faults(kind: str, url: str | None, settings: Mapping[str, str]) -> Iterator[Fault]:
    """Everything wrong with a router of `kind` at `url` with `settings`."""
    row = KINDS.get(kind)
    if row is None:
        yield Fault(("kind",), f"there is no kind of router {quoted(kind)}", did_you_mean(kind, KINDS))
        return
    scheme = "" if url is None else url.partition(":")[0].lower()
    if scheme in SCHEMES and scheme not in row.schemes:
        yield Fault(("url",), f"{scheme}:// is no address of kind {kind}", f"give {row.address}: {_form(row)}")
    known = {setting.name: setting for setting in row.settings}
    for name, value in settings.items():
        if name not in known:
            mend = did_you_mean(name, known) if known else f"kind {kind} takes no settings"
            yield Fault(("settings", name), f"kind {kind} has no setting {quoted(name)}", mend)
        elif known[name].is_path and not value.startswith("/"):
            yield Fault(("settings", name), f"{quoted(value)} is no absolute path", f"give the {known[name].help}")
        elif known[name].is_seconds and not (value.isascii() and value.isdecimal() and 1 <= int(value) <= 3600):
            yield Fault(("settings", name), f"{quoted(value)} is no whole number of 1 to 3600", known[name].help)
    for setting in row.settings:
        if setting.required and setting.name not in settings:
            yield Fault(("settings",), f"kind {kind} needs the setting `{setting.name}`", f"give the {setting.help}")


def _form(row: RouterKind) -> str:
    forms = {"http": "http://HOST:PORT", "https": "https://HOST:PORT", "unix": "unix:///PATH", "file": "file:///PATH"}
    return " or ".join(forms[scheme] for scheme in row.schemes)


# --- what it cannot express ----------------------------------------------------------------------------------------


def limits(kind: str, models: Iterable[TableModel], endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    """What of this table a router of `kind` cannot express, in sentences; empty where it holds everything."""
    row = kind_of(kind)
    if not row.carries_traffic or row.holds_everything:
        return ()
    models, endpoints = tuple(models), tuple(endpoints)
    return tuple(filter(None, (check(row, models, endpoints) for check in _CHECKS)))


def _weights(row: RouterKind, _: tuple[TableModel, ...], endpoints: tuple[Endpoint, ...]) -> str:
    if row.weights:
        return ""
    uneven = _uneven(endpoints, lambda e: e.weight)
    return f"cannot weigh endpoints: those of {names_shown(uneven)} get equal shares" if uneven else ""


def _levels(row: RouterKind, _: tuple[TableModel, ...], endpoints: tuple[Endpoint, ...]) -> str:
    beyond = [name for name, levels in _by_model(endpoints, lambda e: e.priority).items() if len(levels) > row.levels]
    if not beyond:
        return ""
    if row.levels == 1:
        return f"knows no priorities: all endpoints of {names_shown(beyond)} are tried alike"
    return f"tells {row.levels} priorities apart: the lower ones of {names_shown(beyond)} are tried alike"


def _aliases(row: RouterKind, models: tuple[TableModel, ...], _: tuple[Endpoint, ...]) -> str:
    aliases = sorted(alias for model in models for alias in model.aliases)
    if row.aliases or not aliases:
        return ""
    why = "cannot rewrite names in requests" if row.names else "does not look at the model's name"
    return f"{why}: aliases are not served through it ({names_shown(aliases)})"


def _renames(row: RouterKind, _: tuple[TableModel, ...], endpoints: tuple[Endpoint, ...]) -> str:
    other = sorted({e.models[0] for e in endpoints if e.models and e.served_name != e.models[0]})
    if row.renames or not other:
        return ""
    return f"cannot rewrite names in requests: engines of {names_shown(other)} serve another name"


def _states(row: RouterKind, models: tuple[TableModel, ...], _: tuple[Endpoint, ...]) -> str:
    absent = sorted(m.name for m in models if m.state is not ModelState.READY)
    if row.states or not absent:
        return ""
    return f"cannot tell a model that is not ready from an unknown one: {names_shown(absent)}"


def _names(row: RouterKind, _: tuple[TableModel, ...], endpoints: tuple[Endpoint, ...]) -> str:
    served = sorted({e.models[0] for e in endpoints if e.models})
    if row.names or len(served) < 2:
        return ""
    return f"does not look at the model's name: requests for {names_shown(served)} may be mixed up"


_CHECKS = (_weights, _levels, _aliases, _renames, _states, _names)


def _by_model(endpoints: Iterable[Endpoint], value: Callable[[Endpoint], int]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for endpoint in endpoints:
        for name in endpoint.models[:1]:
            found.setdefault(name, set()).add(value(endpoint))
    return dict(sorted(found.items()))


def _uneven(endpoints: Iterable[Endpoint], value: Callable[[Endpoint], int]) -> list[str]:
    return [name for name, values in _by_model(endpoints, value).items() if len(values) > 1]
