"""The Jensen–Shannon divergence: a second pass over the heads, because the mixture ½ (p + q) needs both normalisers."""

from __future__ import annotations

import triton
import triton.language as tl

from gear_rl.scoring.backends.kernels import LN2, place, products, shape_logits


@triton.jit
def jensen_shannon_kernel(
    HS, HT, WS, WT, BIAS_S, BIAS_T, NORM_S, NORM_T, PARTS,
    n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride, splits, inner_s, outer_s, inner_t, outer_t,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    SHARED: tl.constexpr, TMA: tl.constexpr, RAGGED: tl.constexpr,
    HAS_BIAS_S: tl.constexpr, HAS_BIAS_T: tl.constexpr, CAPPED_S: tl.constexpr, CAPPED_T: tl.constexpr,
):  # fmt: skip
    """NORM_S, NORM_T (n,): log-normalisers of the first pass. PARTS (n, splits), in nats."""
    row, split = place(n, splits, BM, GROUP)
    rows = row + tl.arange(0, BM)
    norm_s = tl.load(NORM_S + rows, mask=rows < n, other=0.0) / LN2
    norm_t = tl.load(NORM_T + rows, mask=rows < n, other=0.0) / LN2
    total = tl.zeros((BM,), tl.float32)
    first = split * TILES
    for tile in range(first, tl.minimum(first + TILES, tl.cdiv(vocab, BN))):
        column = tile * BN
        acc_s, acc_t = products(
            HS, HT, WS, WT, row, column, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
            BM, BN, BK, SHARED, TMA,
        )  # fmt: skip
        z_s, factor_s = shape_logits(acc_s, BIAS_S, column, vocab, inner_s, outer_s, BN, HAS_BIAS_S, CAPPED_S, RAGGED)
        z_t, factor_t = shape_logits(acc_t, BIAS_T, column, vocab, inner_t, outer_t, BN, HAS_BIAS_T, CAPPED_T, RAGGED)
        log_p = z_s * factor_s - norm_s[:, None]
        log_q = z_t * factor_t - norm_t[:, None]
        # log2(½ (p + q)) without leaving the logarithm: exact where both are tiny
        log_m = tl.maximum(log_p, log_q) + tl.log2(1.0 + tl.exp2(-tl.abs(log_p - log_q))) - 1.0
        total += tl.sum(tl.exp2(log_p) * (log_p - log_m) + tl.exp2(log_q) * (log_q - log_m), 1)
    tl.store(PARTS + rows.to(tl.int64) * splits + split, total * LN2 * 0.5, mask=rows < n)
