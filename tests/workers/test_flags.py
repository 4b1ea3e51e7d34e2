"""The worker's settings: flags before variables before defaults, and every problem at once."""

import json
import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import trustme

from workers import flags, main
from workers.flags import SettingsError, read
from workers.settings import WorkerSettings, installation_id
from workflows.client import Connection

GIVEN = ("--installation", "acme")


def problems(*argv: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as raised:
        read(argv, environ)
    return raised.value.problems


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    settings = read([*GIVEN, "--fleet", "flag"], {"LLMGW_FLEET": "variable", "LLMGW_MAX_HISTORY": "200"})
    assert settings == WorkerSettings(fleet="flag", installation="acme", max_history=200)


def test_every_option_is_read_from_its_variable(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    authority = trustme.CA()
    mine = authority.issue_cert("plane@example.org")
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(ca))
    mine.cert_chain_pems[0].write_to_path(str(cert))
    mine.private_key_pem.write_to_path(str(key))
    values = {
        "peer_ca": ca,
        "peer_cert": cert,
        "peer_key": key,
        "fleet": "f",
        "installation": "i",
        "state_dir": tmp_path,
        "token_file": token,
        "metrics_listen": "[::1]:9000",
        "page_token_file": token,
        "identity": "me",
        "deployment": "d",
        "build_id": "b",
        "max_history": 700,
    }
    assert values.keys() == {option.field for option in flags.OPTIONS}
    environ = {option.variable: str(values[option.field]) for option in flags.OPTIONS}
    assert read([], environ) == WorkerSettings.model_validate(values)


def test_files_for_meeting_agents_and_routers_are_judged(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for argv, told in (
        (["--peer-ca", str(nothing)], "--peer-ca: these files cannot be used"),
        (["--peer-ca", str(tmp_path / "none")], "--peer-ca: cannot read"),
        (["--peer-cert", str(nothing)], "both --peer-cert and --peer-key"),
    ):
        assert told in "\n".join(problems(*argv))


def test_the_connection_is_read_from_its_flags() -> None:
    argv = [part for flag, (field, _, _) in flags.CONNECTION.items() for part in (flag, field)]
    files = {name: Path(name) for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")}
    texts = {name: name for name in ("profile", "address", "namespace", "api_key")}
    assert read([*GIVEN, *argv], {}).connection == Connection(**texts, **files)  # type: ignore[arg-type] # by kind


def test_metrics_can_be_off() -> None:
    assert read([*GIVEN, "--metrics-listen", "off"], {}).metrics_listen is None


def test_all_problems_are_told_at_once_each_where_it_was_given(tmp_path: Path) -> None:
    empty = tmp_path / "tokens"
    empty.write_text("# none yet\n")
    told = problems(
        "--fleet",
        "a b",
        "--metrics-listen",
        "9464",
        LLMGW_MAX_HISTORY="5",
        LLMGW_BUILD_ID="7",
        LLMGW_TOKEN_FILE=str(empty),
    )
    assert [problem.split(":")[0] for problem in told] == [
        "--metrics-listen",
        "LLMGW_TOKEN_FILE",
        "give --installation ID, or --state-dir DIR where one is made and kept",
        "worker versioning takes both --deployment and --build-id",
        "--fleet",
        "LLMGW_MAX_HISTORY",
    ]


def test_a_token_file_that_is_not_there_is_told() -> None:
    (told,) = problems(*GIVEN, "--token-file", "absent/tokens")
    assert told == "--token-file: cannot read absent/tokens: No such file or directory"


def test_help_names_every_flag_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(["--help"], {})
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert [o.flag for o in flags.OPTIONS if o.flag not in told or f"[{o.variable}]" not in told] == []
    assert [flag for flag in flags.CONNECTION if flag not in told] == []


# --- the process ---------------------------------------------------------------------------------------------------


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level


ENDS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "bad settings": (("--fleet", "prod"), main.BAD_SETTINGS, "give --installation ID"),
    "no server": (
        (*GIVEN, "--address", "127.0.0.1:1"),
        main.UNREACHABLE,
        "not reached at 127.0.0.1:1: nothing listens",
    ),
    "an unknown profile": ((*GIVEN, "--profile", "nope"), main.BAD_SETTINGS, "client profile cannot be used"),
    "a URL as address": ((*GIVEN, "--address", "http://t:1"), main.BAD_SETTINGS, "address is HOST:PORT"),
    "half a certificate": ((*GIVEN, "--tls-cert", __file__), main.BAD_SETTINGS, "belong together"),
    "no certificate": ((*GIVEN, "--tls-ca", "absent.pem"), main.BAD_SETTINGS, "cannot read absent.pem"),
}


@pytest.mark.parametrize("case", ENDS)
def test_it_ends_with_one_line_that_says_why(
    case: str, capsys: pytest.CaptureFixture[str], root_logger: logging.Logger
) -> None:
    argv, code, said = ENDS[case]
    assert main.main(argv, {}) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("llmgw worker: ")
    assert said in line


def test_logs_are_json_where_nobody_sits_at_a_terminal(root_logger: logging.Logger) -> None:
    stream = StringIO()
    main.set_up_logs(stream)
    log = logging.getLogger("workers.x")
    log.info("working for %s", "prod")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("could not")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("working for prod", "info", "workers.x")
    assert first["timestamp"].endswith("Z")
    assert "ValueError: broken" in second["exception"]


@pytest.mark.parametrize("kept", [b"", b"\n", b"\x00\x00\x00\x00", b"\xff\xfe", b"two words", b"x" * 64])
def test_a_kept_installation_id_that_is_none_is_refused_with_its_place(tmp_path: Path, kept: bytes) -> None:
    file = tmp_path / "installation"
    file.write_bytes(kept)
    with pytest.raises(ValueError, match=f"^{file} holds no installation id: write into it the one"):
        installation_id(WorkerSettings(state_dir=tmp_path), "made")
    assert file.read_bytes() == kept


def test_an_installation_id_is_made_once_and_kept(tmp_path: Path) -> None:
    settings = WorkerSettings(state_dir=tmp_path / "new")
    assert [installation_id(settings, made) for made in ("first", "second")] == ["first", "first"]
