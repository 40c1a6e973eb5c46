"""Credit by plain loops over tokens, written from the equations alone and sharing no code with the package.

Everything is Python floats and lists; slow, and meant to be read next to (1)–(9) in `gear_rl.methods.gear`.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

DEFAULTS = dict(
    alpha=2.0, direction="consistent", quantile=1.0, floor_kl=0.1, floor_h=0.3, tau_kl=0.5, tau_h=0.5, rho_min=0.05,
    rho_max=10.0, mix=1.0, scale_rewards=True, length=8, floor=0.1, clip=2.0, seed=0,
    coefficient=10.0, full_trust=0.08, evidence_scale=0.4, untried=0.0,
)  # fmt: skip
SIGNALS = (
    "reverse_kl", "entropy", "student_logprob", "teacher_logprob", "decision", "turn_reward", "anchor_state", "tool_call",
    "answer_logprob", "answer_logprob_start", "frozen_answer_logprob", "frozen_answer_logprob_start", "hindsight_logprob",
    "wrong_teacher_logprob", "saliency_mask", "saliency_grad", "answer_saliency", "answer_box", "span_distance",
    "forward_kl", "request_ids", "values", "sibling_length", "prefix_value", "judged_turn",
)  # fmt: skip
CHANNELS = ("style", "task", "anchor")


@dataclass
class Rollout:
    mask: list[bool]
    reward: float
    group: int
    signals: dict[str, list[float]]
    turns: list[int] | None = None
    tokens: list[int] | None = None
    advantage: float | None = None
    channels: dict[str, float] = field(default_factory=dict)
    trained: bool = True

    @property
    def scored(self) -> bool:
        """Its reward is part of its group's statistics, trained on or not, whatever it said."""
        return not math.isnan(self.reward)

    @property
    def counts(self) -> bool:
        """So are its turns and signals: it has action tokens too."""
        return any(self.mask) and self.scored

    @property
    def in_loss(self) -> bool:
        return self.counts and self.trained

    @property
    def positions(self) -> list[int]:
        return [t for t, is_action in enumerate(self.mask) if is_action]

    def at_actions(self, name: str) -> list[float]:
        return [self.signals[name][t] for t in self.positions]


@dataclass
class Result:
    """Lists over all T positions; masked ones are 0."""

    advantages: list[float]
    weights: list[float]
    segments: list[int]
    onsets: list[bool]


def reference_credit(name: str, batch: list[Rollout], **options) -> list[Result]:
    o = {**DEFAULTS, **options}
    if name == "opd":
        outcomes = [0.0] * len(batch)
    else:
        outcomes = group_advantages(batch, scale=o["scale_rewards"] and name != "dr_grpo")
    if name == "shuffled_outcomes":
        outcomes = dealt_out(outcomes, batch, o["seed"])
    followed = turn_weights(batch, o) if name == "checked_hints" else [None] * len(batch)
    return [
        credit_of_one(name, rollout, A, o, u) for rollout, A, u in zip(batch, outcomes, followed, strict=True)
    ]


def group_advantages(batch: list[Rollout], scale: bool) -> list[float]:
    """(1)"""
    if batch[0].advantage is not None:
        return [0.0 if math.isnan(r.reward) else r.advantage for r in batch]
    result = []
    for rollout in batch:
        rewards = [r.reward for r in batch if r.group == rollout.group and r.scored]
        if not rollout.scored or len(rewards) == 1:
            result.append(0.0)
            continue
        mean = math.fsum(rewards) / len(rewards)
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        result.append((rollout.reward - mean) / (std + 1e-4) if scale else rollout.reward - mean)
    return result


