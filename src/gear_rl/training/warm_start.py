"""A supervised pass over a task's own reference answers: a model learns the form before it is rewarded for the content.

    row ──► reference turns (`Task.reference`), played in the task's own world ──► prompt, turns, replies as token ids ──► loss

The ids are put together as `sampling.play` does: the prompt, then turn by turn what the policy writes with its end token and
what the environment replies. So the model learns exactly the sequences it will sample, and only its own tokens count in the
loss: these masks are ours, as no chat template gives them exactly across tool turns. The training itself is TRL's
(`engines.sft`). A reference answer that the task's judge rejects is left out, and so is one that is too long; both are
counted.

Some of the rows carry the hint (`hinted`): a model that never saw one would not read it, and its teacher would know
nothing that the student does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.templates import Replies, tokenized_prompts, writes_tools
from gear_rl.chat.tool_calls import as_list, read_turn
from gear_rl.errors import GearError
from gear_rl.limits import in_order
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Episode, Row, SingleTurn, Task, Transcript, reply_of, tools_of

Example = tuple[list[int], list[int]]
"""Token ids, and 1 for each that counts in the loss."""


@dataclass
class WarmStartOptions:
    """`--set warm.NAME=VALUE`."""

    rows: int | None = option(None, at_least=1)
    """Problems of the training split; None: all."""
    epochs: int = option(2, at_least=1)
    """Times each is seen."""
    batch: int = option(32, at_least=1)
    """Reference rollouts per update."""
    learning_rate: float = option(1e-4, at_least=0, at_most=1)
    """Its peak: it rises over a twentieth of the updates, then falls along a cosine to a tenth."""
    hinted: float = option(0.5, at_least=0, at_most=1)
    """Share of the rows that carry the hint, drawn again in every epoch."""
    longest: int = option(8192, at_least=1)
    """Tokens of prompt and completion together; longer rollouts are left out."""
    pass_tokens: int = option(16384, at_least=1)
    """Tokens in one forward pass with padding, which bounds memory. A longer rollout is a pass by itself."""

    def __post_init__(self) -> None:
        check_instance(self, "warm")


@dataclass(frozen=True)
class Reference:
    """A reference rollout as tokens; `mask` is 1 on the policy's own."""

    ids: list[int]
    mask: list[int]


def reference_turns(task: Task, row: Row) -> list[str]:
    reference = task.reference(row)
    if isinstance(reference, str):
        if not isinstance(task, SingleTurn):
            raise GearError(
                f"task {type(task).__name__}: its reference answers are whole completions, not turns, so nothing "
                "can be learned from them turn by turn."
            )
        return [reference]
    return reference


