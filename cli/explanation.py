"""An explanation as a page: one sentence an item, the engine's last lines below."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from llmgw import views


def explanation_page(found: views.Explanation) -> RenderableType:
    sentences = [Padding(Text(sentence), (0, 0, 0, 2)) for sentence in found.sentences]
    log = [Padding(Text(line, "dim"), (0, 0, 0, 4)) for line in found.log_tail]
    head = [Text("  The engine's last lines:")] if log else []
    return Group(Text(found.subject, "bold"), *sentences, *head, *log)
