"""Prompts as verl's agent loops tokenise them, so that a hinted prompt differs from the student's by the hint alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gear_rl.chat.messages import Prompt, Tools
from gear_rl.chat.templates import tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.signals.sampled import Ids
from gear_rl.tasks.base import Row, Task, tools_of


class AsAgentLoops:
    """`gear_rl.signals.hinted.Tokenize` for the loops `gear_task`, `single_turn_agent` and `tool_agent`. Whether another
    loop does the same is seen by the start-up check, which compares unhinted prompts."""

    def __init__(self, config: Any, tokenizer: Any, processor: Any, model_type: str | None, task: Task | None) -> None:
        from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

        self.tokenizer, self.task = tokenizer, task
        self.chat = dict(config.data.get("apply_chat_template_kwargs", {}) or {})
        self._builder = create_continuous_token_builder(
            tokenizer, hf_model_type=model_type, chat_template_kwargs=self.chat, processor=processor
        )
        self._tools = _tool_schemas(config.actor_rollout_ref.rollout.multi_turn) if task is None else {}
        self._default_loop = config.actor_rollout_ref.rollout.agent.default_agent_loop

    def __call__(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> Ids:
        if self.task is not None:
            tools = [tools_of(self.task, row) for row in rows]
            return tokenized_prompts(self.tokenizer, list(prompts), tools, **self.chat)
        known: dict[str, list[int]] = {}
        found = []
        for prompt, row in zip(prompts, rows, strict=True):
            tools_given = self._tools_of(row)
            key = repr((prompt, tools_given))
            if key not in known:
                if isinstance(prompt, str):
                    raise GearError("verl's agent loops read messages, and a prompt of the data is plain text.")
                known[key] = list(self._builder.build_initial_tokens(prompt, tools=tools_given))
            found.append(known[key])
        return found

    def _tools_of(self, row: Row) -> Tools | None:
        if row.get("agent_name", self._default_loop) != "tool_agent":
            return None
        chosen = (row.get("extra_info") or {}).get("tool_selection")
        names = [name for name in chosen if name in self._tools] if chosen and self._tools else list(self._tools)
        return [self._tools[name] for name in names]


def _tool_schemas(multi_turn: Any) -> Mapping[str, dict[str, Any]]:
    """Of verl's own tools, by name."""
    paths = {name: multi_turn.get(name) for name in ("tool_config_path", "function_tool_path")}
    if not any(paths.values()):
        return {}
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.import_utils import resolve_config_path

    tools = load_all_tools(**{name: resolve_config_path(path) if path else None for name, path in paths.items()})
    return {tool.name: tool.tool_schema.model_dump(exclude_unset=True, exclude_none=True) for tool in tools}
