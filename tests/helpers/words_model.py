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


def save_words_model(folder, more=()):
    """`more`: texts that are to be one token each."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = copy.deepcopy(words_tokenizer())
    tokenizer.add_tokens(list(more))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
