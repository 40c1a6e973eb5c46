"""The peers of GEAR that credit tokens and rollouts, by plain loops written from their published formulas.

Shares no code with the package. Everything is Python floats and lists; slow, and meant to be read next to docs/methods/.
Those that credit turns are in `reference_turns`.
"""

from __future__ import annotations

import math
from itertools import pairwise

from reference import Result, Rollout, clip, group_advantages, sign
from reference_turns import TURN_DEFAULTS, TURN_PEERS, mean_and_std, members, scored, segments_by_turn

PEER_DEFAULTS: dict[str, dict] = {
    "rlsd": dict(mix=0.5, clip=0.2, scale_rewards=True),
    "serl": dict(mix=0.5, clip=0.2, scale_rewards=True, hint="feedback"),
    "crest": dict(mix=0.3, clip=0.28, tau=2.0, surprise=0.5, scale_rewards=True),
    "cepo": dict(mix=0.5, clip=0.5, success=0.5, without_wrong="grpo", scale_rewards=True),
    "rlcsd": dict(tau=0.02, beta=1.0, mix=0.5, delta=0.02, clip=2.0, eta=1.0, success=0.5, denominators="group",
                  scale_rewards=True),
    "sc_grpo": dict(percentile=0.75, floor=1e-4, scope="group", bonus=0.1, success=0.5, scale_rewards=True),
    "sdar": dict(coefficient=0.01, sharpness=5.0, scale_rewards=True),
    "opsd": dict(beta=0.0, entry_clip=0.05, token_cap=0.0, coefficient=1.0),
    "sdpo": dict(beta=0.5, coefficient=1.0, top_k=100, importance_clip=2.0, success=0.5, success_by="reward"),
    "sdpg": dict(coefficient=0.001, token_cap=20.0, reference=0.001, reference_mode="urkl"),
    "oar_p": dict(beta=1.0, threshold=0.25, rho_min=0.1, mix=1.0, scale_rewards=True),
    "oar_g": dict(beta=1.0, threshold=0.25, rho_min=0.1, mix=1.0, scale_rewards=True),
    "grail": dict(spread=0.5, w_min=0.5, w_max=5.0, symmetry="wrong", box="all", scale_rewards=False),
    "shear": dict(scale_rewards=True),
    "high_entropy": dict(share=0.2, scope="rollout", scale_rewards=True),
    **TURN_DEFAULTS,
    "spo": dict(below=0.9, interval=5, whiten=False),
    "grpo_lambda": dict(decay=0.99, scale_rewards=True),
    "crpo": dict(certainty=0.02, scale_rewards=True),
}  # fmt: skip


def peer_credit(name: str, batch: list[Rollout], o: dict) -> list[Result]:
    own_advantages = name in ("igpo", "crpo", "gigpo", "crest", "turn_ppo", "vine_ppo", "trace", "spo")
    A = [0.0] * len(batch) if own_advantages else group_advantages(batch, scale=o.get("scale_rewards", True))
    return [_result(name, batch, i, A, o) for i in range(len(batch))]


def _result(name: str, batch: list[Rollout], i: int, A: list[float], o: dict) -> Result:
    rollout = batch[i]
    T, positions = len(rollout.mask), rollout.positions
    result = Result([0.0] * T, [0.0] * T, [0] * T, [False] * T)
    if not positions:
        return result
    advantages, weights = PEERS[name](batch, i, A, o)
    if not rollout.in_loss:
        advantages = [0.0] * len(positions)
    if name in ("opsd", "sdpo", "sdpg", "crpo"):
        segments = [1] * len(positions)
    elif name == "crest":
        ids = rollout.at_actions("request_ids")
        changes = [0] + [int(a != b) for a, b in pairwise(ids)]
        segments = [1 + sum(changes[: rank + 1]) for rank in range(len(ids))]
    elif name in TURN_DEFAULTS:
        segments = segments_by_turn(rollout)
    elif name == "spo":
        starts = spo_starts(rollout, o)
        segments = [1 + sum(0 < s <= rank for s in starts) for rank in range(len(positions))]
    else:
        segments = list(range(1, len(positions) + 1))
    for rank, t in enumerate(positions):
        result.advantages[t], result.weights[t], result.segments[t] = advantages[rank], weights[rank], segments[rank]
    return result


# --- the hinted self as a weight --------------------------------------------------------------------------------------


def gaps(rollout: Rollout, one="teacher_logprob", other="student_logprob") -> list[float]:
    return [a - b for a, b in zip(rollout.at_actions(one), rollout.at_actions(other), strict=True)]


def weighted(A: float, delta: list[float], o: dict):
    w = [clip(math.exp(sign(A) * x), 1 - o["clip"], 1 + o["clip"]) for x in delta]
    return [A * ((1 - o["mix"]) + o["mix"] * x) for x in w], w


