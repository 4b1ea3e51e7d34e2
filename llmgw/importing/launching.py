"""From arguments and environment as another tool gives them to a launch that the catalog may hold.

Takes out what is the plane's to give (port, address, name, devices), what is a secret and what nobody would expand,
each with a remark; everything else is kept byte for byte, in its order. Rules are rows of `RULES`, the first that
applies counts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llmgw.checking.launches import flag_of, why_owned
from llmgw.checking.secrets import is_secret, is_secret_name
from llmgw.engines import DEVICE_VARIABLES, HIDING_VALUES, ROWS, EngineRow
from llmgw.importing.account import Account
from llmgw.importing.commands import Option, options
from llmgw.importing.draft import MARK, Devices
from llmgw.importing.spreading import spread_of
from llmgw.placeholders import WEIGHTS, is_broken, placeholder, shell_like
from llmgw.problems import Path, quoted
from llmgw.sentences import counted
from llmgw.weights import unusable_source

ABLE_TO_SLEEP = (
    "it is put to sleep only where its model says `idle: sleep`, with an idle_timeout_s and replicas {min: 0, max: 1}"
)
NOT_EXPANDED = "nothing would expand it: write the value itself into the catalog"
A_TEMPLATE = "it is a template that was not filled in"

_TEMPLATE = re.compile(r"\{\{-?\s*(?:[.$]|include\b|template\b|if\b|range\b|end\b|model_\w+|port\b)")
_REFERENCE = re.compile(r"\$\([A-Za-z_]\w*\)|os\.environ/")


def unfillable(text: str) -> str | None:
    """Why `text` cannot be handed to an engine as it is, or None."""
    if _TEMPLATE.search(text):
        return A_TEMPLATE
    if shell_like(text) is not None or is_broken(text) or _REFERENCE.search(text):
        return NOT_EXPANDED
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        return "it holds characters that no program can be given"
    return None


_OPEN = re.compile(
    r"\$\{(?!llmgw:)(?:env\.)?(?P<a>[A-Za-z_][\w.-]*)\}|\$\((?P<b>[A-Za-z_]\w*)\)|os\.environ/(?P<c>\w+)"
)


def with_marks(text: str) -> tuple[str, dict[str, str]]:
    """`text` with a mark in place of each reference to an environment, and what each mark stands for; no marks where
    that alone does not make it something that can be handed on. A path that began with one stays absolute."""
    marks: dict[str, str] = {}

    def marked(match: re.Match[str]) -> str:
        mark = MARK + re.sub(r"[^A-Za-z0-9]+", "-", match["a"] or match["b"] or match["c"]).strip("-")
        marks[mark] = match[0]
        return mark if match.start() else f"/{mark}"

    found = _OPEN.sub(marked, text)
    return (found, marks) if marks and unfillable(found) is None else (text, {})


@dataclass(frozen=True, slots=True)
class Given:
    """An option with the places that name it. `alone`: each of its items stands in a place of its own."""

    option: Option
    places: tuple[Path, ...]
    alone: bool


@dataclass(slots=True)
class Launch:
    """What is gathered while arguments and environment are read."""

    row: EngineRow
    account: Account
    at: Path
    """The launch's part of the file."""
    weights: str | None = None
    args: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Names that the engine was told to serve."""
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    pinned: int | None = None
    """How many devices it was pinned to."""
    kind: str | None = None
    """What kind of device it was pinned to."""

    def read(self, args: Sequence[tuple[str, Path]]) -> None:
        """Take over arguments, each with the place that names it."""
        places = [at for _, at in args]
        shared = len(set(places)) < len(places)
        for option in options([text for text, _ in args]):
            own, places = places[: len(option.items)], places[len(option.items) :]
            distinct = tuple(dict.fromkeys(own))
            given = Given(option, distinct, not shared)
            if not any(rule(self, given) for rule in RULES):
                self.args += option.items

    def read_command(self, argv: Sequence[str], at: Path) -> str:
        """Take over a command of its own, named at `at`. Nothing, or why it cannot be run as it is."""
        passed_on = argv[:1] and argv[0].rsplit("/", 1)[-1] in ("docker", "podman")
        for index, item in enumerate(argv):
            before = argv[index - 1] if index else ""
            name, equals, value = item.partition("=")
            told = passed_on and before in ("-e", "--env") and equals
            is_open = is_secret(item) or (bool(equals) and is_secret(value, name)) or is_secret(item, _flag(before))
            if not is_open and unfillable(item) is None:
                self.args.append(item)
            elif not is_open and self.mark(item, at):
                continue
            elif told:
                self.args.append(name)
                self.secret(name, at, "given to the container from the agent's secrets", alone=False)
            else:
                return "it holds a secret in clear text" if is_open else f"{quoted(before or item)}: {NOT_EXPANDED}"
        return ""

    def mark(self, item: str, at: Path) -> bool:
        """Take over an argument with marks to be filled in; False where that would not do."""
        found, marks = with_marks(item)
        if not marks:
            return False
        self.args.append(found)
        self.tell(marks, at)
        return True

    def tell(self, marks: Mapping[str, str], at: Path) -> None:
        for mark, reference in marks.items():
            self.account.change(
                at, f"stands for {quoted(reference)}, which nothing expands here: write its value", mark
            )

    def variable(self, name: str, value: str, at: Path, *, alone: bool = True) -> None:
        """Take over a variable of the environment, named at `at`; with `alone`, nothing else is named there."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            self._lose((at,), "no name that a variable can have", name[:60] if not alone else "", alone=alone)
        elif name in DEVICE_VARIABLES:
            self._pin(name, value, at, alone=alone)
        elif is_secret(value, name) or (is_secret_name(name) and unfillable(value)):
            self.secret(name, at, "a secret: the catalog names it; give its value to the agents", alone=alone)
        elif (why := unfillable(value)) is not None:
            self._lose((at,), why, "" if alone else name, alone=alone)
        else:
            self.env[name] = value

    def secret(self, variable: str, at: Path, why: str, name: str | None = None, *, alone: bool = True) -> None:
        """Name a secret that stood, or was named, at `at`."""
        self.secrets[variable] = name or re.sub(r"[^a-z0-9]+", "-", variable.casefold()).strip("-") or "secret"
        if alone:
            self.account.uncarry(at)
        self.account.change(at, why, variable)

    def devices(self, stated: int | None, kind: str | None = None, memory: str | None = None) -> Devices | None:
        """Accelerators: as many as are stated, else as pinned, else as the arguments spread it over."""
        spread = spread_of(self.row, self.args)
        count = stated if stated is not None else self.pinned if self.pinned is not None else spread
        if not count:
            return None
        if stated is None and self.pinned is None:
            self.account.assume(self.at, f"{counted(count, 'whole device')}: the file does not say how many")
        return Devices(count, self.kind or kind, memory)

    def _pin(self, name: str, value: str, at: Path, *, alone: bool) -> None:
        listed = [item for item in value.split(",") if item.strip()]
        hides = value.strip() in HIDING_VALUES or unfillable(value) is not None
        self.pinned = 0 if hides else len(listed)
        if alone:
            self.account.uncarry(at)
        how_many = "no device" if hides else f"{self.pinned} of them asked for"
        self.account.change(at, f"the plane chooses the devices: {how_many}", name)
        if any(item.strip().startswith("MIG-") for item in listed):
            self.pinned, self.kind = 1, "mig"
            self.account.lose(at, "of which size, its name does not say: any slice (MIG); write its kind", name)

    def lose(self, given: Given, why: str) -> None:
        self._lose(given.places, why, given.option.flag, alone=given.alone)

    def change(self, given: Given, why: str) -> None:
        for at in given.places:
            if given.alone:
                self.account.uncarry(at)
            self.account.change(at, why, given.option.flag)

    def _lose(self, places: Sequence[Path], why: str, what: str = "", *, alone: bool = True) -> None:
        """With `alone`, what stands at the places is lost wholly: it is carried no more."""
        for at in places:
            if alone:
                self.account.uncarry(at)
            self.account.lose(at, why, what)


