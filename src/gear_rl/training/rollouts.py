"""How `gear train` samples and what it records: a task's episodes in TRL's place, and the rollouts of every n-th step."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import Replies, end_tokens, tokenized_prompts
from gear_rl.engines.record import write_scored
from gear_rl.engines.step import Scored
from gear_rl.models import free_memory, is_out_of_memory
from gear_rl.records.writer import RecordWriter
from gear_rl.sampling.own_turns import own_turns
from gear_rl.sampling.play import Played, judge_all, play_with
from gear_rl.sampling.sampler import Sampler
from gear_rl.sampling.turns import OpenSampler
from gear_rl.signals.sampled import Ids
from gear_rl.tasks.base import Row, Task, Verdict, tools_of
from gear_rl.training.tracker_table import log_tokens

log = logging.getLogger("gear_rl")


class TaskSampler:
    """Plays a task's episodes with the policy, and keeps the verdicts on the batch sampled last."""

    def __init__(
        self,
        task: Task,
        tokenizer: Any,
        temperature: float,
        precision: str,
        seed: int = 0,
        seeded: bool = False,
        top_p: float = 1.0,
    ) -> None:
        """seeded: random numbers of its own for every rollout, by `seed`, step and place in the batch. With several
        processes always: they then sample what one process would."""
        self.task, self.tokenizer, self.temperature = task, tokenizer, temperature
        self.seed, self.seeded, self.top_p = seed, seeded, top_p
        self.open_turns: OpenSampler = own_turns
        self.verdicts: Sequence[Verdict] = ()
        self.model: Any = None
        """That sampled the last batch, with the weights it had then."""
        self.step = 0
        self._at_once = 2**62
        """Rollouts sampled at once, at most. Halved when memory runs out."""
        self._replies, self._policy = Replies(tokenizer), Sampler(precision)

    def sample(self, rows: list[Row], policy: Any, step: int = 0, first: int | None = None) -> dict[str, Any]:
        rngs = None
        if first is not None or self.seeded:
            places = range(first or 0, (first or 0) + len(rows))
            rngs = [random.Random(f"{self.seed}-{step}-{place}") for place in places]
        self.model, self.step = self._policy(policy), step
        played = self._played(self.model, rows, rngs)
        self.verdicts = judge_all(self.tokenizer, self.task, rows, played)
        return {
            "prompt_ids": [p.prompt_ids for p in played],
            "completion_ids": [p.completion_ids for p in played],
            "env_mask": [p.action_mask for p in played],
            # For TRL's correction of the sampler's rounding alone.
            "logprobs": None if played[0].logprobs is None else [p.logprobs for p in played],
        }

    def _played(self, model: Any, rows: list[Row], rngs: list[random.Random] | None) -> list[Played]:
        """All at once, or in parts where memory does not suffice."""
        played: list[Played] = []
        while len(played) < len(rows):
            part = slice(len(played), len(played) + min(self._at_once, len(rows)))
            some, own = rows[part], None if rngs is None else rngs[part]
            states = None if own is None else [rng.getstate() for rng in own]
            try:
                with self.open_turns(
                    model, end_tokens(model, self.tokenizer), self.temperature, own, self.top_p
                ) as turns:
                    played += play_with(turns, model.config, self.tokenizer, self.task, some, replies=self._replies)
            except RuntimeError as error:
                if len(some) == 1 or not is_out_of_memory(error):
                    raise
                for rng, state in zip(own or (), states or (), strict=True):
                    rng.setstate(state)
                self._at_once = len(some) // 2
                free_memory(error)
                log.warning("memory ran out with %d rollouts sampled at once: %d from here on.", len(some), self._at_once)
        return played

    def tokenize(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> Ids:
        return tokenized_prompts(self.tokenizer, list(prompts), [tools_of(self.task, row) for row in rows])

    def reward(self, log_metric: Any, **_: Any) -> list[float]:
        """The reward function: what the verdicts on the batch sampled last say."""
        verdicts = self.verdicts
        log_metric("success", sum(v.success for v in verdicts) / len(verdicts))
        log_metric("malformed", sum(v.malformed for v in verdicts) / len(verdicts))
        for name in verdicts[0].channels:
            log_metric(f"channels/{name}", sum(v.channels.get(name, 0.0) for v in verdicts) / len(verdicts))
        return [v.reward for v in verdicts]


class RunRecorder:
    """Writes the rollouts of every `every`-th step to the run's record, until it has `most` bytes. Whether it has them is seen
    by the file alone, so that a resumed run records the same."""

    def __init__(
        self,
        writer: RecordWriter,
        tokenizer: Any,
        every: int,
        most: float = math.inf,
        say: Callable[[str], None] = print,
        tracker: str = "none",
    ) -> None:
        self.writer, self.tokenizer, self.every, self.most, self.say = writer, tokenizer, every, most, say
        self.tracker = tracker
        self._said = False

    def __call__(self, scored: Scored, /) -> None:
        if scored.step % self.every:
            return
        if self.writer.file.size >= self.most:
            if not self._said:
                self.say(f"{self.writer.path} has {self.most / 1e6:g} MB (train.record_megabytes): no more is recorded")
            self._said = True
            return
        verdicts = scored.sampled.verdicts
        successes = None if verdicts is None else [v.success for v in verdicts]
        log_tokens(self.tracker, scored, write_scored(self.writer, scored, self.tokenizer, successes))
