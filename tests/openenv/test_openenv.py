"""OpenEnv servers behind TRL's `environment_factory`, trained on with GEAR: the observation is in the prompt, calls are the
policy's tools, and the server's rewards are the rewards."""

from __future__ import annotations

import importlib
import subprocess
import sys

from datasets import Dataset
from openenv.core import GenericEnvClient
from openenv_server import serving, workshop_app
from trl_setups import arguments

from gear_rl.engines.trl import CreditGRPOTrainer
from gear_rl.models import load_model
from gear_rl.tasks import make_task
from gear_rl.tasks.workshop.environment import WorkshopEnvironment


class Remote:
    """What TRL's tools call: a step of the server. `step`: two words of the policy → the result and what the policy reads."""

    def __init__(self, step):
        self.step, self.reward = step, 0.0

    def reply(self, turn):
        result, text = self.step(*turn.split())
        self.reward += result.reward
        return text


class RemoteWorkshop(WorkshopEnvironment):
    """The embedded model's tools, each use of which is a step of a server."""

    def __init__(self):
        self._client = self._connected().sync()
        self._client.connect()

    def get_reward(self):
        return self._episode.reward


def trained(folder, name, app, environment, rows):
    """The recorded batches of three GEAR steps, and the tokenizer. `environment`: from the server's address to a class."""
    task, seen = make_task("workshop", steps=4), []
    model, tokenizer = load_model(task.default_model(), "cpu")
    with serving(app) as address:
        trainer = CreditGRPOTrainer(
            model=model, processing_class=tokenizer, args=arguments(folder, max_steps=3, temperature=1.5),
            train_dataset=Dataset.from_list(rows), environment_factory=environment(address), credit="gear",
            hint="hint", hint_template=task.hint_template, recorder=seen.append,
        )  # fmt: skip
        trainer.train()
        for pool in trainer._environment_pool.values():
            for each in pool:
                each._client.close()
    assert trainer.state.global_step == 3 and len(seen) >= 3
    rewards = [float(x) for scored in seen for x in scored.rollouts.rewards]
    levels = [
        len(set(row[mask].tolist()))
        for scored in seen
        for row, mask in zip(scored.credit.advantages, scored.rollouts.action_mask, strict=True)
    ]
    mean = sum(rewards) / len(rewards)
    print(f"openenv, {name}: {len(rewards)} rollouts, mean reward {mean:.3f}, up to {max(levels)} levels of credit")
    assert max(levels) > 1 and len(set(rewards)) > 1
    return seen, tokenizer


def test_the_environment_that_openenv_init_writes(tmp_path, monkeypatch):
    """OpenEnv's command writes environment, server and client; ours are the tools' names, whose use is the message sent. The
    longer the message, the higher its reward."""
    command = [sys.executable, "-m", "openenv.cli", "init", "their_env", "--output-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    server = tmp_path / "their_env" / "server" / "app.py"
    one, many = "max_concurrent_envs=1,", "max_concurrent_envs=64,"  # its own comment says to raise this for more sessions
    assert server.read_text().count(one) == 1
    server.write_text(server.read_text().replace(one, many))
    monkeypatch.syspath_prepend(tmp_path)
    theirs, app = importlib.import_module("their_env"), importlib.import_module("their_env.server.app").app
    sent = []

    def environment(address):
        class Theirs(RemoteWorkshop):
            def _connected(self):
                return theirs.TheirEnv(base_url=address)

            def reset(self, **row):
                self._episode = Remote(self._say)
                assert "ready" in self._client.reset().observation.echoed_message

            def _say(self, tool, part):
                result = self._client.step(theirs.TheirAction(message=f"{tool} {part}"))
                sent.append((result.observation.echoed_message, result.reward))
                return result, part  # the embedded model has no other words to read

        return Theirs

    orders = make_task("workshop", steps=4).rows("train", 16)
    rows = [{**row, "prompt": [{"role": "user", "content": row["order"]}]} for row in orders]
    seen, _ = trained(tmp_path / "run", "as `openenv init` writes it", app, environment, rows)
    assert len({said for said, _ in sent}) > 4
    assert all(abs(reward - min(len(said) * 0.1, 1.0)) < 1e-6 for said, reward in sent)
    total = sum(float(x) for scored in seen for x in scored.rollouts.rewards)
    assert abs(total - sum(reward for _, reward in sent)) < 1e-3


def test_an_observation_in_the_prompt_is_read_by_the_policy_and_the_teacher(tmp_path):
    def environment(address):
        class Workshop(RemoteWorkshop):
            def _connected(self):
                return GenericEnvClient(base_url=address)

            def reset(self, **row):
                self._episode = Remote(self._use)
                return " " + self._client.reset(order=row["order"]).observation["text"]

            def _use(self, tool, part):
                result = self._client.step({"tool": tool, "part": part})
                return result, result.observation["text"]

        return Workshop

    rows = [
        {**row, "prompt": [{"role": "user", "content": row["order"].split()[0]}]}
        for row in make_task("workshop", steps=4).rows("train", 16)
    ]  # the rest of the order is the observation
    seen, tokenizer = trained(tmp_path, "our workshop", workshop_app(), environment, rows)
    for scored in seen:
        for row, ids, hinted in zip(scored.sampled.rows, scored.sampled.prompt_ids, scored.hinted.prompt_ids, strict=True):
            assert row["order"] in tokenizer.decode(ids)
            assert f"{row['order']} hint {row['hint']}" in tokenizer.decode(hinted)
