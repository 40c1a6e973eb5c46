"""Which comparisons each table of docs/evidence.md is made of, for `evidence.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gear_rl.compare.plan import Plan

HINTS: dict[str, dict[str, Any]] = {
    "perfect": {},
    "answer_only": {"hint_form": "answer"},
    **{f"noise_{share}": {"hint_errors": share / 100} for share in (15, 30, 50)},
    **{f"faulty_key_{share}": {"hint_errors": share / 100, "hint_error_kind": "bias"} for share in (15, 30)},
    "another_problem": {"hint_form": "other"},
}
TITLES = {
    "perfect": "right",
    **{f"noise_{share}": f"{share} % of the tools wrong, at random" for share in (15, 30, 50)},
    **{f"faulty_key_{share}": f"faulty key, {share} % of the facts" for share in (15, 30)},
    "answer_only": "answer only",
    "sibling": "a sibling that won",
    "another_problem": "another problem's",
}
"""Kinds of hint as a page names them, in its order."""
READERS = ("gear", "rlsd", "opsd", "checked_hints")
"""Methods whose teacher reads the hint, one of each kind: credit, reweighted credit, distillation, both as far as trusted."""

PEERS = ("sdpg",)
"""Adds imitation to GRPO's loss, and is near the best where hints are right."""
GIVEN: dict[str, tuple[str, ...]] = {
    "hint": ("segment_only", "shuffled", "opd", "crest", "cepo", "sdar", "sdpg"),
    "sibling_or_feedback": ("rlcsd", "sc_grpo", "sdpo", "serl"),
    "turns": ("mt_grpo", "gigpo", "igpo", "trace", "hcapo", "crpo"),
    "rollout": (
        "dr_grpo", "low_probability", "high_entropy", "shear", "grpo_lambda", "grail", "oar_g", "prompted_judge", "oar_p",
    ),
    "continuations": ("turn_ppo", "vine_ppo", "spo"),
}  # fmt: skip
"""What a method is given beside the outcomes: the hint; a sibling's rollout or what the environment said; rewards or states of
turns; nothing but the rollout and, for some, the reference answer; values measured by further rollouts from inside each
rollout (a step takes 5 to 12 times as long as GRPO's)."""


@dataclass(frozen=True)
class Budget:
    seeds: int = 12
    worlds: tuple[int, ...] = (1, 2, 3)
    tuning_worlds: tuple[int, ...] = (4,)
    tuning_seeds: int = 1
    tuning_runs: int = 8
    learning_rates: tuple[float, ...] = (3e-4, 6e-4)
    """Above 6e-4 runs of every method collapse now and then, so one tuning run chooses by luck (docs/experiments.md)."""
    train: tuple[tuple[str, Any], ...] = ()
    tuning_steps: int = 0

    def plan(self, methods: list[str], task: dict | None = None, credit: dict | None = None, **train: Any) -> Plan:
        settings: dict[str, Any] = {"train": {**dict(self.train), **train}}
        settings |= {"task": task} if task else {}
        settings |= {"credit": credit} if credit else {}
        tunes = len(self.learning_rates) > 1
        return Plan(
            methods, self.seeds, list(self.learning_rates), self.tuning_runs if tunes else 0, self.tuning_seeds,
            list(self.worlds), list(self.tuning_worlds) if tunes else [], settings, self.tuning_steps,
        )  # fmt: skip


Columns = dict[str, Plan]
HINT_STEPS = 400
"""Of the reported runs with each kind of hint, as the default of `gear train`."""
REPORTED: tuple[tuple[str, Any], ...] = (("eval_rows", 500), ("mix_steps", 0))
"""Of every run, beside its steps. A λ that falls to 0 would leave GRPO for most of them."""


def headline(b: Budget) -> Columns:
    """Perfect hints: GEAR, GEAR without segments, and peers."""
    return {"perfect": b.plan(["grpo", "gear", "token", "rlsd", "opsd", "checked_hints", "oracle"])}


def segments(b: Budget) -> Columns:
    """Where GEAR's segments end: adaptive, at each token, at random, at fixed lengths, at each turn."""
    few = replace(b, seeds=min(b.seeds, 3), worlds=b.worlds[:2])
    return {
        "perfect": few.plan(["grpo", "gear", "token", "random_segments", "fixed_segments", "turn_segments", "oracle"])
    }


