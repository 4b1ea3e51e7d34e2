"""The OpenAPI document describes what is really there."""

import json
import re

from jsonschema import Draft202012Validator

from .rig import Rig, both, endpoint, model, table


async def test_every_path_exists_and_every_reference_resolves(rig: Rig) -> None:
    async with rig.client.get(rig.url + "/openapi.json") as response:
        document = await response.json()
    for path, operations in document["paths"].items():
        for method in operations:
            if (method, path) == ("get", "/v1/state"):
                continue
            filled = re.sub(r"{[^}]+}", "me", path)
            async with rig.client.request(method, rig.url + filled, data=b"{}") as response:
                assert response.status != 405
                assert "unknown_path" not in await response.text()
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)):
        assert name in document["components"]["schemas"]


async def test_a_table_fits_its_schema(rig: Rig) -> None:
    async with rig.client.get(rig.url + "/openapi.json") as response:
        document = await response.json()
    schema = {"$ref": "#/components/schemas/RouterTable", "components": document["components"]}
    validator = Draft202012Validator(schema)
    sound = json.loads(table(1, (model("m", "chat"),), both(endpoint("m-1"))).model_dump_json())
    validator.validate(sound)
    assert not validator.is_valid(sound | {"token": {}})
