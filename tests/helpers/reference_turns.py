"""The peers of GEAR that credit turns and requests, by plain loops written from their published formulas.

Shares no code with the package. Everything is Python floats and lists; slow, and meant to be read next to docs/methods/.
"""

from __future__ import annotations

import math

from reference import Rollout, clip, sign, turns_of_actions

TURN_DEFAULTS: dict[str, dict] = {
    "mt_grpo": dict(turn_weight=1.0, form="own", discount=1.0, baseline="unbiased", fallback="combined",
                    scale_rewards=True),
    "gigpo": dict(omega=1.0, gamma=0.95, turn_rewards=False, scale_rewards=False, episode_mean="steps"),
    "igpo": dict(gamma=1.0, variant="paper"),
    "trace": dict(turn_weight=0.2, window=3, gamma=0.8, terminal=2.0, offset=0.1, scale_rewards=True),
    "hcapo": dict(omega=1.0, temperature=5.0, clip=0.2, gamma=0.95, smoothing=0.0, success=0.5, scale_rewards=True),
    "turn_ppo": dict(gamma=0.99, trace=0.9, turn_rewards=False),
    "vine_ppo": dict(gamma=1.0, trace=0.0, turn_rewards=False),
}  # fmt: skip


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


def segments_by_turn(rollout: Rollout) -> list[int]:
    return [k + 1 for k, turn in enumerate(turns_of(rollout)) for _ in turn]


def members(batch: list[Rollout], i: int) -> list[int]:
    """Those whose turns and signals the group's statistics are over."""
    return [j for j, r in enumerate(batch) if r.group == batch[i].group and r.counts]


def scored(batch: list[Rollout], i: int) -> list[int]:
    """Those whose rewards they are over."""
    return [j for j, r in enumerate(batch) if r.group == batch[i].group and r.scored]


def turns_of_members(batch: list[Rollout], i: int) -> list[tuple[int, list[list[int]]]]:
    return [(j, turns_of(batch[j])) for j in members(batch, i)]


def per_token(rollout: Rollout, of_turn: list[float]):
    spread = [x for x, turn in zip(of_turn, turns_of(rollout), strict=True) for _ in turn]
    return spread, [1.0] * len(spread)


def mean_and_std(values: list[float]) -> tuple[float, float]:
    """With n − 1; 0 for one value, and for equal ones."""
    mean = math.fsum(values) / len(values)
    if len(set(values)) == 1:
        return values[0], 0.0
    return mean, math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))


def relative(value: float, values: list[float], scale: bool, epsilon: float) -> float:
    mean, std = mean_and_std(values)
    return (value - mean) / (std + epsilon) if scale else value - mean


def returns(rewards: list[float], gamma: float) -> list[float]:
    return [math.fsum(gamma ** (m - k) * rewards[m] for m in range(k, len(rewards))) for k in range(len(rewards))]


def not_scored(batch, i):
    return None if batch[i].counts else ([0.0] * len(batch[i].positions), [1.0] * len(batch[i].positions))


def crest(batch, i, A, o):
    """A turn is one user request; its reward is that of the assistant turns that end in it."""

    def rewards(j):
        found = {request: 0.0 for request in batch[j].at_actions("request_ids")}
        for turn in turns_of(batch[j]):
            found[batch[j].signals["request_ids"][turn[-1]]] += batch[j].signals["turn_reward"][turn[-1]]
        return found

    p, q = batch[i].at_actions("student_logprob"), batch[i].at_actions("teacher_logprob")
    u = [-x for x in p]
    mean = math.fsum(u) / len(u)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in u) / len(u))
    advantages, phis = [], []
    for rank, request in enumerate(batch[i].at_actions("request_ids")):
        peers = [rewards(j)[request] for j in members(batch, i) if request in rewards(j)]
        a = relative(rewards(i)[request], peers, o["scale_rewards"], 1e-4) if batch[i].counts else 0.0
        delta = (q[rank] - p[rank]) / o["tau"]
        w = clip(math.exp(sign(a) * delta), 1 - o["clip"], 1 + o["clip"])
        g_dir = 1.0 if sign(a) * delta > 0 else 0.0
        g_ent = 1 / (1 + math.exp(-(u[rank] - mean) / (std + 1e-4)))
        m_ent = 1 + o["surprise"] * (2 * g_ent - 1)
        phi = 1 + clip(o["mix"] * g_dir * m_ent, 0.0, o["mix"]) * (w - 1)
        advantages.append(a * phi)
        phis.append(phi)
    return advantages, phis


