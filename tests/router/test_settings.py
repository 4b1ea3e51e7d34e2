"""Settings: flags before environment before defaults, and every problem in one error."""

from pathlib import Path

import pytest

from router.settings import MIB, Listen, Settings, SettingsError, read


def refused(*argv: str, **environment: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(argv, environment)
    return str(caught.value)


def test_every_default_stands_without_anything_given() -> None:
    settings = read([], {})
    assert settings.listen == Listen("127.0.0.1", 8080)
    assert settings.router_id
    assert settings == Settings(
        listen=settings.listen,
        state_dir=Path(".llmgw/router"),
        token_file=None,
        api_keys_file=None,
        router_id=settings.router_id,
        connect_timeout_s=2.0,
        drain_limit_s=30.0,
        max_body_bytes=64 * MIB,
        access_log=True,
    )


def test_flags_come_before_the_environment(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    environment = {"LLMGW_ROUTER_ID": "from-env", "LLMGW_TOKEN_FILE": str(keys), "LLMGW_ROUTER_LISTEN": "0.0.0.0:1"}
    settings = read(["--router-id", "from-flag", "--max-body-mib", "0.5", "--access-log=off"], environment)
    assert (settings.router_id, settings.token_file, settings.listen) == ("from-flag", keys, Listen("0.0.0.0", 1))
    assert (settings.max_body_bytes, settings.access_log) == (MIB // 2, False)


def test_every_problem_is_named_in_one_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    told = refused(
        "--listen=8080",
        f"--token-file={tmp_path / 'missing'}",
        f"--api-keys-file={empty}",
        "--router-id=a b",
        "--connect-timeout-s=soon",
        "--max-body-mib=nan",
        "--nonsense",
        LLMGW_ROUTER_ACCESS_LOG="maybe",
        LLMGW_ROUTER_DRAIN_LIMIT_S="-1",
    )
    for expected in (
        "--nonsense: unknown argument",
        "--listen (or LLMGW_ROUTER_LISTEN) '8080': write HOST:PORT",
        "No such file",
        "holds no key",
        "'a b': use 1 to 64",
        "'soon': write a number from 0.01 to 60",
        "'nan': write a number",
        "'maybe': write on or off",
        "'-1': write a number from 0",
    ):
        assert expected in told
    assert len(told.splitlines()) == 10


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::]:80", "gateway.lan:80"])
def test_an_open_control_api_stays_on_loopback(listen: str) -> None:
    assert "the control API needs --token-file" in refused("--listen", listen)


@pytest.mark.parametrize(
    ("text", "host"), [("127.0.0.2:0", "127.0.0.2"), ("[::1]:80", "::1"), ("localhost:1", "localhost")]
)
def test_loopback_is_recognised(text: str, host: str) -> None:
    settings = read(["--listen", text], {})
    assert settings.listen.host == host
    assert settings.listen.loopback


@pytest.mark.parametrize("listen", ["127.0.0.1", ":80", "127.0.0.1:70000", "::1:80", "127.0.0.1:x", "[]:1"])
def test_a_bad_address_is_refused(listen: str) -> None:
    assert "write HOST:PORT" in refused("--listen", listen)
