"""The reference page of the catalog, made from its schema: `python -m cli.catalog_reference > docs/catalog.md`.

With `--schema` it prints the JSON Schema itself. A test holds both committed files to what this makes.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from llmgw.validation import catalog_schema

Schema = Mapping[str, Any]

PARTS = (
    "Model",
    "Replicas",
    "Canary",
    "Profile",
    "Accelerators",
    "Node",
    "NodeDevices",
    "Router",
    "Pool",
    "EngineExtension",
    "EngineMetrics",
    "EngineDevices",
    "Policy",
)
"""Mappings of a catalog in the order of the page; one that is missing here is an error."""

INTRODUCTION = """\
# The catalog

A catalog is one YAML or JSON document: everything the fleet should be. It is accepted whole or refused whole, with
every problem named. What is left out has the default shown here, and fields that are not on this page are refused.

* Check a file: `llmgw validate FILE`. Put it in force: `llmgw apply FILE`. Examples: [examples/](../examples). How it
  is read, what names may look like, what restarts an engine and why: [catalog-guide.md](catalog-guide.md).
* For editors: [catalog.schema.json](catalog.schema.json), or `llmgw schema`. With the YAML language server, begin a
  file with `# yaml-language-server: $schema=…/catalog.schema.json`.
* Sizes of memory are whole MiB, or text with a unit: `80GB`, `24GiB` (MB, GB, TB, MiB, GiB, TiB). Write the number on
  the card's box in GB: drivers report a little less than that many GiB. Times are seconds.
* Nothing is converted in silence: a number that is meant as text needs quotes.
* In arguments and environment `${llmgw:port}`, `${llmgw:host}`, `${llmgw:weights}`, `${llmgw:served_name}`,
  `${llmgw:python}` and `${llmgw:port:NAME}` are filled in at the start. There is no shell and no other syntax.
* Secrets are named under `secrets` and resolved on the node; a secret in clear text is refused.

<!-- Made by `python -m cli.catalog_reference > docs/catalog.md`: change the docstrings in llmgw/catalog.py instead. -->
"""


def schema_text() -> str:
    """The JSON Schema as `llmgw schema` prints it."""
    return json.dumps(catalog_schema(), indent=2) + "\n"


def page_text() -> str:
    """The whole page as Markdown. Raises ValueError when a part of the schema has no place in it."""
    schema = catalog_schema()
    definitions = {name: part for name, part in schema["$defs"].items() if "properties" in part}
    if definitions.keys() != set(PARTS):
        raise ValueError(f"PARTS and the schema differ: {', '.join(sorted(definitions.keys() ^ set(PARTS)))}")
    parts = {"Catalog": schema, **{name: definitions[name] for name in PARTS}}
    return INTRODUCTION + "".join(_section(name, part, schema) for name, part in parts.items())


def _section(name: str, part: Schema, schema: Schema) -> str:
    required = part.get("required", ())
    rows = (
        f"| `{field}` | {_kind(about, schema)} | {_default(about, field in required)} | {_said(about, schema)} |\n"
        for field, about in part["properties"].items()
    )
    head = f"\n## {name}\n\n{part['description']}\n\n| field | value | default | meaning |\n|---|---|---|---|\n"
    return head + "".join(rows)


def _said(about: Schema, schema: Schema) -> str:
    """The field's own words, else those of the part it refers to."""
    described = about if "description" in about else schema["$defs"][about["$ref"].rsplit("/", 1)[-1]]
    return str(described["description"]).replace("\n", " ").replace("|", "\\|")


def _default(about: Schema, required: bool) -> str:
    if required:
        return "required"
    value = about.get("default")
    if value is None:
        return "–"
    return "see there" if isinstance(value, dict) and "$ref" in about else f"`{json.dumps(value)}`"


def _kind(about: Schema, schema: Schema) -> str:
    """What may be written, in a few words; mappings are links to their sections."""
    if "$ref" in about:
        return _linked(about["$ref"].rsplit("/", 1)[-1], schema)
    if "anyOf" in about:
        return " or ".join(_kind(option, schema) for option in about["anyOf"] if option.get("type") != "null")
    match about["type"]:
        case "array":
            return f"list of {_kind(about['items'], schema)}"
        case "object":
            inner = [*about.get("patternProperties", {}).values(), about.get("additionalProperties")]
            return f"mapping of names to {_kind(inner[0], schema)}"
        case "string":
            return "text"
        case "boolean":
            return "true or false"
        case kind:
            return " ".join(("whole number" if kind == "integer" else "number", *_bounds(about)))


def _linked(name: str, schema: Schema) -> str:
    part = schema["$defs"][name]
    if "enum" in part:
        return " or ".join(f"`{value}`" for value in part["enum"])
    return f"[{name}](#{name.lower()})"


def _bounds(about: Schema) -> Iterator[str]:
    for key, word in (("exclusiveMinimum", "above"), ("minimum", "from"), ("maximum", "to")):
        if key in about and not (key == "minimum" and "exclusiveMinimum" in about):
            yield f"{word} {about[key]:,.0f}"


def main() -> None:
    sys.stdout.write(schema_text() if sys.argv[1:] == ["--schema"] else page_text())


if __name__ == "__main__":
    main()
