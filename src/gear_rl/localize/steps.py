"""Files with step labels as a source: solutions cut into steps, of which the first wrong one is known.

Two layouts are read, JSON or JSON Lines, row by row:

    ProcessBench   {"problem": …, "steps": [text, …], "label": index of the first wrong step or −1, "solution" and "answer"
                   where the ground truth is known}
    PRM800K        {"question": {"problem": …, "ground_truth_answer": …}, "label": {"steps": [{"completions": [{"text": …,
                   "rating": −1, 0 or 1}], "chosen_completion": index or null, "human_completion": {"text": …} or null}]}}

Steps after the first wrong one are labelled by neither. They count as not wrong: it is the first that is to be found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.assistant_tokens import Conversation, ConversationTokens
from gear_rl.chat.hints import hinted_prompt
from gear_rl.errors import GearError
from gear_rl.localize.labelled import Labelled
from gear_rl.localize.teachers import Scored, Teachers
from gear_rl.records.json_rows import read_rows
from gear_rl.records.transcripts import truth_of
from gear_rl.scoring.padding import padded
from gear_rl.signals.hint_texts import other_hints
from gear_rl.signals.sampled import Sampled

BETWEEN = "\n\n"
MOST_STEPS = 1000


@dataclass(frozen=True)
class Solution:
    where: str
    problem: str
    steps: list[str]
    label: int
    """The first wrong step; −1: none."""
    truth: str | None

    @property
    def messages(self) -> list[dict[str, Any]]:
        said = BETWEEN.join(self.steps)
        return [{"role": "user", "content": self.problem}, {"role": "assistant", "content": said}]


def read_solutions(path: Path, truths: tuple[str, ...]) -> Iterator[Solution]:
    """`truths`: where the ground truth may stand, the first that is there counts."""
    for where, row in read_rows(path):
        yield solution_of(row, truths, where)


def solution_of(row: dict[str, Any], truths: tuple[str, ...], where: str) -> Solution:
    if isinstance(row.get("question"), dict) and isinstance(row.get("label"), dict):
        question = row["question"]
        problem, (steps, label) = question.get("problem"), _prm800k_path(row["label"], where)
        truth = truth_of(question, tuple(f"ground_truth_{name}" for name in truths), where)
    elif {"problem", "steps", "label"} <= row.keys():
        problem, steps, label, truth = row["problem"], row["steps"], row["label"], truth_of(row, truths, where)
    else:
        keys = ", ".join(map(str, list(row)[:12])) or "none"
        raise GearError(
            f"{where}: neither ProcessBench (problem, steps, label) nor PRM800K (question, label); keys: {keys}."
        )
    if not isinstance(problem, str) or not problem.strip():
        raise GearError(f"{where}: the problem must be text.")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) for step in steps):
        raise GearError(f"{where}: steps must be a list of texts.")
    if len(steps) > MOST_STEPS:
        raise GearError(f"{where}: {len(steps)} steps; at most {MOST_STEPS} are read.")
    if type(label) is not int or not -1 <= label < len(steps):
        raise GearError(
            f"{where}: label must be the first wrong step, 0 to {len(steps) - 1}, or -1; got {str(label)[:40]}."
        )
    if label >= 0 and not steps[label].strip():
        raise GearError(f"{where}: step {label} is labelled wrong, but it is empty.")
    return Solution(where, problem, steps, label, truth)


def _prm800k_path(label: dict[str, Any], where: str) -> tuple[list[str], int]:
    """The solution that the labeller went along, and its first step rated −1. Where it was left because nothing offered
    was right, the first completion rated −1 ends it."""
    steps = label.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise GearError(f"{where}: label.steps must be a list of objects.")
    texts: list[str] = []
    wrong = -1
    for i, step in enumerate(steps):
        offered, chosen = step.get("completions") or [], step.get("chosen_completion")
        if not isinstance(offered, list) or not all(isinstance(c, dict) for c in offered):
            raise GearError(f"{where}: completions of step {i} must be a list of objects.")
        if chosen is not None and not (type(chosen) is int and 0 <= chosen < len(offered)):
            raise GearError(
                f"{where}: chosen_completion of step {i} is {str(chosen)[:40]}, of {len(offered)} completions."
            )
        human = step.get("human_completion")
        if chosen is not None:
            taken, rating = offered[chosen].get("text"), offered[chosen].get("rating")
        elif human is not None:
            taken, rating = human.get("text") if isinstance(human, dict) else human, 1
        else:
            bad = [c.get("text") for c in offered if c.get("rating") == -1]
            if not bad:
                break  # given up without a verdict: what stands so far is what is known
            taken, rating = bad[0], -1
        if not isinstance(taken, str):
            raise GearError(f"{where}: the completion taken at step {i} has no text.")
        texts.append(taken)
        if rating == -1 and wrong < 0:
            wrong = i
        if chosen is None and human is None:
            break
    return texts, wrong


# ---------------------------------------------------------------------------------------------------- to tokens
def step_of_tokens(conversation: Conversation, solution: Solution) -> list[int]:
    """Per token of the completion its step, by the token's last character; −1 for what the template added."""
    spans = conversation.spans
    if spans is None:
        raise GearError(f"{solution.where}: this tokenizer cannot say where a token stands, so steps have no tokens.")
    said = BETWEEN.join(solution.steps)
    begin = conversation.text.find(said.strip(), spans[0][0])  # templates may trim what a message begins and ends with
    stop = begin + len(said.strip())
    if begin < 0:
        raise GearError(f"{solution.where}: the chat template does not write the steps as they stand.")
    begin -= len(said) - len(said.lstrip())
    starts, place = [], begin
    for step in solution.steps:
        starts.append(place)
        place += len(step) + len(BETWEEN)
    steps = []
    for (start, end), sampled in zip(spans, conversation.action_mask, strict=True):
        last = max(start, end - 1)
        inside = sampled and begin <= last and start < stop
        steps.append(bisect_right(starts, last) - 1 if inside else -1)
    return steps


