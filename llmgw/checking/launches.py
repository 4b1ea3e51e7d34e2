"""Rules about how models are launched: engines, arguments, placeholders, weights, environment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from llmgw.checking.raw import EACH, FoundText, parts, text, text_list, texts
from llmgw.checking.sent import Sent
from llmgw.engines import DEVICE_VARIABLES, HIDING_VALUES, ROWS, EngineRow
from llmgw.placeholders import KEYS, PORT, WEIGHTS, is_broken, keys_in, placeholder, port_name, shell_like
from llmgw.problems import Finding, Path, did_you_mean, quoted


@dataclass(frozen=True, slots=True)
class Launch:
    """A profile as sent, with its model and the row its engine comes from (None when unknown)."""

    at: Path
    profile: Mapping[str, object]
    model: Mapping[str, object]
    extension: Mapping[str, object]
    row: EngineRow | None

    @property
    def weights(self) -> str | None:
        return text(self.profile, "weights") or text(self.model, "weights")

    @property
    def args(self) -> tuple[str, ...]:
        own = text_list(self.profile.get("args"))
        return tuple(item for _, item in (*text_list(self.extension.get("args")), *own))

    @property
    def every_argument(self) -> Iterator[FoundText]:
        """All texts of the profile that become arguments or values of the environment, with their paths."""
        for field in ("args", "command", "env"):
            yield from texts(self.profile, field, EACH, at=self.at)
        yield from texts(self.profile, "executable", at=self.at)


def launches(raw: object) -> Iterator[Launch]:
    extensions = {str(at[-1]): part for at, part in parts(raw, "engines", EACH)}
    for owner, model in parts(raw, "models", EACH):
        for at, profile in parts(model, "profiles", EACH, at=owner):
            name = text(profile, "engine") or ""
            extension: Mapping[str, object] = {} if name in ROWS else extensions.get(name, {})
            row = ROWS.get(name) or ROWS.get(text(extension, "base") or "")
            yield Launch(at, profile, model, extension, row)


# --- engines -------------------------------------------------------------------------------------------------------


def engines(sent: Sent) -> Iterator[Finding]:
    """Unknown engines, and extensions that stand on nothing or in the way of a built-in row."""
    own = {str(at[-1]) for at, _ in parts(sent.raw, "engines", EACH)}
    for at, name in texts(sent.raw, "models", EACH, "profiles", EACH, "engine"):
        if name not in ROWS and name not in own:
            yield Finding(at, f"there is no engine {quoted(name)}", did_you_mean(name, {*ROWS, *own}))
    for at, part in parts(sent.raw, "engines", EACH):
        if at[-1] in ROWS:
            yield Finding(at, f"{at[-1]} is a built-in engine", "give yours another name, with `base` naming this one")
        base = text(part, "base")
        if base is not None and base not in ROWS:
            known = "an extension cannot stand on another" if base in own else f"there is no engine {quoted(base)}"
            yield Finding((*at, "base"), known, did_you_mean(base, ROWS))


def sleepers(sent: Sent) -> Iterator[Finding]:
    """`idle: sleep` of a model with an engine that nobody can put to sleep."""
    able = ", ".join(name for name, row in ROWS.items() if row.sleep is not None)
    for launch in launches(sent.raw):
        if launch.row is not None and launch.row.sleep is None and text(launch.model, "idle") == "sleep":
            yield Finding(
                (*launch.at, "engine"),
                f"engine {text(launch.profile, 'engine')} cannot be put to sleep, and its model says `idle: sleep`",
                f"`idle: stop` stops it instead; what can sleep: {able}, and engines of your own made from these",
            )


def programs(sent: Sent) -> Iterator[Finding]:
    """Fields that only some engines have: `command`, `executable`, `image`."""
    for launch in launches(sent.raw):
        image = text(launch.profile, "image")
        if image is not None and (image.startswith("-") or any(char.isspace() for char in image)):
            yield Finding(
                (*launch.at, "image"), f"{quoted(image)} is no image", "write registry/name:tag, or @sha256:…"
            )
        if launch.row is None:
            continue
        if launch.row.needs_image and image is None:
            yield Finding(launch.at, f"engine {launch.row.name} needs an `image`", "name the image to run")
        command = text_list(launch.profile.get("command"))
        if not launch.row.takes_command:
            if command:
                yield Finding(
                    (*launch.at, "command"),
                    f"`command` is for engine command; {launch.row.name} has its own",
                    "use `args`, and `executable` for another program",
                )
            continue
        if text(launch.profile, "executable"):
            yield Finding(
                (*launch.at, "executable"),
                f"engine {launch.row.name} has no executable",
                "name it first in `command`",
            )
        if not (command or launch.row.needs_image or text_list(launch.extension.get("executable"))):
            yield Finding(
                launch.at, "engine command needs a `command`", "write the program and its arguments as a list"
            )
        elif not _names_port(launch):
            yield Finding(
                launch.at,
                "nothing tells the command its port",
                f"put {placeholder(PORT)} into `command`, `args` or `env`",
            )


def _names_port(launch: Launch) -> bool:
    places = [item.text for item in launch.every_argument]
    places += [item for field in ("executable", "args") for _, item in text_list(launch.extension.get(field))]
    places += [item.text for item in texts(launch.extension, "env", EACH)]
    return any(PORT in keys_in(place) for place in places)


# --- arguments -----------------------------------------------------------------------------------------------------


def owned_flags(sent: Sent) -> Iterator[Finding]:
    """Flags in args that only the plane may give."""
    for launch in launches(sent.raw):
        if launch.row is not None:
            yield from _owned(launch.row, (*launch.at, "args"), launch.profile.get("args"))
    for at, part in parts(sent.raw, "engines", EACH):
        if (row := ROWS.get(text(part, "base") or "")) is not None:
            yield from _owned(row, (*at, "args"), part.get("args"))


def _owned(row: EngineRow, at: Path, args: object) -> Iterator[Finding]:
    for index, item in text_list(args):
        flag = flag_of(item, row)
        if item == "--" and row.serve_args:
            yield Finding((*at, index), "`--` would turn the plane's own flags into text", "leave it out")
        elif (why := why_owned(flag, row)) is not None:
            yield Finding((*at, index), f"{flag} is not yours to give: {why}", "leave it and its value out")


_SHORTEST_PREFIX = len("--ho")


def flag_of(item: str, row: EngineRow) -> str:
    """The flag that an argument gives, in the row's own spelling; the argument itself where it gives none."""
    name = item.split("=", 1)[0]
    return name.replace("_", "-") if row.abbreviates and name.startswith("--") else name


