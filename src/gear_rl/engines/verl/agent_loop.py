"""`gear_task`: any task of ours as a verl agent loop. Multi-turn; ids are never tokenised again; the environment is masked."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.engines.verl.batch import VERDICT
from gear_rl.engines.verl.data import LOOP
from gear_rl.engines.verl.rows import task_row
from gear_rl.engines.verl.settings import GROUP, Settings
from gear_rl.errors import GearError
from gear_rl.limits import in_executor
from gear_rl.sampling.play import Played, judge_all
from gear_rl.tasks.base import Task, reply_of, tools_of

_played: dict[str, tuple[Task, Replies]] = {}
"""Tasks of this process: verl makes a loop for every rollout."""


@register(LOOP)
class TaskLoop(AgentLoopBase):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.chat = dict(self.apply_chat_template_kwargs or {})
        settings = Settings.of(self.config)
        key = repr((settings.task, self.chat))
        if key not in _played:
            task = settings.make_task()
            if task is None:
                raise GearError(f"the agent loop {LOOP} plays a task: name it, +{GROUP}.task.name=workshop.")
            _played[key] = task, Replies(self.tokenizer, **self.chat)
        self.task, self.replies = _played[key]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        task, tokenizer, row = self.task, self.tokenizer, task_row(kwargs)
        (prompt,) = tokenized_prompts(tokenizer, [row["prompt"]], [tools_of(task, row)], **self.chat)
        if len(prompt) > self.rollout_config.prompt_length:
            raise GearError(
                f"{row.get('id', 'a row')}: its prompt has {len(prompt)} tokens; raise data.max_prompt_length."
            )
        # In threads: a world or a judge may take its time, within the task's limit, and other rollouts go on.
        episode = await in_executor(task.episode, row)
        played = Played(prompt, episode=episode)
        ends = end_tokens(_generation(self.config.actor_rollout_ref.model.path), tokenizer)
        limit, logprobs, versions = self.rollout_config.response_length, list[float](), list[Any]()
        request = uuid4().hex  # one for all turns: a server may keep their prefix
        while True:
            left = limit - len(played.completion_ids)
            said = await self.server_manager.generate(
                request_id=request,
                prompt_ids=played.prompt_ids + played.completion_ids,
                sampling_params={**sampling_params, "max_tokens": min(task.max_turn_tokens, left)},
            )
            if not said.token_ids:
                raise GearError("the rollout server returned no token.")
            versions.append(said.extra_fields.get("global_steps"))
            played.completion_ids += said.token_ids
            played.action_mask += [1] * len(said.token_ids)
            logprobs += said.log_probs or [0.0] * len(said.token_ids)
            played.cut_off = said.token_ids[-1] not in ends
            spoken = said.token_ids if played.cut_off else said.token_ids[:-1]
            played.turns.append(tokenizer.decode(spoken))
            if played.cut_off:
                break
            reply = await in_executor(reply_of, task, episode, played.turns[-1])
            if reply is None or len(played.turns) >= task.max_turns:
                break
            reply_ids = self.replies.ids(reply)
            if len(played.completion_ids) + len(reply_ids) >= limit:
                played.cut_off = True
                break
            played.completion_ids += reply_ids
            played.action_mask += [0] * len(reply_ids)
            logprobs += [0.0] * len(reply_ids)
        (verdict,) = await in_executor(judge_all, tokenizer, task, [row], [played])
        return AgentLoopOutput(
            prompt_ids=played.prompt_ids,
            response_ids=played.completion_ids,
            response_mask=played.action_mask,
            response_logprobs=logprobs,
            reward_score=float(verdict.reward),
            num_turns=2 * len(played.turns),
            metrics=AgentLoopMetrics(),
            extra_fields={
                "global_steps": versions[-1],
                "min_global_steps": versions[0],
                "max_global_steps": versions[-1],
                "turn_scores": [],
                "tool_rewards": [],
                "reward_extra_info": {"success": float(verdict.success), "malformed": float(verdict.malformed)},
                VERDICT: asdict(verdict),
            },
        )


@cache
def _generation(path: str) -> Any:
    """What the model's own generation settings add to the tokens that end a turn."""
    from transformers import GenerationConfig

    try:
        return SimpleNamespace(generation_config=GenerationConfig.from_pretrained(path))
    except OSError:
        return SimpleNamespace()