def credit_of_one(name: str, rollout: Rollout, A: float, o: dict, u: list[float] | None) -> Result:
    T, positions = len(rollout.mask), rollout.positions
    result = Result([0.0] * T, [0.0] * T, [0] * T, [False] * T)
    n = len(positions)
    if n == 0:
        return result

    if name == "opd":
        for index, t in enumerate(positions):
            gap = rollout.signals["teacher_logprob"][t] - rollout.signals["student_logprob"][t]
            result.advantages[t] = max(-o["clip"], min(o["clip"], gap)) if rollout.in_loss else 0.0
            result.weights[t], result.segments[t] = 1.0, index + 1
        return result

    if name in ("grpo", "dr_grpo"):
        rho, segment_of, onset = [1.0] * n, [1] * n, [False] * n
    elif name == "oracle":
        good = [sign(A) * x > 0 for x in rollout.at_actions("decision")]
        rho = [1.0 if is_good or not any(good) else o["rho_min"] for is_good in good]
        segment_of, onset = list(range(1, n + 1)), [False] * n
    elif name == "prompted_judge":
        rho, onset = [1.0 + o["alpha"] * x for x in rollout.at_actions("judged_turn")], [False] * n
        turn = turns_of_actions(rollout)
        segment_of = [1 + sum(a != b for a, b in pairwise(turn[: k + 1])) for k in range(n)]
    elif name == "low_probability":
        c = normalised([1 - math.exp(x) for x in rollout.at_actions("student_logprob")], o["quantile"], o["floor"])
        rho = [clip(1 + o["alpha"] * x, o["rho_min"], o["rho_max"]) for x in c]
        segment_of, onset = list(range(1, n + 1)), [False] * n
    else:
        rho, segment_of, onset = gear_weights(name, rollout, A, o, u)

    mean = sum(rho) / n
    for index, t in enumerate(positions):
        w = rho[index] / mean  # (8)
        mix = o.get("mix", 1.0)
        result.advantages[t] = A * ((1 - mix) + mix * w) if rollout.trained else 0.0  # (9)
        result.weights[t], result.segments[t], result.onsets[t] = w, segment_of[index], onset[index]
    return result


def gear_weights(
    name: str, rollout: Rollout, A: float, o: dict, u: list[float] | None
) -> tuple[list[float], list[int], list[bool]]:
    n = len(rollout.positions)
    D = rollout.at_actions("reverse_kl")
    if o["direction"] == "consistent":  # of (7), before (3)
        p, q = rollout.at_actions("student_logprob"), rollout.at_actions("teacher_logprob")
        D = [D[t] if sign(A) * (q[t] - p[t]) > 0 else 0.0 for t in range(n)]
    d = normalised(D, o["quantile"], o["floor_kl"])  # (3)
    if name == "shuffled":
        order = sorted(range(n), key=lambda t: token_key(rollout, t, o["seed"]))
        d = [d[t] for t in order]
    turn = turns_of_actions(rollout)
    starts_turn = [t == 0 or turn[t] != turn[t - 1] for t in range(n)]

    # begins[t]: a segment begins at t; onset[t]: and it is adaptive
    onset = [False] * n
    if name == "token":
        begins = [True] * n
    elif name == "turn_segments":
        begins = starts_turn
    elif name == "fixed_segments":
        begins, since = [], 0
        for t in range(n):
            since = 0 if starts_turn[t] else since + 1
            begins.append(since % o["length"] == 0)
    else:
        h = normalised(rollout.at_actions("entropy"), o["quantile"], o["floor_h"])
        for t in range(n):  # (4)
            before = d[t - 1] if t > 0 and turn[t - 1] == turn[t] else -math.inf
            after = d[t + 1] if t + 1 < n and turn[t + 1] == turn[t] else -math.inf
            onset[t] = d[t] >= o["tau_kl"] and d[t] > before and d[t] >= after
        begins = [onset[t] or h[t] >= o["tau_h"] or starts_turn[t] for t in range(n)]  # (5)

    if name == "random_segments":
        pieces = []  # (key, length, adaptive) of each segment
        for t in range(n):
            if begins[t]:
                pieces.append([token_key(rollout, t, o["seed"]), 0, onset[t]])
            pieces[-1][1] += 1
        begins, onset = [], []
        for _, length, adaptive in sorted(pieces):
            begins += [True] + [False] * (length - 1)
            onset += [adaptive] + [False] * (length - 1)

    segments: list[list[int]] = []
    for t in range(n):
        if begins[t]:
            segments.append([])
        segments[-1].append(t)

    c, segment_of = [0.0] * n, [0] * n
    for index, members in enumerate(segments):
        for t in members:
            segment_of[t] = index + 1
            if name in ("turn_segments", "fixed_segments"):
                c[t] = max(d[s] for s in members)
            elif name == "segment_only" or onset[members[0]]:  # (6)
                c[t] = d[members[0]]
            else:
                c[t] = d[t]

    if u is not None:
        c = [u[t] * c[t] for t in range(n)]  # (C2)
    sigma = -sign(A) if o["direction"] == "teacher" else 1.0
    rho = [clip(1 + o["alpha"] * sigma * x, o["rho_min"], o["rho_max"]) for x in c]  # (7)
    return rho, segment_of, onset


