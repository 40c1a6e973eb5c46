"""Records to look at: an agent's transcripts with turns, tool output and prose; hostile output; and large ones."""

from __future__ import annotations

import json
import re

import numpy as np
import torch

from gear_rl import Rollouts, credit
from gear_rl.cli.main import main
from gear_rl.records.record import SCHEMA, VERSION
from gear_rl.records.writer import RecordWriter

HEADER = {"method": "gear", "options": {"alpha": 2.0}, "task": "retail", "model": "sample"}
TURNS = [
    "<think>\nThe customer wants the blue kettle exchanged. I need the order first.\n</think>\n"
    '<tool_call>\n{"name": "get_order", "arguments": {"order_id": "W2378156"}}\n</tool_call><|im_end|>',
    "<tool_response>\n"
    '{"order_id": "W2378156", "status": "delivered",\n "items": [{"name": "kettle", "id": "4107812777"}]}\n'
    "</tool_response>",
    '<tool_call>\n{"name": "exchange_item", "arguments": {"item": "4107812777", "to": "5928112331"}}\n</tool_call><|im_end|>',
    "<tool_response>ok</tool_response>",
    "Done: the exchange of your kettle is requested, and 12.50 will be refunded.<|im_end|>",
]
"""Every second one is the environment's."""


def gear(*words) -> None:
    """The command, which must succeed."""
    assert main([str(word) for word in words]) == 0


def pieces(text: str) -> list[str]:
    """Cut as a byte-pair tokenizer would: marks whole, words with the space before them, numbers in threes."""
    return re.findall(r"<\|?/?\w+\|?>| ?[A-Za-z]{1,7}|\d{1,3}|\n|\s|[^\sA-Za-z\d]+?", text)


def transcript(words: list[str] = TURNS) -> tuple[list[str], list[int]]:
    """Token texts, and which of them the policy sampled."""
    texts, mask = [], []
    for number, words_of_turn in enumerate(words):
        cut = pieces(words_of_turn)
        texts += cut
        mask += [1 - number % 2] * len(cut)
    return texts, mask


