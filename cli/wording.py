"""What the parser of the command line says of a value, in the words of this command. Only rewrites sentences."""

import re

from llmgw.misfit import plain_words
from llmgw.problems import did_you_mean

_CHOICE = re.compile(r"'(?P<given>.*)' is not one of (?P<names>'.*')\.?", re.DOTALL)


def plain(message: str) -> str:
    """`message` without the checker's own words: what is wrong, and how to write it."""
    text = plain_words(message)
    matched = _CHOICE.fullmatch(text)
    if matched is None:
        return text
    names = re.findall(r"'([^']*)'", matched["names"])
    meant = did_you_mean(matched["given"], names)
    hint = meant if meant.startswith("did you mean") else f"write one of {', '.join(names)}"
    return f"there is no {matched['given']!r}: {hint}"
