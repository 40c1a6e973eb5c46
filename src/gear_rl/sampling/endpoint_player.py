"""The player of a model behind an OpenAI-compatible endpoint: dialogues in threads."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gear_rl.chat.endpoint import ContextFull, Endpoint
from gear_rl.chat.messages import Message
from gear_rl.limits import in_threads
from gear_rl.sampling.players import Job, Judging, Key, Sample, sample_of
from gear_rl.tasks.base import Task, Transcript, reply_of, tools_of

LARGEST_DIALOGUE = 2**23
"""Characters. All of it is sent again with every turn."""


@dataclass
class EndpointPlayer:
    """Plays `concurrency` dialogues at a time, each in a thread."""

    endpoint: Endpoint
    chat: dict[str, Any]
    concurrency: int
    judging: Judging = field(default_factory=Judging)

    def play(self, task: Task, jobs: Sequence[Job], done: Collection[Key] = ()) -> Iterator[Sample]:
        endpoint = replace(self.endpoint, stopping=threading.Event())  # its own: what is stopped here is not used again
        try:
            left = [job for job in jobs if job.key not in done]
            for _, sample in in_threads(lambda job: self._one(endpoint, task, job), left, self.concurrency):
                yield sample
        finally:
            endpoint.stop()

    def _one(self, endpoint: Endpoint, task: Task, job: Job) -> Sample:
        transcript, tokens = converse(endpoint, task, job, self.chat)
        (verdict,) = self.judging.verdicts(task, [job.row], [transcript])
        return sample_of(job, transcript, verdict, tokens)


def converse(endpoint: Endpoint, task: Task, job: Job, chat: dict[str, Any]) -> tuple[Transcript, int]:
    """One episode through an endpoint: the transcript, and how many tokens the model wrote (0 if not reported)."""
    messages: list[Message] = (
        [{"role": "user", "content": job.prompt}] if isinstance(job.prompt, str) else [dict(m) for m in job.prompt]
    )
    sampling: dict[str, Any] = {"temperature": job.temperature, "max_tokens": task.max_turn_tokens}
    if job.temperature > 0:
        sampling |= {"top_p": job.top_p, "seed": job.rng().getrandbits(31)}
    if chat:
        sampling["chat_template_kwargs"] = chat
    episode, tools = task.episode(job.row), tools_of(task, job.row)
    transcript, tokens, texts = Transcript("", [], episode), 0, list[str]()
    while True:
        try:
            reply = endpoint.chat(messages, tools, **sampling)
        except ContextFull:
            if not transcript.turns:
                raise
            transcript.cut_off = True
            break
        tokens += reply.tokens
        text, message = task.as_completion(reply.text), reply.message
        if text != reply.text:  # in the history too: transformers serve drops text beside a call
            message = {"role": "assistant", "content": text}
        transcript.turns.append(text)
        texts.append(text)
        if reply.cut_off or sum(map(len, texts)) > LARGEST_DIALOGUE:
            transcript.cut_off = True
            break
        answer = reply_of(task, episode, text)
        if answer is None or len(transcript.turns) >= task.max_turns:
            break
        answers = [{"role": "tool", "content": answer}] if isinstance(answer, str) else [dict(m) for m in answer]
        texts += [m["content"] if isinstance(m.get("content"), str) else json.dumps(m) for m in answers]
        messages += [message, *_with_call_ids(message, answers)]
    transcript.completion = "\n".join(texts)
    return transcript, tokens


def _with_call_ids(message: Message, answers: list[Message]) -> list[Message]:
    """`answers` with the id of the call that each tool message answers, as the API requires. If there are more calls than
    tool messages, the last one answers the rest."""
    ids = [call["id"] for call in message.get("tool_calls", [])]
    tools = [answer for answer in answers if answer.get("role") == "tool"]
    for answer, id in zip(tools, ids, strict=False):
        answer["tool_call_id"] = id
    extra = [{**tools[-1], "tool_call_id": id} for id in ids[len(tools) :]] if tools else []
    after_tools = next((i for i, answer in enumerate(answers) if answer.get("role") != "tool"), len(answers))
    return [*answers[:after_tools], *extra, *answers[after_tools:]]
