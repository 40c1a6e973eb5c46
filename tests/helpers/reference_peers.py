"""The peers of GEAR by plain loops over tokens and turns, written from their formulas and sharing no code with the package.

Everything is Python floats and lists; slow, and meant to be read next to docs/methods/.
"""

from __future__ import annotations

import math

from reference import Result, Rollout, clip, group_advantages, sign, turns_of_actions

PEER_DEFAULTS: dict[str, dict] = {
    "rlsd": dict(mix=0.5, clip=0.2, scale_rewards=True),
    "serl": dict(mix=0.5, clip=0.2, scale_rewards=True, hint="feedback"),
    "crest": dict(mix=0.3, clip=0.28, sharpness=0.5, surprise=0.5, scale_rewards=True),
    "opsd": dict(beta=0.5, coefficient=1.0),
    "sdpo": dict(beta=0.5, coefficient=1.0, top_k=100),
    "sdpg": dict(coefficient=0.001, reference=0.001),
    "oar_p": dict(beta=1.0, threshold=0.5, rho_min=0.1, mix=1.0, scale_rewards=True),
    "oar_g": dict(beta=1.0, threshold=0.5, rho_min=0.1, mix=1.0, scale_rewards=True),
    "grail": dict(alpha=2.0, quantile=1.0, floor=1e-8, rho_min=0.05, rho_max=10.0, mix=1.0, scale_rewards=True),
    "shear": dict(rho_min=0.05, rho_max=10.0, mix=1.0, scale_rewards=True),
    "high_entropy": dict(share=0.2, scope="batch", scale_rewards=True),
    "mt_grpo": dict(turn_weight=1.0, baseline="unbiased", scale_rewards=True),
    "gigpo": dict(omega=1.0, gamma=0.95, turn_rewards=False, scale_rewards=True),
    "igpo": dict(gamma=1.0),
    "crpo": dict(scale_rewards=True),
}


def peer_credit(name: str, batch: list[Rollout], o: dict) -> list[Result]:
    A = (
        group_advantages(batch, scale=o.get("scale_rewards", True))
        if name not in ("igpo", "crpo")
        else [0.0] * len(batch)
    )
    return [_result(name, batch, i, A, o) for i in range(len(batch))]


def _result(name: str, batch: list[Rollout], i: int, A: list[float], o: dict) -> Result:
    rollout = batch[i]
    T, positions = len(rollout.mask), rollout.positions
    advantages, weights = PEERS[name](batch, i, A, o) if positions else ([], [])
    turn = turns_of_actions(rollout)
    segment = 0
    result = Result([0.0] * T, [0.0] * T, [0] * T, [False] * T)
    for rank, t in enumerate(positions):
        if name in ("opsd", "sdpo", "sdpg", "crpo"):
            segment = 1
        elif name in ("mt_grpo", "gigpo", "igpo"):
            segment += rank == 0 or turn[rank] != turn[rank - 1]
        else:
            segment = rank + 1
        result.advantages[t], result.weights[t], result.segments[t] = advantages[rank], weights[rank], segment
    return result


# --- the hinted self as a weight --------------------------------------------------------------------------------------


def rlsd(batch, i, A, o):
    p, q = batch[i].at_actions("student_logprob"), batch[i].at_actions("teacher_logprob")
    w = [clip(math.exp(sign(A[i]) * (b - a)), 1 - o["clip"], 1 + o["clip"]) for a, b in zip(p, q, strict=True)]
    return [A[i] * ((1 - o["mix"]) + o["mix"] * x) for x in w], w


def serl(batch, i, A, o):
    _, w = rlsd(batch, i, A, o)
    w = [x if is_call else 1.0 for x, is_call in zip(w, batch[i].at_actions("tool_call"), strict=True)]
    return [A[i] * ((1 - o["mix"]) + o["mix"] * x) for x in w], w


