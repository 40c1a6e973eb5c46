"""Does an audition predict what training gives? Its figures of every method against true success after training.

    python benchmarks/audition_predicts.py audition --folder auditions                 ten minutes of one core
    python benchmarks/audition_predicts.py compare --folder auditions --out predicts.json --svg predicts.svg

`audition` measures the turns of each world's embedded model once, and credits them with every method that was trained there
(`audition_settings.py`), with the hints it was trained with. With `--words MODEL` it does so for the language model that the
trainings on the workshop in words began with: on a GPU, beside them. `compare` reads what it wrote; the language model's is in
benchmarks/results, since its warm start cannot be repeated bit for bit.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from audition_picture import picture
from audition_ranks import budgets, compare
from audition_settings import RESULTS, WORDS, Arm, Setting, trained, words
from words_runs import ARMS

from gear_rl.assignment.trust import trust_of
from gear_rl.audition.contents import effective_tokens
from gear_rl.audition.findings import chosen_rollouts
from gear_rl.audition.groups import Groups, play_groups
from gear_rl.audition.values import Interventions, TurnValue
from gear_rl.errors import GearError
from gear_rl.files import write_json
from gear_rl.methods import method
from gear_rl.models import choose_device, load_model
from gear_rl.tasks import make_task

MEASURED = {0: 96}
"""Rollouts measured in a world; 48 in the others."""
GROUP, PROMPTS, MOST = 8, {0: 96}, {WORDS: 16}


def credit_of(groups: Groups, turns: list[TurnValue], name: str, options: dict[str, Any]) -> dict[str, Any] | None:
    """A method's credit of the measured turns; None: it has none here."""
    try:
        scored = groups.credit(method(name, **options))
    except GearError as error:
        print(f"    {name}: {error}")
        return None
    advantages = scored.credit.advantages
    if not bool(advantages.any()):
        return None
    by_turn = groups.turn_credit(advantages)
    chosen = sorted({turn.rollout for turn in turns})
    return {
        "turns": [by_turn[turn.rollout][turn.turn] for turn in turns],
        "tokens": effective_tokens(advantages[chosen]),
        "size": float(advantages[groups.sampled.action_mask].square().mean().sqrt()),
    }


def _trust(groups: Groups) -> float:
    found = trust_of(groups.credit(method("gear")).rollouts)
    assert found is not None
    return found.mean


def audition_world(world: int | str, settings: list[Setting], folder: Path, model_path: str = "") -> None:
    name, options = ("workshop_words", {}) if world == WORDS else ("workshop", {"world": world})
    task = make_task(name, **options)
    model, tokenizer = load_model(model_path or task.default_model(), choose_device("auto" if model_path else "cpu"))
    prompts = PROMPTS.get(world, 48)
    groups = play_groups(task, model, tokenizer, task.rows("train", prompts, 0), GROUP)
    work = Interventions(groups, MOST.get(world, 32))
    turns = work.turns(chosen_rollouts(groups, MEASURED.get(world, 48)))
    print(f"world {world}: {len(turns)} turns, {work.continuations} continuations, {work.tokens} tokens", flush=True)
    points = [
        {
            "rollout": t.rollout, "turn": t.turn, "prompt": groups.group_of[t.rollout],
            "before": t.before.rewards, "after": t.after.rewards, "exact_after": t.after.exact,
        }
        for t in turns
    ]  # fmt: skip
    found, trust = dict[str, dict[str, Any]](), dict[str, float]()
    for setting in settings:
        hint = json.dumps(setting.hint)
        of_hint = found.setdefault(hint, {})
        hinted_task = make_task(name, **options, **setting.hint)
        rows = [row for row in hinted_task.rows("train", prompts, 0) for _ in range(GROUP)]
        assert [row["prompt"] for row in rows] == [row["prompt"] for row in groups.rows]
        hinted = replace(groups, task=hinted_task, rows=rows, _credit={})
        trust[hint] = _trust(hinted)
        for arm in setting.success:
            if arm.name not in of_hint:
                of_hint[arm.name] = credit_of(hinted, turns, arm.method, dict(arm.options))
        print(f"  {setting.name}: {len(setting.success)} methods", flush=True)
        seen = {"world": world, "rollouts": len(groups.rows), "continuations": work.continuations, "tokens": work.tokens}
        write_json(folder / f"world_{world}.json", {**seen, "turns": points, "trust": trust, "credit": found})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=("audition", "compare"))
    parser.add_argument("--folder", type=Path, default=Path("auditions"))
    parser.add_argument("--words", metavar="MODEL", help="audition only this model, on the workshop in words")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.part == "audition":
        args.folder.mkdir(parents=True, exist_ok=True)
        if args.words:
            every = {Arm(method, tuple(sorted(options.items()))): [0.0] for method, options in ARMS.values()}
            audition_world(WORDS, [replace(one, success=every) for one in words()], args.folder, args.words)
            return
    settings = trained()
    worlds = sorted({setting.world for setting in settings}, key=str)
    if args.part == "audition":
        for world in worlds:
            if world != WORDS and not (args.folder / f"world_{world}.json").exists():
                audition_world(world, [one for one in settings if one.world == world], args.folder)
        return
    files = {world: args.folder / f"world_{world}.json" for world in worlds} | {WORDS: RESULTS / "audition_words_third.json"}
    auditions = {world: json.loads(file.read_text()) for world, file in files.items()}
    result = {"command": "python benchmarks/audition_predicts.py compare", **compare(settings, auditions)}
    embedded = [one for one in settings if one.world != WORDS]
    result["budgets"] = budgets(embedded, {world: auditions[world] for world in worlds if world != WORDS})
    print(json.dumps({key: result[key] for key in result if key != "settings"}, indent=1))
    if args.out:
        write_json(args.out, result)
    if args.svg:
        args.svg.write_text(picture(result))


if __name__ == "__main__":
    main()