def turn_weights(batch: list[Rollout], o: dict) -> list[list[float]]:
    """(C1) of checked_hints, with (T1)–(T3) over this batch and the prior: for each rollout, one number per action token."""
    follow = []  # for each rollout: turn number → g and −log p(y)
    for r in batch:
        peaks: dict[int, tuple[float, float, float]] = {}
        turn = turns_of_actions(r)
        p, q, D = (r.at_actions(name) for name in ("student_logprob", "teacher_logprob", "reverse_kl"))
        for t in range(len(turn)):
            k = sorted(set(turn)).index(turn[t])
            if k not in peaks or D[t] > peaks[k][0]:
                peaks[k] = D[t], clip(q[t] - p[t], -2.0, 2.0), -p[t]  # (T1)
        follow.append({k: (g, surprise) for k, (_, g, surprise) in peaks.items()})
    evidence, says, tried = {}, {}, set()  # by group and turn
    for group in {r.group for r in batch}:
        for k in range(max(len(f) for f in follow)):
            found = [(*f[k], r.reward) for f, r in zip(follow, batch, strict=True)
                     if r.group == group and r.counts and k in f]  # fmt: skip
            if math.fsum(surprise for _, surprise, _ in found) <= 0.02 * len(found):
                continue  # no choice
            pairs = [(g, reward) for g, _, reward in found]
            if any(g > 0 for g, _ in pairs):
                tried.add((group, k))
            correlation = pearson(pairs)
            if correlation is not None:
                evidence[group, k] = correlation  # (T2)
                says[group, k] = (len(pairs) - 1) / 7
    n = 0.95 * 100 + math.fsum(says.values())
    mean = (0.95 * 10 + math.fsum(e * says[cell] for cell, e in evidence.items())) / n  # (T3)
    trust = max(0.0, mean - 0.4 / math.sqrt(n))
    result = []
    for r in batch:
        turn = turns_of_actions(r)
        weights = []
        for number in turn:
            cell = r.group, sorted(set(turn)).index(number)
            e = evidence.get(cell, 0.0) if r.counts else 0.0
            u = clip((trust / o["full_trust"]) ** 2 * (1 + e / o["evidence_scale"]), 0.0, 1.0)
            weights.append(u if r.counts and cell in tried else o["untried"] * u)
        result.append(weights)
    return result


def pearson(pairs: list[tuple[float, float]]) -> float | None:
    """None: one of the two does not vary."""
    n = len(pairs)
    if n == 0:
        return None
    means = [math.fsum(column) / n for column in zip(*pairs, strict=True)]
    centred = [(x - means[0], y - means[1]) for x, y in pairs]
    spread = [math.sqrt(math.fsum(v * v for v in column) / n) for column in zip(*centred, strict=True)]
    if min(spread) <= 1e-4:
        return None
    return math.fsum(x * y for x, y in centred) / n / (spread[0] * spread[1])


def normalised(values: list[float], quantile: float, floor: float) -> list[float]:
    """(3)"""
    place = quantile * (len(values) - 1)
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    level = max(low + (high - low) * (place - math.floor(place)), floor)
    return [min(1.0, max(0.0, x / level)) for x in values]


def turns_of_actions(rollout: Rollout) -> list[int]:
    """The turn of each action token; without turn ids, every unbroken run of them is one."""
    if rollout.turns is not None:
        return [rollout.turns[t] for t in rollout.positions]
    run, runs = 0, []
    for t, is_action in enumerate(rollout.mask):
        if is_action:
            runs.append(run)
        elif t > 0 and rollout.mask[t - 1]:
            run += 1
    return runs


def sign(x: float) -> float:
    return float((x > 0) - (x < 0))


def clip(x: float, low: float, high: float) -> float:
    return max(low, min(high, x))


# --- the random numbers of the controls, as `gear_rl.methods.randomness` describes them -------------------------------

_64 = (1 << 64) - 1


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _64
    return x ^ (x >> 31)


def as_signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def float32_bits(x: float) -> int:
    return struct.unpack("<i", struct.pack("<f", x))[0] & _64


def rollout_key(rollout: Rollout, seed: int) -> int:
    total = 0
    for rank, t in enumerate(rollout.positions):
        if rollout.tokens is not None:
            content = rollout.tokens[t]
        else:
            content = 0
            for name in sorted(rollout.signals):
                content = (content * 0x9E3779B97F4A7C15 + float32_bits(rollout.signals[name][t])) & _64
        total += splitmix64(content ^ splitmix64(rank))
    return splitmix64(splitmix64(splitmix64(seed) ^ (total & _64)) ^ float32_bits(rollout.reward))


def token_key(rollout: Rollout, rank: int, seed: int) -> int:
    return as_signed(splitmix64(rollout_key(rollout, seed) ^ splitmix64(rank)))


