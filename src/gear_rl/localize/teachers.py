"""The teachers whose signals are to find mistakes: the model itself as it is now, and one that stays what it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gear_rl.errors import GearError
from gear_rl.localize.labelled import Labelled
from gear_rl.models import load_model
from gear_rl.scoring.scorer import ON_REQUEST, SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hinted import Hinted, Tokenize
from gear_rl.signals.providers import Reader, Reading, collect, missing_source
from gear_rl.signals.sampled import Ids, Sampled
from gear_rl.signals.sources import Sources


@dataclass(frozen=True)
class Scored:
    """Labelled rollouts as one teacher sees them."""

    teacher: str
    labelled: Labelled


class Teachers:
    """`live`, and a frozen one where `frozen` names its weights. `needs`: no other signals are computed."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        frozen: str | None,
        device: str,
        temperature: float = 1.0,
        needs: Sequence[str] = (),
        sources: Sources | None = None,
    ) -> None:
        self.sources = sources or Sources()
        self.needs = [need for need in needs if missing_source(need, self.sources) is None]
        """Those that can be had here."""
        self._scorer, self._tokenizer = Scorer(model, temperature), tokenizer
        self._teachers = {"live": Teacher(model, "live")}
        if frozen is not None:
            self._teachers["frozen"] = frozen_teacher(model, frozen, device)

    def score(
        self, labelled: Labelled, sampled: Sampled, hinted: Ids | None, misled: Ids | None, tokenize: Tokenize
    ) -> list[Scored]:
        """`hinted` prompts hold the rollout's own ground truth, `misled` ones another problem's; None: there is none.
        `tokenize`: for hints that are only known from the rollout, such as how it ended."""
        scored = []
        for name, teacher in self._teachers.items():
            reader = Reader(self._scorer, teacher, self._tokenizer, self.sources, tokenize, "gear localize")
            own = collect(self._reading(reader, sampled, hinted), self.needs)
            other = {}
            if misled:
                other = collect(
                    self._reading(reader, sampled, misled), [n for n in self.needs if n in (*SIGNALS, *ON_REQUEST)]
                )
            scored.append(Scored(name, labelled.with_signals(own, other)))
        return scored

    def _reading(self, reader: Reader, sampled: Sampled, hinted: Ids | None) -> Reading:
        read = None if hinted is None else Hinted([""] * len(sampled), hinted, [])
        return Reading(reader, sampled, read, {})


def frozen_teacher(model: Any, path: str, device: str) -> Teacher:
    """A teacher with the weights of the model in `path`, which must be of the same architecture as `model`."""
    weights = {name: p.detach() for name, p in load_model(path, device)[0].named_parameters()}
    teacher = Teacher(model, "base")
    try:
        teacher.load_state({name: weights[name] for name in teacher.state()})
    except (KeyError, RuntimeError):
        raise GearError(
            f"the teacher {path} is another architecture than the student; it must have the same weights' names and shapes."
        ) from None
    return teacher
