"""How deeply a chat template nests. Jinja's compiler takes time by the cube of that, before anything is rendered: 300 minus
signs in a row take it 8 s."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jinja2 import Environment, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

MOST = 100
"""Levels: blocks within blocks, and operators within operators (`a + b + c` has two). TRL's own templates have at most 21."""


class _Generation(Extension):
    """{% generation %} … {% endgeneration %}, which transformers adds to the language."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=64)
def too_deep(template: str) -> bool:
    """Whether `template` nests deeper than `MOST`. What is no template at all is left for transformers to say."""
    try:
        tree: Any = Environment(extensions=[_Generation, "jinja2.ext.loopcontrols"], autoescape=True).parse(template)
    except RecursionError:
        return True
    except Exception:  # TemplateSyntaxError, and ValueError for a number of 5,000 digits
        return False
    level, depth = [tree], 0
    while level and depth <= MOST:
        level, depth = [child for node in level for child in node.iter_child_nodes()], depth + 1
    return depth > MOST
