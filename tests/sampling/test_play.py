"""Playing episodes whose turns and answers differ in length: batched, out of step, and still what each would be alone."""

from __future__ import annotations

import copy
import logging
import random

import pytest
import torch
from chatty_task import Chatty

from gear_rl.errors import GearError
from gear_rl.sampling import graph_decoding, own_turns
from gear_rl.sampling.decoding import MOST_TOKENS, Decoder
from gear_rl.sampling.graph_decoding import GraphDecoder
from gear_rl.sampling.play import play
from gear_rl.tasks.workshop.tokenizer import build_tokenizer

CHATTY = Chatty(max_turns=4, max_turn_tokens=12, longest=30)


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
    rollouts = play(model, tokenizer, CHATTY, rows, rngs=[random.Random(row["id"]) for row in rows])
    return [(one.completion_ids, one.action_mask, one.turns, one.cut_off) for one in rollouts]


def test_rollouts_out_of_step_say_what_they_say_alone(speaker):
    rows = CHATTY.rows("test", 16)
    together = played(speaker, rows)
    assert together == [played(speaker, [row])[0] for row in rows]
    answers = [len(run) for _, mask, _, _ in together for run in "".join(map(str, mask)).split("1")]
    turns = [len(run) for _, mask, _, _ in together for run in "".join(map(str, mask)).split("0") if run]
    assert max(answers) > 3 * MOST_TOKENS and len(set(turns)) > 3, "else this tests nothing"


def test_a_reply_that_does_not_fit_the_context_is_left_out(speaker):
    model, tokenizer = speaker
    rollouts = play(model, tokenizer, Chatty(4, 12, longest=900), CHATTY.rows("test", 16))
    cut = [one for one in rollouts if one.cut_off and one.completion_ids[-1] % 5 == 0]  # the last turn itself was whole
    assert len(cut) > 3 and all(one.action_mask[-1] == 1 for one in cut)
    assert max(len(one.ids) for one in rollouts) <= model.config.max_position_embeddings


@pytest.mark.parametrize("spare", [8, 24, 512])
def test_a_cache_of_fixed_place_is_the_same_cache(speaker, spare, monkeypatch):
    """Squeezed (small spare), grown, and cut down to the rows that go on."""
    rows = CHATTY.rows("test", 16)
    expected = played(speaker, rows)
    made = []

    def decoder(model):
        made.append(GraphDecoder(model, graphs=False, spare=spare))
        return made[-1]

    monkeypatch.setattr(own_turns, "decoder_for", decoder)
    assert played(speaker, rows) == expected
    assert made[0].plain is False and len(made[0].place.valid) < len(rows)


def test_a_sliding_window_takes_the_plain_way(speaker, caplog):
    from transformers import MistralConfig, MistralForCausalLM

    shape = {
        k: getattr(speaker[0].config, k)
        for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
    }
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
    model = MistralForCausalLM(MistralConfig(**shape, **heads, sliding_window=8)).eval()
    assert not graph_decoding._is_plain(model) and graph_decoding._is_plain(speaker[0])
    fast, slow = GraphDecoder(model, graphs=False), Decoder(model)
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for ids in ([[5, 6, 7], [8, 9]], *[[[3], [4]]] * 12):
            assert torch.equal(fast.read(ids), slow.read(ids))
    assert "sliding window" in caplog.text and fast.plain


def test_a_recording_that_reads_something_else_is_not_used(speaker, caplog):
    """Here it forgets all but the token itself."""

    class Forgetful(GraphDecoder):
        def _read(self, ids):
            self.place.valid[:] = False
            return super()._read(ids)

    model, _ = speaker
    fast, slow = Forgetful(model, graphs=False), Decoder(model)
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for ids in ([[5, 6, 7], [8, 9]], [[3], [4]], [[3], [4]]):
            assert torch.equal(fast.read(ids), slow.read(ids))
    assert "without CUDA graphs" in caplog.text and fast.plain


def test_a_cache_that_is_built_otherwise_is_left_alone(speaker, caplog, monkeypatch):
    """Without `layers`, as some models' own caches are; said once, not for every batch."""
    model, _ = speaker
    monkeypatch.setattr(graph_decoding, "_Buffers", lambda cache, *_: cache.no_such_layers)
    with caplog.at_level(logging.WARNING), torch.no_grad():
        for _ in range(2):
            fast, slow = GraphDecoder(model, graphs=False), Decoder(model)
            for ids in ([[5, 6, 7], [8, 9]], [[3], [4]], [[3], [4]]):
                assert torch.equal(fast.read(ids), slow.read(ids))
            fast.keep([1])
    assert caplog.text.count("without CUDA graphs") == 1 and "no_such_layers" in caplog.text


def test_memory_that_runs_out_is_no_reason_to_sample_more_slowly(speaker, caplog, monkeypatch):
    """The caller takes fewer rollouts at once; kernels and graphs stay."""

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(graph_decoding, "_Buffers", full)
    fast = GraphDecoder(speaker[0], graphs=False)
    with caplog.at_level(logging.WARNING), torch.no_grad():
        fast.read([[5, 6, 7], [8, 9]])
        with pytest.raises(torch.OutOfMemoryError):
            fast.read([[3], [4]])
    assert not caplog.records


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_recorded_forwards_are_the_same_forwards(speaker):
    model, _ = speaker
    model = model.to("cuda")
    fast, slow = GraphDecoder(model, spare=16), Decoder(model)
    rngs = random.Random(0)
    with torch.no_grad():
        for step in range(60):
            width = 9 if step == 0 else rngs.choice([1, 1, 1, 5, 8, 20])
            ids = [[rngs.randrange(5, 40) for _ in range(max(1, width - rngs.randrange(3)))] for _ in range(6)]
            assert torch.allclose(fast.read(ids), slow.read(ids), atol=1e-3), step
    model.to("cpu")
    assert fast.plain is False and set(fast._recorded) <= {1, MOST_TOKENS}


def test_weights_that_are_no_numbers_are_said(speaker):
    model, tokenizer = speaker
    damaged = copy.deepcopy(model)
    damaged.model.norm.weight.data.fill_(float("nan"))
    with pytest.raises(GearError, match="not a number"):
        played((damaged, tokenizer), CHATTY.rows("test", 2))
