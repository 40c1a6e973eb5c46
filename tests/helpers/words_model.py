"""A tokenizer of a few hundred tokens, made from the workshop's own sentences, and a tiny model with random weights for it."""

from __future__ import annotations

import copy
import random
from functools import cache

from byte_tokenizers import WITHOUT_MARKS

from gear_rl.tasks import make_task


@cache
def words_tokenizer():
    """Byte-level BPE that cuts digits apart, as SmolLM2's does, with ChatML's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split])
    core.decoder = decoders.ByteLevel()
    task, rng = make_task("workshop_words"), random.Random(0)
    rows = task.rows("train", 100)
    told = [
        "\n".join([row["prompt"][0]["content"], row["prompt"][1]["content"], made.hint, *made.turns])
        for row in rows
        for made in [task.demonstration(row, rng, True)]
    ]
    marks = ["<pad>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=marks, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    core.train_from_iterator(told, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<pad>", additional_special_tokens=["<|im_start|>"]
    )
    tokenizer.chat_template = WITHOUT_MARKS
    return tokenizer


def save_words_model(folder, more=(), says=()):
    """`more`: texts that are to be one token each. `says`: turns that the model is taught to say, one as often as another;
    without any, its weights are random."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = copy.deepcopy(words_tokenizer())
    tokenizer.add_tokens(list(more))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=2048, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    if says:
        teach(model, tokenizer, says)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def teach(model, tokenizer, says, steps=80):
    """Each turn of `says` behind noise and what opens a turn; `says` have the same number of tokens."""
    import torch

    opening = tokenizer("<|im_start|>assistant\n")["input_ids"]
    turns = torch.tensor([opening + tokenizer(said)["input_ids"] + [tokenizer.eos_token_id] for said in says])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        noise = torch.randint(len(tokenizer), (len(says), 64))
        labels = torch.cat([torch.full_like(noise, -100), turns], 1)
        labels[:, 64 : 64 + len(opening)] = -100
        optimizer.zero_grad()
        model(torch.cat([noise, turns], 1), labels=labels).loss.backward()
        optimizer.step()
