"""What the final answer is sensitive to, by one backward pass to the embeddings (OAR-G, GRAIL). e_t: of token t.

    saliency_grad     | Σ_d (∂ KL(P₀ ‖ P_noisy) / ∂e_t · e_t)_d |     OAR-G, e with its noise. P: softmax of the mean of the
                                                                      logits over the answer's tokens
    answer_saliency   ‖ ∂ℓ/∂e_{t−1} ⊙ e_{t−1} ‖₂                      GRAIL, ℓ = −Σ log p over the rollout's own answer

OAR-G reads the rollout up to where its answer begins, and the answer behind that; the noise is on the tokens of the
completion that lead up to the answer. GRAIL's is read at the position that predicts the token. Standing: both as their
official code; that OAR-G's noise is also on the environment's tokens, and drawn from the rollout's own tokens, is ours.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gear_rl.scoring.answers import Answer, AnswerReading, batches_of, mean_states, over_actions, refuse_beyond_context
from gear_rl.scoring.backing_off import backing_off
from gear_rl.scoring.body import evaluating
from gear_rl.scoring.head import Head
from gear_rl.scoring.padding import padded
from gear_rl.scoring.weights import Weights

NOISE = 1e-3
"""Standard deviation of the noise on an embedding, absolute; OAR's."""
_IDLE = AnswerReading([0], [0], 1, Answer([0]))  # read for the sake of other processes, forwards and backwards
_HEAD_ROWS = 64  # answer tokens whose logits exist at a time

Readings = list[AnswerReading | None]
"""None: a rollout whose answer has no place; all its tokens get 0."""
Loss = Callable[[Any, Head, Tensor, Tensor, list[AnswerReading]], Tensor]
"""Body, head, embeddings (n, width, D) with the noise and without, their readings → a number. Rollouts do not mix, so
neither do their gradients."""


def noise_saliency(
    model: nn.Module | Weights, readings: Readings, action_mask: Tensor, temperature: float = 1.0
) -> Tensor:
    """OAR-G's score, "saliency_grad": (B, T), at least 0, and 0 where masked."""

    def loss(body: Any, head: Head, noisy: Tensor, clean: Tensor, members: list[AnswerReading]) -> Tensor:
        with torch.no_grad():
            intact = mean_states(_states(body, clean, members), members)
        moved = mean_states(_states(body, noisy, members), members)
        return _divergence_slope(moved, intact, head, temperature)

    products = _products(model, readings, action_mask.device, loss, _noise)

    def scores(i: int, reading: AnswerReading) -> Tensor:
        return products[i][len(reading.prompt) : len(reading.prompt) + reading.cut].sum(-1).abs()

    return over_actions(readings, action_mask, scores)


def answer_saliency(
    model: nn.Module | Weights, readings: Readings, action_mask: Tensor, temperature: float = 1.0
) -> Tensor:
    """GRAIL's score: (B, T), at least 0, and 0 where masked and behind the answer. `readings`: own answers in place."""

    def loss(body: Any, head: Head, embedded: Tensor, _: Tensor, members: list[AnswerReading]) -> Tensor:
        tokens = torch.tensor([token for m in members for token in m.answer.tokens], device=embedded.device)
        return -_logprobs(_states(body, embedded, members), head, tokens, temperature).sum()

    products = _products(model, readings, action_mask.device, loss, None)
    out = torch.zeros(action_mask.shape, device=action_mask.device)
    for i, reading in enumerate(readings):
        if reading is not None:
            first, end = len(reading.prompt) - 1, len(reading.ids) - 1  # of the positions that predict the completion
            out[i, : end - first] = products[i][first:end].norm(dim=-1)
    return out * action_mask


@backing_off
def _products(
    model: nn.Module | Weights,
    readings: Readings,
    device: torch.device,
    loss: Loss,
    noise: Callable[[Tensor, list[AnswerReading]], Tensor] | None,
) -> dict[int, Tensor]:
    """Rollout → ∂loss/∂e ⊙ e at each position of its reading: (width, D), float32. `noise` is added to e beforehand."""
    numbered = [(i, reading) for i, reading in enumerate(readings) if reading is not None]
    rows = [reading.ids for _, reading in numbered]
    weights = Weights.of(model)
    refuse_beyond_context(weights.model, rows, "a rollout with its answer")
    body, found = weights.body, dict[int, Tensor]()
    with evaluating(weights.model), torch.enable_grad():
        head = weights.head()
        for batch in batches_of(weights, rows, with_gradients=True):
            members = [numbered[b][1] for b in batch] or [_IDLE]
            clean = body.embedded(padded([member.ids for member in members], device=device)).detach()
            embedded = (clean.clone() if noise is None else clean + noise(clean, members)).requires_grad_()
            (gradient,) = torch.autograd.grad(loss(body, head, embedded, clean, members), [embedded])
            product = gradient.float() * embedded.detach().float()  # (n, width, D)
            found |= {numbered[b][0]: row for b, row in zip(batch, product[: len(batch)], strict=True)}
    return found


