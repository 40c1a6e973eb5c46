"""The workshop as a `Task`: rows of a chosen world, hints of chosen form and quality, and the world's model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gear_rl.errors import GearError, unknown_name
from gear_rl.options import check_instance, option
from gear_rl.tasks.base import Row, Task, Transcript, Verdict
from gear_rl.tasks.workshop.environment import (
    WorkshopEnvironment,
    WorkshopEpisode,
    judge,
    order_of,
    spoken,
    tools_used,
)
from gear_rl.tasks.workshop.hints import ERROR_KINDS, FORMS, Hints
from gear_rl.tasks.workshop.tokenizer import ANSWER, BOT, END
from gear_rl.tasks.workshop.world import ANSWERS, WORLDS, Order, draw_order, world

FOLDER = Path(__file__).parent
STEPS = (4, 6, 8, 12)  # the lengths the embedded model was warm-started on


@dataclass
class Workshop(Task):
    """Repair orders of `steps` jobs, then one question about the gauge."""

    name: ClassVar[str] = "workshop"
    summary: ClassVar[str] = "multi-turn tool use with a verifiable outcome (embedded, generated)"
    answer_prefix = ANSWER

    steps: int = option(6, choices=STEPS, note="the lengths its model knows")
    """Jobs per order: 4 (tests), 6 (default), 8 or 12 (long)."""
    answer: str = option("yesno", choices=tuple(ANSWERS))
    """The question at the end: yesno and quarter leave room for luck, exact does not."""
    world: int = option(0, choices=WORLDS)
    """Which handbook; each has a model of its own."""
    hint_form: str = option("calls", choices=FORMS)
    """What a hint says: the right tools, the right answer alone, or another order's tools."""
    hint_errors: float = option(0.0, at_least=0, at_most=1)
    """Share of wrong tools (or answers) in the hint, fixed per prompt."""
    hint_error_kind: str = option("noise", choices=ERROR_KINDS)
    """noise: every hint errs by itself. bias: the same facts are wrong in all hints, as in a faulty answer key."""
    hidden_facts: float = option(0.0, at_least=0, below=1)
    """Share of facts that no hint shows. Evaluation counts decisions on them apart."""

    def __post_init__(self) -> None:
        check_instance(self, self.name, "task")
        if self.hidden_facts and self.hint_form == "answer":
            raise GearError("task.hidden_facts: hints of form answer show no facts, so there are none to hide.")
        if self.world == 0 and (self.hidden_facts or self.hint_form == "answer"):
            raise GearError(
                "task.world=0: its model reads hints of form calls and other with every fact shown. The models of the "
                f"other worlds read all: give task.world=1 to {WORLDS[-1]}."
            )
        self.hint_template = "{prompt} hint {hint}"
        self.max_turns = self.steps + 1
        self.max_turn_tokens = 6
        self.judge_knows_decisions = True

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        if split not in ("train", "test"):
            raise unknown_name("split", split, ("train", "test"))
        of, hints = world(self.world), Hints(self.hint_form, self.hint_errors, self.hint_error_kind, self.hidden_facts)
        rng = random.Random(f"{split}-{seed}-{self.answer}-{self.steps}")
        hint_rng = random.Random(f"hint-{split}-{seed}")  # its own stream: hint quality must not change the orders
        rows = []
        for _ in range(1000 if count is None else count):
            order = draw_order(rng, self.answer, self.steps, of)
            prompt = [{"role": "user", "content": order.text()}]
            told = {"hint": hints.draw(hint_rng, order), "answer": order.reference_answer}
            rows.append({"prompt": prompt, "order": order.text(), "world": self.world, **told})
        return rows

    def episode(self, row: Row) -> WorkshopEpisode:
        return WorkshopEpisode(order_of(row))

    def judge(self, row: Row, completion: str) -> Verdict:
        return judge(order_of(row), completion, self.hidden_facts)

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        """An endpoint's transcript has no end marks, which `judge` counts tokens by: its turns are written again with them."""
        turns, episode, words = transcript.turns, self.episode(row), list[str]()
        if not turns or END in transcript.completion:
            return self.judge(row, transcript.completion)
        for i, turn in enumerate(turns):
            reply, last = episode.reply(turn), i + 1 == len(turns)
            words.append(turn if last and transcript.cut_off else f"{turn} {END}")
            words += [] if last else [f"{reply} {BOT}"]
        return self.judge(row, " ".join(words))

    def as_completion(self, turn: str) -> str:
        """`transformers serve` knows the embedded model's calls by its tokenizer's response schema, and sets them apart."""
        return spoken(turn)

    def as_hint(self, completion: str) -> str:
        """A rollout rewritten as the embedded model reads hints: a tool per job."""
        return tools_used(completion)

    def reference(self, row: Row) -> str:
        order = order_of(row)
        episode, words = WorkshopEpisode(order), []
        for (part, _), tool in zip(order.jobs, order.reference_tools, strict=True):
            call = f"{tool} {part}"
            words.append(f"{call} {END} {episode.reply(call)} {BOT}")
        return " ".join([*words, ANSWER, order.reference_answer, END])

    def environment(self) -> WorkshopEnvironment:
        """For `trl.GRPOTrainer(environment_factory=task.environment)`."""
        return WorkshopEnvironment()

    def answer_reward(self, order: str, completion: list[dict]) -> float:
        """The reward of a conversation as TRL hands it over: messages, the last one with the answer."""
        said = str(completion[-1]["content"]).split()
        return float(len(said) >= 2 and said[-2:] == ["answer", Order.parse(order, self.world).reference_answer])

    def default_model(self) -> str:
        folder = FOLDER / "model" if self.world == 0 else FOLDER / "model_worlds" / str(self.world)
        if not folder.is_dir():
            raise GearError(
                f"task.world={self.world}: its model is not installed. Make it: python -m gear_rl.training.embedded_model "
                f"--world {self.world} --out {folder}"
            )
        return str(folder)
