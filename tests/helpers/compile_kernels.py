"""Compiles every kernel to machine code for GPUs that need not be here, and looks at what came out. Run by `test_fused.py`."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from gear_rl.sampling.attention_kernel import MOST_QUERIES, attention_kernel, tile
from gear_rl.sampling.layer_kernels import store_kernel, swiglu_kernel
from gear_rl.sampling.rotary_kernel import rotary_kernel
from gear_rl.scoring.backends import kernels, kernels_hopper, kernels_mixture


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


def build_hopper(**constants):
    """The Gluon kernel, whose descriptors carry the layout of shared memory."""

    def described(rows):
        layout = gl.NVMMASharedLayout.get_default_for([rows, kernels_hopper.BK.value], gl.bfloat16)
        return f"tensordesc<bf16[{rows}, {kernels_hopper.BK.value}],{layout!r}>"

    hidden, weight = described(kernels_hopper.BM.value), described(kernels_hopper.BN.value)
    given = {
        "HS": hidden,
        "HT": hidden,
        "WS": weight,
        "WT": weight,
        "PARTS": "*fp32",
        "factor_s": "fp32",
        "factor_t": "fp32",
    }
    kernel = kernels_hopper.divergence_kernel
    signature = {n: "constexpr" if n in constants else given.get(n, "i32") for n in kernel.arg_names}
    source = GluonASTSource(fn=kernel, signature=signature, constexprs=constants, attrs={})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return made.asm["ptx"], made.metadata.shared


def build_for_sampling(kernel, pointers, constants, capability, kind="bf16", **options):
    kinds = {**dict.fromkeys(pointers, f"*{kind}"), **dict.fromkeys(constants, "constexpr")}
    kinds |= {name: kind for name, kind in (("columns", "*i64"), ("seen", "*u8")) if name in pointers}
    kinds |= {"scale": "fp32"}
    signature = {name: kinds.get(name, "i32") for name in kernel.arg_names}
    strides = ("_row", "_head", "_column", "_token")
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(signature) if n in pointers or n.endswith(strides)}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return made.asm["ptx"], made.metadata.shared


for kernel, pointers, constants in (
    (rotary_kernel, ("q", "k", "cos", "sin"), {"Q_HEADS": 16, "K_HEADS": 4, "HALF": 32}),
    (store_kernel, ("qkv", "cos", "sin", "keys", "values", "columns"), {"Q_HEADS": 16, "KV_HEADS": 4, "HALF": 32}),
    (swiglu_kernel, ("both", "out"), {"BLOCK": 1024}),
):
    assert all("st.global" in build_for_sampling(kernel, pointers, constants, capability)[0] for capability in (80, 90))
for width, kind, size in ((64, "bf16", 2), (128, "bf16", 2), (256, "bf16", 2), (64, "fp32", 4), (128, "fp32", 4)):
    at_once, stages = tile(width * size)
    constants = {"D": width, "WIDTH": width, "QUERIES": MOST_QUERIES, "COLUMNS": at_once, "EXACT": False}
    for capability, most in ((86, 99 << 10), (90, 227 << 10))[: 2 if width == 64 else 1]:
        pointers = ("qkv", "keys", "values", "seen", "columns", "out")
        ptx, shared = build_for_sampling(attention_kernel, pointers, constants, capability, kind, num_stages=stages)
        assert "st.global" in ptx and shared <= most, (width, kind, capability, shared)
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
for shared_head in (True, False):
    ptx, shared = build_hopper(SHARED=shared_head, RAGGED=not shared_head)
    assert all(part in ptx for part in ("wgmma.mma_async", "cp.async.bulk.tensor", "setmaxnreg")), shared_head
    assert shared <= 227 << 10, shared
build(kernels.merge_kernel, 90, 4, 3, BR=4, BS=128, FORWARD=True)
build(kernels.target_kernel, 90, 4, 3, BM=64, BK=64, HAS_BIAS=True, CAPPED=False)
print("compiled")
