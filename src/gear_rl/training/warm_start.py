"""A supervised pass over a task's own gold answers, so that a model knows the form before it is rewarded for the content.

    row ──► gold turns (`Task.reference`), played in the task's own world ──► prompt, turns, answers as token ids ──► loss

The ids are put together as `agent.play` puts them together: prompt, then turn by turn what the policy says with its end
mark, then the environment's words. So the model is taught on exactly the sequences it will sample. Only its own tokens
count in the loss. A gold answer that the task's judge refuses is left out, and so is one that is too long; both are counted.

Some of the rows carry the hint (`hinted`): a model that never saw one would not read it, and its teacher would know
nothing that the student does not.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gear_rl.chat.hints import hinted_prompt
from gear_rl.chat.templates import Replies, tokenized_prompts, writes_tools
from gear_rl.chat.tool_calls import as_list, read_turn
from gear_rl.errors import GearError
from gear_rl.scoring.body import body_of
from gear_rl.scoring.padding import padded
from gear_rl.tasks.base import Row, SingleTurn, Task, Transcript, tools_of


@dataclass
class WarmStartOptions:
    """`--set warm.NAME=VALUE`."""

    rows: int | None = None
    """Problems of the training split; None: all."""
    epochs: int = 2
    """Times each is seen."""
    batch: int = 32
    """Gold rollouts per update."""
    learning_rate: float = 1e-4
    """Its peak: up over a twentieth of the updates, then down along a cosine to a tenth."""
    hinted: float = 0.5
    """Share of the rows that carry the hint, drawn anew in every epoch."""
    longest: int = 8192
    """Tokens of prompt and completion together; what is longer is left out."""
    pass_tokens: int = 16384
    """Tokens in one forward pass, padding counted, which bounds memory. A single longer rollout is a pass of its own."""

    def __post_init__(self) -> None:
        for name in ("rows", "epochs", "batch", "longest", "pass_tokens"):
            value = getattr(self, name)
            if (name, value) != ("rows", None) and (type(value) is not int or value < 1):
                raise GearError(f"warm.{name}={value!r}: must be a whole number, at least 1.")
        for name, most in (("learning_rate", 1.0), ("hinted", 1.0)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= most:
                raise GearError(f"warm.{name}={value!r}: must be a number from 0 to {most:g}.")


@dataclass(frozen=True)
class Gold:
    """A gold rollout as tokens; `said` is 1 where the policy speaks."""

    ids: list[int]
    said: list[int]


def gold_turns(task: Task, row: Row) -> list[str]:
    reference = task.reference(row)
    if isinstance(reference, str):
        if not isinstance(task, SingleTurn):
            raise GearError(
                f"task {type(task).__name__}: its gold answers are whole completions, not turns, so nothing can be "
                "learned from them turn by turn."
            )
        return [reference]
    return reference


def gold_completion(tokenizer: Any, task: Task, row: Row, replies: Replies, lists: bool) -> Gold | None:
    """What follows the prompt if the gold turns are played; None where the judge does not accept them. `lists`: write
    calls in the form that `chat.TOOLS_IN_WORDS` asks for."""
    episode, turns, gold = task.episode(row), gold_turns(task, row), Gold([], [])
    spoken: list[str] = []
    for number, turn in enumerate(turns):
        calls = read_turn(turn).calls if lists else []
        spoken.append(as_list(calls) if calls else turn)
        ids = [*tokenizer(spoken[-1], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        answer = episode.reply(spoken[-1])
        words = replies.ids(answer) if answer is not None and number + 1 < len(turns) else []
        gold.ids.extend([*ids, *words])
        gold.said.extend([1] * len(ids) + [0] * len(words))
        if answer is None and number + 1 < len(turns):
            return None
    return gold if task.verdict(row, Transcript("\n".join(spoken), spoken, episode)).success else None


class GoldRollouts:
    """All gold rollouts of some rows, each with its prompt and, where it has one, its hinted prompt."""

    def __init__(self, tokenizer: Any, task: Task, rows: Sequence[Row], longest: int) -> None:
        tools = [tools_of(task, row) for row in rows]
        replies, lists = Replies(tokenizer), any(tools) and not writes_tools(tokenizer)
        plain = tokenized_prompts(tokenizer, [row["prompt"] for row in rows], tools)
        told = [hinted_prompt(row["prompt"], row.get("hint") or "", task.hint_template) for row in rows]
        hinted = tokenized_prompts(tokenizer, told, tools)
        self.refused = self.too_long = 0
        self.found: list[tuple[list[int], list[int], Gold]] = []
        for row, prompts in zip(rows, zip(plain, hinted, strict=True), strict=True):
            gold = gold_completion(tokenizer, task, row, replies, lists)
            if gold is None:
                self.refused += 1
            elif max(map(len, prompts)) + len(gold.ids) > longest:
                self.too_long += 1
            else:
                self.found.append((*prompts, gold))
        if not self.found:
            raise GearError(
                f"nothing to learn from: of {len(rows)} gold answers the judge refused {self.refused}, and "
                f"{self.too_long} are longer than {longest} tokens (warm.longest)."
            )

    def epoch(self, dice: random.Random, hinted: float) -> list[Gold]:
        """Each once, in a new order, prompt included."""
        chosen = []
        for plain, told, gold in dice.sample(self.found, len(self.found)):
            prompt = told if dice.random() < hinted else plain
            chosen.append(Gold(prompt + gold.ids, [0] * len(prompt) + gold.said))
        return chosen


def passes(batch: list[Gold], most: int) -> Iterator[list[Gold]]:
    """`batch` in parts of like length, each of at most `most` tokens with its padding."""
    part: list[Gold] = []
    for gold in sorted(batch, key=lambda gold: -len(gold.ids)):
        if part and len(part[0].ids) * (len(part) + 1) > most:
            yield part
            part = []
        part.append(gold)
    yield part


def loss_sum(model: Any, part: list[Gold]) -> Tensor:
    """−Σ log p over what the policy says. The head reads the hidden states before those tokens only."""
    ids, said, real = (
        padded(values, device=model.device)
        for values in ([g.ids for g in part], [g.said for g in part], [[1] * len(g.ids) for g in part])
    )
    hidden = body_of(model)(input_ids=ids, attention_mask=real, use_cache=False).last_hidden_state
    wanted = said[:, 1:].bool()
    logits = model.get_output_embeddings()(hidden[:, :-1][wanted]).float()
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="sum")


def warm_start(
    model: Any, rollouts: GoldRollouts, options: WarmStartOptions, seed: int, say: Any
) -> list[dict[str, Any]]:
    """Trains `model` in place; the curve: update, loss (nats a token, before the update), tokens read a second."""
    dice = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)
    total = options.epochs * math.ceil(len(rollouts.found) / options.batch)
    rise = max(1, total // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / rise, 0.55 + 0.45 * math.cos(math.pi * min(1.0, n / total)))
    )
    curve: list[dict[str, Any]] = []
    on_gpu = model.device.type == "cuda"
    began, last_said, read = time.monotonic(), 0.0, 0
    model.train()
    for _ in range(options.epochs):
        order = rollouts.epoch(dice, options.hinted)
        for start in range(0, len(order), options.batch):
            batch = order[start : start + options.batch]
            count = sum(sum(gold.said) for gold in batch)
            loss = 0.0
            for part in passes(batch, options.pass_tokens):
                with torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
                    share = loss_sum(model, part) / count
                share.backward()
                loss += float(share.detach())
            if torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite():
                optimizer.step()
            else:  # taken, it would leave no weight a number
                say(f"update {len(curve) + 1}/{total}: the gradient is not finite; the update is skipped")
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            read += sum(len(gold.ids) for gold in batch)
            seconds = time.monotonic() - began
            curve.append({"update": len(curve) + 1, "loss": round(loss, 4), "tokens_per_second": round(read / seconds)})
            if seconds - last_said > 5 or len(curve) in (1, total):
                last_said = seconds
                say(f"update {len(curve)}/{total}  loss {loss:.3f}  {read / seconds:.0f} tokens/s")
    model.eval()
    return curve