def from_solutions(
    solutions: list[Solution],
    tokens: ConversationTokens,
    teachers: Teachers,
    *,
    hint_template: str,
    hinted: bool,
    context: int,
    device: Any,
) -> tuple[list[Scored], int]:
    """Solutions with a wrong step as each of `teachers` sees them, and how many were left out as longer than `context`
    tokens. `hinted`: teachers are shown the ground truth; without, only the student's own signals mean anything."""
    truths = [solution.truth or "" for solution in solutions]
    others = other_hints(truths) if hinted and len(set(truths)) > 1 else truths
    kept: list[tuple[Solution, Conversation, list[int], list[list[int]]]] = []
    for solution, truth, other in zip(solutions, truths, others, strict=True):
        conversation = tokens.split(solution.messages, None, solution.where)
        prompts = [conversation.prompt_ids]
        for text in (truth, other) if hinted else ():
            asked = hinted_prompt(solution.messages[:1], text, hint_template)
            assert isinstance(asked, list)
            prompts.append(tokens.prompt_ids(asked, None, solution.where))
        if max(map(len, prompts)) + len(conversation.completion_ids) <= context:
            kept.append((solution, conversation, step_of_tokens(conversation, solution), prompts))
    if not kept:
        raise GearError(f"all {len(solutions)} solutions are longer than the model's context of {context} tokens.")
    conversations = [conversation for _, conversation, _, _ in kept]
    sampled = Sampled(
        rows=[{"answer": solution.truth} for solution, _, _, _ in kept],
        prompts=[solution.messages[:1] for solution, _, _, _ in kept],
        prompt_ids=[prompts[0] for _, _, _, prompts in kept],
        completion_ids=[c.completion_ids for c in conversations],
        token_ids=padded([c.completion_ids for c in conversations], torch.long).to(device),
        action_mask=padded([c.action_mask for c in conversations], torch.bool).to(device),
        rewards=torch.zeros(len(kept), device=device),
        group_ids=torch.arange(len(kept), device=device),
    )
    mask = sampled.action_mask
    units = (padded([[step + 1 for step in steps] for _, _, steps, _ in kept], torch.long) - 1).to(device)
    wrong = (units == torch.tensor([s.label for s, _, _, _ in kept], device=device)[:, None]) & mask
    for row, (solution, *_) in enumerate(kept):
        if not wrong[row].any():
            raise GearError(f"{solution.where}: its wrong step has no token of its own.")
    rollouts = Rollouts(
        action_mask=mask,
        rewards=sampled.rewards,
        group_ids=sampled.group_ids,
        advantages=-torch.ones(len(kept), device=device),  # each has a mistake: it lost
        token_ids=sampled.token_ids,
        signals={"decision": -wrong.float()},
    )
    labelled = Labelled(rollouts, units, wrong, [s.problem for s, _, _, _ in kept])
    sides = [[prompts[side] for _, _, _, prompts in kept] for side in range(3 if hinted else 1)]
    misled = sides[2] if hinted and others is not truths else None
    scored = teachers.score(
        labelled, sampled, sides[1] if hinted else None, misled,
        lambda asked, of: [tokens.prompt_ids(prompt, None, "a solution") for prompt in asked],  # type: ignore[arg-type]
    )  # fmt: skip
    return scored, len(solutions) - len(kept)
