"""Samplers of turns beside our own decoding: they must mean the same by end tokens, limits, temperature and seeds."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
import vllm_engine
from chatty_task import Chatty

from gear_rl.chat.templates import end_tokens
from gear_rl.engines.trl_vllm import vllm_turns
from gear_rl.errors import GearError
from gear_rl.sampling.continuous_batching import continuous_turns
from gear_rl.sampling.own_turns import own_turns
from gear_rl.sampling.play import play_with
from gear_rl.sampling.turns import Request
from gear_rl.tasks.workshop.world import GAUGE

CHATTY = Chatty(max_turns=3, max_turn_tokens=5, longest=12)


@pytest.fixture
def opened(monkeypatch, workshop, model_and_tokenizer):
    """name → a function that opens that sampler. The engine behind vLLM's interface samples without its noise here."""
    model, tokenizer = model_and_tokenizer
    ends = end_tokens(model, tokenizer)
    vllm_engine.install(monkeypatch)
    monkeypatch.setattr(vllm_engine, "NOISE", 0.0)

    def by_vllm(policy, *given):
        llm = vllm_engine.LLM(workshop.default_model())
        llm.load_weights(list(policy.named_parameters()))
        llm.llm_engine.model_config.max_model_len = policy.config.max_position_embeddings
        return vllm_turns(SimpleNamespace(llm=llm))(policy, *given)

    openers = {"own": own_turns, "continuous_batching": continuous_turns, "vllm": by_vllm}
    return lambda name, temperature=1.0, rngs=None: openers[name](model, ends, temperature, rngs)


def played(opened, name, pair, rows, **how):
    with opened(name, **how) as turns:
        rollouts = play_with(turns, pair[0].config, pair[1], CHATTY, rows)
    return [(one.completion_ids, one.action_mask, one.turns, one.cut_off) for one in rollouts]


@pytest.mark.parametrize("name", ["continuous_batching", "vllm"])
@pytest.mark.parametrize("room", [256, 24])
def test_at_a_low_temperature_all_say_the_same(opened, model_and_tokenizer, name, room):
    """Several turns, cut off by the task's limit or by the model's context (`room`)."""
    model = model_and_tokenizer[0]
    model.config.max_position_embeddings = room
    rows = CHATTY.rows("train", 9)
    expected = played(opened, "own", model_and_tokenizer, rows, temperature=1e-5)
    assert played(opened, name, model_and_tokenizer, rows, temperature=1e-5) == expected
    turns = [len(one[2]) for one in expected]
    assert max(turns) > 1 and (any(one[3] for one in expected) if room == 24 else True)
    assert model.config._attn_implementation == "sdpa" and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(("name", "temperature"), [("own", 1.0), ("own", 2.0), ("continuous_batching", 2.0)])
def test_tokens_come_as_often_as_the_policy_says(opened, workshop, model_and_tokenizer, name, temperature):
    """400 times the same next token: each share within four standard errors of the policy's probability."""
    model, tokenizer = model_and_tokenizer
    count, prompt = 400, tokenizer(f"{GAUGE[0]} {GAUGE[1]}")["input_ids"]
    with torch.no_grad():
        shares = (model(torch.tensor([prompt])).logits[0, -1] / temperature).softmax(-1)
    torch.manual_seed(5)
    with opened(name, temperature=temperature) as turns:
        turns.submit([Request(i, prompt, most=1) for i in range(count)])
        said = []
        while len(said) < count:
            said += turns.finished()
    found = torch.bincount(torch.tensor([turn.tokens[0] for turn in said]), minlength=len(shares)) / count
    assert len({turn.rollout for turn in said}) == count
    assert ((found - shares).abs() <= 4 * (shares * (1 - shares) / count).sqrt() + 1 / count).all()


@pytest.mark.parametrize("name", ["own", "continuous_batching", "vllm"])
def test_the_same_random_state_gives_the_same_rollouts(opened, model_and_tokenizer, name):
    rows = CHATTY.rows("train", 6)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append((played(opened, name, model_and_tokenizer, rows, temperature=2.0), torch.rand(2).tolist()))
    assert found[0] == found[1], "rollouts, and the random state they leave behind"
    assert found[0][0] != found[2][0] and found[0][1] != found[2][1]


def test_vllm_gives_each_rollout_random_numbers_of_its_own(opened, model_and_tokenizer):
    rows = CHATTY.rows("train", 1) * 6
    rngs = [random.Random(i) for i in range(6)]
    together = played(opened, "vllm", model_and_tokenizer, rows, temperature=2.0, rngs=rngs)
    alone = played(opened, "vllm", model_and_tokenizer, rows[:1], temperature=2.0, rngs=[random.Random(0)])
    assert together[0] == alone[0] and len({str(one[0]) for one in together}) > 1


def test_a_turn_that_stops_for_another_reason_is_an_error(opened, model_and_tokenizer):
    with opened("vllm") as turns:
        turns._llm.llm_engine.model_config.max_model_len = 3  # vLLM's context is shorter than the policy's
        turns.submit([Request(0, [2, 7], most=5)])
        with pytest.raises(GearError, match="after 1 of 5 tokens without its end"):
            turns.finished()


def test_continuous_batching_has_one_stream(opened):
    with pytest.raises(GearError, match="one stream"), opened("continuous_batching", rngs=[random.Random(0)]):
        pass