def rlsd(batch, i, A, o):
    return weighted(A[i], gaps(batch[i]), o)


def serl(batch, i, A, o):
    calls = batch[i].at_actions("tool_call")
    return weighted(A[i], [x if call else 0.0 for x, call in zip(gaps(batch[i]), calls, strict=True)], o)


def cepo(batch, i, A, o):
    someone_is_wrong = any(batch[j].reward < o["success"] for j in members(batch, i))
    if someone_is_wrong:
        return weighted(A[i], gaps(batch[i], other="wrong_teacher_logprob"), o)
    if o["without_wrong"] == "rlsd":
        return rlsd(batch, i, A, o)
    n = len(batch[i].positions)
    return [A[i]] * n, [1.0] * n


def residuals(batch, i, o):
    """Of RLCSD's tokens, and whether each is selected; None for a rollout that the source would remove."""
    siblings = [batch[j].reward >= o["success"] for j in members(batch, i) if j != i]
    if not batch[i].counts or True not in siblings or False not in siblings:
        return None
    found = []
    for e in gaps(batch[i], other="wrong_teacher_logprob"):
        res = clip(o["beta"] * o["mix"] * math.tanh(e / o["tau"]), -o["clip"], o["clip"])
        found.append((res, abs(res) > o["delta"]))
    return found


def rlcsd(batch, i, A, o):
    mine, n = residuals(batch, i, o), len(batch[i].positions)
    if mine is None or not batch[i].in_loss:
        return [0.0] * n, [1.0] * n
    over = [j for j in range(len(batch)) if o["denominators"] == "batch" or batch[j].group == batch[i].group]
    over = [j for j in over if batch[j].in_loss]
    tokens = [x for j in over for x in residuals(batch, j, o) or []]
    N, chosen = sum(len(batch[j].positions) for j in over), sum(selected for _, selected in tokens)
    advantages = []
    for res, selected in mine:
        a = A[i]
        if selected:
            a = max(a + res, 0.0) if a > 0 else min(a + res, 0.0) if a < 0 else 0.0
        if o["denominators"] != "one":
            a *= o["eta"] * N / chosen if selected else N / (len(tokens) - chosen)
        advantages.append(a)
    return advantages, [1.0] * n


def sc_grpo(batch, i, A, o):
    def number_correct(j):
        return sum(batch[k].reward >= o["success"] for k in members(batch, j))

    def hinted(j):
        return batch[j].counts and number_correct(j) != 1 and number_correct(j) < len(members(batch, j))

    n = len(batch[i].positions)
    if not hinted(i):
        return [A[i]] * n, [1.0] * n

    def weights(j):
        over = {"rollout": [j], "group": members(batch, j), "batch": range(len(batch))}[o["scope"]]
        over = [k for k in over if hinted(k) and (batch[k].trained or o["scope"] == "rollout")]
        pool = [x for k in over for x in batch[k].at_actions("forward_kl")]
        c = max(quantile(pool, o["percentile"]) if pool else 0.0, o["floor"])
        return [x / (x + c) for x in batch[j].at_actions("forward_kl")]

    f, a = weights(i), A[i]
    if number_correct(i) == 0:
        s = {}
        for j in members(batch, i):  # over the tokens that both it and the sibling it was shown have
            both = weights(j)[: max(1, int(batch[j].at_actions("sibling_length")[0]))]
            s[j] = math.fsum(both) / len(both)
        mean, std = mean_and_std(list(s.values()))
        a = o["bonus"] * (s[i] - mean) / (std + 1e-4)
    return [a * x for x in f], f


def sdar(batch, i, A, o):
    gate = [1 / (1 + math.exp(-o["sharpness"] * x)) for x in gaps(batch[i])]
    return [A[i] + o["coefficient"] * g for g in gate], [1.0] * len(gate)


# --- the hinted self as a loss ----------------------------------------------------------------------------------------


def nothing(batch, i, A, o):
    n = len(batch[i].positions)
    return [0.0] * n, [1.0] * n


def grpo(batch, i, A, o):
    n = len(batch[i].positions)
    return [A[i]] * n, [1.0] * n


# --- weights from inside the model ------------------------------------------------------------------------------------


def quantile(values: list[float], level: float) -> float:
    place = level * (len(values) - 1)
    low, high = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def oar(signal):
    def method(batch, i, A, o):
        score = [math.log1p(x) for x in batch[i].at_actions(signal)]
        low, high = min(score), max(score)
        s = [(x - low) / (high - low) if high > low else 0.0 for x in score]
        tau, rho = quantile(s, o["threshold"]), []
        for x in s:
            if x < tau:
                rho.append(max(o["rho_min"], x / tau))
            else:
                rho.append(1 + (o["beta"] * (x - tau) / (1 - tau) if tau < 1 else 0.0))
        w = [x * len(rho) / math.fsum(rho) for x in rho]  # Σ w = n
        return [A[i] * ((1 - o["mix"]) + o["mix"] * x) for x in w], w

    return method


