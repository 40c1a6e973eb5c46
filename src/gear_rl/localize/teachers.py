"""The teachers whose signals are to find mistakes: the model itself as it is now, and one that stays what it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gear_rl.engines.offline import Completions, Ids, frozen_teacher, score
from gear_rl.localize.labelled import Labelled
from gear_rl.scoring.scorer import SIGNALS, Scorer
from gear_rl.scoring.teacher import Teacher


@dataclass(frozen=True)
class Scored:
    """Labelled rollouts as one teacher sees them."""

    teacher: str
    labelled: Labelled


class Teachers:
    """`live`, and a frozen one where `frozen` names its weights. `needs`: no other signals are computed."""

    def __init__(
        self, model: Any, frozen: str | None, device: str, temperature: float = 1.0, needs: tuple[str, ...] = SIGNALS
    ) -> None:
        self.scorer, self.needs = Scorer(model, temperature), needs
        self._teachers = {"live": Teacher(model, "live")}
        if frozen is not None:
            self._teachers["frozen"] = frozen_teacher(model, frozen, device)

    def score(
        self, labelled: Labelled, completions: Completions, prompts: Ids, hinted: Ids | None, misled: Ids | None
    ) -> list[Scored]:
        """`hinted` prompts hold the rollout's own ground truth, `misled` ones another problem's; None: there is none."""
        scored = []
        for name, teacher in self._teachers.items():
            own = score(self.scorer, prompts, hinted, completions, teacher, self.needs)
            other = score(self.scorer, prompts, misled, completions, teacher, self.needs) if misled else {}
            scored.append(Scored(name, labelled.with_signals(own, other)))
        return scored
