"""Write docs/settings.md from the code: every option, its default and its own docstring: `python docs/make_settings.py`."""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from generated import write_or_check

from gear_rl.methods import METHODS
from gear_rl.options import listing
from gear_rl.tasks import TASKS, find_task
from gear_rl.tasks.jsonl import Jsonl
from gear_rl.training.config import TrainConfig, TrainOptions
from gear_rl.training.warm_start import WarmStartOptions

PAGE = Path(__file__).parent / "settings.md"
HEAD = """\
<!-- Written by docs/make_settings.py from the code. Do not edit by hand. -->
# Settings

Every setting has a name and a default. Set one on the command line, or many in a file:

<!-- test: --set train.steps=1 --set train.eval_rows=4 -->
```bash
gear train --set train.learning_rate=3e-4 --set task.steps=8 --set credit.alpha=4
```

```toml title="run.toml, for gear train --config run.toml"
credit = { name = "gear", alpha = 4.0 }
task = { name = "workshop", steps = 8 }
seed = 1

[train]
learning_rate = 3e-4
```

Flags win over `--set`, and `--set` wins over the file. An unknown name or a value of the wrong type is an error before a
model is loaded. `gear train --settings` prints all of them.
A run writes all its settings to `config.json`, which `--config` reads too.

| prefix | what it sets | commands |
|---|---|---|
| [`train.`](#training-train) | the training loop | `gear train`, `gear compare` |
| `trl.` | any other field of TRL's `GRPOConfig`, such as `trl.epsilon_high=0.28` | `gear train` |
| [`warm.`](#warm-start-warm) | the supervised warm start | `gear warmstart` |
| [`task.`](#tasks-task) | the task's own options | all commands that run a task |
| [`credit.`](#methods-credit) | the method's own options | `gear train`, `gear credit`, `gear compare` |
| `chat.` | variables of the chat template, such as `chat.enable_thinking=false` | `gear eval`, `gear credit` |
"""


def cell(value: Any) -> str:
    """Text that stays inside its table cell."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def text(description: str) -> str:
    """A description: what looks like a tag is text, outside of code."""
    return cell(re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], description))


def default_of(cls: type, option: dict[str, Any], name: str) -> str:
    (declared,) = [f for f in fields(cls) if f.name == name]
    if option["required"]:
        return "needed"
    if declared.default_factory is not MISSING and declared.default_factory not in (dict, list):
        return "depends on the machine"
    return f"`{cell(option['default'])}`" if option["default"] != "" else "empty"


def table(prefix: str, options: type) -> str:
    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for option in listing(options):
        name = f"`{prefix}{option['name']}`"
        default = default_of(options, option, option["name"])
        lines.append(f"| {name} | {default} | {cell(option['range'])} | {text(option['description'])} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else "No options.\n"


def task_sections() -> str:
    """Tasks that share a table of options share a section."""
    by_table: dict[str, list[str]] = {}
    classes = {name: find_task(name) for name in TASKS} | {"FILE.jsonl": Jsonl}
    for name, found in classes.items():
        by_table.setdefault(table("task.", found), []).append(name)
    return "\n".join(f"### {', '.join(f'`{n}`' for n in names)}\n\n{shown}" for shown, names in by_table.items())


def method_sections() -> str:
    by_table: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        by_table.setdefault(table("credit.", method.Options), []).append(name)
    plain = by_table.pop("No options.\n", [])
    sections = [
        f"### {', '.join(f'[`{n}`](methods/{n}.md)' for n in names)}\n\n{shown}" for shown, names in by_table.items()
    ]
    return "\n".join(sections) + f"\nWithout options: {', '.join(f'[`{n}`](methods/{n}.md)' for n in plain)}.\n"


def page() -> str:
    return "\n".join(
        [
            HEAD,
            f"## Training: `train.`\n\n{table('train.', TrainOptions)}",
            f"Beside them a run has `task`, `model`, `credit` and `seed`, which the flags of the same names set "
            f"(`{TrainConfig().task}`, the task's own model, `{TrainConfig().credit}`, `{TrainConfig().seed}`).\n",
            f"## Warm start: `warm.`\n\n{table('warm.', WarmStartOptions)}",
            f"## Tasks: `task.`\n\n{task_sections()}",
            "## Methods: `credit.`\n\n`gear methods NAME` prints the same for one method.\n\n" + method_sections(),
        ]
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
