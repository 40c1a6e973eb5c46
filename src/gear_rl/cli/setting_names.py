"""What a setting without its section was probably meant to be: `steps` → train.steps, task.steps.

Read only for an error message: it imports what declares the settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from gear_rl.errors import GearError
from gear_rl.options import listing


def full_names(name: str, sections: Sequence[str], args: argparse.Namespace, given: Mapping[str, Any]) -> list[str]:
    """The settings called `name` in these `sections`, each as `--set` takes it. `given`: the other settings, which may name
    the task and the method."""
    return [full for section in sections for full in _in_section(section, name, args, given)]


def _in_section(section: str, name: str, args: argparse.Namespace, given: Mapping[str, Any]) -> list[str]:
    try:
        if section == "credit":
            methods = _chosen(args, given, "credit", "gear").split(",")
            return _of_methods(name, [method.strip() for method in methods])
        known = _section_has(section, name, _chosen(args, given, "task", "workshop"))
    except (GearError, ModuleNotFoundError):  # an unknown task, TRL not installed: another error, for another message
        return []
    return [f"{section}.{name}"] if known else []


def _section_has(section: str, name: str, task: str) -> bool:
    if section == "train":
        from gear_rl.training.config import TrainOptions

        return _has(listing(TrainOptions), name)
    if section == "warm":
        from gear_rl.training.warm_start import WarmStartOptions

        return _has(listing(WarmStartOptions), name)
    if section == "task":
        from gear_rl.tasks import task_options

        return _has(task_options(task), name)
    if section == "trl":
        from gear_rl.engines.trl_settings import is_free

        return is_free(name)
    return False  # of `chat` only the model's template knows the names


def _of_methods(name: str, methods: list[str]) -> list[str]:
    from gear_rl.methods import find_method

    having = [method for method in methods if _has(listing(find_method(method).Options), name)]
    if len(methods) == 1:
        return [f"credit.{name}"] if having else []
    return [f"credit.{having[0] if len(having) == 1 else 'METHOD'}.{name}"] if having else []


def _chosen(args: argparse.Namespace, given: Mapping[str, Any], what: str, default: str) -> str:
    """The task or the methods of the command: by its own flag, by --set or a config file, or the usual."""
    setting = given.get(what)
    named = setting.get("name") if isinstance(setting, Mapping) else setting
    return str(getattr(args, what, None) or named or default)


def _has(declared: list[dict[str, Any]], name: str) -> bool:
    return any(entry["name"] == name for entry in declared)