def played(
    tokenizer: Any, task: Task, row: Row, turns: Sequence[str], replies: Replies
) -> tuple[Reference, Episode, bool]:
    """The tokens that follow the prompt if `turns` are played; the world afterwards; whether it took all of them."""
    episode, made = task.episode(row), Reference([], [])
    for number, turn in enumerate(turns):
        ids = [*tokenizer(turn, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        answer, last = reply_of(task, episode, turn), number + 1 == len(turns)
        reply = replies.ids(answer) if answer is not None and not last else []
        made.ids.extend([*ids, *reply])
        made.mask.extend([1] * len(ids) + [0] * len(reply))
        if answer is None and not last:
            return made, episode, False
    return made, episode, True


def reference_completion(tokenizer: Any, task: Task, row: Row, replies: Replies, lists: bool) -> Reference | None:
    """What follows the prompt if the reference turns are played; None where the judge does not accept them. `lists`: write
    calls in the form that `chat.templates.TOOLS_IN_WORDS` asks for."""
    written = reference_turns(task, row)
    if lists:
        written = [as_list(calls) if (calls := read_turn(turn).calls) else turn for turn in written]
    made, episode, whole = played(tokenizer, task, row, written, replies)
    accepted = whole and task.verdict(row, Transcript("\n".join(written), written, episode)).success
    return made if accepted else None


class Rollouts(Protocol):
    """What a warm start learns from."""

    count: int
    rejected: int
    """Reference answers that the judge does not accept."""
    too_long: int

    def epoch(self, rng: random.Random, hinted: float) -> list[Example]:
        """Token ids and mask of each once, in a new order, prompt included."""


def rollouts_of(tokenizer: Any, task: Task, rows: Sequence[Row], longest: int) -> Rollouts:
    """The task's demonstrations where it has some, else its reference answers."""
    if task.demonstration(rows[0], random.Random(0), False) is not None:
        return Demonstrations(tokenizer, task, rows, longest)
    return ReferenceRollouts(tokenizer, task, rows, longest)


def check_end_token(replies: Replies, rows: Sequence[Row]) -> None:
    """It is part of what the model learns, in a single turn too. Prompts that are plain text need no chat template."""
    if any(not isinstance(row["prompt"], str) for row in rows):
        replies.check()


class Demonstrations:
    """Rollouts that the task writes for the warm start (`Task.demonstration`), new ones in every epoch."""

    def __init__(self, tokenizer: Any, task: Task, rows: Sequence[Row], longest: int) -> None:
        self.tokenizer, self.task, self.rows, self.longest = tokenizer, task, rows, longest
        self.count, self.rejected, self.too_long = len(rows), 0, 0
        self._replies = Replies(tokenizer)
        check_end_token(self._replies, rows)

    def epoch(self, rng: random.Random, hinted: float) -> list[Example]:
        rows = rng.sample(self.rows, len(self.rows))
        shown = [self.task.demonstration(row, rng, rng.random() < hinted) for row in rows]
        asked = [
            hinted_prompt(row["prompt"], made.hint if made else "", self.task.hint_template)
            for row, made in zip(rows, shown, strict=True)
        ]
        prompts = tokenized_prompts(self.tokenizer, asked, [tools_of(self.task, row) for row in rows])
        examples = []
        for row, made, prompt in zip(rows, shown, prompts, strict=True):
            assert made is not None
            told, _, whole = played(self.tokenizer, self.task, row, made.turns, self._replies)
            if not whole or len(prompt) + len(told.ids) > self.longest:
                raise GearError(
                    f"{row.get('id', 'a row')}: a demonstration "
                    + (
                        f"has more than {self.longest} tokens (warm.longest)."
                        if whole
                        else "goes on after its episode."
                    )
                )
            examples.append((prompt + told.ids, [0] * len(prompt) + told.mask))
        return examples


class ReferenceRollouts:
    """All reference rollouts of some rows, each with its prompt and, where it has one, its hinted prompt."""

    def __init__(self, tokenizer: Any, task: Task, rows: Sequence[Row], longest: int) -> None:
        tools = [tools_of(task, row) for row in rows]
        replies, lists = Replies(tokenizer), any(tools) and not writes_tools(tokenizer)
        check_end_token(replies, rows)
        plain = tokenized_prompts(tokenizer, [row["prompt"] for row in rows], tools)
        with_hint = [hinted_prompt(row["prompt"], row.get("hint") or "", task.hint_template) for row in rows]
        hinted = tokenized_prompts(tokenizer, with_hint, tools)
        self.rejected = self.too_long = 0
        self.found: list[tuple[list[int], list[int], Reference]] = []
        completions = in_order(
            lambda row: reference_completion(tokenizer, task, row, replies, lists), rows, task.concurrent_verdicts
        )
        for made, *prompts in zip(completions, plain, hinted, strict=True):
            if made is None:
                self.rejected += 1
            elif max(map(len, prompts)) + len(made.ids) > longest:
                self.too_long += 1
            else:
                self.found.append((prompts[0], prompts[1], made))
        self.count = len(self.found)
        if not self.found:
            raise GearError(
                f"nothing to learn from: of {len(rows)} reference answers the judge rejected {self.rejected}, and "
                f"{self.too_long} are longer than {longest} tokens (warm.longest)."
            )

    def epoch(self, rng: random.Random, hinted: float) -> list[Example]:
        chosen = []
        for plain, with_hint, made in rng.sample(self.found, len(self.found)):
            prompt = with_hint if rng.random() < hinted else plain
            chosen.append((prompt + made.ids, [0] * len(prompt) + made.mask))
        return chosen


def warm_start(
    model: Any,
    tokenizer: Any,
    rollouts: Rollouts,
    options: WarmStartOptions,
    seed: int,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Trains `model` in place; the curve: update, loss (nats per token, before the update), tokens read per second."""
    from gear_rl.engines.sft import train_supervised

    rng = random.Random(seed)
    examples = [example for _ in range(options.epochs) for example in rollouts.epoch(rng, options.hinted)]
    return train_supervised(
        model,
        tokenizer,
        examples,
        batch=options.batch,
        pass_tokens=options.pass_tokens,
        learning_rate=options.learning_rate,
        seed=seed,
        say=say,
    )
