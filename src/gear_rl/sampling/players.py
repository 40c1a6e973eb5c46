"""From jobs to judged samples: what every player shares, and the player of a local model, which plays in batches."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gear_rl.chat.messages import Prompt
from gear_rl.chat.templates import Replies, tokenized_prompts
from gear_rl.errors import GearError
from gear_rl.models import free_memory, is_out_of_memory
from gear_rl.sampling.play import play, transcripts
from gear_rl.tasks.base import Row, Task, Transcript, Verdict, tools_of, verdicts

BATCH_TOKENS = 2**17
Key = tuple[str, str, int]
"""How a sample is played, the problem's id, the sample's number."""
Sample = dict[str, Any]
"""A judged rollout: a line of samples.jsonl."""
log = logging.getLogger("gear_rl")


@dataclass(frozen=True)
class Job:
    """One rollout to play."""

    row: Row
    prompt: Prompt
    how: str
    """sampled or greedy."""
    k: int
    """The sample's number among those of its problem."""
    temperature: float
    top_p: float
    seed: int

    @property
    def key(self) -> Key:
        return self.how, self.row["id"], self.k

    def rng(self) -> random.Random:
        """New, and the same for the same job, whatever else is in its batch."""
        return random.Random(f"{self.seed}-{self.row['id']}-{self.k}")


@dataclass
class Judging:
    """Counts judged answers and the time they took."""

    answers: int = 0
    seconds: float = 0.0
    """Summed over threads that judge at the same time."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def verdicts(self, task: Task, rows: Sequence[Row], transcripts: Sequence[Transcript]) -> list[Verdict]:
        began = time.monotonic()
        judged = verdicts(task, rows, transcripts)
        with self._lock:
            self.answers += len(judged)
            self.seconds += time.monotonic() - began
        return judged


class Player(Protocol):
    judging: Judging

    def play(self, task: Task, jobs: Sequence[Job], done: Collection[Key] = ()) -> Iterator[Sample]:
        """The samples of all jobs but those `done`, in the order in which they are ready."""


def sample_of(job: Job, transcript: Transcript, verdict: Verdict, tokens: int) -> Sample:
    judged = asdict(verdict)
    del judged["decisions"]  # per token, for training
    return {
        "id": job.row["id"],
        "category": str(job.row.get("category") or "all"),
        "how": job.how,
        "k": job.k,
        **judged,
        "cut_off": transcript.cut_off,
        "tokens": tokens,
        "completion": transcript.completion,
    }


@dataclass
class LocalPlayer:
    """Batches of similar length, which saves padding. The longest first: if memory runs out, it does so at once.

    Batches are cut from all jobs, done or not, and one that is done in part is played again as a whole: a batch of another
    shape rounds differently, so that a resumed evaluation would have other samples."""

    model: Any
    tokenizer: Any
    chat: dict[str, Any] = field(default_factory=dict)
    batch_tokens: int = BATCH_TOKENS
    """The most prompt and completion tokens in one batch. Halved when memory runs out."""
    judging: Judging = field(default_factory=Judging)

    def play(self, task: Task, jobs: Sequence[Job], done: Collection[Key] = ()) -> Iterator[Sample]:
        tools = [tools_of(task, job.row) for job in jobs]
        lengths = map(len, tokenized_prompts(self.tokenizer, [job.prompt for job in jobs], tools, **self.chat))
        # The length of a dialogue is unknown. Four full turns is a fair guess: too small a guess only halves the batch.
        completion = min(task.max_turns, 4) * task.max_turn_tokens
        ordered = sorted(((n + completion, i) for i, n in enumerate(lengths)), reverse=True)
        replies = Replies(self.tokenizer, **self.chat)
        for how in dict.fromkeys((job.temperature, job.top_p) for job in jobs):
            left = [(size, jobs[i]) for size, i in ordered if (jobs[i].temperature, jobs[i].top_p) == how]
            while left:
                count = max(1, min(len(left), self.batch_tokens // left[0][0]))
                batch = [job for _, job in left[:count]]
                wanted = {job.key for job in batch}.difference(done)
                try:
                    samples = self._batch(task, batch, replies, wanted) if wanted else []
                    left = left[count:]
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    if count == 1:
                        raise GearError(
                            f"memory ran out with a single rollout of up to {left[0][0]} tokens. A smaller dtype (--dtype "
                            "bfloat16) or shorter turns (task.max_turn_tokens, where the task has it) need less."
                        ) from error
                    self.batch_tokens = left[0][0] * (count // 2)
                    free_memory(error)
                    log.warning("memory ran out with %d rollouts at once: %d from here on.", count, count // 2)
                else:
                    yield from samples

    def _batch(self, task: Task, jobs: list[Job], replies: Replies, wanted: Collection[Key]) -> list[Sample]:
        played = play(
            self.model, self.tokenizer, task, [job.row for job in jobs], prompts=[job.prompt for job in jobs],
            temperature=jobs[0].temperature, top_p=jobs[0].top_p, rngs=[job.rng() for job in jobs], replies=replies,
            chat=self.chat,
        )  # fmt: skip
        pairs = [(job, p) for job, p in zip(jobs, played, strict=True) if job.key in wanted]
        finished = transcripts(self.tokenizer, [p for _, p in pairs])
        judged = self.judging.verdicts(task, [job.row for job, _ in pairs], finished)
        return [
            sample_of(job, transcript, verdict, sum(p.action_mask))
            for (job, p), transcript, verdict in zip(pairs, finished, judged, strict=True)
        ]