def signals_like(mask: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Random, but shaped like the real ones: mostly near zero, with peaks. mask (B, T)."""
    draw = torch.Generator().manual_seed(seed)

    def uniform() -> torch.Tensor:
        return torch.rand(mask.shape, generator=draw)

    peaks = uniform() < 0.04
    student = -torch.where(uniform() < 0.3, -torch.log(uniform().clamp(min=1e-4)), 0.02 * uniform())
    return {
        "reverse_kl": torch.where(peaks, 1 + 4 * uniform(), 0.02 * uniform().square()),
        "entropy": 1.5 * uniform().square(),
        "student_logprob": student,
        "teacher_logprob": torch.where(peaks, student - 3 * uniform(), student - 0.1 * uniform()).clamp(max=0),
    }


def write_transcripts(
    path, *, steps=2, groups=2, size=4, texts=None, mask=None, signals=True, header=HEADER, seed=0, **more
):
    """A record of `steps` × `groups` × `size` rollouts; every one has `texts` and `mask`, and signals of its own."""
    if texts is None:
        texts, mask = transcript()
    mask = mask if mask is not None else [1] * len(texts)
    with RecordWriter(path, header) as writer:
        for step in range(steps):
            count = groups * size
            actions = torch.tensor([mask] * count, dtype=torch.bool)
            draw = torch.Generator().manual_seed(1000 * seed + step)
            rewards = torch.randint(2, (count,), generator=draw).float()
            rewards[::size], rewards[1::size] = 1.0, 0.0  # a winner and a loser in every group
            rollouts = Rollouts(
                action_mask=actions,
                rewards=rewards,
                group_ids=torch.arange(count) // size,
                token_ids=torch.arange(len(texts)).repeat(count, 1) % 50_000,
                signals=signals_like(actions, 7 * seed + step) if signals else {},
            )
            facts = {
                "prompts": [f"Customer {step}-{i // size}: please exchange my kettle.\n" for i in range(count)],
                "hinted_prompts": [
                    f"Customer {step}-{i // size}: please exchange my kettle. [W2378156]\n" for i in range(count)
                ],
                "token_texts": [texts] * count,
                "successes": [bool(r > 0) and i % 3 > 0 for i, r in enumerate(rewards.tolist())],
            }
            writer.write(
                step=step * 10,
                rollouts=rollouts,
                credit=credit("gear" if signals else "grpo", rollouts),
                **{**facts, **more},
            )
    return path


CALL = '<tool_call>\n{"name": "%s", "arguments": {"order_id": "W2378156", "item": "%s"}}\n</tool_call><|im_end|>'


def write_agents(path, *, steps=2, groups=2, header=None, feedback="The wrong order was changed."):
    """Rollouts that differ: in every group two winners exchange the item in turn 2, one loser cancels the order instead, and
    one exchanges the wrong item. The task knows these decisions, and `oracle` gives them all the blame."""
    won = ("exchange_item", "592811", 1)
    ways = [won, ("cancel_order", "592811", 0), won, ("exchange_item", "777", 0)]
    header = header or {**HEADER, "method": "oracle", "options": {}}
    said = [transcript([TURNS[0], TURNS[1], CALL % (tool, item), TURNS[3], TURNS[4]]) for tool, item, _ in ways] * groups
    longest = max(len(texts) for texts, _ in said)
    rows = [texts + [""] * (longest - len(texts)) for texts, _ in said]
    actions = torch.tensor([mask + [0] * (longest - len(mask)) for _, mask in said], dtype=torch.bool)
    known = {text: n for n, text in enumerate(sorted({text for texts in rows for text in texts}))}
    decision = torch.zeros(actions.shape)
    for i, texts in enumerate(rows):
        for k, text in enumerate(texts):
            wrong = (text in ("cancel", "_", "order") and "cancel" in texts[k - 2 : k + 1]) or text == "777"
            decision[i, k] = -1.0 if wrong else 1.0 if text in ("exchang", "592") else 0.0
    rewards = torch.tensor([float(won) for *_, won in ways] * groups)
    rollouts = Rollouts(
        action_mask=actions,
        rewards=rewards,
        group_ids=torch.arange(len(rows)) // len(ways),
        token_ids=torch.tensor([[known[text] for text in texts] for texts in rows]),
        signals={"decision": decision * actions},
    )
    with RecordWriter(path, header) as writer:
        for step in range(steps):
            writer.write(
                step=step,
                rollouts=rollouts,
                credit=credit("oracle", rollouts),
                prompts=[f"Customer {step}-{i // len(ways)}: please exchange my kettle.\n" for i in range(len(rows))],
                hinted_prompts=None,
                token_texts=[texts for texts, _ in said],
                successes=[won > 0 for won in rewards.tolist()],
                verdicts=[
                    {"channels": {"right tool": won, "format": 1.0}, "feedback": None if won else feedback}
                    for won in rewards.tolist()
                ],
            )
    return path


HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "<!--",
    "]]>",
    "\u202eevil\u202c",
    "\u200b\u2066\ufeff",
    "\x00",
    "\x1b[2J",
    "\ud800",
    "\u2028",
    "a\u0301\u0302\u0303" * 20,
    "%%blobs%%",
    "javascript:window.hacked = 1",
    "x" * 100_000,
    "\"\\'`${window.hacked = 1}",
    "مرحبا",
]


def six_digits(values: torch.Tensor) -> list:
    """As a record keeps them."""
    x = values.double().numpy()
    unit = 10.0 ** (np.floor(np.log10(np.abs(x), where=x != 0, out=np.zeros_like(x))) - 5)
    return (np.round(x / unit) * unit).tolist()


def write_large(path, *, rollouts=500, tokens=2000, size=10):
    """`rollouts` of `tokens` tokens each, a tenth of them the environment's, every number and word drawn afresh. Written
    here and not by RecordWriter, whose checks would take most of the test's time."""
    draw = torch.Generator().manual_seed(0)
    ends = ("", "e", "ion", "ter", "ing", "al", "ly", "ed")
    words = [space + letter + end for space in ("", " ") for letter in "abcdefghijklmnop" for end in ends]
    mask = [0 if i % 100 >= 90 else 1 for i in range(tokens)]
    with open(path, "w") as file:
        file.write(json.dumps({"schema": SCHEMA, "version": VERSION, **HEADER}) + "\n")
        for step in range(rollouts // size):
            actions = torch.tensor([mask] * size, dtype=torch.bool)
            ids = torch.randint(len(words), (size, tokens), generator=draw)
            batch = Rollouts(
                action_mask=actions,
                rewards=(torch.arange(size) % 2).float(),
                group_ids=torch.zeros(size, dtype=torch.long),
                token_ids=ids,
                signals=signals_like(actions, step),
            )
            given = credit("gear", batch)
            turns = (torch.arange(tokens) // 100 + 1) * actions
            rows = {
                "token_ids": ids.tolist(),
                "token_texts": [[words[k] for k in row] for row in ids.tolist()],
                "turns": turns.tolist(),
                "segments": given.segments.tolist(),
                "onsets": given.onsets.long().tolist(),
                "weights": six_digits(given.weights),
                "advantages": six_digits(given.advantages),
            }
            signals = {name: six_digits(values) for name, values in batch.signals.items()}
            for i in range(size):
                line = {
                    "step": step,
                    "group": 0,
                    "reward": float(i % 2),
                    "success": None,
                    "group_advantage": None,
                    "prompt": f"Problem {step}",
                    "hinted_prompt": f"Problem {step}, answer {step}",
                    "action_mask": mask,
                    "signals": {
                        name: [x if m else None for x, m in zip(values[i], mask, strict=True)]
                        for name, values in signals.items()
                    },
                    **{name: values[i] for name, values in rows.items()},
                }
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return path
