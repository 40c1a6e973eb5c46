"""Which tokens of a conversation the assistant wrote: exactly, by the model's own chat template, or a refusal.

    marks      a template with {% generation %} blocks says itself what the assistant writes; taken where each block begins
               just where the policy would begin to speak
    prefixes   any other template is rendered message by message. What it writes for the first i messages must be how the
               whole conversation begins, else nobody can say which tokens are whose, and the template is refused

A turn is what the policy samples: up to and with the token that ends it. What a template puts after that one (ChatML's line
break) was never sampled, and is not marked.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gear_rl.chat.messages import Message
from gear_rl.chat.templates import rendered
from gear_rl.errors import GearError

Tools = list[dict[str, Any]]
Spans = list[tuple[int, int]]
Masked = tuple[list[int], list[int], str, Spans | None]
"""ids, mask, text, spans of a whole conversation."""
_GENERATION = re.compile(r"\{%-?\+?\s*generation\s*-?\+?%\}")


class _CannotWrite(GearError):
    """The template itself raised an error."""


@dataclass(frozen=True)
class Conversation:
    """Messages as tokens: the prompt up to where the assistant first speaks, and all that follows to its last word."""

    prompt_ids: list[int]
    completion_ids: list[int]
    action_mask: list[int]
    """Per token of the completion: 1 where the assistant wrote it."""
    text: str
    """What the template made of the messages."""
    spans: Spans | None
    """Per token of the completion, where it stands in `text`. None: this tokenizer cannot say."""


class ConversationTokens:
    """Conversations → tokens, for one tokenizer. `ends`: tokens that end a turn. `chat`: settings of the template."""

    def __init__(self, tokenizer: Any, ends: set[int], model: str, chat: dict[str, Any] | None = None) -> None:
        self.tokenizer, self.ends, self.model, self.chat = tokenizer, ends, model, chat or {}

    def prompt_ids(self, messages: list[Message], tools: Tools | None, where: str) -> list[int]:
        """Up to where the assistant is to speak."""
        return self._ids(self._render(messages, tools, where, opened=True))[0]

    def split(self, messages: list[Message], tools: Tools | None, where: str) -> Conversation:
        """`where` names the conversation in errors. Messages after the assistant's last one are left out."""
        try:
            return self._split(messages, tools, where)
        except _CannotWrite:
            as_text = _arguments_as_text(messages)  # most templates want an object there, some (DeepSeek's) its text
            if as_text is None:
                raise
        return self._split(as_text, tools, where)

    def _split(self, messages: list[Message], tools: Tools | None, where: str) -> Conversation:
        spoken = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if not spoken:
            raise GearError(f"{where}: no assistant message, so there is nothing to give credit to.")
        if spoken[0] == 0:
            raise GearError(f"{where}: begins with an assistant message; nothing stands before it to predict it from.")
        messages = messages[: spoken[-1] + 1]
        found = None
        if _GENERATION.search(self.tokenizer.get_chat_template(None, tools)):
            found = self._by_marks(messages, tools, spoken, where)
        ids, mask, text, spans = found or self._by_prefixes(messages, tools, spoken, where)
        mask = self._to_end_of_turn(ids, mask)
        if 1 not in mask:
            raise GearError(f"{where}: the chat template of {self.model} writes no token of the assistant's.")
        first, last = mask.index(1), len(mask) - mask[::-1].index(1)
        return Conversation(ids[:first], ids[first:last], mask[first:last], text, spans and spans[first:last])

    # ------------------------------------------------------------------------------------------ the two ways
    def _by_marks(self, messages: list[Message], tools: Tools | None, spoken: list[int], where: str) -> Masked | None:
        """None: the marks enclose more or less than the policy samples (a turn's opening, say)."""
        text = self._render(messages, tools, where)
        out = self.tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True, **self.chat
        )
        ids, mask = list(out["input_ids"]), list(out["assistant_masks"])
        runs = _runs(mask)
        if len(runs) != len(spoken) or ids[: runs[0][0]] != self.prompt_ids(messages[: spoken[0]], tools, where):
            return None
        again, spans = self._ids(text)
        spans = spans if again == ids else None
        for i, (start, stop) in zip(spoken, runs, strict=True):
            written = text[spans[start][0] : spans[stop - 1][1]] if spans else self.tokenizer.decode(ids[start:stop])
            self._check_written(messages[i], written, i, where)
        return ids, mask, text, spans

    def _by_prefixes(self, messages: list[Message], tools: Tools | None, spoken: list[int], where: str) -> Masked:
        text = self._render(messages, tools, where)
        ids: list[int] = []
        mask: list[int] = []
        spans: Spans | None = []
        done = 0
        for i in spoken:
            opening = self._render(messages[:i], tools, where, opened=True)
            if not text.startswith(opening) or len(opening) < done:
                raise self._unstable(i, where)
            end = self._end_of(messages, tools, i, len(opening), text, where)
            self._check_written(messages[i], text[len(opening) : end], i, where)
            # Pieces, not the whole: an engine puts the ids of prompt, turn and reply side by side in the same way.
            for start, stop, said in ((done, len(opening), 0), (len(opening), end, 1)):
                piece, places = self._ids(text[start:stop])
                ids += piece
                mask += [said] * len(piece)
                spans = None if spans is None or places is None else spans + [(a + start, b + start) for a, b in places]
            done = end
        whole = self._ids(text[:done])[0]
        if ids != whole and self.tokenizer.decode(ids) != self.tokenizer.decode(whole):
            raise GearError(
                f"{where}: the tokenizer of {self.model} writes something else where a text is cut at a message's end (it "
                "may add a space to each), so turns cannot be tokenised apart. Use a template with {% generation %} marks."
            )
        return ids, mask, text, spans

    def _end_of(self, messages: list[Message], tools: Tools | None, i: int, start: int, text: str, where: str) -> int:
        """Where message `i` ends in `text`, its end mark included."""
        so_far = self._render(messages[: i + 1], tools, where)
        if text.startswith(so_far):
            return len(so_far)
        # Some templates (Qwen3's) write the *last* message differently. Its turn still ends with an end mark, and that is
        # certain as long as the message has none of its own.
        marks = [mark for mark in self.tokenizer.convert_ids_to_tokens(sorted(self.ends)) if mark]
        ends = [place + len(mark) for mark in marks if (place := text.find(mark, start)) >= 0]
        if not ends or any(mark in repr(messages[i]) for mark in marks):
            raise self._unstable(i + 1, where)
        return min(ends)

    def _unstable(self, count: int, where: str) -> GearError:
        return GearError(
            f"{where}: the chat template of {self.model} writes the first {count} messages differently once others follow "
            "(it may drop earlier thoughts), so the assistant's tokens cannot be identified exactly. Give one that does not, "
            "or one with {% generation %} marks, with --chat-template FILE; or try --set chat.enable_thinking=false."
        )

    def _check_written(self, message: Message, written: str, i: int, where: str) -> None:
        """A template that leaves out tool calls would make us score something the assistant never said."""
        squeezed = "".join(written.split())
        wanted = [("content", message.get("content") or "")]
        wanted += [("tool call", call["function"]["name"]) for call in message.get("tool_calls") or []]
        for what, words in wanted:
            thought, _, answer = words.rpartition("</think>")  # templates may set thoughts their own way, or drop them
            if "".join((answer if thought else words).split()) not in squeezed:
                raise GearError(
                    f"{where}: the chat template of {self.model} does not write the {what} of message {i} as it stands."
                )

    # ------------------------------------------------------------------------------------------ by the tokenizer
    def _render(self, messages: list[Message], tools: Tools | None, where: str, opened: bool = False) -> str:
        try:
            return rendered(self.tokenizer, messages, tools, add_generation_prompt=opened, **self.chat)
        except GearError as error:
            raise _CannotWrite(f"{where}: {error}") from None

    def _ids(self, text: str) -> tuple[list[int], Spans | None]:
        if not self.tokenizer.is_fast:
            return self.tokenizer(text, add_special_tokens=False)["input_ids"], None
        out = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return out["input_ids"], [tuple(span) for span in out["offset_mapping"]]

    def _to_end_of_turn(self, ids: list[int], mask: list[int]) -> list[int]:
        """`mask` with each unbroken run ending at the token that ended the turn.

        After that token a template writes only blanks and further end marks (Phi's end of text). Where the run has no end
        mark but one follows at once (GLM's `<|user|>`, which opens the next message too), the policy stopped by saying it.
        """
        mask = list(mask)
        for start, stop in _runs(mask):
            end = stop
            while end > start and (ids[end - 1] in self.ends or not self.tokenizer.decode([ids[end - 1]]).strip()):
                end -= 1
            ended = [i for i in range(end, stop) if ids[i] in self.ends]
            if ended:
                mask[ended[0] + 1 : stop] = [0] * (stop - ended[0] - 1)
            elif stop < len(ids) and ids[stop] in self.ends:
                mask[stop] = 1
        return mask


def _runs(mask: list[int]) -> Spans:
    """(start, stop) of each unbroken run of ones."""
    edges = [i for i, (before, now) in enumerate(zip([0, *mask], [*mask, 0], strict=True)) if before != now]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _arguments_as_text(messages: list[Message]) -> list[Message] | None:
    """The same messages with the arguments of tool calls as JSON text; None where there are none."""
    changed, made = False, []
    for message in messages:
        calls = []
        for call in message.get("tool_calls") or []:
            arguments = call["function"]["arguments"]
            changed = changed or not isinstance(arguments, str)
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            calls.append({**call, "function": {**call["function"], "arguments": text}})
        made.append({**message, "tool_calls": calls} if calls else message)
    return made if changed else None
