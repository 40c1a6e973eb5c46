"""Tools and environments as TRL's own tests use them: the model's replies are written here, all the rest is TRL's and ours.

`grpo` must be TRL's trainer bit for bit; `gear` must train with it, and differ. See docs/trl_tests.md.
"""

from __future__ import annotations

import pytest
import torch
from beside_trl import WHO, check_credited, check_same, saved_policies, small_trainer, tool_tokenizer
from datasets import Dataset

ROOM = dict(max_completion_length=160)
CHATS = Dataset.from_dict({"prompt": [[{"role": "user", "content": f"Double {i}."}] for i in range(4)]})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved_policies(tmp_path_factory.mktemp("policies"))["dense"]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def replies(trainer, texts):
    """From now on the policy writes `texts`, one a rollout, and "Done!" after a tool's result."""
    tokenizer = tool_tokenizer()
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id

    def generate(input_ids, **_):
        written = texts if len(input_ids) == len(texts) else ["Done!"] * len(input_ids)
        ids = [[*tokenizer.encode(text), end] for text in written]
        width = max(map(len, ids))
        return torch.cat([input_ids, torch.tensor([row + [pad] * (width - len(row)) for row in ids])], 1)

    trainer.model.generate = generate


def double(number: int) -> int:
    """Doubles.

    Args:
        number: What to double.
    """
    return 2 * number


async def late_double(number: int) -> int:
    """Doubles, later.

    Args:
        number: What to double.
    """
    return 2 * number


class Counter:
    """Owns its prompts and its reward."""

    def reset(self, **given):
        assert "environment" not in given
        self.total = 0
        return "Count."

    def add(self, step: int) -> int:
        """Adds.

        Args:
            step: What to add.
        """
        self.total += step
        return self.total

    def get_reward(self) -> float:
        return float(self.total)


class Echo:
    """Owns its prompts; reward functions score it."""

    def reset(self, **given):
        return "Echo."

    def shout(self, text: str) -> str:
        """Shouts.

        Args:
            text: What to shout.
        """
        return text.upper()


def beside_trl(folder, texts, config, **given):
    trainers = []
    for who in WHO:
        trainer = small_trainer(who, folder, {**ROOM, **config}, **given)
        replies(trainer, texts)
        trainer.train()
        trainers.append(trainer)
    theirs, grpo, gear = trainers
    del theirs.model.generate, grpo.model.generate, gear.model.generate
    check_same(theirs, grpo)
    check_credited(theirs, gear)
    return trainers


@pytest.mark.parametrize("tool", [double, late_double])
def test_tools_called_rightly_wrongly_and_not_at_all(tmp_path, model, tool):
    name = tool.__name__
    texts = [call(name, '{"number": 3}'), call(name, '{"digit": 4}'), "No tool.", call(name, "{number: 4}")]
    for trainer in beside_trl(tmp_path, texts, {}, model=model, train_dataset=CHATS, tools=[tool]):
        log = trainer.state.log_history[0]
        assert log["tools/call_frequency"] == 2 / 4, "one cannot be read"
        assert log["tools/failure_frequency"] == 1 / 2


def test_each_rollout_has_its_own_environment(tmp_path, model):
    texts = [call("add", '{"step": 2}'), "No.", call("shout", '{"text": "hi"}'), call("add", '{"step": 1}')]
    rows = Dataset.from_dict({"environment": ["counter", "echo"] * 2})
    worlds = {"counter": Counter, "again": Counter, "echo": Echo}
    given = dict(model=model, train_dataset=rows, environment_factory=worlds)
    for trainer in beside_trl(tmp_path, texts, dict(shuffle_dataset=False), **given):
        assert trainer.reward_func_names == ["length_reward", "Counter"]
        log = trainer.state.log_history[0]
        assert log["rewards/Counter/mean"] == 1.0, "2 and 0; the others are not scored"
        assert log["tools/failure_frequency"] == pytest.approx(1 / 3), "an echo cannot add"


def test_an_environment_owns_data_and_reward(tmp_path, model):
    texts = [call("add", f'{{"step": {i}}}') for i in (1, 2)] + ["No.", call("add", '{"step": 5}')]
    for trainer in beside_trl(tmp_path, texts, {}, model=model, reward_funcs=None, environment_factory=Counter):
        assert [world.total for world in trainer.environments] == [1, 2, 0, 5]
        assert trainer.state.log_history[0]["reward"] == 2.0


@pytest.mark.parametrize("wrong", ["environment", "rollout"])
def test_what_trl_refuses_in_a_step_is_refused_alike(tmp_path, model, wrong):
    rows = Dataset.from_dict({"environment": ["nowhere"] * 4}) if wrong == "environment" else CHATS
    given = dict(environment_factory={"echo": Echo}) if wrong == "environment" else dict(rollout_func=without_keys)
    said = set()
    for who in WHO:
        trainer = small_trainer(who, tmp_path, ROOM, model=model, train_dataset=rows, **given)
        with pytest.raises(ValueError) as error:
            trainer.train()
        said.add(str(error.value))
    assert len(said) == 1 and ("nowhere" if wrong == "environment" else "logprobs") in said.pop()


def without_keys(prompts, trainer):
    return {"prompt_ids": [[1]] * len(prompts)}
