"""Small tensors in, numbers out: what the official code of each method gives by its formulas, worked out by hand.

The arithmetic stands beside each number. docs/methods/parity.md lists every case with the largest difference it may have;
where ours differs on purpose (an ε, a std), the difference is that large and the page says why.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gear_rl import Rollouts, credit
from gear_rl.methods import METHODS
from gear_rl.scoring.distillation import importance_weight
from gear_rl.scoring.distillation_formulas import Compared, plain_divergence

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "parity.md"
CASES = {}


def case(name):
    """Registers a function → (ours, theirs) under the name of its row on the page."""
    return lambda function: CASES.setdefault(name, function)


def group(rewards, advantages=None, turns=None, channels=None, **signals) -> Rollouts:
    """One group, each signal a row for all rollouts or a row for each."""
    rows = {n: torch.tensor(x if isinstance(x[0], list) else [x] * len(rewards)) for n, x in signals.items()}
    width = next(iter(rows.values())).shape[1] if rows else 1
    return Rollouts(
        torch.ones(len(rewards), width, dtype=torch.bool),
        torch.tensor(rewards),
        torch.zeros(len(rewards), dtype=torch.long),
        turn_ids=None if turns is None else torch.tensor(turns),
        advantages=None if advantages is None else torch.tensor(advantages),
        signals=rows,
        channels={name: torch.tensor(x) for name, x in (channels or {}).items()},
    )


def probabilities(*rows) -> list[Tensor]:
    return [torch.tensor([row], dtype=torch.float64).log() for row in rows]


# --- outcomes ---------------------------------------------------------------------------------------------------------


@case("grpo, TRL")
def _():  # mean 1/4; sample std √((9 + 3 · 1)/16 / 3) = 1/2; (1 − 1/4)/(1/2 + 1e-4), (0 − 1/4)/(1/2 + 1e-4)
    return credit("grpo", group([1.0, 0, 0, 0])).advantages[:, 0], [1.4997001, -0.4999000, -0.4999000, -0.4999000]


@case("grpo, verl")
def _():  # the same with ε = 1e-6
    return credit("grpo", group([1.0, 0, 0, 0])).advantages[:, 0], [1.4999970, -0.4999990, -0.4999990, -0.4999990]


@case("dr_grpo")
def _():  # no division: 3/4, −1/4
    return credit("dr_grpo", group([1.0, 0, 0, 0])).advantages[:, 0], [0.75, -0.25, -0.25, -0.25]


@case("high_entropy")
def _():  # 10 tokens over both rollouts, 0 … 9; quantile 0.8 lies at 0.8 · 9 = 7.2: 8 and 9 stay, the comparison is ≥
    entropy = [[0.0, 1, 2, 3, 9], [4.0, 5, 6, 7, 8]]
    ours = credit("high_entropy", group([1.0, 0], [1.0, -1.0], entropy=entropy), scope="batch").advantages
    return ours, [[0, 0, 0, 0, 1], [0, 0, 0, 0, -1]]


# --- the hinted self --------------------------------------------------------------------------------------------------

LOGPROBS = dict(student_logprob=[-1.0, -1.0, -1.0], teacher_logprob=[-0.9, -5.0, -1.0])  # Δ = 0.1, −4, 0


@case("rlsd")
def _():
    # won:  w = e^0.1 = 1.1051709, clip(e^−4) = 0.8, 1;      A ((1 − ½) + ½ w) = 1.0525855, 0.9, 1
    # lost: w = e^−0.1 = 0.9048374, clip(e^4) = 1.2, 1;      −(½ + ½ w) = −0.9524187, −1.1, −1
    ours = credit("rlsd", group([1.0, 0], [1.0, -1.0], **LOGPROBS)).advantages
    return ours, [[1.0525855, 0.9, 1.0], [-0.9524187, -1.1, -1.0]]


@case("serl")
def _():  # RLSD's numbers on the first token, which is part of an action; A elsewhere
    ours = credit("serl", group([1.0, 0], [1.0, -1.0], tool_call=[1.0, 0, 0], **LOGPROBS)).advantages
    return ours, [[1.0525855, 1.0, 1.0], [-0.9524187, -1.0, -1.0]]


@case("cepo, script")
def _():  # Δ = log q⁺ − log q⁻ = 0.1, −4, 0 with ε_w = 0.2: the same weights as above
    teachers = dict(teacher_logprob=LOGPROBS["teacher_logprob"], wrong_teacher_logprob=LOGPROBS["student_logprob"])
    ours = credit("cepo", group([1.0, 0], [1.0, -1.0], **teachers), clip=0.2).advantages
    return ours, [[1.0525855, 0.9, 1.0], [-0.9524187, -1.1, -1.0]]


@case("cepo, paper")
def _():  # ε_w = 0.5: clip(e^−4) = 0.5 → ½ + ½ · 0.5 = 0.75; clip(e^4) = 1.5 → −1.25
    teachers = dict(teacher_logprob=LOGPROBS["teacher_logprob"], wrong_teacher_logprob=LOGPROBS["student_logprob"])
    ours = credit("cepo", group([1.0, 0], [1.0, -1.0], **teachers)).advantages
    return ours, [[1.0525855, 0.75, 1.0], [-0.9524187, -1.25, -1.0]]


@case("rlcsd")
def _():
    # e = 0.01, −0.01, 0;  ½ tanh(e/0.02) = ½ tanh(±½) = ±0.2310586, 0: the first two of each row are selected.
    # A' = 1.2310586, 0.7689414 | 0.3310586, max(−0.1310586, 0) = 0 | min(0.1310586, 0) = 0, −0.3310586 |
    #      −0.7689414, −1.2310586.  12 tokens, 8 selected, 4 not: factors 12/8 = 1.5 and 12/4 = 3.
    rollouts = group(
        [1.0, 1.0, 0, 0],
        [1.0, 0.1, -0.1, -1.0],
        teacher_logprob=[-1.0, -1.0, -1.0],
        wrong_teacher_logprob=[-1.01, -0.99, -1.0],
    )
    return credit("rlcsd", rollouts, denominators="batch").advantages, [
        [1.8465879, 1.1534121, 3.0],
        [0.4965879, 0.0, 0.3],
        [0.0, -0.4965879, -0.3],
        [-1.1534121, -1.8465879, -3.0],
    ]


@case("sdar, code")
def _():  # Δ = 0.2, −1: σ(1) = 0.7310586, σ(−5) = 0.0066929; A + 0.1 g
    rollouts = group([1.0, 0], [1.0, -1.0], student_logprob=[-1.0, -1.0], teacher_logprob=[-0.8, -2.0])
    ours = credit("sdar", rollouts, coefficient=0.1).advantages
    return ours, [[1.0731059, 1.0006693], [-0.9268941, -0.9993307]]


# --- losses -----------------------------------------------------------------------------------------------------------


@case("opsd, later state")
def _():
    # q = 0.6, 0.3, 0.1 against p = 0.5, 0.3, 0.2: entries 0.6 ln 1.2 = 0.1093929 → 0.05; 0; 0.1 ln ½ = −0.0693147
    p, q = probabilities([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])
    return plain_divergence(p, q, Compared("forward_kl", entry_clip=0.05)), [-0.0193147]


@case("sdpo, top k and tail")
def _():
    # the student's two likeliest, and a tail: p = 0.6, 0.3, 0.1; q gathered there = 0.2, 0.5, 0.3; M = 0.4, 0.4, 0.2
    # ½ (0.6 ln 1.5 + 0.3 ln 0.75 + 0.1 ln 0.5) + ½ (0.2 ln 0.5 + 0.5 ln 1.25 + 0.3 ln 1.5) = 0.0911208
    p, q = probabilities([0.6, 0.3, 0.06, 0.04], [0.2, 0.5, 0.2, 0.1])
    return plain_divergence(p, q, Compared("jsd", top_k=2)), [0.0911208]


@case("sdpo, importance")
def _():  # min(e^0.5, 2) = 1.6487213; min(e^1, 2) = 2; min(e^clamp(−30), 2) = e^−20 = 2.1e-9
    return importance_weight(torch.tensor([-1.0, -1.0, -31.0]), torch.tensor([-1.5, -2.0, -1.0]), 2.0), [
        1.6487213,
        2,
        0,
    ]


@case("sdpg, KL and its cap")
def _():
    # p = 0.5, 0.3, 0.2, q = 0.6, 0.3, 0.1: 0.5 ln(0.5/0.6) + 0 + 0.2 ln 2 = 0.0474687; a cap of 0.01 binds
    p, q = probabilities([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])
    kinds = Compared("reverse_kl", token_cap=20.0), Compared("reverse_kl", token_cap=0.01)
    return torch.cat([plain_divergence(p, q, c) for c in kinds]), [0.0474687, 0.01]


@case("sdpg, reference")
def _():  # the first token was sampled: ½ ln(0.5/0.6)² = 0.0166206 (urkl); 0.6/0.5 = 1.2 (fkl)
    p, q = probabilities([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])
    chosen = torch.tensor([0])
    return torch.cat([plain_divergence(p, q, Compared(kind), chosen) for kind in ("squared", "ratio")]), [
        0.0166206,
        1.2,
    ]


# --- inside the model -------------------------------------------------------------------------------------------------


@case("oar_p")
def _():
    # log1p(score) = 0, 0.02, 0.5, 0.75, 1 = s; τ = quantile 0.25 of five = the second, 0.02
    # ρ = max(0.1, 0) = 0.1, 1, 1 + 0.48/0.98, 1 + 0.73/0.98, 2; their sum 6.3346939; times 5/6.3346939
    scores = torch.tensor([0.0, 0.02, 0.5, 0.75, 1.0], dtype=torch.float64).expm1().tolist()
    ours = credit("oar_p", group([1.0, 0], [1.0, -1.0], saliency_mask=scores)).advantages[0]
    return ours, [0.0789304, 0.7893041, 1.1759021, 1.3772552, 1.5786082]


@case("grail")
def _():
    # log score = 0, 1, 2, 0: mean 0.75, population std √(2.75/4) = 0.8291562; 1 + ½ z = 0.5477330, 1.1507557, 1.7537784
    # of the lost rollout; its last token is inside the box: 5. The won rollout: 1, but for the box
    signals = dict(answer_saliency=[1.0, 2.7182818, 7.3890561, 1.0], answer_box=[0.0, 0.0, 0.0, 1.0])
    ours = credit("grail", group([1.0, 0], [1.0, -1.0], **signals)).advantages
    return ours, [[1, 1, 1, 5], [-0.5477330, -1.1507557, -1.7537784, -5]]


# --- turns and channels -----------------------------------------------------------------------------------------------


@case("mt_grpo, code")
def _():
    # outcomes 1, 0, ½: A^O = ½/(½ + 1e-4) = 0.99980, −0.99980, 0; turn rewards 1, ½, none (0): A^T = 0.99980, 0
    # first: A^O + A^T = 1.99960 before the tool result, A^O after. Second: −0.99980 + 0. The third has no tool result:
    # sums 2, ½, ½: mean 1, std √(1.5/2) = 0.8660254: −½/(0.8660254 + 1e-4) = −0.5772836
    rollouts = group([1.0, 0.0, 0.5], turns=[[0, 1], [0, 1], [0, 0]], turn_reward=[[1.0, 0.0], [0.5, 0.0], [0.0, 0.0]])
    ours = credit("mt_grpo", rollouts, baseline="naive").advantages
    return ours, [[1.9996001, 0.9998000], [-0.9998000, -0.9998000], [-0.5772836, -0.5772836]]


@case("gigpo, mean_norm")
def _():
    # both begin in state 7, then part. Returns there 0.95 and 0: ±0.475. Episodes over steps 1, 1, 0, 0: ±½
    rollouts = group([1.0, 0.0], turns=[[0, 1], [0, 1]], anchor_state=[[7.0, 1.0], [7.0, 2.0]])
    return credit("gigpo", rollouts).advantages, [[0.975, 0.5], [-0.975, -0.5]]


@case("gigpo, mean_std_norm")
def _():
    # 0.475/(√2 · 0.475 + 1e-6) = 0.7071057;  episodes 1, 1, 0, 0: ½/(√(1/3) + 1e-6) = 0.8660239
    rollouts = group([1.0, 0.0], turns=[[0, 1], [0, 1]], anchor_state=[[7.0, 1.0], [7.0, 2.0]])
    return credit("gigpo", rollouts, scale_rewards=True).advantages, [[1.5731296, 0.8660239], [-1.5731296, -0.8660239]]


@case("igpo, one pool")
def _():
    # P: 0.1 → 0.6 and 0.1 → 0.1: gains ½ and 0, outcomes 1 and 0. Mean 0.375, √(0.171875 + 1e-8) = 0.4145781:
    # z = 0.3015113, 1.5075567 | −0.9045340, −0.9045340; added up from the end
    rollouts = group([1.0, 0.0], turns=[[0, 1], [0, 1]], answer_logprob=[[-0.5108256, 0.0], [-2.3025851, 0.0]],
                     answer_logprob_start=[-2.3025851, -2.3025851])  # fmt: skip
    return credit("igpo", rollouts).advantages, [[1.8090680, 1.5075567], [-1.8090680, -0.9045340]]


@case("igpo, first repository")
def _():  # returns 1.5, 1 and 0, 0; minus the group's mean at the same position: 0.75 and 0.5
    rollouts = group([1.0, 0.0], turns=[[0, 1], [0, 1]], answer_logprob=[[-0.5108256, 0.0], [-2.3025851, 0.0]],
                     answer_logprob_start=[-2.3025851, -2.3025851])  # fmt: skip
    return credit("igpo", rollouts, variant="position").advantages, [[0.75, 0.5], [-0.75, -0.5]]


@case("spo")
def _():
    # p 0.95, ½, ½: cut points at 1 and 2, V ¼ and ¾. Advantages ½, ¼ (won) and ½, −¾ (lost): mean 1/8, sample variance
    # (0.375² + 0.125² + 0.375² + 0.875²)/3 = 0.3541667, √(… + 1e-8) = 0.5951190
    p = torch.tensor([0.95, 0.5, 0.5]).log().tolist()
    ours = credit("spo", group([1.0, 0.0], student_logprob=p, prefix_value=[0.0, 0.25, 0.75]), interval=1, whiten=True)
    return ours.advantages, [[0, 0.6301260, 0.2100420], [0, 0.6301260, -1.4702941]]


@case("crpo")
def _():
    # task 1, 0 and style 3, 1: each ±0.7071058 (½/(0.7071068 + 1e-6), 1/(1.4142136 + 1e-6) = 0.7071063); their halves
    # add up to 0.7071060. The second is the anchor and as likely: π = ½, H_b = ln 2, factor 1 − 0.02 ln 2 = 0.9861371
    rollouts = group(
        [1.0, 0.0], student_logprob=[-1.0], channels={"task": [1.0, 0], "style": [3.0, 1], "anchor": [0.0, 1]}
    )
    return credit("crpo", rollouts).advantages[:, 0], [0.6973035, -0.6973035]


def listed() -> dict[str, float]:
    """The rows of the page: case → the largest difference."""
    rows = re.findall(r"^\| `?([a-z_]+)`?([^|]*) \| .* \| ([0-9.e-]+) \|", PAGE.read_text(), re.M)
    return {name + rest: float(largest) for name, rest, largest in rows}


@pytest.mark.parametrize("name", CASES)
def test_as_the_official_code_has_it(name):
    ours, theirs = CASES[name]()
    difference = (ours.double() - torch.tensor(theirs, dtype=torch.float64)).abs().max().item()
    assert difference <= listed()[name], f"{difference:.2e}"


def test_the_page_lists_every_case_and_every_method_whose_code_was_read():
    assert list(listed()) == list(CASES)
    with_code = {name for name, cls in METHODS.items() if "official code" in cls.standing} - {"oar_g"}  # as oar_p
    assert {name.split(",")[0] for name in CASES} == with_code
