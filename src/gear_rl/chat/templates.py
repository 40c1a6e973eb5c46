"""Messages into token ids by the model's own chat template: prompts with tools, and what an environment answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message, Prompt, Tools, well_formed
from gear_rl.errors import GearError

TOOLS_IN_WORDS = """You can call these functions:
<tools>
{tools}
</tools>
To call some, write nothing but a list of calls:
<tool_call>[{"name": "function_name", "arguments": {"argument": "value"}}]</tool_call>
Each call is answered by a tool message. When nothing is left to call, answer in words."""
"""For templates that do not write tools themselves, SmolLM2's for one: its list of calls in one tag, explained in words of
ours. A model has to be taught this (`gear warmstart`) or large enough to follow it."""

LARGEST_TEMPLATE = 2**20
"""Bytes."""


def read_template(path: Path) -> str:
    """A chat template (Jinja) from a file."""
    if not path.is_file():
        raise GearError(f"there is no chat template {path}.")
    if path.stat().st_size > LARGEST_TEMPLATE:
        raise GearError(f"{path} has more than {LARGEST_TEMPLATE} bytes: this is not a chat template.")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise GearError(f"{path}: not UTF-8 text.") from None


def tokenized_prompts(
    tokenizer: Any, prompts: list[Prompt], tools: list[Tools | None] | None = None, **chat: Any
) -> list[list[int]]:
    """Ids up to where the policy begins to speak. A group repeats its prompt; each is tokenised once. `tools`: schemas per
    prompt, put into the system message where the template leaves them out. `chat`: settings of the template itself, such
    as enable_thinking."""
    in_words = any(tools or ()) and not writes_tools(tokenizer, **chat)
    known: dict[str, list[int]] = {}
    keys = []
    for i, prompt in enumerate(prompts):
        own = tools[i] if tools else None
        keys.append(repr((prompt, own)))
        if keys[-1] not in known:
            prompt = well_formed(prompt)
            if own and in_words and not isinstance(prompt, str):
                prompt, own = with_tools(prompt, own), None
            known[keys[-1]] = (
                tokenizer(prompt)["input_ids"]
                if isinstance(prompt, str)
                else tokenizer.apply_chat_template(
                    prompt, tools=own, tokenize=True, return_dict=False, add_generation_prompt=True, **chat
                )
            )
    return [known[key] for key in keys]


def writes_tools(tokenizer: Any, **chat: Any) -> bool:
    """Whether the chat template writes the schemas it is given as `tools=`. Many older ones pass them over in silence."""
    probe = {"name": "gear_probe", "description": "A probe.", "parameters": {"type": "object", "properties": {}}}
    asked = [{"role": "user", "content": "x"}]
    tools = [{"type": "function", "function": probe}]
    return "gear_probe" in tokenizer.apply_chat_template(asked, tools=tools, tokenize=False, **chat)


def with_tools(prompt: list[Message], tools: Tools) -> list[Message]:
    """`prompt` with the tools in its system message, a schema a line; a system message of its own stays before them."""
    schemas = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    text = TOOLS_IN_WORDS.replace("{tools}", schemas)
    if prompt and prompt[0]["role"] == "system":
        return [{**prompt[0], "content": f"{prompt[0]['content']}\n\n{text}"}, *prompt[1:]]
    return [{"role": "system", "content": text}, *prompt]


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """What ends a turn: the tokenizer's end mark, and those that the model's own generation settings add."""
    more = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return {tokenizer.eos_token_id, *(more if isinstance(more, list) else [] if more is None else [more])}


class Replies:
    """Token ids that follow the policy's end-of-turn token when the environment answers: its reply, the next opening."""

    def __init__(self, tokenizer: Any, **chat: Any) -> None:
        self._tokenizer, self._chat, self._cache = tokenizer, chat, dict[str, list[int]]()

    def ids(self, reply: str | list[Message]) -> list[int]:
        key = reply if isinstance(reply, str) else json.dumps(reply)
        if key not in self._cache:
            reply = well_formed(reply)
            answer = [{"role": "tool", "content": reply}] if isinstance(reply, str) else reply
            opening = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
            before = self._tokenizer.apply_chat_template(opening, tokenize=True, return_dict=False, **self._chat)
            after = self._tokenizer.apply_chat_template(
                [*opening, *answer], tokenize=True, return_dict=False, add_generation_prompt=True, **self._chat
            )
            # Counted, not measured: templates write the last assistant turn in another way than earlier ones (Qwen3 gives
            # it an empty thought), so that the same end mark stands at another place in `before` and `after`.
            ends = [i for i, token in enumerate(after) if token == self._tokenizer.eos_token_id]
            count = before.count(self._tokenizer.eos_token_id)
            self._cache[key] = after[ends[count - 1] + 1 if count else len(before) :]
        return self._cache[key]
