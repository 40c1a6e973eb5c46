"""Playing episodes whose turns and answers differ in length: batched, out of step, and still what each would be alone."""

from __future__ import annotations

import random

import pytest
import torch

from gear_rl.agent import play
from gear_rl.decoding import MOST_WORDS
from gear_rl.tasks.base import Task, Verdict
from gear_rl.tasks.workshop.tokenizer import build_tokenizer
from gear_rl.tasks.workshop.world import GAUGE


class Chatty(Task):
    """Answers each turn with 1 to 30 words; which, depends on the row and on the number of the turn only."""

    name, summary = "chatty", ""
    max_turns, max_turn_tokens = 4, 12

    def rows(self, split, count, seed=0):
        return [{"prompt": [{"role": "user", "content": GAUGE[i]}], "hint": "", "id": str(i)} for i in range(count)]

    def episode(self, row):
        return Answers(row["id"])

    def judge(self, row, completion):
        return Verdict(0.0, False)


class Answers:
    def __init__(self, id):
        self.dice = random.Random(id)

    def reply(self, turn):
        return " ".join(self.dice.choices(GAUGE, k=self.dice.randint(1, 30)))


@pytest.fixture(scope="module")
def speaker():
    """A random model: what it says depends on all it has read, and every fifth word of its ends a turn."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=512, pad_token_id=0, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3, num_key_value_heads=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = list(range(0, len(tokenizer), 5))
    return model, tokenizer


def played(speaker, rows):
    model, tokenizer = speaker
    rollouts = play(model, tokenizer, Chatty(), rows, dice=[random.Random(row["id"]) for row in rows])
    return [(one.completion_ids, one.action_mask, one.turns, one.cut_off) for one in rollouts]


def test_rollouts_out_of_step_say_what_they_say_alone(speaker):
    rows = Chatty().rows("test", 16)
    together = played(speaker, rows)
    assert together == [played(speaker, [row])[0] for row in rows]
    answers = [len(run) for _, mask, _, _ in together for run in "".join(map(str, mask)).split("1")]
    turns = [len(run) for _, mask, _, _ in together for run in "".join(map(str, mask)).split("0") if run]
    assert max(answers) > 3 * MOST_WORDS and len(set(turns)) > 3, "else this tests nothing"
