"""From drafts to a catalog that the check accepts: what cannot stand in one is taken out, with a remark.

The guarantee of every import: what comes out is valid. It judges by `llmgw.validation`, never by rules of its own.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.checking.names import unusable
from llmgw.checking.secrets import is_secret
from llmgw.importing.account import Account
from llmgw.importing.draft import CatalogDraft, ModelDraft, ProfileDraft
from llmgw.importing.shares import NOT_HELD, claimed
from llmgw.importing.spreading import share_of
from llmgw.problems import Problem, quoted
from llmgw.validation import check


class TooLargeError(ValueError):
    """The catalog is larger than a fleet can take."""


@dataclass(frozen=True, slots=True)
class _Named:
    draft: ModelDraft
    aliases: tuple[str, ...]


def assembled(draft: CatalogDraft, account: Account, limit_bytes: int) -> dict[str, object]:
    """The catalog's mapping; no models where none can stand. `TooLargeError` when it has too many of them."""
    models = list(_named(draft.models, account))
    while True:
        catalog = _mapping(models, draft.engines)
        problems = check(catalog, limit_bytes=limit_bytes).problems
        if not problems:
            return catalog
        models = list(_without_refused(models, problems, account))


def _mapping(models: Sequence[_Named], engines: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    used = {profile.engine for model in models for profile in model.draft.profiles}
    own = {name: dict(engine) for name, engine in engines.items() if name in used}
    return {**({"engines": own} if own else {}), "models": [model.draft.plain(model.aliases) for model in models]}


def _named(models: Sequence[ModelDraft], account: Account) -> Iterator[_Named]:
    """Models whose names can be used. A name that two claim stays with the first; models come before aliases."""
    owners: dict[str, str] = {}
    kept: list[ModelDraft] = []
    for model in (_closed(_shared(_called(model, account), account), account) for model in models):
        why = _why_not(model.name, owners)
        if why is not None:
            account.drop(model.at, f"the model cannot be called {quoted(model.name)}: {why}")
            continue
        owners[model.name] = model.name
        kept.append(model)
    for model in kept:
        aliases: list[str] = []
        for alias, at in model.aliases:
            if alias == model.name or alias in aliases:
                continue
            if (why := _why_not(alias, owners)) is not None:
                account.uncarry(at)
                account.lose(at, f"not an alias of model {quoted(model.name)}: {why}", quoted(alias))
                continue
            owners[alias] = model.name
            aliases.append(alias)
        yield _Named(replace(model, metadata=dict(_harmless(model, account))), tuple(aliases))


def _called(model: ModelDraft, account: Account) -> ModelDraft:
    """The model under its first name that can be used at all."""
    if (why := unusable(model.name)) is None:
        return model
    usable = next((alias for alias, _ in model.aliases if unusable(alias) is None), None)
    if usable is None:
        return model
    account.change(model.at, f"called {quoted(usable)}: {why}", quoted(model.name))
    return replace(model, name=usable)


def _shared(model: ModelDraft, account: Account) -> ModelDraft:
    """Profiles whose engine is left a share of its devices claim that, so that others may have the rest."""
    return replace(model, profiles=tuple(_claiming(profile, account) for profile in model.profiles))


def _claiming(profile: ProfileDraft, account: Account) -> ProfileDraft:
    devices, taken = profile.devices, share_of(profile.engine, profile.args)
    if devices is None or (taken is None and not devices.is_share):
        return profile
    found = claimed(devices, None if devices.is_share else taken)
    if found is not None:
        claim, words = found
        account.assume(profile.at, f"a claim of {claim}, {words}: others may have the rest")
        if devices.is_share:
            account.lose(devices.at, NOT_HELD, "its limit")
        return replace(profile, devices=replace(devices, claim=claim))
    if devices.is_share:
        account.lose(devices.at, f"how much memory that is, the file does not say: {WHOLE}")
    else:
        account.assume(profile.at, f"whole devices, though it takes {taken:.0%} of each: write `claim` to share them")
    return profile


WHOLE = "whole devices; write `claim` to share them"


def _closed(model: ModelDraft, account: Account) -> ModelDraft:
    """A model whose launch lacks something that the file only names: it is there, and not started."""
    marks = dict.fromkeys(mark for profile in model.profiles for mark in profile.marks)
    if not marks:
        return model
    account.assume(model.at, f"write what {', '.join(marks)} stands for, then set its replicas: 0 until then")
    return replace(model, least=0, most=0)


def _harmless(model: ModelDraft, account: Account) -> Iterator[tuple[str, str]]:
    """Metadata without what looks like a secret, or is no text."""
    for key, value in model.metadata.items():
        if is_secret(value, key) or "\0" in key + value or any("\ud800" <= char <= "\udfff" for char in key + value):
            account.lose(model.at, "it holds a secret, or characters that a catalog cannot", f"metadata {quoted(key)}")
        else:
            yield key, value


def _why_not(name: str, owners: Mapping[str, str]) -> str | None:
    if name in owners:
        owner = owners[name]
        return f"the name belongs to model {quoted(owner)} already" + (", as an alias" if owner != name else "")
    return unusable(name)


_PROFILE = re.compile(r"models\[(\d+)\](?:\.profiles\[(\d+)\])?")


def _without_refused(models: Sequence[_Named], problems: Sequence[Problem], account: Account) -> Iterator[_Named]:
    """What the check had nothing against: a refused profile goes alone where the model has others."""
    refused: dict[int, dict[int | None, list[str]]] = {}
    for problem in problems:
        matched = _PROFILE.match(problem.path)
        if not problem.path:
            raise TooLargeError(str(problem))
        if matched is None:
            raise AssertionError(f"an import made a catalog that is refused: {problem}")
        index, profile = int(matched[1]), int(matched[2]) if matched[2] else None
        said = f"{problem.what}; {problem.mend}" if problem.mend else problem.what
        refused.setdefault(index, {}).setdefault(profile, []).append(said)
    for index, model in enumerate(models):
        if index not in refused:
            yield model
        elif (left := _smaller(model, refused[index], account)) is not None:
            yield left


def _smaller(model: _Named, refused: Mapping[int | None, Sequence[str]], account: Account) -> _Named | None:
    profiles = model.draft.profiles
    left = tuple(profile for j, profile in enumerate(profiles) if j not in refused)
    if None in refused or not left:
        whys = dict.fromkeys(why for said in refused.values() for why in said)
        for at in dict.fromkeys((model.draft.at, *(profile.at for profile in profiles))):
            account.drop(at, f"model {quoted(model.draft.name)} cannot stand in a catalog: {'; '.join(whys)}")
        return None
    for j, profile in enumerate(profiles):
        if j in refused and profile.at != model.draft.at:
            account.drop(profile.at, f"it cannot be launched so: {'; '.join(dict.fromkeys(refused[j]))}")
    return replace(model, draft=replace(model.draft, profiles=left))
