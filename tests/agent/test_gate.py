"""Who gets in, and how much they may ask: tokens, certificates, sizes and rates."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from activities.outward import Callers
from activities.pools import Pools
from activities.settings import Outward, peer_context
from agent.limits import MOST_CLIENTS, Rate
from agent.settings import SettingsError, read_settings
from bench.processes import free_block
from llmgw.ids import NodeId
from llmgw.observation import Target, Targets
from llmgw.wire import CommandBatch
from tests.agent.running import JSON, Agent, agent_in, token


async def test_tokens_are_rotated_by_changing_the_file(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    async with agent_in(tmp_path, "--token-file", str(tokens)) as agent:

        async def status(bearer: str) -> int:
            return (await agent.http.get("/v1/replicas/x/logs", headers={"authorization": bearer})).status_code

        assert [await status("Bearer first"), await status("Bearer second")] == [404, 401]
        for content, expected in (("first\nsecond\n", [404, 404]), ("# old\nsecond\n", [401, 404]), ("", [401, 404])):
            draft = tmp_path / "draft"
            draft.write_text(content)
            draft.replace(tokens)
            assert [await status("Bearer first"), await status("bearer second")] == expected
        tokens.unlink()  # nobody is let in, or locked out, by an accident
        assert [await status("Bearer first"), await status("Bearer second")] == [401, 404]
        for odd in ("", "Bearer", "Basic second", "second", "Bearer secon", "Bearer second second"):
            assert await status(odd) == 401, odd


async def test_tokens_may_come_from_the_environment_and_reach_no_engine(tmp_path: Path) -> None:
    async with agent_in(tmp_path, env={"LLMGW_TOKENS": "first, second\nthird"}) as agent:
        assert (await agent.post(1)).status_code == 401
        for known in ("first", "second", "third"):
            agent.http.headers["authorization"] = f"Bearer {known}"
            assert (await agent.post(1)).status_code == 200


# --- certificates --------------------------------------------------------------------------------------------------


class Certificates:
    """An authority with a server's and a client's certificate, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.server = self._issue(folder / "server", "127.0.0.1")
        self.client = self._issue(folder / "client", "plane@example.org")

    def _issue(self, stem: Path, name: str) -> tuple[Path, Path]:
        cert, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        self.renew(cert, key, name)
        return cert, key

    def renew(self, cert: Path, key: Path, name: str) -> None:
        issued = self.authority.issue_cert(name)
        key.write_bytes(issued.private_key_pem.bytes())
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))

    def flags(self) -> tuple[str, ...]:
        cert, key = self.server
        return ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(self.ca))


class TlsAgent(Agent):
    def __init__(self, state_dir: Path, port: int, context: ssl.SSLContext) -> None:
        super().__init__(state_dir, port)
        self.url = f"https://127.0.0.1:{port}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=10, trust_env=False, verify=context)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def port() -> Iterator[int]:
    with free_block() as first:
        yield first


async def test_only_clients_with_a_certificate_reach_an_agent_that_asks_for_one(
    tmp_path: Path, certificates: Certificates, port: int
) -> None:
    """The plane's own calls and streams get through; a client without a certificate, or over plain HTTP, does not."""
    (tmp_path / "state").mkdir()
    context = peer_context(certificates.ca, *certificates.client)
    assert context is not None
    agent = TlsAgent(tmp_path / "state", port, context)
    try:
        await agent.begin(*certificates.flags())
        assert (await agent.report()).node == "n1"
        callers, pools = Callers(Outward(tls=context)), Pools(Outward(tls=context))
        try:
            batch = CommandBatch(token=token(1), node=NodeId("n1"))
            assert b'"seq":1' in await callers.send("POST", agent.url, "/v1/commands", batch)
            async with asyncio.timeout(10), pools.using("f") as pool:
                pool.aim({"node/n1": Target(id="node/n1", url=agent.url)}, Targets(revision=1))
                assert (await pool.take(0)).nodes[0].node == "n1"
        finally:
            await callers.close()
            await pools.close()
        bare = peer_context(certificates.ca, None, None)
        assert bare is not None
        async with httpx.AsyncClient(trust_env=False, verify=bare) as http:
            with pytest.raises(httpx.TransportError):
                await http.get(f"{agent.url}/healthz")
            with pytest.raises(httpx.TransportError):
                await http.get(f"http://127.0.0.1:{port}/healthz")
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f"{agent.url}/healthz")
    finally:
        await agent.clean()