def directions(b: Budget) -> Columns:
    """The three readings of GEAR's equation (7)."""
    names = ("consistent", "outcome", "teacher")
    return {name: b.plan(["grpo", "gear", "oracle"], credit={"gear": {"direction": name}}) for name in names}


def _long_runs(b: Budget) -> Budget:
    """400 steps, the default of `gear train`. Strengths are tuned for each column by itself, in runs of 200 steps at 6e-4
    (GRPO: four rates)."""
    worlds = b.worlds[:2] if b.worlds == Budget.worlds else b.worlds
    four_settings = 4 * len(b.tuning_worlds) * b.tuning_seeds
    return replace(
        b, seeds=min(b.seeds, 4), worlds=worlds, tuning_runs=four_settings, tuning_steps=200,
        learning_rates=(5e-4, 7.2e-4),  # with four strengths one rate is tried, their geometric mean: 6e-4
        train=(*b.train, ("steps", HINT_STEPS)),
    )  # fmt: skip


def hint_forms(b: Budget, readers: tuple[str, ...] = READERS, beside: tuple[str, ...] = ()) -> Columns:
    """What the hint says, and how often it is wrong; a sibling that won is a hint of the group's own."""
    few = _long_runs(b)
    columns = {name: few.plan([*beside, *readers], task=dict(options)) for name, options in HINTS.items()}
    sibling = few.plan([*beside, *(f"{name}+sibling_hint" for name in readers)])
    return columns | {"sibling": sibling, "no_hint": few.plan(["grpo", "oracle"])}


def hint_forms_directions(b: Budget) -> Columns:
    """The other two readings of GEAR's equation (7) where hints are not perfect; `hint_forms` has the default."""
    few = _long_runs(b)
    return {
        f"{hint}_{direction}": few.plan(["grpo", "gear"], task=dict(HINTS[hint]), credit={"gear": {"direction": direction}})
        for hint in ("answer_only", "noise_30", "faulty_key_30", "another_problem")
        for direction in ("outcome", "teacher")
    }


def hint_forms_peers(b: Budget) -> Columns:
    """The same for peers that came to notice later; fewer seeds will do for a look."""
    columns = hint_forms(b, PEERS, beside=("grpo",))
    return {name: plan for name, plan in columns.items() if name != "no_hint"}


def hint_forms_base_teacher(b: Budget) -> Columns:
    """GEAR in every column of `hint_forms`, with a teacher that keeps the starting weights; there it has the policy's own."""
    few = _long_runs(b)
    columns = {name: few.plan(["grpo", "gear"], task=dict(options), teacher="base") for name, options in HINTS.items()}
    return columns | {"sibling": few.plan(["grpo", "gear+sibling_hint"], teacher="base")}


def controls(b: Budget) -> Columns:
    """Outcomes shuffled, against shuffled GRPO at the same rate; another problem's hint, against GRPO."""
    both = [
        f"{name}+{control}"
        for name in ("rlsd", "token", "checked_hints")
        for control in ("shuffled_outcomes", "wrong_hint")
    ]
    methods = [
        "grpo",
        "gear",
        "shuffled_outcomes",
        "gear+wrong_hint",
        "rlsd",
        "token",
        "checked_hints",
        *both,
        "opsd",
        "opsd+wrong_hint",
    ]
    return {"perfect": b.plan([*methods, "oracle"])}


def controls_of_peers(b: Budget) -> Columns:
    """Outcomes shuffled for methods that are told more of them than the reward, of turns, channels, decisions or distances; and
    for those that add imitation. Settings as `every_method` and `headline` tuned them."""
    few = replace(b, seeds=min(b.seeds, 2))

    def shuffled(rate: float, **tuned: dict[str, Any]) -> Plan:
        names = [name for method in tuned for name in (method, f"{method}+shuffled_outcomes")]
        credit = {name: tuned[name.partition("+")[0]] for name in names}
        return replace(few, learning_rates=(rate,)).plan(["grpo", *names], credit=credit)

    turns = shuffled(
        6e-4, mt_grpo={"turn_weight": 4.0}, crest={"mix": 0.3, "clip": 0.28}, crpo={"certainty": 0.0}, oracle={}
    )
    imitation = shuffled(6e-4, sdar={"coefficient": 0.3}, sdpg={"coefficient": 1.0})
    return {"turns": turns, "spans": shuffled(4.92e-4, shear={}), "imitation": imitation}


