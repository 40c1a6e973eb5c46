"""An OpenEnv server behind TRL's `environment_factory`, trained on with GEAR: its observation is in the prompt, its calls are
the policy's tools, its rewards are the rewards."""

from __future__ import annotations

from datasets import Dataset
from openenv.core import GenericEnvClient
from trl_setups import arguments
from workshop_server import serving

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.models import load_model
from gear_rl.tasks import make_task
from gear_rl.tasks.workshop.environment import WorkshopEnvironment


class Remote:
    """What TRL's tools call: a step of the server."""

    def __init__(self, client):
        self.client, self.reward = client, 0.0

    def reply(self, turn):
        tool, part = turn.split()
        result = self.client.step({"tool": tool, "part": part})
        self.reward += result.reward
        return result.observation["text"]


def remote_workshop(address):
    class RemoteWorkshop(WorkshopEnvironment):
        def __init__(self):
            self._client = GenericEnvClient(base_url=address).sync()
            self._client.connect()

        def reset(self, **row):
            self._episode = Remote(self._client)
            return " " + self._client.reset(order=row["order"]).observation["text"]

        def get_reward(self):
            return self._episode.reward

    return RemoteWorkshop


def test_three_gear_steps_on_a_server_of_openenv(tmp_path):
    task, seen = make_task("workshop", steps=4), []
    model, tokenizer = load_model(task.default_model(), "cpu")
    rows = [
        {**row, "prompt": [{"role": "user", "content": row["order"].split()[0]}]} for row in task.rows("train", 16)
    ]  # the rest of the order is the observation
    with serving() as address:
        trainer = CreditGRPOTrainer(
            model=model, processing_class=tokenizer, args=arguments(tmp_path, max_steps=3, temperature=1.5),
            train_dataset=Dataset.from_list(rows), environment_factory=remote_workshop(address), credit="gear",
            hint="hint", hint_template=task.hint_template, recorder=seen.append,
        )  # fmt: skip
        trainer.train()
        for environments in trainer._environment_pool.values():
            for environment in environments:
                environment._client.close()
    assert trainer.state.global_step == 3 and len(seen) >= 3
    rewards = [float(x) for scored in seen for x in scored.rollouts.rewards]
    levels = [
        len(set(row[mask].tolist()))
        for scored in seen
        for row, mask in zip(scored.credit.advantages, scored.rollouts.action_mask, strict=True)
    ]
    mean = sum(rewards) / len(rewards)
    print(f"openenv: {len(rewards)} rollouts, mean reward {mean:.3f}, up to {max(levels)} levels of credit")
    assert max(levels) > 1 and len(set(rewards)) > 1
    for scored in seen:  # the teacher and the policy both read the observation
        for row, ids, hinted in zip(scored.sampled.rows, scored.sampled.prompt_ids, scored.hinted.prompt_ids, strict=True):
            assert row["order"] in tokenizer.decode(ids)
            assert f"{row['order']} hint {row['hint']}" in tokenizer.decode(hinted)
