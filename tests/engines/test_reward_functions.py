"""Reward functions that raise or return anything but a number per rollout: an error with the function's name, and why."""

import asyncio
import functools

import pytest
import torch

from gear_rl.engines.refusals import checked_rewards
from gear_rl.errors import GearError

SIZE = 3
PROMPTS = {"prompts": ["p"] * SIZE}


class Rewards:
    """Returns `given`, as whatever kind of callable TRL takes."""

    def __init__(self, given):
        self.given = given

    def __call__(self, prompts, **_):
        return self.answer(prompts)

    def answer(self, prompts, **_):
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


def kinds(given):
    rewards = Rewards(given)

    def plain(prompts, **_):
        return rewards.answer(prompts)

    async def waiting(prompts, **_):
        return rewards.answer(prompts)

    return {
        "plain": plain, "Rewards": rewards, "answer": rewards.answer, "waiting": waiting,
        "partial": functools.partial(functools.partial(plain), scale=2),
    }  # fmt: skip


def call(function):
    found = checked_rewards(function)(**PROMPTS)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


@pytest.mark.parametrize("kind", kinds([]))
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (KeyError("column"), "raised KeyError: 'column'"),
        (RuntimeError("a\nb" + "c" * 1000), "raised RuntimeError: a bc"),
        (SystemExit(3), "raised SystemExit: 3"),
        (None, "returned None; it must return a list"),
        ("abc", "returned 'abc'; it must return a list"),
        ((x for x in (1.0, 2.0, 3.0)), "returned <generator"),
        ({"a": 1.0}, "returned {'a': 1.0}"),
        (1.0, "returned 1.0"),
        ([1.0, 2.0], "returned 2 rewards for 3 rollouts"),
        ([1.0] * 4, "returned 4 rewards for 3 rollouts"),
        ([1.0, float("nan"), 1.0], "returned nan for rollout 1; return None"),
        ([1.0, 1.0, float("-inf")], "returned -inf for rollout 2"),
        (["1", 1.0, 1.0], "returned '1' for rollout 0"),
        ([[1.0], 1.0, 1.0], "returned \\[1.0\\] for rollout 0"),
        ([10**400, 1.0, 1.0], "returned 10+ for rollout 0"),
        ([10**5000, 1.0, 1.0], "returned a int for rollout 0"),
        (torch.tensor([1.0, float("nan"), 1.0]), "returned nan for rollout 1"),
        (torch.ones(3, 1), "returned \\[1.0\\] for rollout 0"),
    ],
)
def test_refused_with_the_functions_name(kind, given, says):
    name = "plain" if kind == "partial" else kind
    with pytest.raises(GearError, match=f"^reward function '{name}' {says}") as caught:
        call(kinds(given)[kind])
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)
    if isinstance(given, BaseException):
        assert caught.value.__cause__ is given and given.__traceback__ is not None


@pytest.mark.parametrize("kind", kinds([]))
@pytest.mark.parametrize("given", [[1, None, 0.5], (1.0, 0.0, True), torch.tensor([1.0, 2.0, 3.0])])
def test_taken(kind, given):
    assert call(kinds(given)[kind]) == (given.tolist() if isinstance(given, torch.Tensor) else list(given))


@pytest.mark.parametrize("kind", ["Rewards", "answer", "partial"])
def test_the_trainer_checks_every_kind_of_callable(kind, tmp_path):
    from datasets import Dataset
    from trl_setups import build, own_rollouts

    from gear_rl.engines.trl import CreditGRPOTrainer
    from gear_rl.models import load_model
    from gear_rl.tasks import make_task

    task = make_task("workshop")
    loaded = load_model(task.default_model(), "cpu")
    function = kinds([float("nan")] * 8)[kind]
    trainer = build(CreditGRPOTrainer, tmp_path, task, loaded, Dataset.from_list(task.rows("train", 4)),
                    reward_funcs=function, rollout_func=own_rollouts(task, loaded[1]))  # fmt: skip
    with pytest.raises(GearError, match="returned nan for rollout 0"):
        trainer.train()