def test_certificates_that_do_not_go_together_are_named(tmp_path: Path, certificates: Certificates) -> None:
    base = ["--node-id", "n", "--state-dir", str(tmp_path / "s")]
    cert, key = map(str, certificates.server)
    other = str(certificates.client[1])
    for flags, told in (
        (["--tls-cert", cert], "--tls-key: missing"),
        (["--tls-key", key], "--tls-cert: missing"),
        (["--tls-client-ca", cert], "--tls-key: missing"),
        (["--tls-cert", cert, "--tls-key", other], "do not go together"),
        (["--tls-cert", cert, "--tls-key", str(tmp_path / "none")], "--tls-key: cannot read"),
        (["--listen", "0.0.0.0:1234"], "loopback only"),
        (["--max-body-mib", "0"], "--max-body-mib"),
    ):
        with pytest.raises(SettingsError) as caught:
            read_settings([*base, *flags], {})
        assert told in "\n".join(caught.value.problems)
    base += ["--url", "https://n:1234"]
    guarded = read_settings([*base, *certificates.flags(), "--listen", "0.0.0.0:1234"], {})
    assert guarded.url.startswith("https://")
    assert read_settings([*base, "--listen", "0.0.0.0:1234"], {"LLMGW_TOKENS": "a"}).tokens == ("a",)


def test_a_certificate_that_was_replaced_is_loaded_and_a_bad_one_is_not(certificates: Certificates) -> None:
    from agent.tls import Rotation, Tls, server_context

    tls = Tls(*certificates.server)
    rotation = Rotation(tls, server_context(tls))
    assert rotation.check() == ""
    tls.key.write_text("nothing")
    assert str(tls.cert) in rotation.check()
    certificates.renew(*certificates.server, "127.0.0.1")
    assert rotation.check() == ""


# --- how much ------------------------------------------------------------------------------------------------------


async def test_a_body_above_the_limit_is_refused_whether_it_tells_its_size_or_not(tmp_path: Path) -> None:
    async with agent_in(tmp_path, "--max-body-mib", "1") as agent:
        large = b" " * (1024 * 1024 + 1)

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield large[: 300 * 1024]

        for content in (large, parts()):
            answer = await agent.http.post("/v1/commands", content=content, headers=JSON)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert (await agent.post(1)).status_code == 200


async def test_an_address_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    async with agent_in(tmp_path, "--requests-per-s", "1") as agent:
        answers = [await agent.http.get("/v1/replicas/x/logs") for _ in range(4)]
        late = answers[-1]
        assert (late.status_code, late.json()["code"]) == (429, "too_many")
        assert int(late.headers["retry-after"]) >= 1


def test_a_rate_allows_a_burst_then_its_own_pace_each_client_apart() -> None:
    now = [0.0]
    rate = Rate(10.0, lambda: now[0])
    assert [rate.wait_s("a") for _ in range(20)] == [0.0] * 20
    assert rate.wait_s("a") == pytest.approx(0.1)
    assert rate.wait_s("b") == 0.0
    now[0] += 0.1
    assert rate.wait_s("a") == 0.0
    assert rate.wait_s("a") > 0
    for number in range(MOST_CLIENTS + 1):
        rate.wait_s(str(number))
    assert rate.wait_s("a") == 0.0  # forgotten, so it begins anew
