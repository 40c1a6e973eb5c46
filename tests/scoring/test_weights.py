"""Weights where they lie: plain, and in FSDP2's shards (one process holds the only shard; two are in test_processes)."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from gear_rl.errors import GearError
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.scoring.weights import Weights

IDS = torch.tensor([[3, 4, 5, 6, 7]])


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model):
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard([model.model.embed_tokens, model.model.norm, model.lm_head])  # tied, as accelerate shards it
    return fully_shard(model)


def moved(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)


def test_a_teacher_taken_from_shards_is_the_one_taken_from_whole_weights(process_group, model_and_tokenizer):
    plain = model_and_tokenizer[0].eval()
    shards = Weights(sharded(copy.deepcopy(plain)))
    teachers = [Teacher(plain, "base"), Teacher(shards, "base")]
    start = plain(IDS).logits
    for model in (plain, shards.model):
        moved(model)
    assert not torch.allclose(shards.model(IDS).logits, start)
    with teachers[1].in_place(), torch.no_grad():
        assert torch.equal(shards.model(IDS).logits, start)
        assert torch.equal(shards.head().weight, teachers[0].state()["model.embed_tokens.weight"])
    assert torch.allclose(shards.model(IDS).logits, plain(IDS).logits, atol=1e-5)
    states = [teacher.state() for teacher in teachers]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    teachers[1].load_state({name: value * 2 for name, value in states[0].items()})
    assert torch.equal(teachers[1].state()["model.norm.weight"], 2 * states[0]["model.norm.weight"])


def test_the_body_of_sharded_weights_reads_what_the_plain_one_does(process_group, model_and_tokenizer):
    plain = model_and_tokenizer[0].eval()
    shards = Weights(sharded(copy.deepcopy(plain)))
    with torch.no_grad():
        ours = shards.body(input_ids=IDS, use_cache=False).last_hidden_state
        assert torch.equal(ours, plain.model(input_ids=IDS, use_cache=False).last_hidden_state)
        with shards.whole():
            assert torch.equal(shards.model(IDS).logits, plain(IDS).logits)
            assert not hasattr(shards.model.lm_head.weight, "placements"), "gathered, and stays so between forwards"
    shards.layout.at_rest()
    assert hasattr(shards.model.lm_head.weight, "placements")
    assert Scorer(shards)._may_share(100, 50, torch.device("cpu")), "the proof that prompts can be shared holds"


def test_the_gradient_of_a_sharded_head_is_the_plain_ones(process_group, model_and_tokenizer):
    plain = model_and_tokenizer[0].eval()
    shards = Weights(sharded(copy.deepcopy(plain)))
    for weights in (Weights(plain), shards):
        head = weights.head(trainable=True)
        head.weight.square().sum().backward()
        assert not weights.head().weight.requires_grad
    gradients = [w.layout.parameters["model.embed_tokens.weight"].grad for w in (Weights(plain), shards)]
    assert torch.equal(gradients[0], gradients[1].full_tensor())


def test_sharding_after_the_shadow_was_taken_is_an_error(process_group, model_and_tokenizer):
    model = model_and_tokenizer[0]
    early, late = Teacher(model, "ema"), Teacher(Weights(model, sharded_later=True), "ema")
    with pytest.raises(GearError, match="before the engine had sharded"):
        late.begin()
    sharded(model)
    with pytest.raises(GearError, match="taken while the model was plain, and it is FSDP2 now"), early.in_place():
        pass
    late.begin()
    assert late.state().keys() == early._shadow.keys()


def test_a_head_that_is_no_parameter_is_not_trained_in_silence(model_and_tokenizer):
    model = model_and_tokenizer[0]
    del model.lm_head.weight
    model.lm_head.weight = torch.randn(model.config.vocab_size, model.config.hidden_size)
    with pytest.raises(GearError, match="none of the model's parameters"):
        Weights(model).head(trainable=True)


def test_shards_without_a_root_are_refused(process_group, model_and_tokenizer):
    model = model_and_tokenizer[0]
    fully_shard(model.model.layers[0])
    with pytest.raises(GearError, match="not an FSDP2 root"):
        Teacher(model, "base")
