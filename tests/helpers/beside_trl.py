"""One training three times: by TRL's trainer, and by ours with `grpo` and with `gear`. Tiny random models."""

from __future__ import annotations

from pathlib import Path

import torch
import trl
from byte_tokenizers import byte_tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.models.gpt_oss import GptOssConfig
from transformers.models.mamba2 import Mamba2Config
from transformers.models.qwen3 import Qwen3Config
from transformers.models.qwen3_moe import Qwen3MoeConfig
from trl import GRPOTrainer
from trl_setups import arguments, length_reward

from gear_rl.engines.trl import CreditGRPOTrainer

SHORT = dict(max_completion_length=4, per_device_train_batch_size=4, num_generations=2, max_steps=1)
WHO = (None, "grpo", "gear")
"""None: TRL's own trainer. Else the credit method."""
OURS = ("credit/", "signals/", "guards/")
"""What our trainer adds to TRL's log."""


def tool_tokenizer():
    """Its template is one of those for which TRL knows how tool calls are written."""
    return byte_tokenizer((Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text())


def saved_policies(folder):
    """Name → folder of a model with random weights: policies of several kinds, and a reward model."""
    tokenizer = tool_tokenizer()
    ends = dict(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None)
    heads = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    size = dict(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2, **heads, **ends)
    experts = dict(moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
    configs = {
        "dense": Qwen3Config(**size),
        "experts": Qwen3MoeConfig(**size, **experts),
        "expert_tensors": GptOssConfig(**size, num_local_experts=4, num_experts_per_tok=2),
        "states": Mamba2Config(
            vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, state_size=8,
            n_groups=1, chunk_size=8, **ends,
        ),
        "reward": Qwen3Config(**size, num_labels=1),
    }  # fmt: skip
    for name, config in configs.items():
        torch.manual_seed(0)
        kind = AutoModelForSequenceClassification if name == "reward" else AutoModelForCausalLM
        model = kind.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(0, 0.3)  # wide enough that another token, or a hint, shows
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: str(folder / name) for name in configs}


def hint_of(row):
    return "Write the digit three."


def small_trainer(who, folder, config, **given):
    kind = GRPOTrainer if who is None else CreditGRPOTrainer
    credit = {} if who is None else dict(credit=who, hint=hint_of if who == "gear" else None)
    given.setdefault("reward_funcs", length_reward)
    return kind(args=arguments(folder, **{**SHORT, **config}), **given, **credit)


def logged(trainer):
    """Everything in the log but times, and but what we add."""
    kept = [
        {k: v for k, v in entry.items() if "time" not in k and "second" not in k} for entry in trainer.state.log_history
    ]
    return [{k: repr(v) for k, v in entry.items() if not k.startswith(OURS)} for entry in kept]


def check_same(theirs, ours):
    """Bit for bit: weights, of the reference model too, and all that is logged."""
    for name in ("model", "ref_model"):
        left, right = getattr(theirs, name), getattr(ours, name)
        assert (left is None) == (right is None)
        if left is not None:
            left, right = dict(left.named_parameters()), dict(right.named_parameters())
            assert left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)
    assert logged(theirs) == logged(ours)


def check_credited(theirs, ours):
    """Credit was given, and it made a difference."""
    assert any("credit/mean_abs_advantage" in entry for entry in ours.state.log_history)
    left, right = dict(theirs.model.named_parameters()), dict(ours.model.named_parameters())
    assert all(p.isfinite().all() for p in right.values())
    assert any(not torch.equal(left[n], right[n]) for n in left), "as without credit"
