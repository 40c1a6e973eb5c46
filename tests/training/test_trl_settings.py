"""Settings of `gear train` that are TRL's: by name in `train`, and any other field of `GRPOConfig` by `trl.NAME`."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from trl import GRPOConfig

from gear_rl.cli.main import main
from gear_rl.engines.trl_settings import INSTEAD, SAMPLING, refuse_trl_settings
from gear_rl.errors import GearError
from gear_rl.tasks import make_task
from gear_rl.tasks.base import instructed
from gear_rl.training.config import TrainConfig
from gear_rl.training.trl_arguments import trl_arguments

SMALL = ("train.prompts=2", "train.generations=2", "train.eval_rows=2", "train.kl=0", "task.steps=4")
EVERY = (
    "train.steps=3", "train.checkpoint_every=2", "train.lora_rank=2", "train.gradient_checkpointing=true",
    "train.optimizer=adamw_torch", "train.warmup_steps=1", "train.top_p=0.9", "train.max_turn_tokens=5",
    "trl.epsilon_high=0.28", "trl.weight_decay=0.1", "trl.top_entropy_quantile=0.9",
)  # fmt: skip


def gear_train(*settings, out):
    return main(["train", "--out", str(out), *[part for s in (*SMALL, *settings) for part in ("--set", s)]])


def test_trained_with_all_of_them_and_resumed_exactly(tmp_path, workshop):
    whole, again = tmp_path / "whole", tmp_path / "again"
    assert gear_train(*EVERY, out=whole) == 0
    stored = json.loads((whole / "config.json").read_text())
    assert stored["trl"] == {"epsilon_high": 0.28, "weight_decay": 0.1, "top_entropy_quantile": 0.9}
    shutil.copytree(whole, again)  # as if it had been killed after its checkpoint at step 2
    for name in ("checkpoints/checkpoint-3", "model"):
        shutil.rmtree(again / name)
    evaluation = json.loads((again / "evaluation.json").read_text())
    (again / "evaluation.json").write_text(json.dumps({"before": evaluation["before"]}))
    assert main(["train", "--resume", str(again)]) == 0
    ours, theirs = (load_file(run / "model" / "model.safetensors") for run in (again, whole))
    start = load_file(f"{workshop.default_model()}/model.safetensors")
    assert ours.keys() == theirs.keys() == start.keys(), "adapters are merged"
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    changed = {name for name in ours if not torch.equal(ours[name].float(), start[name].float())}
    assert changed and not any("norm" in name or "embed" in name for name in changed), "only what has adapters"


@pytest.mark.parametrize(
    ("setting", "message"),
    [line.split(" -> ") for line in """
trl.epsilon_hihg=1 -> no such field. Did you mean 'epsilon_high'
trl.epsilon=abc -> trl.epsilon='abc': must be a number
trl.mask_truncated_completions=3 -> must be True or False
trl.lr_scheduler_kwargs=3 -> must be a table or text, or None
trl.importance_sampling_level=word -> must be one of token, sequence
trl.beta=0.1 -> Use instead: train.kl
trl.max_steps=5 -> train.steps
trl.learning_rate=1 -> train.learning_rate
trl.eval_steps=5 -> train.eval_rows
trl.hub_token=abc -> a secret would be stored
trl.push_to_hub=true -> upload the run's folder
trl.top_k=5 -> TRL's own sampling
trl.vllm_mode=server -> only train.sampler=vllm uses it
trl.train_sampling_strategy=loudest -> must be one of 'random'
trl.dataloader_prefetch_factor=2 -> TRL does not take these settings
trl=3 -> write trl.NAME=VALUE
train.optimizer=adamw_torhc -> Did you mean 'adamw_torch'
train.lora_rank=0 -> train.lora_rank=0: must be a whole number, at least 1
train.top_p=0 -> above 0 and at most 1
train.system_prompt=Hello. -> chat template leaves system messages out
""".strip().splitlines()],
)  # fmt: skip
def test_what_is_wrong_is_named_before_anything_is_trained(tmp_path, capsys, setting, message):
    assert gear_train("train.steps=1", setting, out=tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said and not (tmp_path / "run").exists()


def test_every_name_is_a_field_of_trl():
    assert set(INSTEAD) | set(SAMPLING) <= set(GRPOConfig.__dataclass_fields__)
    ours = vars(trl_arguments(TrainConfig(), "runs", make_task("workshop"), on_cpu=True))
    for name, instead in INSTEAD.items():
        with pytest.raises(GearError, match=name):
            refuse_trl_settings({name: ours.get(name)}, by_vllm=False)
        section, _, option = instead.split(",")[0].split(":")[0].split(" ")[0].partition(".")
        assert section != "train" or hasattr(TrainConfig().train, option), instead


def test_a_constant_rate_can_be_warmed_up():
    config = TrainConfig.from_dict({"train": {"schedule": "constant", "warmup_steps": 3}})
    arguments = trl_arguments(config, "runs", make_task("workshop"), on_cpu=True)
    assert (arguments.lr_scheduler_type, arguments.warmup_steps) == ("constant_with_warmup", 3)


def test_a_system_prompt_comes_before_the_tasks_own():
    user, own = {"role": "user", "content": "2 + 2"}, {"role": "system", "content": "Use tools."}
    rows = [{"prompt": [user]}, {"prompt": [own, user]}, {"prompt": "2 + 2"}]
    assert [row["prompt"] for row in instructed(rows, "Be brief.")] == [
        [{"role": "system", "content": "Be brief."}, user],
        [{"role": "system", "content": "Be brief.\n\nUse tools."}, user],
        "Be brief.\n\n2 + 2",
    ]
    assert instructed(rows, None) is rows and rows[1]["prompt"][0] is own


def test_the_learning_rate_fits_the_model_unless_it_is_given():
    """6e-4 would ruin a language model within a few steps. A run's config.json says the rate that was used."""
    rates = {
        0.0006: {},
        1.5e-5: {"model": "folder"},
        1e-4: {"model": "folder", "train": {"lora_rank": 4}},
        2e-6: {"model": "folder", "train": {"learning_rate": 2e-6}},
    }
    for rate, given in rates.items():
        config = TrainConfig.from_dict(given)
        assert config.as_dict()["train"]["learning_rate"] == rate
        assert trl_arguments(config, "runs", make_task("workshop"), on_cpu=True).learning_rate == rate
