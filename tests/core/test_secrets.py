"""No secret stands in a catalog in clear text, and no word of ours repeats one (case B51)."""

import pytest

from llmgw.validation import check

from .catalogs import Raw, accepted, model, profile, refused, with_profile

CANARY = "CANARY-7f3a+/='x"
P = "models[0].profiles[0]"

LEAKS: list[tuple[Raw, str]] = [
    (with_profile(env={"HF_TOKEN": CANARY}), f"{P}.env.HF_TOKEN"),
    (with_profile(env={"my_api_key": CANARY}), f"{P}.env.my_api_key"),
    (with_profile(env={"DB_PASSWORD": CANARY}), f"{P}.env.DB_PASSWORD"),
    (with_profile(args=["--api-key", CANARY]), f"{P}.args[1]"),
    (with_profile(args=[f"--api_key={CANARY}"]), f"{P}.args[0]"),
    (with_profile(args=["--hf-token", CANARY]), f"{P}.args[1]"),
    (with_profile(engine="command", command=["x", "${llmgw:port}", "--password", CANARY]), f"{P}.command[3]"),
    ({"engines": {"e": {"base": "stub", "env": {"A_SECRET": CANARY}}}}, "engines.e.env.A_SECRET"),
    ({"engines": {"e": {"base": "stub", "args": ["--token", CANARY]}}}, "engines.e.args[1]"),
]

KNOWN = [
    "hf_CANARYabcdefghijklmnopqrstuv",
    "sk-CANARY-abcdefghijklmnop",
    "ghp_CANARYabcdefghijklmnopqrstuvwxyz0123",
    "github_pat_CANARYabcdefghijklmno",
    "AKIACANARYABCDEFGHIJ",
    "glpat-CANARYabcdefghijkl",
    "nvapi-CANARYabcdefghijkl",
    "eyJCANARYabcdef.eyJabcdefghi.abcdefghijk",
    "-----BEGIN RSA PRIVATE KEY-----CANARY",
    "https://user:CANARY@mirror/x",
]


@pytest.mark.parametrize(("raw", "path"), LEAKS)
def test_a_value_where_secrets_stand_is_refused_and_not_repeated(raw: Raw, path: str) -> None:
    (problem,) = refused(raw)
    assert problem.path == path
    assert "secrets" in problem.mend
    assert "CANARY" not in str(problem)


@pytest.mark.parametrize("token", KNOWN)
@pytest.mark.parametrize("place", ["args", "env", "secrets", "metadata", "labels", "weights"])
def test_a_known_kind_of_token_is_refused_wherever_it_stands(token: str, place: str) -> None:
    raw: Raw = {
        "args": with_profile(args=["--x", token]),
        "env": with_profile(env={"A": token}),
        "secrets": with_profile(secrets={"A": token}),
        "metadata": {"models": [model(metadata={"note": token})]},
        "labels": {"nodes": [{"id": "n", "url": "http://n", "labels": {token: "x"}}]},
        "weights": with_profile(weights=token),
    }[place]
    problems = refused(raw)
    assert any("in clear text" in problem.what for problem in problems)
    assert not any("CANARY" in str(problem) for problem in problems)


@pytest.mark.parametrize("value", [12345678, 1.5, True, None, [CANARY], {"a": CANARY}])
def test_a_secret_of_the_wrong_type_is_not_repeated(value: object) -> None:
    for raw in (with_profile(env={"HF_TOKEN": value}), with_profile(secrets={"HF_TOKEN": value})):
        told = " ".join(map(str, refused(raw)))
        assert "CANARY" not in told
        assert "12345678" not in told


def test_a_secret_given_as_the_name_of_one_is_not_repeated() -> None:
    (problem,) = refused(with_profile(secrets={"HF_TOKEN": CANARY}))
    assert "CANARY" not in str(problem)
    assert "name of a secret" in problem.mend


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"MAX_TOKENS": "many"}},
        {"env": {"SSL_KEY": "/etc/ssl/key.pem"}},
        {"env": {"BATCH_TOKEN": "4096"}},
        {"env": {"USE_TOKEN": "true"}},
        {"env": {"TOKENIZER": "org/name"}},
        {"env": {"API_KEY": ""}},
        {"args": ["--tokenizer", "org/name", "--max-num-batched-tokens", "8192"]},
        {"args": ["--api-key-file", "/run/secrets/key"]},
        {"args": ["--trust-token", "--next"]},
        {"args": ["--ssl-key"]},
        {"secrets": {"HF_TOKEN": "hugging-face"}},
    ],
)
def test_what_only_sounds_like_a_secret_is_accepted(fields: Raw) -> None:
    accepted(with_profile(**fields))


def test_one_leak_is_told_once() -> None:
    raw = {"models": [model("m", profile(env={"HF_TOKEN": "hf_abcdefghijklmnopqrstuv"}))]}
    assert len(check(raw).problems) == 1