def mt_grpo(batch, i, A, o):
    if skipped := not_scored(batch, i):
        return skipped

    def turn_rewards(j):  # of the turns that a tool result followed
        return [batch[j].signals["turn_reward"][turn[-1]] for turn in turns_of(batch[j])[:-1]]

    peers, mine = scored(batch, i), turn_rewards(i)
    if not mine and o["fallback"] == "combined":
        sums = {j: batch[j].reward + math.fsum(turn_rewards(j)) for j in peers}
        return per_token(batch[i], [relative(sums[i], list(sums.values()), o["scale_rewards"], 1e-4)])
    of_turn = []
    for k, own in enumerate(mine):
        if o["baseline"] == "unbiased":
            others = [turn_rewards(j)[k] for j in peers if j != i and k < len(turn_rewards(j))]
            of_turn.append(own - math.fsum(others) / len(others) if others else 0.0)
        else:
            group = [turn_rewards(j)[k] if k < len(turn_rewards(j)) else 0.0 for j in peers]
            of_turn.append(relative(own, group, True, 1e-4))
    of_turn = [o["turn_weight"] * x for x in of_turn]
    if o["form"] == "paper":
        return per_token(batch[i], returns([*of_turn, A[i]], o["discount"]))
    return per_token(batch[i], [A[i] + x for x in [*of_turn, 0.0]])


def gigpo(batch, i, A, o):
    if skipped := not_scored(batch, i):
        return skipped
    visits: dict[float, list[float]] = {}  # state → returns of the steps that began in it
    episodes = []
    for j, turns in turns_of_members(batch, i):
        earned = [batch[j].signals["turn_reward"][turn[-1]] if o["turn_rewards"] else 0.0 for turn in turns]
        earned[-1] += batch[j].reward
        for turn, value in zip(turns, returns(earned, o["gamma"]), strict=True):
            visits.setdefault(batch[j].signals["anchor_state"][turn[0]], []).append(value)
        episodes += [batch[j].reward] * len(turns)
        if j == i:
            mine = list(zip(turns, returns(earned, o["gamma"]), strict=True))
    if o["episode_mean"] == "rollouts":
        episodes = [batch[j].reward for j in scored(batch, i)]
    episode = relative(batch[i].reward, episodes, o["scale_rewards"], 1e-6)
    of_turn = []
    for turn, value in mine:
        step = relative(value, visits[batch[i].signals["anchor_state"][turn[0]]], o["scale_rewards"], 1e-6)
        of_turn.append(episode + o["omega"] * step)
    return per_token(batch[i], of_turn)


def igpo(batch, i, A, o):
    if skipped := not_scored(batch, i):
        return skipped
    rewards = {}
    for j, turns in turns_of_members(batch, i):
        belief, rewards[j] = math.exp(batch[j].signals["answer_logprob_start"][turns[0][0]]), []
        for turn in turns[:-1]:
            after = math.exp(batch[j].signals["answer_logprob"][turn[-1]])
            rewards[j].append(after - belief)
            belief = after
        rewards[j].append(batch[j].reward)
    if o["variant"].startswith("position"):
        return _igpo_by_position(batch, i, rewards, o)

    def z(x, pool):
        mean = math.fsum(pool) / len(pool)
        if len(set(pool)) == 1:
            return 0.0
        return (x - mean) / math.sqrt(math.fsum((y - mean) ** 2 for y in pool) / len(pool) + 1e-8)

    gains, outcomes = [x for r in rewards.values() for x in r[:-1]], [r[-1] for r in rewards.values()]
    if o["variant"] == "paper":
        gains = outcomes = gains + outcomes
    normalised = [z(x, gains) for x in rewards[i][:-1]] + [z(rewards[i][-1], outcomes)]
    return per_token(batch[i], returns(normalised, o["gamma"]))


