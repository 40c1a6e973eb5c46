"""Messages into token ids by the model's own chat template: prompts with tools, and what an environment answers.

A template is a program that comes with a model. transformers runs it in Jinja's sandbox, which keeps it from files and from
Python's own objects, but not from looping or from writing without end: `rendered` bounds time, memory, output and nesting.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Any

from gear_rl.chat.messages import Message, Prompt, Tools, well_formed
from gear_rl.chat.template_depth import MOST as MOST_LEVELS
from gear_rl.chat.template_depth import too_deep
from gear_rl.errors import GearError, printable
from gear_rl.limits import memory_limit, time_limit

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
SECONDS = 10.0
MOST_MEMORY = 2**30
MOST_WRITTEN = 2**20, 16
"""Characters a template may write: so many, and so many for each that it is given."""
MOST_KEPT = 2**26
"""Bytes of tokenised replies that `Replies` keeps."""


def rendered(tokenizer: Any, messages: list[Message], tools: Tools | None = None, **settings: Any) -> str:
    """What the model's chat template makes of `messages`: text, within limits."""
    name = f"the chat template of {getattr(tokenizer, 'name_or_path', '') or 'this model'}"
    if any(map(too_deep, _sources(tokenizer))):
        raise GearError(f"{name} nests more than {MOST_LEVELS} levels.")
    try:
        with (
            time_limit(SECONDS, f"{name} takes more than {SECONDS:g} s."),
            memory_limit(MOST_MEMORY, f"{name} takes more than {MOST_MEMORY >> 20} MiB of memory."),
        ):
            text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, **settings)
    except GearError:
        raise
    except Exception as error:  # whatever a template raises on data that it does not expect
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise GearError(f"{name} cannot write this: {printable(reason)}") from None
    most = MOST_WRITTEN[0] + MOST_WRITTEN[1] * len(repr((messages, tools)))
    if len(text) > most:
        raise GearError(f"{name} writes {len(text)} characters for one conversation; at most {most} are accepted.")
    return text


def _sources(tokenizer: Any) -> list[str]:
    """The templates of a tokenizer: one, several by name, or none."""
    own = getattr(tokenizer, "chat_template", None)
    return [text for text in (own.values() if isinstance(own, dict) else [own]) if isinstance(text, str)]


def rendered_ids(tokenizer: Any, messages: list[Message], tools: Tools | None = None, **settings: Any) -> list[int]:
    """The same as token ids."""
    text = rendered(tokenizer, messages, tools, **settings)
    own = type(tokenizer).apply_chat_template.__module__ != "transformers.tokenization_utils_base"
    if own:  # it has a way of its own, and perhaps no template (mistral-common)
        return tokenizer.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=False, **settings)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


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
                else rendered_ids(tokenizer, prompt, own, add_generation_prompt=True, **chat)
            )
    return [known[key] for key in keys]


def writes_tools(tokenizer: Any, **chat: Any) -> bool:
    """Whether the chat template writes the schemas it is given as `tools=`. Many older ones pass them over in silence."""
    probe = {"name": "gear_probe", "description": "A probe.", "parameters": {"type": "object", "properties": {}}}
    asked = [{"role": "user", "content": "x"}]
    tools = [{"type": "function", "function": probe}]
    return "gear_probe" in rendered(tokenizer, asked, tools, **chat)


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


OPENING: list[Message] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
"""A dialogue up to the end of the policy's first turn."""


class Replies:
    """Token ids that follow the policy's end-of-turn token when the environment answers: its reply, the next opening.

    The ones used last are kept, up to `MOST_KEPT` bytes."""

    def __init__(self, tokenizer: Any, **chat: Any) -> None:
        self._tokenizer, self._chat, self._kept, self._bytes = tokenizer, chat, OrderedDict[str, list[int]](), 0
        self._written: set[str] = set()
        """Roles that the template is known to write."""

    def check(self) -> None:
        """Raises if the tokenizer's end token and its chat template do not fit together."""
        _ = self._before

    @cached_property
    def _before(self) -> tuple[int, int]:
        """Of a dialogue that ends with the policy's turn: how many tokens it has, and how many are the end mark.

        Raises where the template writes on after the last one: then it is not what ends a turn, and replies would be cut off
        at a wrong place. transformers 5.17 reads `<|im_start|>` as the end mark of some GGUF files, for one."""
        ids = rendered_ids(self._tokenizer, OPENING, **self._chat)
        ends = self._ends(ids)
        rest = self._tokenizer.decode(ids[ends[-1] + 1 :]).strip() if ends else ""
        if rest:
            raise self._not_the_end(f"which goes on with {rest[:80]!r}")
        return len(ids), len(ends)

    def _ends(self, ids: list[int]) -> list[int]:
        """Where the end mark stands. As the first token it opens the dialogue."""
        end = self._tokenizer.eos_token_id  # once: it is looked up in the vocabulary each time
        return [i for i, token in enumerate(ids) if token == end and i]

    def _not_the_end(self, why: str) -> GearError:
        return GearError(
            f"the tokenizer's end token {self._tokenizer.eos_token!r} does not end a turn in its chat template, {why}. Set "
            "tokenizer.eos_token to the token that ends a turn, and save the tokenizer."
        )

    def _check_role(self, role: str) -> None:
        """Some templates pass over roles that they do not know, and the policy would go on without having read a reply."""
        if role not in self._written:
            probe = {"role": role, "content": "gearprobe"}
            if "gearprobe" not in rendered(self._tokenizer, [*OPENING, probe], **self._chat):
                raise GearError(f"the chat template leaves out messages of the role {role!r}: the model cannot read the reply.")
            self._written.add(role)

    def ids(self, reply: str | list[Message]) -> list[int]:
        key = reply if isinstance(reply, str) else json.dumps(reply)
        if key in self._kept:
            self._kept.move_to_end(key)
        else:
            reply = well_formed(reply)
            answer = [{"role": "tool", "content": reply}] if isinstance(reply, str) else reply
            length, count = self._before
            for message in answer:
                self._check_role(message["role"])
            after = rendered_ids(self._tokenizer, [*OPENING, *answer], add_generation_prompt=True, **self._chat)
            # Counted, not measured: templates write the last assistant turn in another way than earlier ones (Qwen3 gives
            # it an empty thought), so that the same end mark stands at another place before and after the reply.
            ends = self._ends(after)
            if len(ends) < count:  # Phi-3 writes it at the end of a whole dialogue only
                raise self._not_the_end("which leaves it out where the dialogue goes on")
            self._kept[key] = after[ends[count - 1] + 1 if count else length :]
            self._bytes += _bytes(key, self._kept[key])
            while self._bytes > MOST_KEPT and len(self._kept) > 1:
                self._bytes -= _bytes(*self._kept.popitem(last=False))
        return self._kept[key]


def _bytes(key: str, ids: list[int]) -> int:
    return sys.getsizeof(key) + 36 * len(ids)  # a pointer and an int
