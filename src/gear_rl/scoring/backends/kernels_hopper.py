"""The divergence kernel for Hopper, in Gluon: the same sums as `kernels.divergence_kernel`, faster.

A program stays on its multiprocessor and works through (token block, vocabulary split) items. Its warps have roles:

    three warpgroups   64 tokens × 128 vocabulary entries of student *and* teacher each, 128 accumulators a thread; they
                       multiply, then fold the tile into the streaming state of `state.py`
    one warp           brings the tiles into a ring of shared-memory slots by TMA, ahead of the others

Why it is faster: 192 tokens share each weight tile, so a multiprocessor takes in 53 bytes a clock instead of 64 at full
rate with separate heads; 64 is all its port has. And no warpgroup waits for another: while one folds, the others multiply.

Plain heads and the four numbers only: bias, soft-cap, the forward KL (its sum would not fit the registers) and Triton's
interpreter are left to `kernels.py`.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

ABSENT = gl.constexpr(-1.0e30)  # finite, as in state.py
LN2 = gl.constexpr(0.6931471805599453)
GROUPS = gl.constexpr(3)  # warpgroups that multiply
BM = gl.constexpr(64)  # tokens of each: the height of its matrix instruction
BN = gl.constexpr(128)  # vocabulary entries of a tile
BK = gl.constexpr(64)  # hidden dimensions of a slot: 128 bytes, the widest swizzle
REGISTERS = gl.constexpr(160)  # a thread of a warpgroup that multiplies: 128 accumulators and the state
LOADER_REGISTERS = gl.constexpr(24)
copy_tile = (
    tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
)  # renamed after Triton 3.6


@gluon.constexpr_function
def STAGES(shared):
    """Slots of the ring: 64 KiB each with a shared head, 40 KiB with separate ones, in 227 KiB."""
    return 3 if shared else 5


@gluon.jit
def place(item, numbers):
    """First token of an item, and its first vocabulary tile and the one after its last: as in `kernels.place`."""
    n, vocab, splits, per_split, group = numbers
    first = item // (group * splits) * group
    height = gl.minimum(gl.cdiv(n, GROUPS * BM) - first, group)
    inside = item % (group * splits)
    split = inside // height
    last = gl.minimum((split + 1) * per_split, gl.cdiv(vocab, BN))
    return (first + inside % height) * GROUPS * BM, split, split * per_split, last


@gluon.jit
def next_slot(weights, full, empty, step, source, column, k, SHARED: gl.constexpr):
    """Waits until the slot of `step` is free, announces what will come, and starts the copy of its weight tile."""
    SIDES: gl.constexpr = 2 if SHARED else 1
    slot = step % STAGES(SHARED)
    mbarrier.wait(empty.index(slot), (step // STAGES(SHARED) & 1) ^ 1)
    mbarrier.expect(full.index(slot), (SIDES * GROUPS * BM + BN) * BK * 2)
    copy_tile(source, [column, k], full.index(slot), weights.index(slot))
    return slot


@gluon.jit
def load_tiles(sources, ring, numbers, items, width, SHARED: gl.constexpr):
    """What the loading warp does. A slot holds both sides' hidden states and their weights, or one side's of both."""
    h_s, h_t, w_s, w_t = sources
    hidden, weights, full, empty = ring
    SIDES: gl.constexpr = 2 if SHARED else 1
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        row, _, first, last = place(item, numbers)
        for tile in range(first, last):
            for k in range(0, width, BK):
                slot = next_slot(weights, full, empty, step, w_s, tile * BN, k, SHARED)
                for i in gl.static_range(GROUPS):
                    part = hidden.index(slot * SIDES * GROUPS + i)
                    copy_tile(h_s, [row + BM * i, k], full.index(slot), part)
                if not SHARED:
                    step += 1
                    slot = next_slot(weights, full, empty, step, w_t, tile * BN, k, SHARED)
                for i in gl.static_range(GROUPS):
                    part = hidden.index((slot + 1) * SIDES * GROUPS - GROUPS + i)
                    copy_tile(h_t, [row + BM * i, k], full.index(slot), part)
                step += 1


@gluon.jit
def products(ring, step, width, WHO: gl.constexpr, SHARED: gl.constexpr, LAYOUT: gl.constexpr):
    """W h of student and teacher for one tile, each (BM, BN) float32, and the next step.

    Products stay under way while the slot of those before them is given back.
    """
    hidden, weights, full, empty = ring
    SIDES: gl.constexpr = 2 if SHARED else 1
    acc_s = gl.zeros((BM, BN), gl.float32, LAYOUT)
    acc_t = gl.zeros((BM, BN), gl.float32, LAYOUT)
    for k in range(0, width, BK):
        slot = step % STAGES(SHARED)
        mbarrier.wait(full.index(slot), step // STAGES(SHARED) & 1)
        h = hidden.index(slot * SIDES * GROUPS + WHO)
        acc_s = warpgroup_mma(h, weights.index(slot).permute((1, 0)), acc_s, use_acc=k > 0, is_async=True)
        if not SHARED:
            acc_s, acc_t = warpgroup_mma_wait(1, deps=(acc_s, acc_t))
            if k > 0:
                mbarrier.arrive(empty.index((step - 1) % STAGES(SHARED)))
            step += 1
            slot = step % STAGES(SHARED)
            mbarrier.wait(full.index(slot), step // STAGES(SHARED) & 1)
        h = hidden.index((slot + 1) * SIDES * GROUPS - GROUPS + WHO)
        acc_t = warpgroup_mma(h, weights.index(slot).permute((1, 0)), acc_t, use_acc=k > 0, is_async=True)
        acc_s, acc_t = warpgroup_mma_wait(SIDES, deps=(acc_s, acc_t))
        if not SHARED or k > 0:
            mbarrier.arrive(empty.index((step - 1) % STAGES(SHARED)))
        step += 1
    acc_s, acc_t = warpgroup_mma_wait(0, deps=(acc_s, acc_t))
    mbarrier.arrive(empty.index((step - 1) % STAGES(SHARED)))
    return acc_s, acc_t, step


@gluon.jit
def fold(z_s, z_t, factor_s, factor_t, max_s, sum_s, a, b, max_t, sum_t):
    """One tile (BM, BN) of products into the running state (BM,) each: as `kernels.fold`, line by line."""
    top_s = gl.maximum(max_s, gl.max(z_s, 1) * factor_s)
    top_t = gl.maximum(max_t, gl.max(z_t, 1) * factor_t)
    shift_s = max_s - top_s
    shift_t = max_t - top_t
    scale_s = gl.exp2(shift_s)
    scale_t = gl.exp2(shift_t)
    below_s = z_s * factor_s - top_s[:, None]
    below_t = z_t * factor_t - top_t[:, None]
    w_s = gl.exp2(below_s)
    w_t = gl.exp2(below_t)
    difference = below_s - below_t
    a = scale_s * (a + sum_s * shift_s) + gl.sum(w_s * below_s, 1)
    b = scale_s * (b + sum_s * (shift_s - shift_t)) + gl.sum(w_s * difference, 1)
    sum_s = scale_s * sum_s + gl.sum(w_s, 1)
    sum_t = scale_t * sum_t + gl.sum(w_t, 1)
    return top_s, sum_s, a, b, top_t, sum_t


@gluon.jit
def fold_tiles(
    PARTS, ring, numbers, items, width, factor_s, factor_t,
    SHARED: gl.constexpr, RAGGED: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    """What warpgroup WHO does: its 64 rows of every item."""
    n, vocab, splits, _, _ = numbers
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BN, 16])
    ROWS: gl.constexpr = gl.SliceLayout(1, LAYOUT)
    COLUMNS: gl.constexpr = gl.SliceLayout(0, LAYOUT)
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        row, split, first, last = place(item, numbers)
        max_s = gl.full((BM,), ABSENT, gl.float32, ROWS)
        max_t = gl.full((BM,), ABSENT, gl.float32, ROWS)
        sum_s = gl.zeros((BM,), gl.float32, ROWS)
        sum_t = gl.zeros((BM,), gl.float32, ROWS)
        a = gl.zeros((BM,), gl.float32, ROWS)
        b = gl.zeros((BM,), gl.float32, ROWS)
        for tile in range(first, last):
            z_s, z_t, step = products(ring, step, width, WHO, SHARED, LAYOUT)
            if RAGGED:  # noqa: SIM102 (this is settled at compile time, the next at run time)
                if tile * BN + BN > vocab:
                    inside = tile * BN + gl.arange(0, BN, COLUMNS) < vocab
                    z_s = gl.where(inside[None, :], z_s, ABSENT)
                    z_t = gl.where(inside[None, :], z_t, ABSENT)
            max_s, sum_s, a, b, max_t, sum_t = fold(z_s, z_t, factor_s, factor_t, max_s, sum_s, a, b, max_t, sum_t)
        rows = row + BM * WHO + gl.arange(0, BM, ROWS)
        live = rows < n
        field = n.to(gl.int64) * splits
        part = PARTS + rows.to(gl.int64) * splits + split
        gl.store(part, max_s * LN2, mask=live)
        gl.store(part + field, sum_s, mask=live)
        gl.store(part + 2 * field, a * LN2, mask=live)
        gl.store(part + 3 * field, b * LN2, mask=live)
        gl.store(part + 4 * field, max_t * LN2, mask=live)
        gl.store(part + 5 * field, sum_t, mask=live)


@gluon.jit(do_not_specialize=["n"])
def divergence_kernel(
    HS, HT, WS, WT, PARTS, n, vocab, width, splits, per_split, group, factor_s, factor_t,
    SHARED: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """PARTS (6, n, splits): max_s, sum_s, a, b, max_t, sum_t of each split, in nats.

    HS, HT: descriptors of blocks (BM, BK); WS, WT: of blocks (BN, BK). One program a multiprocessor, num_warps=4.
    """
    SIDES: gl.constexpr = 2 if SHARED else 1
    hidden = gl.allocate_shared_memory(HS.dtype, [STAGES(SHARED) * SIDES * GROUPS, BM, BK], HS.layout)
    weights = gl.allocate_shared_memory(WS.dtype, [STAGES(SHARED), BN, BK], WS.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES(SHARED), 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES(SHARED), 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES(SHARED)):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=GROUPS)
    ring = (hidden, weights, full, empty)
    numbers = (n, vocab, splits, per_split, group)
    items = gl.cdiv(n, GROUPS * BM) * splits
    gl.warp_specialize(
        [
            (fold_tiles, (PARTS, ring, numbers, items, width, factor_s, factor_t, SHARED, RAGGED, gl.constexpr(0))),
            (fold_tiles, (PARTS, ring, numbers, items, width, factor_s, factor_t, SHARED, RAGGED, gl.constexpr(1))),
            (fold_tiles, (PARTS, ring, numbers, items, width, factor_s, factor_t, SHARED, RAGGED, gl.constexpr(2))),
            (load_tiles, ((HS, HT, WS, WT), ring, numbers, items, width, SHARED)),
        ],
        [4, 4, 1],
        [REGISTERS, REGISTERS, LOADER_REGISTERS],
    )
