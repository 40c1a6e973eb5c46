"""What stands in the neutral step for the model: signals that verl's workers have read already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from torch import Tensor

from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.hinted import Tokenize
from gear_rl.signals.providers import Reader
from gear_rl.signals.sources import Sources


class ReadByWorkers:
    """In a scorer's place. The weights are elsewhere, so it can only hand on what came back from there."""

    def __init__(self, model_config: Any, method: str) -> None:
        self.model, self.method = SimpleNamespace(config=model_config), method
        self.weights = SimpleNamespace(sharded=False)

    def score(
        self, *batch: Any, needs: Iterable[str] | None = None, known: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """As `Scorer.score`: (B, T) each, 0 where masked."""
        _, _, _, action_mask, _, *rest = batch
        needs = list(rest[0] if rest else needs or ())
        known = (rest[1] if len(rest) > 1 else known) or {}
        for name in needs:
            if name not in known:
                raise GearError(f"method {self.method!r} needs the signal {name!r}, and the workers sent none.")
        return {name: signal * action_mask for name, signal in known.items()}

    def self_check(self, *_: Any) -> None:
        """The workers compare their own passes before the first step: `engine.CreditFSDPEngine`."""


def make_reader(
    model_config: Any, teacher: Teacher, tokenizer: Any, sources: Sources, tokenize: Tokenize, method: Method
) -> Reader:
    scorer = cast(Scorer, ReadByWorkers(model_config, method.name))
    return Reader(scorer, teacher, tokenizer, sources, tokenize, method.name, method.success_at)
