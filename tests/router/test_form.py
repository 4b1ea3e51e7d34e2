"""Forms with files: their `model` is found and exchanged, and everything else stays as it was sent."""

import json

import httpx
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from router.body import BadBody
from router.form import FormField, find_model_in_form
from router.paths import FORM_PATHS, JSON_PATHS

from .rig import Engine, Rig, model, running

FILE = bytes(range(256)) * 8 + b'\r\n--near\r\nContent-Disposition: form-data; name="model"\r\n\r\nno\r\n'


def form(*fields: tuple[str, str], file: bytes = FILE) -> tuple[bytes, str]:
    """As a client makes it: fields, and a file that looks like a form in parts."""
    data = {name: [value for key, value in fields if key == name] for name, _ in fields}
    request = httpx.Request("POST", "http://x", data=data, files={"file": ("a.wav", file)})
    return request.read(), request.headers["content-type"]


def test_the_name_is_found_and_exchanged_and_the_file_stays() -> None:
    body, kind = form(("model", "org/whisper é"), ("language", "de"))
    found = find_model_in_form(body, kind)
    assert isinstance(found, FormField)
    assert found.name == "org/whisper é"
    again = find_model_in_form(found.replaced("w"), kind)
    assert isinstance(again, FormField)
    assert again.name == "w"
    assert found.replaced(found.name) == body
    assert FILE in found.replaced("another")


@pytest.mark.parametrize(
    ("raw", "kind", "says"),
    [
        (b"--x\r\n", "multipart/form-data", "no boundary"),
        (form(("language", "de"))[0], form(("language", "de"))[1], "no field `model`"),
        (b"", "multipart/form-data; boundary=x", "no field `model`"),
        (
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm',
            "multipart/form-data; boundary=x",
            "no field",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n\r\n--x--',
            "multipart/form-data; boundary=x",
            "must not be empty",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n\xff\r\n--x--',
            "multipart/form-data; boundary=x",
            "not UTF-8",
        ),
    ],
    ids=["no boundary", "no model", "empty", "cut off", "empty name", "no text"],
)
def test_what_names_no_model_says_why(raw: bytes, kind: str, says: str) -> None:
    found = find_model_in_form(raw, kind)
    assert isinstance(found, BadBody)
    assert says in found.message


def test_two_names_are_refused_since_two_readers_may_take_each_another() -> None:
    body, kind = form(("model", "a"), ("model", "b"))
    found = find_model_in_form(body, kind)
    assert isinstance(found, BadBody)
    assert "more than one" in found.message


def test_quotes_spaces_and_the_case_of_headers_do_not_matter() -> None:
    raw = b"--a b\r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION:form-data;name=model\r\n\r\nm\r\n--a b--\r\n"
    found = find_model_in_form(raw, 'multipart/form-data; charset=utf-8; boundary="a b"')
    assert isinstance(found, FormField)
    assert found.name == "m"


@given(body=st.binary(max_size=300), kind=st.text(max_size=60))
def test_any_bytes_are_judged_without_an_error(body: bytes, kind: str) -> None:
    assert isinstance(find_model_in_form(body, f"multipart/form-data; boundary={kind}"), FormField | BadBody)
    assert isinstance(find_model_in_form(b"--x\r\n" + body + b"\r\n--x--", "a; boundary=x"), FormField | BadBody)


async def answers_m(request: web.Request, _: bytes) -> web.Response:
    del request
    return web.json_response({})


@pytest.mark.parametrize("path", FORM_PATHS)
async def test_a_form_reaches_its_engine_under_the_name_that_it_serves(rig: Rig, path: str) -> None:
    async with running(Engine(served_name="real", answer=answers_m)) as engine:
        await rig.serve((model("m", "chat"),), (engine.endpoint("m", "chat"),))
        raw, kind = form(("model", "chat"))
        async with rig.client.post(rig.url + path, data=raw, headers={"content-type": kind}) as answer:
            assert (answer.status, answer.headers["x-llmgw-replica"]) == (200, "m-1")
        [seen] = engine.seen
    found = find_model_in_form(seen.body, seen.headers["content-type"])
    assert isinstance(found, FormField)
    assert (found.name, seen.path) == ("real", path)
    assert FILE in seen.body


@pytest.mark.parametrize("path", JSON_PATHS)
async def test_every_path_of_an_engine_that_names_a_model_leads_there(rig: Rig, path: str) -> None:
    async with running(Engine(served_name="real")) as engine:
        await rig.serve((model("m"),), (engine.endpoint("m"),))
        async with rig.client.post(rig.url + path, json={"model": "m", "input": "x"}) as answer:
            assert answer.status == 200
        assert (engine.seen[0].path, json.loads(engine.seen[0].body)) == (path, {"model": "real", "input": "x"})
