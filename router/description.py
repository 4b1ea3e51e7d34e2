"""The router's OpenAPI document, made from the wire models themselves, so that it cannot differ from them. Pure."""

from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from llmgw.wire import ErrorReply, RouterState, RouterTable, TablePatch, TableReply

Json = dict[str, object]

_MODELS: tuple[type[BaseModel], ...] = (RouterTable, TablePatch, TableReply, RouterState, ErrorReply)
_REFUSALS = {
    "400": "not JSON",
    "401": "no control token",
    "403": "the fleet belongs to another installation",
    "409": "a stale token, another base, or a name conflict between fleets",
    "422": "the table is wrong: every problem is named",
}


def describe(paths: Iterable[str], version: str) -> Json:
    """`paths`: those of the data plane."""
    _, schemas = models_json_schema(
        [(model, "serialization") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    control = {"put": _table_operation(RouterTable, "the whole truth for one fleet")}
    control["patch"] = _table_operation(TablePatch, "the difference to the table held")
    return {
        "openapi": "3.1.0",
        "info": {"title": "llmgw router", "version": version},
        "paths": {
            "/v1/table": control,
            "/v1/state": {"get": _state_operation()},
            "/v1/models": {"get": _plain("every known name with its state, in OpenAI's shape")},
            "/v1/models/{name}": {"get": _plain("one of those names, which may hold slashes; 404 for any other")},
            **{path: {"post": _plain("OpenAI's API; passed on to an endpoint of its `model`")} for path in paths},
            "/for/{whom}/health": {"get": _plain("alive; the paths of clients are below /for/NAME as well")},
            "/healthz": {"get": _plain("alive")},
            "/readyz": {"get": _plain("200 with a table to serve from, else 503")},
            "/metrics": {"get": _plain("Prometheus metrics")},
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _table_operation(document: type[BaseModel], summary: str) -> Json:
    answers: Json = {status: _answer(text, ErrorReply) for status, text in _REFUSALS.items()}
    return {
        "summary": summary,
        "security": [{"bearer": []}],
        "requestBody": {"required": True, "content": _content(document)},
        "responses": {"200": _answer("on disk and in force", TableReply), **answers},
    }


def _state_operation() -> Json:
    query = [{"name": n, "in": "query", "schema": {"type": "string"}} for n in ("instance", "revision")]
    return {
        "summary": "held: a document per change, one a line, and empty lines as beats",
        "security": [{"bearer": []}],
        "parameters": query,
        "responses": {"200": {"description": "NDJSON", "content": _content(RouterState, "application/x-ndjson")}},
    }


def _plain(summary: str) -> Json:
    return {"summary": summary, "responses": {"default": {"description": "see the summary"}}}


def _answer(text: str, document: type[BaseModel]) -> Json:
    return {"description": text, "content": _content(document)}


def _content(document: type[BaseModel], kind: str = "application/json") -> Json:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{document.__name__}"}}}
