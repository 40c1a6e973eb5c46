"""Compiles every kernel to machine code for GPUs that need not be here, and looks at what came out. Run by `test_fused.py`."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gear_rl.scoring.backends import kernels, kernels_mixture


def build(kernel, capability, warps, stages, **constants):
    tma, rows, columns, depth = (constants.get(k) for k in ("TMA", "BM", "BN", "BK"))
    height = {"HS": rows, "HT": rows, "WS": columns, "WT": columns}
    signature = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif tma and name in height:
            signature[name] = f"tensordesc<bf16[{height[name]}, {depth}]>"
        elif name.isupper():
            wide = {"IDS": "i64", "PARTS": "fp32", "OUT": "fp32", "NORM_S": "fp32", "NORM_T": "fp32"}
            signature[name] = "*" + wide.get(name, "bf16")
        else:
            signature[name] = "fp32" if name.startswith(("inner", "outer")) else "i32"
    aligned = {
        (i,): [["tt.divisibility", 16]] for i, n in enumerate(signature) if signature[n][0] == "*" or "stride" in n
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, "num_stages": stages}
    )
    return made.asm["ptx"], made.metadata.shared


plain = {"HAS_BIAS_S": False, "HAS_BIAS_T": False, "CAPPED_S": False, "CAPPED_T": False, "TILES": 12}
rich = {"HAS_BIAS_S": True, "HAS_BIAS_T": True, "CAPPED_S": True, "CAPPED_T": True, "TILES": 12}
hopper = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 16, "TMA": True}
ampere = {"BN": 128, "BK": 32, "GROUP": 16, "TMA": False}
main, mixture = kernels.divergence_kernel, kernels_mixture.jensen_shannon_kernel
for name, kernel, capability, stages, constants in (
    ("shared", main, 90, 4, {**plain, **hopper, "SHARED": True, "RAGGED": False, "FORWARD": False}),
    ("separate", main, 90, 3, {**plain, **hopper, "SHARED": False, "RAGGED": True, "FORWARD": True}),
    ("rich", main, 90, 4, {**rich, **hopper, "SHARED": True, "RAGGED": True, "FORWARD": False}),
    ("mixture", mixture, 90, 4, {**plain, **hopper, "SHARED": True, "RAGGED": False}),
    ("pointers shared", main, 80, 3, {**plain, **ampere, "BM": 128, "SHARED": True, "RAGGED": True, "FORWARD": False}),
    (
        "pointers separate",
        main,
        80,
        3,
        {**plain, **ampere, "BM": 64, "SHARED": False, "RAGGED": True, "FORWARD": False},
    ),
):
    ptx, shared = build(kernel, capability, 8, stages, **constants)
    if capability == 90:
        assert "wgmma.mma_async" in ptx and "cp.async.bulk.tensor" in ptx, name
        assert shared <= 227 << 10, (name, shared)
    else:
        assert "mma.sync" in ptx and shared <= 99 << 10, (name, shared)
build(kernels.merge_kernel, 90, 4, 3, BR=4, BS=128, FORWARD=True)
build(kernels.target_kernel, 90, 4, 3, BM=64, BK=64, HAS_BIAS=True, CAPPED=False)
print("compiled")