def _flag(item: str) -> str:
    """`item` where it is a flag whose value is the next item."""
    return item if item.startswith("-") and "=" not in item else ""


# --- rules about options -------------------------------------------------------------------------------------------

Rule = Callable[[Launch, Given], bool]
"""Whether the option was dealt with."""

_NAME_FLAGS = frozenset({"--served-model-name", "-a", "--alias"})
_KEY_VARIABLES: Mapping[str, str] = {"vllm": "VLLM_API_KEY", "llama.cpp": "LLAMA_API_KEY"}


def _end_of_options(launch: Launch, given: Given) -> bool:
    if given.option.flag != "--" or not launch.row.serve_args:
        return False
    launch.lose(given, "it would turn the plane's own flags into text")
    return True


def _owned(launch: Launch, given: Given) -> bool:
    flag = flag_of(given.option.flag, launch.row)
    why = why_owned(flag, launch.row)
    if why is None:
        return False
    if any(name.startswith(flag) for name in _NAME_FLAGS & set(launch.row.owned_flags)):
        launch.names += [name for value in given.option.values for name in _names_in(launch.row, value)]
    else:
        launch.change(given, why)
        launch.args += given.option.values[1:]
    return True


def _names_in(row: EngineRow, value: str) -> Iterator[str]:
    names = value.split(",") if row.name_forbids == "," else [value]
    return (name for name in names if name and unfillable(name) is None)


