"""A run whose outcomes taught nothing: at no step did the rewards of a group differ, and what to do about it."""

from __future__ import annotations

from gear_rl.errors import GearError
from gear_rl.files import json_lines
from gear_rl.methods import method
from gear_rl.training.config import TrainConfig
from gear_rl.training.run_folder import RunFolder

LONGEST_LINE = 2**20


def note_on_equal_rewards(config: TrainConfig, folder: RunFolder) -> str | None:
    """One line for the end of a run without any policy gradient. None: there was one, or the method also learns by a loss of
    its own, or the log does not say."""
    chosen = method(config.credit, **config.credit_options)
    if not chosen.reads_outcomes or chosen.distillation is not None:
        return None
    if not _always_equal(folder, config.train.steps):
        return None
    steps, group = config.train.steps, config.train.generations
    return (
        f"note: at every step ({steps} of {steps}) the rollouts of each prompt had equal rewards, so the policy gradient was "
        "always 0. Mostly the task is too easy or too hard for the model: look at true success before training. Try another "
        f"setting of the task, more rollouts per prompt (train.generations, now {group}), or `gear warmstart`."
    )


def _always_equal(folder: RunFolder, steps: int) -> bool:
    """Of all steps, those before a resume included. Credit is looked at too: some methods compare more than outcomes, such as
    the rewards of turns."""
    try:
        with open(folder.metrics, "rb") as file:
            rows = [row for _, row in json_lines(file, folder.metrics, LONGEST_LINE)]
        return len(rows) >= steps and all(
            row.get("frac_reward_zero_std") == 1 and row.get("credit/mean_abs_advantage") == 0 for row in rows
        )
    except (OSError, GearError, AttributeError):  # a lost or damaged log is another message's subject
        return False
