"""Blamed steps that are alike: "wrong tool in turn 2: 41 rollouts". Plain grouping by turn, kind and text; no model.

The blamed step of a rollout is the stretch of tokens of one turn that shares its strongest blame: one token for a method
that weighs tokens, a turn for one that weighs turns. It must stand out (`STANDS_OUT` times the mean blame of the rollout's
tokens), or the method spread the blame and there is no step to name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from gear_rl.records.record import RecordedRollout
from gear_rl.report.comparable import Key
from gear_rl.report.kinds import KINDS, token_kinds

STANDS_OUT = 1.5
MOST_CLUSTERS = 12
LONGEST_STEP = 48
"""Characters. A longer step is prose: two of them are never alike, so their kind names them."""
NONE = -1
"""The cluster of a rollout that is in none of those shown."""
_CALL = re.compile(r"<(tool_call|function_call)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,80})"')
_ARGUMENT = re.compile(r'"([^"\\]{1,80})"\s*:')


@dataclass
class Blamed:
    """The blamed step of one rollout."""

    key: Key
    turn: int
    token: int
    blame: float
    what: str
    """"tool call", "argument", "text", or a kind of token."""
    text: str
    wrong: bool | None
    """What the task knows of the step; None where it knows nothing."""
    cluster: int = NONE


class Clusters:
    """Of one run, a rollout at a time."""

    def __init__(self) -> None:
        self.blamed: list[Blamed] = []
        self.even = self.unblamed = 0
        self._calls: dict[Key, list[tuple[float, dict[int, str]]]] = defaultdict(list)
        """Group → per scored rollout its reward and the first tool called in each turn."""
        self._named: list[tuple[tuple[Any, ...], list[Blamed]]] = []

    def add(self, rollout: RecordedRollout) -> Blamed | None:
        key = (rollout.step, rollout.group)
        turns = np.asarray(rollout.turns) * np.asarray(rollout.action_mask)
        calls = {turn: name for turn, name in _tools(rollout, turns).items() if name}
        if calls and rollout.reward is not None:
            self._calls[key].append((rollout.reward, calls))
        blame = -np.asarray(rollout.advantages, dtype=float) * np.asarray(rollout.action_mask)
        if not len(blame) or blame.max() <= 0:
            self.unblamed += 1
            return None
        peak = int(blame.argmax())
        if blame[peak] < STANDS_OUT * blame.clip(min=0).sum() / np.count_nonzero(rollout.action_mask):
            self.even += 1
            return None
        start = end = peak
        while end < len(blame) and turns[end] == turns[peak] and blame[end] >= 0.999 * blame[peak]:
            end += 1
        what, text = _step(rollout, turns, start, end)
        decisions = [d for d in rollout.signals.get("decision", [])[start:end] if d]
        wrong = min(decisions) < 0 if decisions else None
        found = Blamed(key, int(turns[peak]), peak, float(blame[start:end].sum()), what, text, wrong)
        self.blamed.append(found)
        return found

    def form(self) -> None:
        """Name the clusters, once all rollouts are in: texts that occur once are put together by their turn."""
        winners = {key: _called_by_winners(rollouts) for key, rollouts in self._calls.items()}
        named = [(self._name(each, winners.get(each.key, {})), each) for each in self.blamed]
        often = Counter(name for name, _ in named)
        groups: dict[tuple[Any, ...], list[Blamed]] = defaultdict(list)
        for (turn, what, text, instead), each in named:
            alone = what == "text" and often[turn, what, text, instead] == 1
            groups[(turn, "other", "", None) if alone else (turn, what, text, instead)].append(each)
        blame = {name: sum(each.blame for each in members) for name, members in groups.items()}
        # By size, then by blame; what is only alike in its turn comes last, and equals stand in an order that does not change.
        order = lambda name: (name[1] == "other", -len(groups[name]), -blame[name], repr(name))  # noqa: E731
        self._named = [(name, groups[name]) for name in sorted(groups, key=order)]
        for number, (_, members) in enumerate(self._named[:MOST_CLUSTERS]):
            for each in members:
                each.cluster = number

    @staticmethod
    def _name(each: Blamed, winners: dict[int, set[str]]) -> tuple[int, str, str, str | None]:
        """Turn, what, text, and the tool that winners called instead: only where all of them did, and none called this one."""
        others = winners.get(each.turn, set())
        if each.what in ("tool call", "argument") and others and each.text.split(" of ")[-1] not in others and len(others) == 1:
            return each.turn, "wrong tool", each.text.split(" of ")[-1], next(iter(others))
        return each.turn, each.what, each.text, None

    def result(self, example_of: dict[int, tuple[int, int]]) -> dict[str, Any]:
        """For the page. `example_of`: id of a blamed step → its group's number on the page and its rollout's in the group."""
        rows = []
        for (turn, what, text, instead), members in self._named[:MOST_CLUSTERS]:
            shown = [each for each in members if id(each) in example_of]
            best = max(shown, key=lambda each: each.blame, default=None)
            group, rollout = example_of[id(best)] if best else (-1, 0)
            if what == "other":
                what, text = "other" if len(members) > 1 else "text", max(members, key=lambda each: each.blame).text
            rows.append(
                {
                    "turn": turn,
                    "what": what,
                    "text": text,
                    "instead": instead,
                    "rollouts": len(members),
                    "blame": float(f"{sum(each.blame for each in members):.6g}"),
                    "wrong": sum(each.wrong is True for each in members),
                    "judged": sum(each.wrong is not None for each in members),
                    "example": {"group": group, "rollout": rollout, "token": best.token if best else 0},
                }
            )
        rest = self._named[MOST_CLUSTERS:]
        smaller = {"clusters": len(rest), "rollouts": sum(len(members) for _, members in rest)}
        return {"rows": rows, "smaller": smaller, "even": self.even, "unblamed": self.unblamed}


def _called_by_winners(rollouts: list[tuple[float, dict[int, str]]]) -> dict[int, set[str]]:
    """Turn → the tools that rollouts above the mean reward called there."""
    mean = sum(reward for reward, _ in rollouts) / len(rollouts)
    found: dict[int, set[str]] = defaultdict(set)
    for reward, calls in rollouts:
        if reward > mean + 1e-9:
            for turn, name in calls.items():
                found[turn].add(name)
    return found


def _tools(rollout: RecordedRollout, turns: np.ndarray) -> dict[int, str | None]:
    """Turn → the first tool it calls. turns (T,), 0 where masked."""
    if not any("_call" in text for text in rollout.token_texts):
        return {}
    found = {}
    for turn in np.unique(turns[turns > 0]).tolist():
        call = _CALL.search("".join(rollout.token_texts[i] for i in np.flatnonzero(turns == turn)))
        name = _NAME.search(call[2]) if call else None
        found[turn] = name[1] if name else None
    return found


def _step(rollout: RecordedRollout, turns: np.ndarray, start: int, end: int) -> tuple[str, str]:
    """What the step from `start` to `end` is, and the text that names it. turns (T,), 0 where masked."""
    places = np.flatnonzero(turns == turns[start])
    texts = [rollout.token_texts[i] for i in places]
    first, last = np.searchsorted(places, [start, end]).tolist()  # the template may have put tokens of its own into the turn
    kinds = token_kinds(texts, [1] * len(texts))[first:last]
    kind = next((k for k in kinds if KINDS[k] not in ("mark", "space")), kinds[0])
    joined, at = "".join(texts), len("".join(texts[:first]))
    for call in _CALL.finditer(joined):
        if call.start() <= at < call.end() and (name := _NAME.search(call[2])):
            return _in_call(call[2], name, at - call.start(2) + len(rollout.token_texts[start]))
    if KINDS[kind] == "thinking":
        return "thinking", ""
    gap = "" if any(c.isspace() for text in rollout.token_texts for c in text) else " "
    said = [text for text, k in zip(rollout.token_texts[start:end], kinds, strict=True) if KINDS[k] != "mark"]
    words = re.sub(r"\d+", "#", " ".join(gap.join(said).split()))
    return ("text", words) if words and len(words) <= LONGEST_STEP else (KINDS[kind], "")


def _in_call(content: str, name: re.Match[str], at: int) -> tuple[str, str]:
    """`at`: where the blamed token ends in `content`. The argument it is in, else the call itself."""
    keys = [key[1] for key in _ARGUMENT.finditer(content[: max(0, at)]) if key[1] not in ("name", "arguments", "parameters")]
    inside = at > name.end() and keys
    return ("argument", f"{keys[-1]} of {name[1]}") if inside else ("tool call", name[1])
