"""What an audition says of methods against what training gave: rank correlations, and what the measuring may cost.

All of it is ours. Methods are ranked within a setting, so that easy and hard settings do not mix. Intervals are bootstraps:
over methods in one setting; over worlds and hints, and then over methods, for all settings together.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

import numpy as np
from audition_settings import WORDS, Arm, Setting

from gear_rl.audition.agreement import correlations, within_rollouts

RESAMPLES = 2000
UNUSABLE = ("oracle", "wrong_hint", "shuffled_outcomes", "shuffled")
"""The ceiling and controls: nobody would train with them."""
TOKENS_OF_A_RUN, ROLLOUTS_OF_A_RUN = 345_000, 12_800
"""That a training run of the embedded task samples in 400 steps."""
Credit = dict[str, Any]
Measure = Callable[[Credit, np.ndarray, list[int]], float]


def _agreement(one: Credit, true: np.ndarray, rollouts: list[int]) -> float:
    table = within_rollouts(np.array([one["turns"]]), rollouts)
    return float(correlations(table, within_rollouts(true[None], rollouts)[0])[0])


def _redistributed(one: Credit, true: np.ndarray, rollouts: list[int]) -> float:
    """How much right redistribution: the covariance behind the agreement, in units of the measured advantages."""
    table = within_rollouts(np.array([one["turns"]]), rollouts)[0]
    return float((table * within_rollouts(true[None], rollouts)[0]).mean() / true.std())


MEASURES: dict[str, Measure] = {
    "agreement": _agreement,
    "agreement with the outcome left in": lambda one, true, _: float(correlations(np.array([one["turns"]]), true)[0]),
    "agreement times size": _redistributed,
    "agreement over effective tokens": lambda one, true, of: _agreement(one, true, of) / one["tokens"],
    "few effective tokens": lambda one, true, of: -one["tokens"],
    "size of the credit": lambda one, true, of: one["size"],
}
"""Everything that was tried; the first is what `gear audition` prints."""


def ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks, ties sharing their mean."""
    v = np.asarray(values)
    return np.array([(v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])


def _corr(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 1e-9 and y.std() > 1e-9 else 0.0


def spearman(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """Rank correlation and its 95 % bootstrap interval over methods."""
    rng, n, x, y = np.random.default_rng(0), len(x), np.asarray(x), np.asarray(y)
    drawn = [_corr(ranks(x[c]), ranks(y[c])) for c in rng.integers(0, n, (RESAMPLES, n))]
    return [_corr(ranks(x), ranks(y)), *map(float, np.quantile(drawn, [0.025, 0.975]))]


def _centred(x: np.ndarray) -> np.ndarray:
    r = ranks(x)
    return (r - r.mean()) / len(r)


def pooled(settings: list[tuple[str, np.ndarray, np.ndarray]]) -> list[float]:
    """Of (world and hint, measure, success) for each setting: the correlation of ranks within settings, and its interval."""
    rng, clusters = np.random.default_rng(0), defaultdict(list)
    for cluster, x, y in settings:
        clusters[cluster].append((x, y))
    kinds = list(clusters.values())

    def of(chosen: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
        return _corr(*(np.concatenate([_centred(pair[k]) for pair in chosen]) for k in (0, 1)))

    drawn = []
    for _ in range(RESAMPLES):
        chosen = []
        for k in rng.integers(0, len(kinds), len(kinds)):
            for x, y in kinds[k]:
                c = rng.integers(0, len(x), len(x))
                chosen.append((x[c], y[c]))
        drawn.append(of(chosen))
    return [of([pair for kind in kinds for pair in kind]), *map(float, np.quantile(drawn, [0.025, 0.975]))]


def _advantages(points: list[dict[str, Any]], most: int | None = None) -> np.ndarray:
    """Measured advantage of each turn, from at most `most` rewards of each point (None: all). A prompt has its group's."""

    def value(rewards: list[float], known: int) -> float:
        return mean(rewards if most is None else rewards[: max(most, known)])

    return np.array([value(p["after"], 1) - value(p["before"], _known(p)) for p in points])


def _known(point: dict[str, Any]) -> int:
    """Rewards of the point before a turn that cost nothing: a prompt's, by its group of 8."""
    return 8 if point["turn"] == 0 else 0


def compare(settings: list[Setting], auditions: dict[int | str, dict[str, Any]]) -> dict[str, Any]:
    rows, informed, by_measure = [], [], {name: [] for name in MEASURES}
    for setting in settings:
        seen = auditions[setting.world]
        credit, rollouts = seen["credit"][json.dumps(setting.hint)], [p["rollout"] for p in seen["turns"]]
        arms = [arm for arm in setting.success if credit.get(arm.name)]
        true, success = _advantages(seen["turns"]), np.array([mean(setting.success[arm]) for arm in arms])
        found = {name: np.array([f(credit[a.name], true, rollouts) for a in arms]) for name, f in MEASURES.items()}
        cluster = f"{setting.world} {setting.hint}"
        for name, values in found.items():
            by_measure[name].append((cluster, values, success))
        agreement = found["agreement"]
        informed.append((cluster, agreement, success, np.array([a.method not in (*UNUSABLE, "grpo") for a in arms])))
        rows.append({
            "setting": setting.name, "world": setting.world, "hint": setting.hint,
            "spearman": spearman(agreement, success), "followed": _followed(arms, agreement, success),
            "methods": [
                {"method": a.name, "agreement": float(x), "success": float(y), "runs": len(setting.success[a])}
                for a, x, y in zip(arms, agreement, success, strict=True)
            ],
        })  # fmt: skip
    first = {name: [s for s in every if s[0] == "0 {}"] for name, every in by_measure.items()}
    without = [(c, x[keep], y[keep]) for c, x, y, keep in informed if keep.sum() > 3]
    words = {name: [s for s in every if s[0].startswith(WORDS)] for name, every in by_measure.items()}
    embedded = {name: [s for s in every if not s[0].startswith(WORDS)] for name, every in by_measure.items()}
    return {
        "pooled": {name: pooled(every) for name, every in by_measure.items()},
        "world 0, perfect hints": {name: pooled(some) for name, some in first.items()},
        "embedded task": {name: pooled(some) for name, some in embedded.items()},
        "language model": {name: pooled(some) for name, some in words.items()},
        "without GRPO, oracle and controls": pooled(without),
        "across hints": _across_hints(rows, auditions[0]["trust"]),
        "settings": rows,
    }


def _followed(arms: list[Arm], agreement: np.ndarray, success: np.ndarray) -> dict[str, Any]:
    """Had one trained with the method that agrees most."""
    usable = [k for k, arm in enumerate(arms) if arm.method not in UNUSABLE]
    top, best = max(usable, key=lambda k: agreement[k]), max(usable, key=lambda k: success[k])
    grpo = next(k for k in usable if arms[k].method == "grpo")
    return {
        "chosen": arms[top].name, "success": float(success[top]), "best": arms[best].name,
        "best_success": float(success[best]), "grpo": float(success[grpo]), "mean": float(success[usable].mean()),
    }  # fmt: skip


def _across_hints(rows: list[dict[str, Any]], trust: dict[str, float]) -> dict[str, Any]:
    """The same method with hints of five kinds (world 0, 200 steps): does it agree less where it learns less? And is a hint
    trusted less where methods that read it learn less?"""
    names = ("world 0, 200 steps", "noise 0.15", "noise 0.3", "noise 0.5", "faulty key 0.15")
    table = {row["setting"]: row for row in rows if row["setting"] in names}
    by_name = {name: {m["method"]: m for m in table[name]["methods"]} for name in names}
    methods = sorted(set.intersection(*map(set, by_name.values())) - {"grpo", "oracle"})
    trusted = np.array([trust[json.dumps(table[name]["hint"])] for name in names])
    parts = [
        (one, *(np.array([by_name[name][one][key] for name in names]) for key in ("agreement", "success")))
        for one in methods
    ]
    return {
        "methods": methods, "hints": list(names), "trust": trusted.tolist(),
        "success": {one: y.tolist() for one, _, y in parts}, "agreements": {one: x.tolist() for one, x, _ in parts},
        "agreement": pooled(parts), "trust and success": pooled([(one, trusted, y) for one, _, y in parts]),
    }  # fmt: skip


def budgets(settings: list[Setting], auditions: dict[int | str, dict[str, Any]], draws: int = 40) -> list[dict[str, Any]]:
    """What is left of the pooled rank correlation with fewer measured rollouts and continuations, and what they cost."""
    rng, found, length = np.random.default_rng(0), [], TOKENS_OF_A_RUN / ROLLOUTS_OF_A_RUN
    of = {world: np.array([p["rollout"] for p in seen["turns"]]) for world, seen in auditions.items()}
    parts = []
    for setting in settings:
        credit = auditions[setting.world]["credit"][json.dumps(setting.hint)]
        arms = [arm for arm in setting.success if credit.get(arm.name)]
        table = np.array([credit[arm.name]["turns"] for arm in arms])
        parts.append((setting.world, table, _centred(np.array([mean(setting.success[arm]) for arm in arms]))))
    fewest = min(len(np.unique(one)) for one in of.values())
    for rollouts in (4, 8, 16, 32, fewest):
        for most in (4, 8, 16, 32):
            true = {world: _advantages(seen["turns"], most) for world, seen in auditions.items()}
            rho = []
            for _ in range(draws):
                turns = {
                    world: np.flatnonzero(np.isin(one, rng.choice(np.unique(one), rollouts, replace=False)))
                    for world, one in of.items()
                }
                x = []
                for world, table, _ in parts:
                    chosen, own = turns[world], of[world][turns[world]].tolist()
                    x.append(_centred(correlations(
                        within_rollouts(table[:, chosen], own), within_rollouts(true[world][chosen][None], own)[0]
                    )))  # fmt: skip
                rho.append(_corr(np.concatenate(x), np.concatenate([success for *_, success in parts])))
            seen = auditions[0]
            counts = [(len(p["before"]), _known(p)) for p in seen["turns"]]
            sampled = sum(max(0, min(most, n) - known) for n, known in counts)
            share = sampled / sum(n - known for n, known in counts) * rollouts / len(np.unique(of[0]))
            tokens = seen["tokens"] * share + rollouts / 2 * 8 * length  # a lost and a won rollout of each group of 8
            found.append({
                "rollouts": rollouts, "continuations": most, "correlation": float(np.mean(rho)),
                "from": float(np.quantile(rho, 0.1)), "to": float(np.quantile(rho, 0.9)), "tokens": round(tokens),
                "as_rollouts": round(tokens / length), "share_of_a_run": tokens / TOKENS_OF_A_RUN,
            })  # fmt: skip
    return found