def _states(body: Any, embedded: Tensor, members: list[AnswerReading]) -> Tensor:
    """The states before the answers' tokens, member after member: (N, D)."""
    row = torch.tensor([i for i, m in enumerate(members) for _ in m.before_answer], device=embedded.device)
    column = torch.tensor([place for m in members for place in m.before_answer], device=embedded.device)
    return body(inputs_embeds=embedded, use_cache=False).last_hidden_state[row, column]


def _noise(embedded: Tensor, members: list[AnswerReading]) -> Tensor:
    """(n, width, D), 0 outside the completions before their answers. Each rollout's own, drawn from its tokens: the batch it
    sits in, and torch's random state, play no part and are left alone."""
    noise = torch.zeros_like(embedded)
    generator = torch.Generator(device=embedded.device)
    for i, member in enumerate(members):
        ids, first = member.ids, len(member.prompt)
        generator.manual_seed(zlib.crc32(array("q", ids).tobytes()))
        drawn = torch.randn(len(ids), embedded.shape[-1], generator=generator, device=embedded.device)
        noise[i, first : first + member.cut] = (NOISE * drawn[first : first + member.cut]).to(noise.dtype)
    return noise


def _divergence_slope(moved: Tensor, intact: Tensor, head: Head, temperature: float) -> Tensor:
    """A number whose gradient is that of Σ KL(P₀ ‖ P), P of `moved` (n, D) and P₀ of `intact` (n, D).

    dKL/dz = P − P₀ = P₀ (e^δ − 1), δ = log P − log P₀. The noise moves probabilities by less than float32 resolves, so
    neither may be subtracted: δ = Δz − log1p(Σ P₀ (e^Δz − 1)), with Δz = W (moved − intact), keeps every digit.
    """
    total = moved.new_zeros(())
    for some, before in zip(moved.split(_HEAD_ROWS), intact.split(_HEAD_ROWS), strict=True):
        weight = head.weight[: head.size].to(some.dtype)
        bias = None if head.bias is None else head.bias[: head.size].to(some.dtype)
        z, change = F.linear(before, weight, bias) * head.scale, F.linear(some - before, weight) * head.scale  # (n, V)
        if (cap := head.softcap) is not None:  # tanh(a + b) − tanh(a) = tanh(b) (1 − tanh(a + b) tanh(a))
            change = cap * torch.tanh(change / cap) * (1 - torch.tanh((z + change) / cap) * torch.tanh(z / cap))
            z = cap * torch.tanh(z / cap)
        with torch.no_grad():
            p, by = (z / temperature).softmax(-1), change / temperature
            by = by - by.gather(1, p.argmax(-1, keepdim=True))  # a constant changes nothing; a sure token's δ is near 0
            delta = by - (p * by.expm1()).sum(-1, keepdim=True).log1p()
            slope = p * delta.expm1()
        total = total + (slope * change).sum() / temperature
    return total


def _logprobs(hidden: Tensor, head: Head, tokens: Tensor, temperature: float) -> Tensor:
    """log p of `tokens` (N,) after `hidden` (N, D), with logits of a few rows at a time, made again for the gradient."""

    def of(states: Tensor, wanted: Tensor) -> Tensor:
        bias = None if head.bias is None else head.bias[: head.size]
        z = F.linear(states.to(head.weight.dtype), head.weight[: head.size], bias).float() * head.scale
        z = z if head.softcap is None else head.softcap * torch.tanh(z / head.softcap)
        return (z / temperature).log_softmax(-1).gather(1, wanted[:, None])[:, 0]

    parts = [
        checkpoint(of, hidden[i : i + _HEAD_ROWS], tokens[i : i + _HEAD_ROWS], use_reentrant=False)
        for i in range(0, len(tokens), _HEAD_ROWS)
    ]
    return torch.cat(parts)