def _secret(launch: Launch, given: Given) -> bool:
    option = given.option
    named = bool(option.values) and (is_secret(option.value, option.flag) or _names_secret(option))
    if not named and not any(is_secret(item) for item in option.items):
        return False
    variable = _KEY_VARIABLES.get(launch.row.name)
    if option.flag == "--api-key" and variable is not None:
        for at in given.places:
            launch.secret(variable, at, "the engine's key: give it to the agents under that name", alone=given.alone)
    else:
        launch.lose(given, "a secret in clear text has no place in a catalog")
    return True


def _names_secret(option: Option) -> bool:
    return is_secret_name(option.flag) and unfillable(option.value) is not None


def _weights_to_fill_in(launch: Launch, given: Given) -> bool:
    """Weights named by an environment: the model stays, with a mark where the value belongs."""
    option, row = given.option, launch.row
    named = flag_of(option.flag, row) in row.weights.own_flags
    first = not option.flag and row.weights.args[:1] == (placeholder(WEIGHTS),) and not launch.args
    if not (named or first) or len(option.values) != 1 or launch.weights is not None:
        return False
    found, marks = with_marks(option.value)
    if not marks:
        return False
    launch.tell(marks, given.places[0])
    if not _takes_weights(launch, found):
        launch.args += (
            (f"{option.flag}={found}",) if option.joined else (option.flag, found) if option.flag else (found,)
        )
    return True


def _not_to_be_filled(launch: Launch, given: Given) -> bool:
    why = next((why for item in given.option.items if (why := unfillable(item)) is not None), None)
    if why is not None:
        launch.lose(given, why)
    return why is not None


def _weights_first(launch: Launch, given: Given) -> bool:
    """`vllm serve MODEL`: what stands before the first flag, where the engine takes its weights so."""
    option = given.option
    is_first = launch.row.weights.args[:1] == (placeholder(WEIGHTS),)
    if option.flag or not is_first or launch.args or len(option.values) != 1:
        return False
    return _takes_weights(launch, option.value)


def _weights_named(launch: Launch, given: Given) -> bool:
    option = given.option
    if flag_of(option.flag, launch.row) not in launch.row.weights.own_flags:
        return False
    if launch.weights is not None:
        launch.lose(given, "the weights are given already")
        return True
    plain = option.flag in ("-m", "--model", "--model-path", "--model-id")
    return plain and len(option.values) == 1 and _takes_weights(launch, option.value)


def _takes_weights(launch: Launch, text: str) -> bool:
    source = source_of(text, hub=launch.row.weights.hub_flags is None)
    if source is None or launch.weights is not None:
        return False
    launch.weights = source
    return True


def _chosen_devices(launch: Launch, given: Given) -> bool:
    """llama.cpp's `--device CUDA0,CUDA1`, which counts the machine's devices."""
    option = given.option
    if launch.row.name != "llama.cpp" or option.flag not in ("-dev", "--device", "-mg", "--main-gpu"):
        return False
    if option.flag in ("-dev", "--device"):
        launch.pinned = 0 if option.value == "none" else len([name for name in option.value.split(",") if name])
    launch.change(given, "the plane chooses the devices")
    return True


def _able_to_sleep(launch: Launch, given: Given) -> bool:
    """It stays, and does nothing by itself: there, too, somebody else puts the engine to sleep."""
    if launch.row.sleep is None or flag_of(given.option.flag, launch.row) not in launch.row.sleep.args:
        return False
    launch.args += given.option.items
    for at in given.places:
        launch.account.change(at, ABLE_TO_SLEEP, "" if given.alone else given.option.flag)
    return True


RULES: tuple[Rule, ...] = (
    _end_of_options,
    _owned,
    _secret,
    _weights_to_fill_in,
    _not_to_be_filled,
    _chosen_devices,
    _able_to_sleep,
    _weights_first,
    _weights_named,
)


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?", re.ASCII)


def source_of(text: str, *, hub: bool = True) -> str | None:
    """`text` as a source of weights: a path, a URL, or (with `hub`) a repository of the hub; None when it is none."""
    for scheme in ("huggingface://", "hf://"):
        if text.startswith(scheme):
            text, hub = text.removeprefix(scheme), True
    source = text if "://" in text else f"file://{text}" if text.startswith("/") else ""
    if not source and hub and _HUB_NAME.fullmatch(text):
        source = f"hf://{text}"
    return source if source and unusable_source(source) is None else None


def launch_of(engine: str, account: Account, at: Path, weights: str | None = None) -> Launch:
    """A launch to be filled. `engine` is a row of the table."""
    return Launch(ROWS[engine], account, at, weights)
