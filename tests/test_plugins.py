"""What other packages register wrongly is an error that names it."""

import pytest
from entry_points import register

from gear_rl.errors import GearError
from gear_rl.methods import all_methods
from gear_rl.tasks import all_tasks


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("method", "gear", "elsewhere:Gear", "'elsewhere:Gear' registers the method 'gear', but that name is taken"),
        ("method", "broken", "no_such_module:X", "'broken' could not be loaded from 'no_such_module:X'"),
        ("method", "odd", "math:pi", "'odd': 'math:pi' is no subclass of gear_rl.methods.Method"),
        ("task", "gsm8k", "elsewhere:Maths", "'elsewhere:Maths' registers the task 'gsm8k', but that name is taken"),
        ("task", "broken", "no_such_module:X", "'broken' could not be loaded from 'no_such_module:X'"),
        ("task", "odd", "math:pi", "'odd': math:pi is not a subclass of gear_rl.tasks.Task"),
        ("task", "half", "gear_rl.tasks:SingleTurn", "'half': gear_rl.tasks:SingleTurn must define rows and judge"),
    ],
)
def test_a_bad_third_party_is_named(monkeypatch, kind, name, value, message):
    register(monkeypatch, kind, (name, value))
    with pytest.raises(GearError, match=message):
        all_methods() if kind == "method" else all_tasks()
