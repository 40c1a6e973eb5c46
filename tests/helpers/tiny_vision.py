"""A tiny Gemma 3 with vision and random weights, its processor, and pictures: no hub, no torchvision."""

from __future__ import annotations

import numpy as np
import torch
from byte_tokenizers import byte_tokenizer
from datasets import Dataset, Features, Image, Value
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3Processor
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}"
    "{% if part.type == 'image' %}<start_of_image>{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIDE = 28
"""Of a picture, in pixels: 2 × 2 patches, which are 4 tokens."""


def tiny_vision():
    """(model, processor)"""
    tokenizer = byte_tokenizer(TEMPLATE)
    tokenizer.padding_side = "left"  # as TRL loads processors
    marks = {"image_token": "<|image|>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *marks.values()]})
    for name, token in marks.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))
    ends = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None)
    size = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
    config = Gemma3Config(
        text_config=dict(vocab_size=len(tokenizer), num_key_value_heads=2, head_dim=8, **size, **ends),
        vision_config=dict(image_size=SIDE, patch_size=14, **size),
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
        **ends,
    )
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)  # wide enough that another picture shows
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = ends["eos_token_id"], ends["pad_token_id"]
    pictures = Gemma3ImageProcessorPil(size=dict(height=SIDE, width=SIDE))
    return model.eval(), Gemma3Processor(pictures, tokenizer, chat_template=TEMPLATE, image_seq_length=4)


def picture(seed):
    return np.random.default_rng(seed).integers(0, 255, (30 + seed % 7, 40, 3)).astype(np.uint8)


def picture_questions(rows=4):
    """Every row has a question, a picture and a hint; their lengths differ."""
    columns = {
        "prompt": [[{"role": "user", "content": "What is it" + "?" * i}] for i in range(rows)],
        "image": [picture(i) for i in range(rows)],
        "hint": ["a cat", "a dog", "two fish", "a very long bird"][:rows],
    }
    text = Value("string")
    features = Features(prompt=[{"role": text, "content": text}], image=Image(), hint=text)
    return Dataset.from_dict(columns, features=features)