def crest(batch, i, A, o):
    turn_level, _ = mt_grpo(batch, i, A, dict(turn_weight=1.0, baseline="unbiased"))
    p, q = batch[i].at_actions("student_logprob"), batch[i].at_actions("teacher_logprob")
    surprisal = [-x for x in p]
    mean = math.fsum(surprisal) / len(p)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in surprisal) / len(p))
    advantages, weights = [], []
    for a, student, teacher, s in zip(turn_level, p, q, surprisal, strict=True):
        delta = teacher - student
        w = clip(math.exp(sign(a) * delta * o["sharpness"]), 1 - o["clip"], 1 + o["clip"])
        gate = 1.0 if sign(a) * delta > 0 else 0.0
        z = (s - mean) / (std + 1e-4)
        w *= gate * (1 + o["surprise"] * (2 / (1 + math.exp(-z)) - 1))
        advantages.append(a * ((1 - o["mix"]) + o["mix"] * w))
        weights.append(w)
    return advantages, weights


# --- the hinted self as a loss ----------------------------------------------------------------------------------------


def nothing(batch, i, A, o):
    n = len(batch[i].positions)
    return [0.0] * n, [1.0] * n


def sdpg(batch, i, A, o):
    n = len(batch[i].positions)
    return [A[i]] * n, [1.0] * n


# --- weights from inside the model ------------------------------------------------------------------------------------


def spread(A: float, rho: list[float], mix: float):
    """(8), (9)"""
    w = [x * len(rho) / math.fsum(rho) for x in rho]
    return [A * ((1 - mix) + mix * x) for x in w], w


def quantile(values: list[float], level: float) -> float:
    place = level * (len(values) - 1)
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def oar(signal):
    def method(batch, i, A, o):
        score = [math.log1p(max(0.0, x)) for x in batch[i].at_actions(signal)]
        low, high = min(score), max(score)
        s = [(x - low) / (high - low) if high > low else 0.0 for x in score]
        tau, rho = quantile(s, o["threshold"]), []
        for x in s:
            if x < tau:
                rho.append(max(o["rho_min"], x / tau))
            else:
                rho.append(1 + (o["beta"] * (x - tau) / (1 - tau) if tau < 1 else 0.0))
        return spread(A[i], rho, o["mix"])

    return method


def grail(batch, i, A, o):
    saliency = [abs(x) for x in batch[i].at_actions("saliency_act")]
    level = max(quantile(saliency, o["quantile"]), o["floor"])
    rho = [clip(1 + o["alpha"] * min(1.0, x / level), o["rho_min"], o["rho_max"]) for x in saliency]
    return spread(A[i], rho, o["mix"])


def shear(batch, i, A, o):
    d = [max(0.0, x) for x in batch[i].at_actions("hidden_distance")]
    mean = math.fsum(d) / len(d)
    rho = [clip(x / mean if mean > 0 else 1.0, o["rho_min"], o["rho_max"]) for x in d]
    return spread(A[i], rho, o["mix"])


def high_entropy(batch, i, A, o):
    over = batch if o["scope"] == "batch" else [batch[i]]
    tau = quantile([h for r in over for h in r.at_actions("entropy")], 1 - o["share"])
    kept = [1.0 if h >= tau else 0.0 for h in batch[i].at_actions("entropy")]
    return [A[i] * x for x in kept], kept


# --- turns, states, channels ------------------------------------------------------------------------------------------


def turns_of(rollout: Rollout) -> list[list[int]]:
    """The positions of each turn's tokens."""
    turns: list[list[int]] = []
    before = None
    for t, turn in zip(rollout.positions, turns_of_actions(rollout), strict=True):
        if turn != before:
            turns.append([])
        turns[-1].append(t)
        before = turn
    return turns


def members(batch: list[Rollout], i: int) -> list[int]:
    return [j for j, r in enumerate(batch) if r.group == batch[i].group and any(r.mask)]


def per_token(rollout: Rollout, of_turn: list[float]) -> list[float]:
    return [x for x, turn in zip(of_turn, turns_of(rollout), strict=True) for _ in turn]


def mean_and_std(values: list[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)) if len(values) > 1 else 0.0
    return mean, std