def wrong_hints(b: Budget) -> Columns:
    """Another problem's hint, with the settings that three worlds chose for right hints (`headline_again.py`)."""
    tuned = {"gear": {"alpha": 8.0}, "token": {"alpha": 8.0}, "rlsd": {"mix": 1.0, "clip": 1.0}}
    credit = {f"{method}+wrong_hint": options for method, options in tuned.items()}
    few = replace(b, seeds=min(b.seeds, 4), learning_rates=(6e-4,))
    return {"another_problem": few.plan(["grpo", *credit], credit=credit)}


AT_FOUR_RUNS: dict[str, dict[str, Any]] = {"gear": {"alpha": 4.0}, "rlsd": {"mix": 1.0, "clip": 1.0}}
"""Strengths that `no_luck` and `hidden_facts` chose. Four tuning runs are four rates for GRPO and four strengths at one rate
for these, so both tables have a column at GRPO's rate."""


def no_luck(b: Budget) -> Columns:
    """The question at the end has an answer that is hardly ever right by luck: success certifies every decision. `same_rate`:
    the strengths that `exact` chose, at the rate that GRPO and the oracle chose there."""
    few = replace(b, seeds=min(b.seeds, 3), worlds=b.worlds[:2])
    methods, task = ["grpo", "gear", "rlsd", "oracle"], {"answer": "exact"}
    same_rate = replace(few, learning_rates=(6e-4,)).plan(methods, task=task, credit=AT_FOUR_RUNS)
    return {"exact": few.plan(methods, task=task), "same_rate": same_rate}


def hidden_facts(b: Budget) -> Columns:
    """A fifth of all facts stands in no hint: what is learned about them does not come from hints. `same_rate`: the strengths
    that `hidden_20` chose, at the rate that GRPO chose there."""
    task = {"hidden_facts": 0.2}
    same_rate = replace(b, learning_rates=(6e-4,)).plan(["grpo", *AT_FOUR_RUNS], task=task, credit=AT_FOUR_RUNS)
    return {"hidden_20": b.plan(["grpo", *READERS, "oracle"], task=task), "same_rate": same_rate}


def every_method(b: Budget) -> Columns:
    """The methods that no other table has, perfect hints, by what each is given."""
    few = replace(b, seeds=min(b.seeds, 3), worlds=b.worlds[:2])  # as `segments`
    return {given: few.plan(["grpo", *methods]) for given, methods in GIVEN.items()}


def sensitivity(b: Budget) -> Columns:
    """GEAR's own options one by one, at one learning rate."""
    few = replace(b, seeds=min(b.seeds, 5), worlds=b.worlds[:2], learning_rates=(6e-4,))
    values: dict[str, tuple[Any, ...]] = {
        "alpha": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "tau_kl": (0.1, 0.25, 0.5, 0.75, 1.1), "tau_h": (0.1, 0.25, 0.5, 0.75, 1.1),
        "floor_kl": (0.01, 0.1, 1.0), "floor_h": (0.03, 0.3, 3.0), "quantile": (0.8, 0.9, 0.95, 1.0),
    }  # fmt: skip
    columns = {
        f"{option}_{value:g}": few.plan(["grpo", "gear"], credit={"gear": {option: value}})
        for option, chosen in values.items()
        for value in chosen
    }
    kinds = ("live", "sync", "ema", "base")
    return columns | {f"teacher_{kind}": few.plan(["grpo", "gear"], teacher=kind) for kind in kinds}


TABLES: dict[str, Callable[[Budget], Columns]] = {
    table.__name__: table
    for table in (
        headline, segments, directions, hint_forms, hint_forms_peers, hint_forms_directions,
        hint_forms_base_teacher, controls, controls_of_peers, wrong_hints, no_luck, hidden_facts, every_method,
        sensitivity,
    )
}


def smoke(table: str, budget: Budget) -> Columns:
    """The table's first column, cut to what takes a minute: it shows that the machinery works, and no result."""
    short = (("steps", 2), ("prompts", 2), ("generations", 4), ("eval_rows", 8))
    first, plan = next(
        iter(TABLES[table](replace(budget, seeds=2, worlds=(1,), tuning_worlds=(4,), tuning_runs=4)).items())
    )
    settings = {**plan.settings, "train": dict(short), "task": {**plan.settings.get("task", {}), "steps": 4}}
    return {first: replace(plan, methods=plan.methods[:4], settings=settings, tuning_steps=0)}
