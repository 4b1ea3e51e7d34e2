"""The agent's OpenAPI document: FastAPI's own, completed by what the door and the limits answer before any endpoint.

`python -m agent.description > docs/agent.openapi.json` writes the published one anew; a test holds the two together.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from agent.auth import OPEN_PATHS
from llmgw.wire import PROTOCOL

_REFUSALS = {
    "401": "no token, or one that the agent does not know",
    "413": "the body is too large",
    "429": "too many requests from this address; `Retry-After` says when to come again",
}


def describe(app: FastAPI) -> None:
    """Let `app` serve the completed document. Its version is the protocol's."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(get_openapi(title=app.title, version=str(PROTOCOL), routes=app.routes))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's own way to extend it


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReply"}}}
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            guarded = path not in OPEN_PATHS
            if guarded:
                operation["security"] = [{"bearer": []}]
            for status, text in _REFUSALS.items():
                if guarded or status != "401":
                    operation["responses"].setdefault(status, {"description": text, "content": content})
            for status, answer in operation["responses"].items():
                if status.startswith("4"):  # refusals are one document everywhere, whatever an endpoint's own type is
                    answer["content"] = content
            if "422" in operation["responses"]:
                operation["responses"]["422"]["description"] = "not understood: every problem is named"
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for schema in document["components"]["schemas"].values():
        if "const" in schema.get("properties", {}).get("kind", {}):  # told apart by it, so it is never left out
            schema["required"] = ["kind", *schema.get("required", ())]
    return document


def published() -> str:
    """The document as it is kept in docs/."""
    from agent.app import build_api  # it imports this module
    from agent.node import Node
    from agent.settings import read_settings

    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(["--node-id", "any", "--state-dir", str(Path(folder) / "state")], {})
        document = build_api(Node(settings, {})).openapi()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(published(), end="")