def grail(batch, i, A, o):
    logs = [math.log(x + 1e-8) for x in batch[i].at_actions("answer_saliency")]
    box = batch[i].at_actions("answer_box")
    mean = math.fsum(logs) / len(logs)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / len(logs) + 1e-8)
    chosen = {"wrong": A[i] <= 0, "correct": A[i] > 0, "both": True}[o["symmetry"]] and any(box)
    w = []
    for x, place in zip(logs, box, strict=True):
        weight = clip(1 + o["spread"] * (x - mean) / std, o["w_min"], o["w_max"]) if chosen else 1.0
        if place == 1 and (chosen or o["box"] == "all"):
            weight = o["w_max"]
        elif place == 2:
            weight = 1.0
        w.append(weight)
    return [A[i] * x for x in w], w


def shear(batch, i, A, o):
    omega = batch[i].at_actions("span_distance")
    return [A[i] * x for x in omega], omega


def high_entropy(batch, i, A, o):
    over = [r for r in batch if r.in_loss] if o["scope"] == "batch" else [batch[i]]
    pool = [h for r in over for h in r.at_actions("entropy")]
    tau = quantile(pool, 1 - o["share"]) if pool else 0.0
    kept = [1.0 if h >= tau else 0.0 for h in batch[i].at_actions("entropy")]
    return [A[i] * x for x in kept], kept


def grpo_lambda(batch, i, A, o):
    n = len(batch[i].positions)
    w = [o["decay"] ** (n - 1 - t) for t in range(n)]
    return [A[i] * x for x in w], w


def crpo(batch, i, A, o):
    n, total = len(batch[i].positions), 0.0
    if batch[i].counts:
        for name in ("task", "style"):
            mean, std = mean_and_std([batch[j].channels[name] for j in scored(batch, i)])
            centred = batch[i].channels[name] - mean
            total += 0.5 * (centred / (std + 1e-6) if o["scale_rewards"] else centred)

    def likelihood(j):
        return math.fsum(batch[j].at_actions("student_logprob")) / len(batch[j].positions)

    anchors = [likelihood(j) for j in members(batch, i) if batch[j].channels["anchor"] > 0]
    if anchors:
        anchor = math.fsum(anchors) / len(anchors)
        pi = math.exp(likelihood(i)) / (math.exp(likelihood(i)) + math.exp(anchor))
        total *= 1 - o["certainty"] * -(pi * math.log(pi) + (1 - pi) * math.log(1 - pi))
    return [total] * n, [1.0] * n


def spo_starts(rollout: Rollout, o: dict) -> list[int]:
    """Ranks of the tokens that begin a segment."""
    uncertain = [rank for rank, x in enumerate(rollout.at_actions("student_logprob")) if math.exp(x) < o["below"]]
    return uncertain[:: o["interval"]]


def spo(batch, i, A, o):
    def plain(rollout):
        value, starts = rollout.at_actions("prefix_value"), spo_starts(rollout, o)
        ends = [*[value[s] for s in starts[1:]], rollout.reward]
        found = [0.0] * len(value)
        for k, start in enumerate(starts):
            for rank in range(start, starts[k + 1] if k + 1 < len(starts) else len(value)):
                found[rank] = ends[k] - value[start]
        cut = [math.exp(x) < o["below"] for x in rollout.at_actions("student_logprob")]
        return [x if is_cut else 0.0 for x, is_cut in zip(found, cut, strict=True)], cut

    mine, cut = plain(batch[i])
    if o["whiten"] and batch[i].in_loss:
        both = [pair for r in batch if r.in_loss for pair in zip(*plain(r), strict=True)]
        pool = [x for x, is_cut in both if is_cut]
        if len(pool) > 1:
            mean = math.fsum(pool) / len(pool)
            std = math.sqrt(math.fsum((x - mean) ** 2 for x in pool) / (len(pool) - 1) + 1e-8)
            mine = [(x - mean) / std if is_cut else 0.0 for x, is_cut in zip(mine, cut, strict=True)]
    return mine, [float(is_cut) for is_cut in cut]


PEERS = {
    "rlsd": rlsd, "serl": serl, "cepo": cepo, "rlcsd": rlcsd, "sc_grpo": sc_grpo, "sdar": sdar,
    "opsd": nothing, "sdpo": nothing, "sdpg": grpo, "oar_p": oar("saliency_mask"), "oar_g": oar("saliency_grad"),
    "grail": grail, "shear": shear, "high_entropy": high_entropy, "grpo_lambda": grpo_lambda, "crpo": crpo,
    "spo": spo,
    **TURN_PEERS,
}  # fmt: skip
