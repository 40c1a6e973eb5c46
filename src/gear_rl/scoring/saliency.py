"""What the final answer is sensitive to, by one backward pass to the embeddings (OAR-G, GRAIL).

e_t is the embedding of token t, in the rollout up to where its answer begins; the answer is read behind that.

    saliency_act    | ∂ log p(answer) / ∂e_t · e_t |                                       gradient × activation
    saliency_grad   | ∂ KL(p(answer) ‖ p_noisy(answer)) / ∂e_t · e_t |                     noise on every embedding

log p and KL are means over the answer's tokens; the product is summed over the embedding's width. Standing: the second
is OAR's (seen), the size of its noise ours; the first reads GRAIL's "activation" as the embedding, which is ours.
"""

from __future__ import annotations

import zlib
from array import array
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gear_rl.scoring.answers import AnswerReading, batches_of, over_actions, refuse_beyond_context
from gear_rl.scoring.body import body_of, evaluating
from gear_rl.scoring.distillation import Compared, distillation_divergence
from gear_rl.scoring.head import Head
from gear_rl.scoring.padding import padded

NOISE = 0.01
"""Standard deviation of the noise, as a share of the embeddings' own (ours: small enough for the KL to be quadratic)."""
_HEAD_ROWS = 64  # answer tokens whose logits exist at a time


def answer_saliency(
    model: Any,
    readings: list[AnswerReading | None],
    action_mask: Tensor,
    kind: Literal["saliency_act", "saliency_grad"],
    temperature: float = 1.0,
) -> Tensor:
    """(B, T), at least 0, and 0 where masked. None: a rollout whose answer has no place; all its tokens get 0."""
    numbered = [(i, reading) for i, reading in enumerate(readings) if reading is not None]
    rows = [reading.ids for _, reading in numbered]
    refuse_beyond_context(model, rows, "a rollout with its answer")
    body, found = body_of(model), dict[int, Tensor]()
    with evaluating(model), torch.enable_grad():
        head = Head.of(model)
        for batch in batches_of(model, rows, with_gradients=True):
            ids = padded([rows[b] for b in batch], device=action_mask.device)
            embedded = body.get_input_embeddings()(ids).detach().requires_grad_()
            loss = _loss(body, head, embedded, [numbered[b][1] for b in batch], kind, temperature)
            (gradient,) = torch.autograd.grad(loss, [embedded])
            product = (gradient.float() * embedded.detach().float()).sum(-1).abs()  # (n, width)
            found |= {numbered[b][0]: row for b, row in zip(batch, product, strict=True)}

    def scores(i: int, reading: AnswerReading) -> Tensor:
        return found[i][len(reading.prompt) : len(reading.prompt) + reading.cut]

    return over_actions(readings, action_mask, scores)


def _loss(
    body: Any, head: Head, embedded: Tensor, members: list[AnswerReading], kind: str, temperature: float
) -> Tensor:
    """Sum over rollouts of the mean over their answer's tokens: rollouts do not mix, so neither do their gradients."""
    device = embedded.device
    row = torch.tensor([i for i, m in enumerate(members) for _ in m.before_answer], device=device)
    column = torch.tensor([place for m in members for place in m.before_answer], device=device)
    share = torch.tensor([1 / len(m.answer.tokens) for m in members for _ in m.before_answer], device=device)

    def states(inputs: Tensor) -> Tensor:
        return body(inputs_embeds=inputs, use_cache=False).last_hidden_state[row, column]

    if kind == "saliency_act":
        tokens = torch.tensor([token for m in members for token in m.answer.tokens], device=device)
        return (_logprobs(states(embedded), head, tokens, temperature) * share).sum()
    with torch.no_grad():
        clean = states(embedded)
    noisy = states(embedded + _noise(embedded, members))
    divergence = distillation_divergence(noisy, head, clean, head, Compared("forward_kl"), temperature)
    return (divergence * share).sum()


def _noise(embedded: Tensor, members: list[AnswerReading]) -> Tensor:
    """(n, width, D). Each rollout's own, drawn from its tokens: the batch it sits in, and torch's random state, play no
    part and are left alone."""
    noise = torch.zeros_like(embedded)
    generator = torch.Generator(device=embedded.device)
    for i, member in enumerate(members):
        ids = member.ids
        generator.manual_seed(zlib.crc32(array("q", ids).tobytes()))
        drawn = torch.randn(len(ids), embedded.shape[-1], generator=generator, device=embedded.device)
        scale = NOISE * embedded[i, : len(ids)].detach().float().std()
        noise[i, : len(ids)] = (drawn * scale).to(noise.dtype)
    return noise


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