def _igpo_by_position(batch, i, rewards, o):
    """The return at each position of the sequence; running over tool outputs, or reset at each of them."""
    T, rows = len(batch[i].mask), {}
    for j, of_turn in rewards.items():
        by_turn = of_turn if o["variant"] == "position_by_turn" else returns(of_turn, o["gamma"])
        rows[j], end = [0.0] * T, 0
        for turn, value in zip(turns_of(batch[j]), by_turn, strict=True):
            for t in range(end, turn[-1] + 1):
                if batch[j].mask[t] or o["variant"] == "position":
                    rows[j][t] = value
            end = turn[-1] + 1
    n = len(scored(batch, i))  # one that said nothing counts as 0
    advantages = [rows[i][t] - math.fsum(row[t] for row in rows.values()) / n for t in batch[i].positions]
    return advantages, [1.0] * len(advantages)


def trace(batch, i, A, o):
    if batch[0].advantage is not None:
        a = 0.0 if math.isnan(batch[i].reward) else batch[i].advantage
    elif not batch[i].counts:
        a = 0.0
    else:
        pool = [batch[j].reward for j in scored(batch, i)]
        mean = math.fsum(pool) / len(pool)
        a = batch[i].reward - mean
        if o["scale_rewards"]:
            a /= math.sqrt(math.fsum((x - mean) ** 2 for x in pool) / len(pool)) + 1e-4
    turns, signals = turns_of(batch[i]), batch[i].signals
    s = [signals["frozen_answer_logprob_start"][turns[0][0]]]
    s += [signals["frozen_answer_logprob"][turn[-1]] for turn in turns[:-1]]
    V = [math.log((o["offset"] - s[0]) / (o["offset"] - x)) for x in s]
    K, of_turn = len(turns) - 1, []
    for k in range(K):
        window = range(min(o["window"], K - k))
        r = math.fsum(o["gamma"] ** j * (V[k + j + 1] - V[k + j]) for j in window) / math.fsum(
            o["gamma"] ** j for j in window
        )
        if k + o["window"] >= K:
            r += o["terminal"] * o["gamma"] ** (K - k) * a
        of_turn.append(a + o["turn_weight"] * r)
    return per_token(batch[i], [*of_turn, a])


def hcapo(batch, i, A, o):
    if skipped := not_scored(batch, i):
        return skipped
    Q = {}
    for j, turns in turns_of_members(batch, i):
        pi = [math.exp(math.fsum(batch[j].signals["hindsight_logprob"][t] for t in turn) / (o["temperature"] * len(turn)))
              for turn in turns]  # fmt: skip
        mean = math.fsum(pi) / len(pi)
        rho = [clip(x / mean, 1 - o["clip"], 1 + o["clip"]) for x in pi]
        Q[j] = [x * o["gamma"] ** (len(turns) - 1 - k) * batch[j].reward for k, x in enumerate(rho)]
        Q[j] = [(1 - o["smoothing"]) * x + o["smoothing"] * y for x, y in zip(Q[j], [*Q[j][1:], Q[j][-1]], strict=True)]
    pool, of_turn = [x for row in Q.values() for x in row], []
    for x in Q[i]:
        extra = relative(x, pool, o["scale_rewards"], 1e-4)
        if batch[i].reward >= o["success"]:
            extra = max(extra, 0.0)
        of_turn.append(A[i] + o["omega"] * extra)
    return per_token(batch[i], of_turn)


def turn_ppo(batch, i, A, o):
    turns, signals = turns_of(batch[i]), batch[i].signals
    V = [signals["values"][turn[0]] for turn in turns] + [0.0]
    R = [signals["turn_reward"][turn[-1]] if o["turn_rewards"] else 0.0 for turn in turns]
    R[-1] += batch[i].reward
    delta = [R[k] + o["gamma"] * V[k + 1] - V[k] for k in range(len(turns))]
    return per_token(batch[i], returns(delta, o["gamma"] * o["trace"]))


TURN_PEERS = {
    "crest": crest, "mt_grpo": mt_grpo, "gigpo": gigpo, "igpo": igpo, "trace": trace, "hcapo": hcapo,
    "turn_ppo": turn_ppo, "vine_ppo": turn_ppo,
}  # fmt: skip