def dealt_out(outcomes: list[float], batch: list[Rollout], seed: int) -> list[float]:
    result = list(outcomes)
    for group in {r.group for r in batch}:
        members = [i for i, r in enumerate(batch) if r.group == group and r.counts]
        takers = sorted(members, key=lambda i: as_signed(rollout_key(batch[i], seed)))
        givers = sorted(members, key=lambda i: as_signed(splitmix64(rollout_key(batch[i], seed))))
        for taker, giver in zip(takers, givers, strict=True):
            result[taker] = outcomes[giver]
    return result


# --- random batches ---------------------------------------------------------------------------------------------------


def random_batch(seed: int, *, coarse: bool = False, turns: bool = False, tokens: bool = True, advantages: bool = False,
                 unscorable: bool = False, truncated: bool = False, longest: int = 24,
                 groups: int = 3) -> list[Rollout]:  # fmt: skip
    """Groups of 2–4 rollouts, shuffled. `coarse` draws signals from few values, so that ties and plateaus abound.

    `unscorable`: a fifth of the rollouts have no outcome. `truncated`: a quarter are not trained on.
    Rewards are multiples of 1/8, whose sums are exact: a reward
    equal to its group's mean has advantage 0 in any order of adding, so its sign is not a matter of rounding.
    """
    draw = random.Random(seed)

    def number(scale: float) -> float:
        return scale * (draw.randrange(5) / 4 if coarse else draw.random() ** 3)

    T = draw.randint(1, longest)
    batch = []
    for group in range(groups):
        for _ in range(draw.randint(2, 4)):
            density = draw.choice((0.0, 0.3, 0.6, 0.9, 1.0))
            mask = [draw.random() < density for _ in range(T)]
            signals = {"reverse_kl": [number(2.0) for _ in range(T)], "entropy": [number(1.5) for _ in range(T)],
                       "student_logprob": [-number(3.0) for _ in range(T)],
                       "teacher_logprob": [-number(3.0) for _ in range(T)],
                       "decision": [float(draw.choice((-1, 0, 0, 1))) for _ in range(T)]}  # fmt: skip
            rollout = Rollout(mask, draw.randrange(9) / 8, 10 - 7 * group, signals)
            if turns:
                turn, rollout.turns = 0, []
                for _ in range(T):
                    turn += draw.random() < 0.2
                    rollout.turns.append(turn)
            if tokens:
                rollout.tokens = [draw.randrange(50_000) for _ in range(T)]
            if advantages:
                rollout.advantage = draw.choice((-1.0, 0.0, 1.0)) * draw.random()
            batch.append(rollout)
            if unscorable and draw.random() < 0.2:
                rollout.reward = math.nan
    draw.shuffle(batch)
    for rollout in batch:
        _add_what_peers_read(rollout, draw, number)
        rollout.trained = not (truncated and draw.random() < 0.25)
    return batch


def _add_what_peers_read(rollout: Rollout, draw: random.Random, number: Callable[[float], float]) -> None:
    T = range(len(rollout.mask))
    below_0 = ("answer_logprob", "answer_logprob_start", "frozen_answer_logprob", "frozen_answer_logprob_start",
               "hindsight_logprob", "wrong_teacher_logprob")  # fmt: skip
    above_0 = ("saliency_mask", "saliency_grad", "answer_saliency", "span_distance", "forward_kl")
    rollout.signals |= {name: [-number(3.0) for _ in T] for name in below_0}
    rollout.signals |= {name: [number(2.0) for _ in T] for name in above_0}
    boxed, request = draw.random() < 0.7, [1]
    for _ in T:
        request.append(request[-1] + (draw.random() < 0.15))
    rollout.signals |= {
        "turn_reward": [draw.randrange(9) / 8 - 0.25 for _ in T],
        "anchor_state": [float(draw.randrange(3)) for _ in T],
        "tool_call": [float(draw.randrange(2)) for _ in T],
        "answer_box": [float(draw.choice((0, 0, 0, 1, 2))) if boxed else 0.0 for _ in T],
        "request_ids": [float(x) for x in request[1:]],
        "values": [number(1.0) for _ in T],
        "sibling_length": [float(draw.randint(1, len(T)))] * len(T),
    }
    rollout.signals["prefix_value"] = [number(1.0) for _ in T]
    judged, turn = draw.randrange(4), [0]  # of several runs of tokens one, or none
    for _ in T:
        turn.append(turn[-1] + (draw.random() < 0.3))
    rollout.signals["judged_turn"] = [float(x == judged) for x in turn[1:]]
    rollout.channels = {"style": draw.randrange(9) / 8, "task": 4 * draw.randrange(3), "anchor": draw.random() < 0.2}
    rollout.channels = {name: float(value) for name, value in rollout.channels.items()}
    if math.isnan(rollout.reward):
        rollout.channels |= {"style": math.nan, "task": math.nan}
