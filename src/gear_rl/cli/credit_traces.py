"""`gear credit` of verifiers' traces: the same file again, with advantages in every message that the policy wrote."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gear_rl.cli.credit_summary import Summary
from gear_rl.errors import GearError
from gear_rl.files import replacing

if TYPE_CHECKING:
    from gear_rl.methods import Method


def from_traces(
    args: argparse.Namespace, source: Path, out: Path, chosen: Method, own_scale: bool, chat: dict[str, Any]
) -> int:
    from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
    from gear_rl.chat.templates import read_template
    from gear_rl.engines.record import token_texts
    from gear_rl.engines.verifiers_traces import TraceCredit, index_traces
    from gear_rl.methods import METHODS
    from gear_rl.models import choose_device, find_model, load_model, load_tokenizer

    template = args.hint_template or DEFAULT_TEMPLATE
    check_template(template)
    chat_template = read_template(args.chat_template) if args.chat_template else None
    if chosen.needs and args.model is None:
        raise GearError(
            f"{source} holds traces of verifiers, and {chosen.name} needs {', '.join(chosen.needs)} of their tokens: name the "
            "model that wrote them, --model MODEL."
        )
    index = index_traces(source, chosen, args.hint_field)
    if own_scale and not all(place.only for place in index.places):
        raise GearError(f"{chosen.name} would scale rewards its own way; where traces have several branches, it cannot.")
    model = tokenizer = None
    if args.model is not None:
        found = find_model(args.model)
        if chosen.needs:
            model, tokenizer = load_model(found, choose_device(args.device or "auto"))
        else:
            tokenizer = load_tokenizer(found)
        if chat_template is not None:
            tokenizer.chat_template = chat_template
    credit = TraceCredit(
        source, index, chosen, model, tokenizer, name=args.model or "", hint_template=template,
        hint_field=args.hint_field, temperature=1.0 if args.temperature is None else args.temperature, chat=chat,
    )  # fmt: skip
    summary, last_line = Summary("grpo", args.credit, "by grpo"), time.monotonic()

    def say(done: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line > 10:
            last_line = time.monotonic()
            print(f"{done}/{len(index.places)} traces", file=sys.stderr, flush=True)

    with replacing(out) as scratch:
        for scored in credit.assign(say):
            rollouts = scored.rollouts
            before, after = METHODS["grpo"]().assign(rollouts).advantages.tolist(), scored.credit.advantages.tolist()
            turns = rollouts.actions.unpack(rollouts.actions.turn_starts.cumsum(1)).tolist()
            for i, ids in enumerate(scored.sampled.completion_ids):
                texts = [f"token {id}" for id in ids] if tokenizer is None else token_texts(ids, tokenizer)
                summary.add(rollouts.action_mask[i].tolist(), turns[i], texts, before[i], after[i])
        credit.write(scratch)
    print(summary.text())
    for reason, n in index.left_out.items():
        if n:
            print(f"left as they were: {n} of {index.traces} traces {reason}")
    print(f"\nwritten to {out}")
    return 0
