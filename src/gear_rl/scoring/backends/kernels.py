"""The Triton kernels: two matrix products and the streaming state in one pass; logits never leave the registers.

One program owns a block of tokens and `TILES` vocabulary tiles, keeps two accumulators (student, teacher), and folds
every finished tile into the state of `gear_rl.scoring.backends.state`, here in base 2 because exp2 is the hardware's
own. `merge_kernel` adds the splits of the vocabulary up. There are no atomics and the split does not depend on N: the
same bits on every run, and for a token in any batch.

Loads come in two forms behind one constexpr: TMA descriptors (Hopper and later), and plain pointers anywhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

ABSENT = tl.constexpr(-1.0e30)  # finite, as in state.py: 0 · ABSENT = 0 and ABSENT − ABSENT = 0
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def place(n, splits, BM: tl.constexpr, GROUP: tl.constexpr):
    """(first token, vocabulary split) of this program.

    GROUP token blocks walk through the vocabulary side by side: they meet at the same weights, which then come from
    L2, and their hidden states (GROUP · BM · D) stay in it.
    """
    blocks = tl.cdiv(n, BM)
    first = tl.program_id(0) // (GROUP * splits) * GROUP
    height = tl.minimum(blocks - first, GROUP)
    inside = tl.program_id(0) % (GROUP * splits)
    return (first + inside % height) * BM, inside // height


@triton.jit
def load(SOURCE, start, k, limit, width, stride, ROWS: tl.constexpr, BK: tl.constexpr, TMA: tl.constexpr):
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
def products(
    HS, HT, WS, WT, row, column, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SHARED: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """W h of student and teacher for one tile, each (BM, BN) float32. A shared head is loaded once for both."""
    acc_s = tl.zeros((BM, BN), tl.float32)
    acc_t = tl.zeros((BM, BN), tl.float32)
    for k in range(0, width, BK):
        h_s = load(HS, row, k, n, width, hs_stride, BM, BK, TMA)
        h_t = load(HT, row, k, n, width, ht_stride, BM, BK, TMA)
        w_s = load(WS, column, k, vocab, width, ws_stride, BN, BK, TMA)
        acc_s = tl.dot(h_s, w_s.T, acc_s, input_precision="ieee")
        if SHARED:
            acc_t = tl.dot(h_t, w_s.T, acc_t, input_precision="ieee")
        else:
            w_t = load(WT, column, k, vocab, width, wt_stride, BN, BK, TMA)
            acc_t = tl.dot(h_t, w_t.T, acc_t, input_precision="ieee")
    return acc_s, acc_t


@triton.jit
def shape_logits(
    product, BIAS, column, vocab, inner, outer,
    BN: tl.constexpr, HAS_BIAS: tl.constexpr, CAPPED: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """Bias, soft-cap, and ABSENT beyond the vocabulary. Base-2 logits are the result times the factor beside it.

    cap · tanh(scale · x / cap) / T, with tanh(u) = 1 − 2 / (1 + e^{2u}), which is right at both infinities.
    inner = 2 log2(e) scale / cap, outer = log2(e) cap / T. Without a cap only outer = log2(e) scale / T counts, and it
    is left to the caller, where it costs nothing: it becomes part of a fused multiply-add.
    """
    columns = column + tl.arange(0, BN)
    if HAS_BIAS:
        bias = tl.load(BIAS + columns, mask=columns < vocab, other=0.0).to(tl.float32)
        product = product + bias[None, :]
    if CAPPED:
        logits = (1.0 - 2.0 / (1.0 + tl.exp2(product * inner))) * outer
        factor = 1.0
    else:
        logits = product
        factor = outer
    if RAGGED:
        logits = tl.where((columns < vocab)[None, :], logits, ABSENT)
    return logits, factor


@triton.jit
def fold(z_s, factor_s, z_t, factor_t, max_s, sum_s, a, b, max_t, sum_t, f, FORWARD: tl.constexpr):
    """One tile (BM, BN) of logits into the running state (BM,) each, by the equations of state.py, in base 2."""
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
    # The old sums move to the new maxima first, with the old sum_s and sum_t.
    a = scale_s * (a + sum_s * shift_s) + tl.sum(w_s * below_s, 1)
    b = scale_s * (b + sum_s * (shift_s - shift_t)) + tl.sum(w_s * difference, 1)
    if FORWARD:
        f = scale_t * (f + sum_t * (shift_t - shift_s)) - tl.sum(w_t * difference, 1)
    sum_s = scale_s * sum_s + tl.sum(w_s, 1)
    sum_t = scale_t * sum_t + tl.sum(w_t, 1)
    return top_s, sum_s, a, b, top_t, sum_t, f


@triton.jit(do_not_specialize=["n"])  # at n = 1 Triton would hand in a plain int, which has no .to()
def divergence_kernel(
    HS, HT, WS, WT, BIAS_S, BIAS_T, PARTS,
    n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride, splits, inner_s, outer_s, inner_t, outer_t,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr,
    SHARED: tl.constexpr, TMA: tl.constexpr, RAGGED: tl.constexpr, FORWARD: tl.constexpr,
    HAS_BIAS_S: tl.constexpr, HAS_BIAS_T: tl.constexpr, CAPPED_S: tl.constexpr, CAPPED_T: tl.constexpr,
):  # fmt: skip
    """PARTS (6 or 7, n, splits): max_s, sum_s, a, b, max_t, sum_t, f of each split, in nats."""
    row, split = place(n, splits, BM, GROUP)
    max_s = tl.full((BM,), ABSENT, tl.float32)
    max_t = tl.full((BM,), ABSENT, tl.float32)
    sum_s = tl.zeros((BM,), tl.float32)
    sum_t = tl.zeros((BM,), tl.float32)
    a = tl.zeros((BM,), tl.float32)
    b = tl.zeros((BM,), tl.float32)
    f = tl.zeros((BM,), tl.float32)
    first = split * TILES
    whole = tl.minimum(first + TILES, vocab // BN)
    for tile in range(first, whole):
        acc_s, acc_t = products(
            HS, HT, WS, WT, row, tile * BN, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
            BM, BN, BK, SHARED, TMA,
        )  # fmt: skip
        z_s, factor_s = shape_logits(acc_s, BIAS_S, tile * BN, vocab, inner_s, outer_s, BN, HAS_BIAS_S, CAPPED_S, False)
        z_t, factor_t = shape_logits(acc_t, BIAS_T, tile * BN, vocab, inner_t, outer_t, BN, HAS_BIAS_T, CAPPED_T, False)
        max_s, sum_s, a, b, max_t, sum_t, f = fold(
            z_s, factor_s, z_t, factor_t, max_s, sum_s, a, b, max_t, sum_t, f, FORWARD
        )
    if RAGGED:  # the last tile of the last split on its own: a mask in the loop above would cost every tile
        for tile in range(tl.maximum(first, whole), tl.minimum(first + TILES, tl.cdiv(vocab, BN))):
            acc_s, acc_t = products(
                HS, HT, WS, WT, row, tile * BN, n, vocab, width, hs_stride, ht_stride, ws_stride, wt_stride,
                BM, BN, BK, SHARED, TMA,
            )  # fmt: skip
            z_s, factor_s = shape_logits(
                acc_s, BIAS_S, tile * BN, vocab, inner_s, outer_s, BN, HAS_BIAS_S, CAPPED_S, True
            )
            z_t, factor_t = shape_logits(
                acc_t, BIAS_T, tile * BN, vocab, inner_t, outer_t, BN, HAS_BIAS_T, CAPPED_T, True
            )
            max_s, sum_s, a, b, max_t, sum_t, f = fold(
                z_s, factor_s, z_t, factor_t, max_s, sum_s, a, b, max_t, sum_t, f, FORWARD
            )
    rows = row + tl.arange(0, BM)
    live = rows < n
    field = n.to(tl.int64) * splits
    part = PARTS + rows.to(tl.int64) * splits + split
    tl.store(part, max_s * LN2, mask=live)
    tl.store(part + field, sum_s, mask=live)
    tl.store(part + 2 * field, a * LN2, mask=live)
    tl.store(part + 3 * field, b * LN2, mask=live)
    tl.store(part + 4 * field, max_t * LN2, mask=live)
    tl.store(part + 5 * field, sum_t, mask=live)
    if FORWARD:
        tl.store(part + 6 * field, f * LN2, mask=live)


@triton.jit
def target_kernel(
    H, W, BIAS, IDS, OUT, n, vocab, width, h_stride, w_stride, inner, outer,
    BM: tl.constexpr, BK: tl.constexpr, HAS_BIAS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """OUT (n,): the sampled tokens' logits of one side, in nats; ABSENT where a token is not in this head.

    A block of tokens times its own BM sampled rows of W, of which only the diagonal is wanted. It is wasteful and
    takes no time; what counts is that the matrix unit computes it, as it computed the normaliser: that unit cuts its
    sums off instead of rounding them, and the bias (1e-4 next to logits of 20) cancels only if both sides carry it.
    """
    lane = tl.arange(0, BM)
    rows = tl.program_id(0) * BM + lane
    ids = tl.load(IDS + rows, mask=rows < n, other=-1)
    here = (ids >= 0) & (ids < vocab)
    safe = tl.where(here, ids, 0).to(tl.int64)
    h_rows = tl.minimum(rows, n - 1).to(tl.int64)
    acc = tl.zeros((BM, BM), tl.float32)
    for k in range(0, width, BK):
        depth = k + tl.arange(0, BK)
        h = tl.load(H + h_rows[:, None] * h_stride + depth[None, :], mask=(depth < width)[None, :], other=0.0)
        w = tl.load(W + safe[:, None] * w_stride + depth[None, :], mask=(depth < width)[None, :], other=0.0)
        acc = tl.dot(h, w.T, acc, input_precision="ieee")
    z = tl.sum(tl.where(lane[:, None] == lane[None, :], acc, 0.0), 1)
    if HAS_BIAS:
        z += tl.load(BIAS + safe).to(tl.float32)
    if CAPPED:
        z = (1.0 - 2.0 / (1.0 + tl.exp2(z * inner))) * outer
    else:
        z = z * outer
    tl.store(OUT + rows, tl.where(here, z * LN2, ABSENT), mask=rows < n)


@triton.jit(do_not_specialize=["n"])
def merge_kernel(PARTS, OUT, n, splits, out_stride, BR: tl.constexpr, BS: tl.constexpr, FORWARD: tl.constexpr):
    """The splits of BR tokens added up. OUT rows 0–5 and 8: max_s, sum_s, a, b, max_t, sum_t and f of the whole head."""
    rows = tl.program_id(0) * BR + tl.arange(0, BR)
    slices = tl.arange(0, BS)
    live = rows < n
    ok = live[:, None] & (slices < splits)[None, :]
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
    tl.store(out, top_s, mask=live)
    tl.store(out + out_stride, tl.sum(scale_s * sum_s, 1), mask=live)
    tl.store(out + 2 * out_stride, tl.sum(scale_s * (a + sum_s * shift_s), 1), mask=live)
    tl.store(out + 3 * out_stride, tl.sum(scale_s * (b + sum_s * (shift_s - shift_t)), 1), mask=live)
    tl.store(out + 4 * out_stride, top_t, mask=live)
    tl.store(out + 5 * out_stride, tl.sum(scale_t * sum_t, 1), mask=live)
    if FORWARD:
        f = tl.load(part + 6 * field, mask=ok, other=0.0)
        tl.store(out + 8 * out_stride, tl.sum(scale_t * (f + sum_t * (shift_t - shift_s)), 1), mask=live)


INTERPRETED = type(divergence_kernel).__name__ == "InterpretedFunction"
