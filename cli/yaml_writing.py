"""JSON types as YAML that both versions of YAML read alike: what either takes for a number or switch is quoted."""

import re

import yaml

from cli.yaml_text import CORE_WORDS


class _Dumper(yaml.SafeDumper):
    """PyYAML quotes what YAML 1.1 would not read as text; this one also what 1.2 would not, such as `1e3`."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - anchors save nothing for a reader
        return True


for _kind, _pattern, _first in CORE_WORDS:
    _Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


def yaml_of(value: object) -> str:
    """`value` as one document, keys in their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text
