"""One word, one token: the tokenizer and the chat template of the embedded model, made in code.

    <user> yesno g5 valve leak pump rust <end> <bot> well weld valve <end> g17 <bot> …
    … so grease pump <end> g3 <bot> answer yes <end>

A tool result is the bare gauge word; only `<bot>` opens a turn and only `<end>` closes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gear_rl.tasks.workshop import world

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, USER, BOT, END, HINT, ANSWER = "<pad>", "<unk>", "<user>", "<bot>", "<end>", "hint", "answer"
SPECIAL = [PAD, UNKNOWN, USER, BOT, END]
VOCABULARY = [
    *SPECIAL, HINT, ANSWER, *world.ANSWERS, *world.TOOLS, *world.PARTS, *world.FAULTS, *world.FILLERS,
    *world.ANSWERS["yesno"], *world.ANSWERS["quarter"], *world.GAUGE,
]  # fmt: skip

# A tool call is `tool part`. The argument's name is left out where it is `part`, the only one our tools have.
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}<bot> {{ m.content }}"
    "{% for c in m.tool_calls or [] %} {{ c.function.name }}"
    "{% for k, v in c.function.arguments.items() %}{% if k != 'part' %} {{ k }}{% endif %} {{ v }}{% endfor %}"
    "{% endfor %} <end> "
    "{% elif m.role == 'tool' %}{{ m.content }} "
    "{% else %}<user> {{ m.content }} <end> {% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<bot> {% endif %}"
)
# How TRL reads a turn back: the tool call if there is one, everything else is content.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": BOT,
    "fields": {
        "tool_calls": {
            "open_pattern": rf"\b(?P<name>{'|'.join(world.TOOLS)}) (?P<part>{'|'.join(world.PARTS)})\b",
            "close_pattern": r"\s*<end>\s*",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": {"part": "{part}"}}},
        },
        "content": {"close_pattern": r"\s*<end>\s*", "content": "text"},
    },
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token=PAD, unk_token=UNKNOWN, eos_token=END, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer
