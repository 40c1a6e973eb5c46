"""Ground truth into the teacher's prompt: text in, messages out. No model, no tokens."""

from __future__ import annotations

from gear_rl.chat.messages import Part, Prompt
from gear_rl.errors import GearError

DEFAULT_TEMPLATE = "{prompt}\n\nReference (for you only, do not mention it):\n{hint}"


def check_template(template: str) -> None:
    """A template must place both the prompt and the hint; other braces in it are left alone."""
    for name in ("{prompt}", "{hint}"):
        if name not in template:
            raise GearError(f"the hint template {template!r} lacks {name}: it must place both {{prompt}} and {{hint}}.")


def hinted_prompt(prompt: Prompt, hint: str, template: str = DEFAULT_TEMPLATE) -> Prompt:
    """`prompt` with the hint woven into its last user message (or into the whole text where it is plain text).

    `replace`, not `format`: prompts and hints are data and may hold braces. An empty hint leaves the prompt untouched,
    which is what the start-up self-check relies on.
    """
    if not hint:
        return prompt
    if isinstance(prompt, str):
        return _fill(template, prompt, hint)
    users = [i for i, message in enumerate(prompt) if message.get("role") == "user"]
    if not users:
        raise GearError("the prompt has no user message to put the hint into.")
    last = users[-1]
    content = _hinted_content(prompt[last]["content"], hint, template)
    return [*prompt[:last], {**prompt[last], "content": content}, *prompt[last + 1 :]]


def _hinted_content(content: str | list[Part], hint: str, template: str) -> str | list[Part]:
    """Of a message in parts (text, images) the last text is hinted. Without any text, one follows its parts."""
    if isinstance(content, str):
        return _fill(template, content, hint)
    texts = [i for i, part in enumerate(content) if part.get("type") == "text"]
    if not texts:
        return [*content, {"type": "text", "text": _fill(template, "", hint)}]
    last = texts[-1]
    hinted = {**content[last], "text": _fill(template, content[last]["text"], hint)}
    return [*content[:last], hinted, *content[last + 1 :]]


def _fill(template: str, prompt: str, hint: str) -> str:
    before, _, after = template.partition("{prompt}")
    return before.replace("{hint}", hint) + prompt + after.replace("{hint}", hint)
