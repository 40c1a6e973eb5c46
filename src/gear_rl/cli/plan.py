"""`gear plan`: memory and time of a training step for GRPO and each method, before anything is rented or loaded."""

from __future__ import annotations

import argparse
import json
import shutil

from gear_rl.cli.arguments import COUNT, POSITIVE
from gear_rl.options import argument

SHOWN = "gear,rlsd,opsd,gigpo"
FROM_ZERO = argument(int, at_least=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default="Qwen3-4B", metavar="MODEL",
        help="a known model's name, a folder with config.json, or dimensions: hidden=2560,layers=36,heads=32,kv_heads=8,"
        "head_dim=128,intermediate=9728,vocab=151936,tied=true; default: Qwen3-4B")  # fmt: skip
    add("--gpus", type=COUNT, default=1, metavar="N", help="how many; default: 1")
    add("--gpu", default="H200", metavar="TYPE", help="H200, H100, B200, A100-80GB, A100-40GB, L40S or RTX4090")
    add("--gpu-memory", type=POSITIVE, metavar="GIB", help="memory of a GPU, where it is not the usual")
    add("--rollouts", type=COUNT, default=64, metavar="N", help="of one optimizer step, on all GPUs; default: 64")
    add("--group", type=COUNT, default=8, metavar="N", help="rollouts of a prompt; default: 8")
    add("--prompt", type=COUNT, default=1024, metavar="TOKENS", help="default: 1024")
    add("--completion", type=COUNT, default=1024, metavar="TOKENS",
        help="that the policy samples in a rollout, all turns together; default: 1024")  # fmt: skip
    add("--turns", type=COUNT, default=1, metavar="N", help="of the policy in a rollout; default: 1")
    add("--reply", type=FROM_ZERO, default=256, metavar="TOKENS",
        help="of the environment after each turn but the last; default: 256")  # fmt: skip
    add("--hint", type=FROM_ZERO, default=64, metavar="TOKENS", help="of the ground truth; default: 64")
    add("--micro-batch", type=FROM_ZERO, default=0, metavar="N",
        help="rollouts of one backward pass on a GPU; default: as many as fit")  # fmt: skip
    add(
        "--shard",
        choices=("auto", "none", "fsdp"),
        default="auto",
        help="default: only where it does not fit otherwise",
    )
    add("--precision", choices=("bf16", "mixed"), default="bf16",
        help="bf16: everything in bf16. mixed: float32 weights and optimizer, computed with in bf16")  # fmt: skip
    add("--lora", type=FROM_ZERO, default=0, metavar="RANK", help="train adapters of this rank; default: all weights")
    add("--no-checkpointing", action="store_true", help="without gradient checkpointing")
    add("--teacher", choices=("live", "sync", "ema", "base"), help="default: as each method's source")
    add("--credit", default=SHOWN, metavar="NAMES", help=f"methods beside GRPO, or `all`; default: {SHOWN}")
    add("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """0: all fit. 1: GRPO or one of the methods does not."""
    from gear_rl.methods import all_methods
    from gear_rl.planning.hardware import find_gpu
    from gear_rl.planning.model_shapes import find_shape
    from gear_rl.planning.plan import as_json, plan
    from gear_rl.planning.setup import Setup
    from gear_rl.planning.table import assumptions, in_words

    same = ("gpus", "rollouts", "group", "prompt", "completion", "turns", "reply", "hint", "micro_batch", "precision",
            "lora", "teacher")  # fmt: skip
    setup = Setup(
        find_shape(args.model),
        find_gpu(args.gpu, args.gpu_memory),
        sharding="none" if args.shard == "auto" else args.shard,
        checkpointing=not args.no_checkpointing,
        **{name: getattr(args, name) for name in same},
    )
    names = list(all_methods()) if args.credit == "all" else [name.strip() for name in args.credit.split(",") if name]
    plans = plan(setup, names, choose_sharding=args.shard == "auto")
    if args.json:
        print(json.dumps({**as_json(plans), "assumptions": assumptions(setup)}, indent=2))
    else:
        print(in_words(plans, max(60, min(80, shutil.get_terminal_size().columns))))
    return 0 if all(p.fits for p in plans) else 1