def mt_grpo(batch, i, A, o):
    """Before the tool result A_outcome + A_turn, after the last one A_outcome."""
    peers, mine = members(batch, i), turns_of(batch[i])
    of_turn = []
    for k, turn in enumerate(mine):
        if k == len(mine) - 1:
            of_turn.append(A[i])
            continue
        own = batch[i].signals["turn_reward"][turn[-1]]
        rewards = {}
        for j in peers:
            turns = turns_of(batch[j])
            if k < len(turns) - 1:  # there was a tool result
                rewards[j] = batch[j].signals["turn_reward"][turns[k][-1]]
        if o["baseline"] == "unbiased":
            others = [r for j, r in rewards.items() if j != i]
            relative = own - math.fsum(others) / len(others) if others else 0.0
        else:
            mean, std = mean_and_std([rewards.get(j, 0.0) for j in peers])
            relative = (own - mean) / (std + 1e-4)
        of_turn.append(A[i] + o["turn_weight"] * relative)
    return per_token(batch[i], of_turn), [1.0] * len(batch[i].positions)


def returns(rewards: list[float], gamma: float) -> list[float]:
    result, later = [], 0.0
    for reward in reversed(rewards):
        later = reward + gamma * later
        result.append(later)
    return result[::-1]


def gigpo(batch, i, A, o):
    visits: dict[float, list[float]] = {}  # state → returns of the turns that began in it
    for j in members(batch, i):
        turns = turns_of(batch[j])
        earned = [batch[j].signals["turn_reward"][turn[-1]] if o["turn_rewards"] else 0.0 for turn in turns]
        earned[-1] += batch[j].reward
        for turn, value in zip(turns, returns(earned, o["gamma"]), strict=True):
            visits.setdefault(batch[j].signals["anchor_state"][turn[0]], []).append(value)
        if j == i:
            mine = list(zip(turns, returns(earned, o["gamma"]), strict=True))
    of_turn = []
    for turn, value in mine:
        mean, std = mean_and_std(visits[batch[i].signals["anchor_state"][turn[0]]])
        step = (value - mean) / (std + 1e-4) if o["scale_rewards"] else value - mean
        of_turn.append(A[i] + o["omega"] * step)
    return per_token(batch[i], of_turn), [1.0] * len(batch[i].positions)


def igpo(batch, i, A, o):
    pooled = []
    for j in members(batch, i):
        turns = turns_of(batch[j])
        belief = math.exp(batch[j].signals["answer_logprob_start"][turns[0][0]])
        rewards = []
        for turn in turns[:-1]:
            after = math.exp(batch[j].signals["answer_logprob"][turn[-1]])
            rewards.append(after - belief)
            belief = after
        to_go = returns([*rewards, batch[j].reward], o["gamma"])
        pooled += to_go
        if j == i:
            mine = to_go
    mean = math.fsum(pooled) / len(pooled)
    return per_token(batch[i], [x - mean for x in mine]), [1.0] * len(batch[i].positions)


def crpo(batch, i, A, o):
    peers, total = members(batch, i), 0.0
    names = [name for name in batch[i].channels if name != "generic"]
    for name in names:
        worst = min(batch[j].channels[name] for j in peers)
        rewards = {j: worst if batch[j].channels.get("generic", 0.0) > 0 else batch[j].channels[name] for j in peers}
        mean, std = mean_and_std(list(rewards.values()))
        total += (rewards[i] - mean) / (std + 1e-4) if o["scale_rewards"] else rewards[i] - mean
    n = len(batch[i].positions)
    return [total / len(names)] * n, [1.0] * n


PEERS = {
    "rlsd": rlsd, "serl": serl, "crest": crest, "opsd": nothing, "sdpo": nothing, "sdpg": sdpg,
    "oar_p": oar("saliency_mask"), "oar_g": oar("saliency_grad"), "grail": grail, "shear": shear,
    "high_entropy": high_entropy, "mt_grpo": mt_grpo, "gigpo": gigpo, "igpo": igpo, "crpo": crpo,
}  # fmt: skip
