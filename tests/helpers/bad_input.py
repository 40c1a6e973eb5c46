"""Bad input of the commands as one table: the words a user types, and what the message has to say."""

from __future__ import annotations

import shlex

import pytest


def mistakes(table: str) -> pytest.MarkDecorator:
    """Parametrises `words` and `says` by the lines of `table`, each WORDS -> MESSAGE."""
    rows = [line.split(" -> ") for line in table.strip().splitlines()]
    return pytest.mark.parametrize(("words", "says"), [(shlex.split(words), says) for words, says in rows])
