"""Who plays an evaluation's rollouts: a local model in batches, or an endpoint in threads. Both give judged samples."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from gear_rl.chat.endpoint import ContextFull, Endpoint
from gear_rl.chat.messages import Message, Prompt
from gear_rl.chat.templates import Replies, tokenized_prompts
from gear_rl.tasks.base import Row, Task, Transcript, Verdict, tools_of, verdicts

Sample = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One rollout to play."""

    row: Row
    prompt: Prompt
    how: str
    """sampled or greedy."""
    k: int
    """Its number among the samples of its problem."""
    temperature: float
    top_p: float
    seed: int

    @property
    def dice(self) -> random.Random:
        """The same for the same job, whatever is played beside it."""
        return random.Random(f"{self.seed}-{self.row['id']}-{self.k}")


@dataclass
class Judging:
    """How fast answers are judged, whoever plays them."""

    answers: int = 0
    seconds: float = 0.0
    """Summed over threads that judge at the same time."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def verdicts(self, task: Task, rows: Sequence[Row], told: Sequence[Transcript]) -> list[Verdict]:
        began = time.monotonic()
        judged = verdicts(task, rows, told)
        with self._lock:
            self.answers += len(judged)
            self.seconds += time.monotonic() - began
        return judged


class Player(Protocol):
    judging: Judging

    def play(self, task: Task, jobs: Sequence[Job]) -> Iterator[Sample]:
        """The samples, in whatever order they are ready."""


def sample_of(job: Job, transcript: Transcript, verdict: Verdict, tokens: int) -> Sample:
    worth = asdict(verdict)
    del worth["decisions"]  # per token, for training
    return {
        "id": job.row["id"],
        "category": str(job.row.get("category") or "all"),
        "how": job.how,
        "k": job.k,
        **worth,
        "cut_off": transcript.cut_off,
        "tokens": tokens,
        "completion": transcript.completion,
    }


@dataclass
class LocalPlayer:
    """Batches of like length, so that little is spent on padding; the longest first, so that memory is tried at once."""

    model: Any
    tokenizer: Any
    chat: dict[str, Any]
    batch_tokens: int
    """Prompt and completion tokens in one batch, at most; halved when memory runs out."""
    judging: Judging = field(default_factory=Judging)

    def play(self, task: Task, jobs: Sequence[Job]) -> Iterator[Sample]:
        tools = [tools_of(task, job.row) for job in jobs]
        lengths = map(len, tokenized_prompts(self.tokenizer, [job.prompt for job in jobs], tools, **self.chat))
        # How long a dialogue gets is not known; four full turns is a fair guess, and memory that runs out is no disaster.
        room = min(task.max_turns, 4) * task.max_turn_tokens
        ordered = sorted(((n + room, i) for i, n in enumerate(lengths)), reverse=True)
        replies = Replies(self.tokenizer, **self.chat)
        for how in dict.fromkeys((job.temperature, job.top_p) for job in jobs):
            left = [(size, jobs[i]) for size, i in ordered if (jobs[i].temperature, jobs[i].top_p) == how]
            while left:
                count = max(1, min(len(left), self.batch_tokens // left[0][0]))
                try:
                    yield from self._batch(task, [job for _, job in left[:count]], replies)
                    left = left[count:]
                except RuntimeError as error:
                    if "out of memory" not in str(error) or count == 1:
                        raise
                    self.batch_tokens = left[0][0] * (count // 2)
                    error.__traceback__ = None  # it holds the batch's tensors
                    self._empty_cache()

    def _batch(self, task: Task, jobs: list[Job], replies: Replies) -> list[Sample]:
        from gear_rl.sampling.play import play, transcripts

        played = play(
            self.model, self.tokenizer, task, [job.row for job in jobs], prompts=[job.prompt for job in jobs],
            temperature=jobs[0].temperature, top_p=jobs[0].top_p, dice=[job.dice for job in jobs], replies=replies,
            chat=self.chat,
        )  # fmt: skip
        told = transcripts(self.tokenizer, played)
        judged = self.judging.verdicts(task, [job.row for job in jobs], told)
        tokens = [sum(p.action_mask) for p in played]
        return [sample_of(*each) for each in zip(jobs, told, judged, tokens, strict=True)]

    def _empty_cache(self) -> None:
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@dataclass
class EndpointPlayer:
    """As many dialogues at once as the server is to have open."""

    endpoint: Endpoint
    chat: dict[str, Any]
    concurrency: int
    judging: Judging = field(default_factory=Judging)

    def play(self, task: Task, jobs: Sequence[Job]) -> Iterator[Sample]:
        waiting = iter(jobs)
        threads = ThreadPoolExecutor(self.concurrency)
        running: set[Future[Sample]] = set()
        try:
            while True:
                while len(running) < self.concurrency and (job := next(waiting, None)) is not None:
                    running.add(threads.submit(self._one, task, job))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            self.endpoint.stopping.set()
            threads.shutdown(wait=True, cancel_futures=True)
            self.endpoint.stopping.clear()

    def _one(self, task: Task, job: Job) -> Sample:
        transcript, tokens = converse(self.endpoint, task, job, self.chat)
        (verdict,) = self.judging.verdicts(task, [job.row], [transcript])
        return sample_of(job, transcript, verdict, tokens)


def converse(endpoint: Endpoint, task: Task, job: Job, chat: dict[str, Any]) -> tuple[Transcript, int]:
    """One episode through an endpoint: the transcript, and how many tokens the model wrote (0 where it is not told)."""
    messages: list[Message] = (
        [{"role": "user", "content": job.prompt}] if isinstance(job.prompt, str) else [dict(m) for m in job.prompt]
    )
    sampling: dict[str, Any] = {"temperature": job.temperature, "max_tokens": task.max_turn_tokens}
    if job.temperature > 0:
        sampling |= {"top_p": job.top_p, "seed": job.dice.getrandbits(31)}
    if chat:
        sampling["chat_template_kwargs"] = chat
    episode, tools = task.episode(job.row), tools_of(task, job.row)
    transcript, tokens, said = Transcript("", [], episode), 0, list[str]()
    while True:
        try:
            reply = endpoint.chat(messages, tools, **sampling)
        except ContextFull:
            if not transcript.turns:
                raise
            transcript.cut_off = True
            break
        tokens += reply.tokens
        text, message = task.own_words(reply.text), reply.message
        if text != reply.text:  # the history too: transformers serve drops what is said beside a call
            message = {"role": "assistant", "content": text}
        transcript.turns.append(text)
        said.append(text)
        if reply.cut_off:
            transcript.cut_off = True
            break
        answer = episode.reply(text)
        if answer is None or len(transcript.turns) >= task.max_turns:
            break
        words = [{"role": "tool", "content": answer}] if isinstance(answer, str) else [dict(m) for m in answer]
        said += [m["content"] if isinstance(m.get("content"), str) else json.dumps(m) for m in words]
        messages += [message, *_answered(message, words)]
    transcript.completion = "\n".join(said)
    return transcript, tokens


def _answered(message: Message, words: list[Message]) -> list[Message]:
    """`words` with each tool message tied to the call it answers, as the API wants it; a call left over gets the last."""
    ids = [call["id"] for call in message.get("tool_calls", [])]
    tools = [word for word in words if word.get("role") == "tool"]
    for word, id in zip(tools, ids, strict=False):
        word["tool_call_id"] = id
    extra = [{**tools[-1], "tool_call_id": id} for id in ids[len(tools) :]] if tools else []
    after_tools = next((i for i, word in enumerate(words) if word.get("role") != "tool"), len(words))
    return [*words[:after_tools], *extra, *words[after_tools:]]
