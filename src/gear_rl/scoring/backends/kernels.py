"""The Triton kernels: two matrix products and the streaming state in one pass; logits never leave the registers.

One program owns a block of tokens and `TILES` vocabulary tiles, keeps two accumulators (student, teacher), and folds
every finished tile into the state of `gear_rl.scoring.backends.state`, here in base 2 because exp2 is the hardware's
own. `merge_kernel` adds the splits of the vocabulary up and the sampled token's logits. There are no atomics and the
split does not depend on N: the same bits on every run, and for a token in any batch.

Loads come in two forms behind one constexpr: TMA descriptors (Hopper and later), and plain pointers anywhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

ABSENT = tl.constexpr(-1.0e30)  # finite, as in state.py: 0 · ABSENT = 0 and ABSENT − ABSENT = 0
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _place(n, splits, BM: tl.constexpr, GROUP: tl.constexpr):
    """(token block, vocabulary split) of this program.

    GROUP token blocks walk through the vocabulary side by side: they meet at the same weights, which then come from
    L2, and their hidden states (GROUP · BM · D) stay in it.
    """
    pid = tl.program_id(0)
    blocks = tl.cdiv(n, BM)
    group = pid // (GROUP * splits)
    first = group * GROUP
    height = tl.minimum(blocks - first, GROUP)
    inside = pid % (GROUP * splits)
    return first + inside % height, inside // height


@triton.jit
def _load(SOURCE, start, k, limit, width, stride, ROWS: tl.constexpr, BK: tl.constexpr, TMA: tl.constexpr):
    """Rows [start, start + ROWS) × columns [k, k + BK) of a matrix; columns beyond `width` read as 0.

    Rows beyond `limit` may hold anything (TMA: 0; pointers: the last row again): the caller drops or masks them.
    """
    if TMA:
        tile = SOURCE.load([start, k])
    else:
        rows = tl.minimum(start + tl.arange(0, ROWS), limit - 1).to(tl.int64)
        columns = k + tl.arange(0, BK)
        tile = tl.load(SOURCE + rows[:, None] * stride + columns[None, :], mask=(columns < width)[None, :], other=0.0)
    return tile


@triton.jit
def _products(
    HS, HT, WS, WT, row, column, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SHARED: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """W h of student and teacher for one tile, each (BM, BN) float32. A shared head is loaded once for both."""
    acc_s = tl.zeros((BM, BN), tl.float32)
    acc_t = tl.zeros((BM, BN), tl.float32)
    for k in range(0, width, BK):
        h_s = _load(HS, row, k, n, width, hs_stride, BM, BK, TMA)
        h_t = _load(HT, row, k, n, width, ht_stride, BM, BK, TMA)
        w_s = _load(WS, column, k, vocab, width, ws_stride, BN, BK, TMA)
        acc_s = tl.dot(h_s, w_s.T, acc_s, input_precision="ieee")
        if SHARED:
            acc_t = tl.dot(h_t, w_s.T, acc_t, input_precision="ieee")
        else:
            w_t = _load(WT, column, k, vocab, width, wt_stride, BN, BK, TMA)
            acc_t = tl.dot(h_t, w_t.T, acc_t, input_precision="ieee")
    return acc_s, acc_t


@triton.jit
def _shape_logits(product, BIAS, columns, vocab, inner, outer, HAS_BIAS: tl.constexpr, CAPPED: tl.constexpr):
    """Bias and soft-cap. Base-2 logits are the result times the factor that comes with it.

    cap · tanh(scale · x / cap) / T, with tanh(u) = 1 − 2 / (1 + e^{2u}), which is right at both infinities.
    inner = 2 log2(e) scale / cap, outer = log2(e) cap / T; without a cap only outer = log2(e) scale / T counts, and it
    is left to the caller, where it costs nothing: it becomes part of a fused multiply-add.
    """
    if HAS_BIAS:
        bias = tl.load(BIAS + columns, mask=columns < vocab, other=0.0).to(tl.float32)
        product = product + bias[None, :]
    if CAPPED:
        logits = (1.0 - 2.0 / (1.0 + tl.exp2(product * inner))) * outer
        factor = 1.0
    else:
        logits = product
        factor = outer
    return logits, factor


@triton.jit
def divergence_kernel(
    HS, HT, WS, WT, BIAS_S, BIAS_T, PARTS, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride, splits,
    inner_s, outer_s, inner_t, outer_t,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    SHARED: tl.constexpr, TMA: tl.constexpr, RAGGED: tl.constexpr, FORWARD: tl.constexpr,
    HAS_BIAS_S: tl.constexpr, HAS_BIAS_T: tl.constexpr, CAPPED_S: tl.constexpr, CAPPED_T: tl.constexpr,
    FLATTEN: tl.constexpr,
):  # fmt: skip
    """PARTS (6 or 7, n, splits): max_s, sum_s, a, b, max_t, sum_t, f of each split, in nats."""
    block, split = _place(n, splits, BM, GROUP)
    row = block * BM
    max_s = tl.full((BM,), ABSENT, tl.float32)
    max_t = tl.full((BM,), ABSENT, tl.float32)
    sum_s = tl.zeros((BM,), tl.float32)
    sum_t = tl.zeros((BM,), tl.float32)
    a = tl.zeros((BM,), tl.float32)
    b = tl.zeros((BM,), tl.float32)
    f = tl.zeros((BM,), tl.float32)
    first = split * TILES
    for tile in tl.range(first, tl.minimum(first + TILES, tl.cdiv(vocab, BN)), flatten=FLATTEN):
        column = tile * BN
        acc_s, acc_t = _products(
            HS, HT, WS, WT, row, column, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
            BM, BN, BK, SHARED, TMA,
        )  # fmt: skip
        columns = column + tl.arange(0, BN)
        z_s, factor_s = _shape_logits(acc_s, BIAS_S, columns, vocab, inner_s, outer_s, HAS_BIAS_S, CAPPED_S)
        z_t, factor_t = _shape_logits(acc_t, BIAS_T, columns, vocab, inner_t, outer_t, HAS_BIAS_T, CAPPED_T)
        if RAGGED:
            z_s = tl.where((columns < vocab)[None, :], z_s, ABSENT)
            z_t = tl.where((columns < vocab)[None, :], z_t, ABSENT)
        top_s = tl.maximum(max_s, tl.max(z_s, 1) * factor_s)
        top_t = tl.maximum(max_t, tl.max(z_t, 1) * factor_t)
        shift_s = max_s - top_s
        shift_t = max_t - top_t
        scale_s = tl.exp2(shift_s)
        scale_t = tl.exp2(shift_t)
        below_s = z_s * factor_s - top_s[:, None]
        below_t = z_t * factor_t - top_t[:, None]
        w_s = tl.exp2(below_s)
        w_t = tl.exp2(below_t)
        difference = below_s - below_t
        # state.py has the equations: the old sums move to the new maxima first, with the old sum_s and sum_t
        a = scale_s * (a + sum_s * shift_s) + tl.sum(w_s * below_s, 1)
        b = scale_s * (b + sum_s * (shift_s - shift_t)) + tl.sum(w_s * difference, 1)
        if FORWARD:
            f = scale_t * (f + sum_t * (shift_t - shift_s)) - tl.sum(w_t * difference, 1)
        sum_s = scale_s * sum_s + tl.sum(w_s, 1)
        sum_t = scale_t * sum_t + tl.sum(w_t, 1)
        max_s = top_s
        max_t = top_t
    rows = row + tl.arange(0, BM)
    field = n.to(tl.int64) * splits
    out = PARTS + rows.to(tl.int64) * splits + split
    tl.store(out, max_s * LN2, mask=rows < n)
    tl.store(out + field, sum_s, mask=rows < n)
    tl.store(out + 2 * field, a * LN2, mask=rows < n)
    tl.store(out + 3 * field, b * LN2, mask=rows < n)
    tl.store(out + 4 * field, max_t * LN2, mask=rows < n)
    tl.store(out + 5 * field, sum_t, mask=rows < n)
    if FORWARD:
        tl.store(out + 6 * field, f * LN2, mask=rows < n)


@triton.jit
def jensen_shannon_kernel(
    HS, HT, WS, WT, BIAS_S, BIAS_T, NORM_S, NORM_T, PARTS, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
    splits, inner_s, outer_s, inner_t, outer_t,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    SHARED: tl.constexpr, TMA: tl.constexpr, RAGGED: tl.constexpr,
    HAS_BIAS_S: tl.constexpr, HAS_BIAS_T: tl.constexpr, CAPPED_S: tl.constexpr, CAPPED_T: tl.constexpr,
):  # fmt: skip
    """The second pass, with the normalisers NORM_S and NORM_T (n,) of the first. PARTS (n, splits), in nats."""
    block, split = _place(n, splits, BM, GROUP)
    row = block * BM
    rows = row + tl.arange(0, BM)
    norm_s = tl.load(NORM_S + rows, mask=rows < n, other=0.0) / LN2
    norm_t = tl.load(NORM_T + rows, mask=rows < n, other=0.0) / LN2
    total = tl.zeros((BM,), tl.float32)
    first = split * TILES
    for tile in range(first, tl.minimum(first + TILES, tl.cdiv(vocab, BN))):
        column = tile * BN
        acc_s, acc_t = _products(
            HS, HT, WS, WT, row, column, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
            BM, BN, BK, SHARED, TMA,
        )  # fmt: skip
        columns = column + tl.arange(0, BN)
        z_s, factor_s = _shape_logits(acc_s, BIAS_S, columns, vocab, inner_s, outer_s, HAS_BIAS_S, CAPPED_S)
        z_t, factor_t = _shape_logits(acc_t, BIAS_T, columns, vocab, inner_t, outer_t, HAS_BIAS_T, CAPPED_T)
        if RAGGED:
            z_s = tl.where((columns < vocab)[None, :], z_s, ABSENT)
            z_t = tl.where((columns < vocab)[None, :], z_t, ABSENT)
        log_p = z_s * factor_s - norm_s[:, None]
        log_q = z_t * factor_t - norm_t[:, None]
        # log2(½ (p + q)) without leaving the logarithm: exact where both are tiny
        gap = log_p - log_q
        log_m = tl.maximum(log_p, log_q) + tl.log2(1.0 + tl.exp2(-tl.abs(gap))) - 1.0
        total += tl.sum(tl.exp2(log_p) * (log_p - log_m) + tl.exp2(log_q) * (log_q - log_m), 1)
    tl.store(PARTS + rows.to(tl.int64) * splits + split, total * LN2 * 0.5, mask=rows < n)


@triton.jit
def _target_logit(H, W, BIAS, ids, rows, here, n, width, h_stride, w_stride, inner, outer, BR: tl.constexpr,
                  BD: tl.constexpr, HAS_BIAS: tl.constexpr, CAPPED: tl.constexpr):  # fmt: skip
    """Logit of the sampled token, (BR,) in nats; ABSENT where the id is not in this head."""
    safe = tl.where(here, ids, 0)
    total = tl.zeros((BR, BD), tl.float32)
    for d in range(0, width, BD):
        depth = d + tl.arange(0, BD)
        ok = here[:, None] & (depth < width)[None, :]
        h = tl.load(H + rows.to(tl.int64)[:, None] * h_stride + depth[None, :], mask=ok, other=0.0)
        w = tl.load(W + safe[:, None] * w_stride + depth[None, :], mask=ok, other=0.0)
        total += h.to(tl.float32) * w.to(tl.float32)
    product = tl.sum(total, 1)
    if HAS_BIAS:
        product += tl.load(BIAS + safe, mask=here, other=0.0).to(tl.float32)
    if CAPPED:
        product = (1.0 - 2.0 / (1.0 + tl.exp2(product * inner))) * outer
    else:
        product = product * outer
    return tl.where(here, product * LN2, ABSENT)


@triton.jit
def merge_kernel(
    PARTS, HS, HT, WS, WT, BIAS_S, BIAS_T, IDS, OUT, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride, splits,
    inner_s, outer_s, inner_t, outer_t, out_stride,
    BR: tl.constexpr, BS: tl.constexpr, BD: tl.constexpr, FORWARD: tl.constexpr,
    HAS_BIAS_S: tl.constexpr, HAS_BIAS_T: tl.constexpr, CAPPED_S: tl.constexpr, CAPPED_T: tl.constexpr,
):  # fmt: skip
    """OUT (8 or 9, n): the fields of VocabState over the whole head, BR tokens a program."""
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    slices = tl.arange(0, BS)
    ok = (rows < n)[:, None] & (slices < splits)[None, :]
    field = n.to(tl.int64) * splits
    part = PARTS + rows.to(tl.int64)[:, None] * splits + slices[None, :]
    max_s = tl.load(part, mask=ok, other=ABSENT)
    sum_s = tl.load(part + field, mask=ok, other=0.0)
    a = tl.load(part + 2 * field, mask=ok, other=0.0)
    b = tl.load(part + 3 * field, mask=ok, other=0.0)
    max_t = tl.load(part + 4 * field, mask=ok, other=ABSENT)
    sum_t = tl.load(part + 5 * field, mask=ok, other=0.0)
    top_s = tl.max(max_s, 1)
    top_t = tl.max(max_t, 1)
    shift_s = max_s - top_s[:, None]
    shift_t = max_t - top_t[:, None]
    scale_s = tl.exp2(shift_s / LN2)
    scale_t = tl.exp2(shift_t / LN2)
    out = OUT + rows
    live = rows < n
    tl.store(out, top_s, mask=live)
    tl.store(out + out_stride, tl.sum(scale_s * sum_s, 1), mask=live)
    tl.store(out + 2 * out_stride, tl.sum(scale_s * (a + sum_s * shift_s), 1), mask=live)
    tl.store(out + 3 * out_stride, tl.sum(scale_s * (b + sum_s * (shift_s - shift_t)), 1), mask=live)
    tl.store(out + 4 * out_stride, top_t, mask=live)
    tl.store(out + 5 * out_stride, tl.sum(scale_t * sum_t, 1), mask=live)
    ids = tl.load(IDS + rows, mask=live, other=-1)
    here = live & (ids >= 0) & (ids < vocab)
    y_s = _target_logit(HS, WS, BIAS_S, ids, rows, here, n, width, hs_stride, ws_stride, inner_s, outer_s, BR, BD,
                        HAS_BIAS_S, CAPPED_S)  # fmt: skip
    y_t = _target_logit(HT, WT, BIAS_T, ids, rows, here, n, width, ht_stride, wt_stride, inner_t, outer_t, BR, BD,
                        HAS_BIAS_T, CAPPED_T)  # fmt: skip
    tl.store(out + 6 * out_stride, y_s, mask=live)
    tl.store(out + 7 * out_stride, y_t, mask=live)
    if FORWARD:
        f = tl.load(part + 6 * field, mask=ok, other=0.0)
        tl.store(out + 8 * out_stride, tl.sum(scale_t * (f + sum_t * (shift_t - shift_s)), 1), mask=live)


INTERPRETED = type(divergence_kernel).__name__ == "InterpretedFunction"