def why_owned(flag: str, row: EngineRow) -> str | None:
    """Why `flag` (as `flag_of` gives it) is the plane's alone to give, or None."""
    if flag in row.owned_flags:
        return row.owned_flags[flag]
    if not row.abbreviates or len(flag) < _SHORTEST_PREFIX or not flag.startswith("--"):
        return None
    return next(
        (f"it is short for {owned}, and {why}" for owned, why in row.owned_flags.items() if owned.startswith(flag)),
        None,
    )


def arguments(sent: Sent) -> Iterator[Finding]:
    """Arguments and environment that cannot reach an engine as they are meant: wrong placeholders."""
    for launch in launches(sent.raw):
        ports = {name for _, name in text_list(launch.profile.get("ports"))}
        for at, value in launch.every_argument:
            yield from _unfillable(at, value, ports, launch.weights is not None)
    for field in ("args", "executable", "env"):
        for at, value in texts(sent.raw, "engines", EACH, field, EACH):
            yield from _unfillable(at, value, None, has_weights=True)


def _unfillable(at: Path, value: str, ports: set[str] | None, has_weights: bool) -> Iterator[Finding]:
    """`ports` None: not known here, any port name may be meant."""
    if is_broken(value):
        yield Finding(at, "a placeholder is opened and not closed", f"write it like {placeholder(PORT)}")
    if (shell := shell_like(value)) is not None:
        yield Finding(
            at,
            f"nothing expands {quoted(shell)}: there is no shell",
            f"write the value itself, or a placeholder such as {placeholder(PORT)}",
        )
    for key in keys_in(value):
        name = port_name(key)
        if name is not None and ports is not None and name not in ports:
            yield Finding(at, f"there is no port {quoted(name)} to fill in", f"add it to the profile: ports: [{name}]")
        elif key == WEIGHTS and not has_weights:
            yield Finding(at, "there are no weights to fill in", "add `weights` to the model or profile")
        elif name is None and key not in KEYS:
            known = (placeholder(word) for word in (*KEYS, "port:NAME"))
            yield Finding(
                at, f"there is no placeholder {quoted(placeholder(key))}", did_you_mean(placeholder(key), known)
            )


# --- environment ---------------------------------------------------------------------------------------------------


def environment(sent: Sent) -> Iterator[Finding]:
    """Variables that are the plane's, or that are given twice."""
    for launch in launches(sent.raw):
        secrets = launch.profile.get("secrets")
        for at, value in texts(launch.profile, "env", EACH, at=launch.at):
            variable = at[-1]
            hides = value in HIDING_VALUES and not launch.profile.get("accelerators")
            if variable in DEVICE_VARIABLES and not hides:
                yield Finding(
                    at, f"{variable} is not yours to set: the plane chooses devices", "ask for `accelerators`"
                )
            if isinstance(secrets, Mapping) and variable in secrets:
                yield Finding(at, f"{variable} is also among `secrets`", "keep one of the two")
    for at, _ in texts(sent.raw, "engines", EACH, "env", EACH):
        if at[-1] in DEVICE_VARIABLES:
            yield Finding(at, f"{at[-1]} is not yours to set: the plane chooses devices", "see `devices` of an engine")


# --- served names --------------------------------------------------------------------------------------------------


def served_names(sent: Sent) -> Iterator[Finding]:
    """Names that an engine could not be started with."""
    for launch in launches(sent.raw):
        name = text(launch.model, "name")
        if launch.row is None or name is None:
            continue
        bad = [char for char in launch.row.name_forbids if char in name]
        if bad:
            yield Finding(
                (*launch.at, "engine"),
                f"{launch.row.name} cannot serve a name with {quoted(bad[0])}, such as {quoted(name)}",
                "choose another name for the model, or another engine",
            )
