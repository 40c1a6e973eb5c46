"""The workshop in words as an environment, and the judge of a finished rollout.

A decision is a value in a turn: the tool, the part, the setting, the answer. A right value is labelled +1 on all of its tokens.
A wrong one is labelled −1 from the first token that rules out the right value to the last token of the value; what it
shares with the right value ("torque_" of torque_driver and torque_wrench) is no decision yet and has 0. A tool that is
named in the thought before it is called is labelled there in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gear_rl.chat.tool_calls import OPEN
from gear_rl.errors import GearError
from gear_rl.tasks.base import Transcript, Verdict
from gear_rl.tasks.workshop_words.language import (
    Call,
    read_answer,
    read_call,
    spoken,
    values_in,
    write_hint,
    write_reply,
)
from gear_rl.tasks.workshop_words.world import GAUGE, Order, World, read_gauge


class WordsEpisode:
    """One rollout's gauge."""

    def __init__(self, world: World, order: Order) -> None:
        self.world, self.gauge, self.calls = world, order.start, 0

    def reply(self, turn: str) -> str | None:
        call = read_call(turn)
        if call is None:  # an answer, or a malformed turn: either ends the episode
            return None
        self.gauge, self.calls = self.world.after(self.gauge, *call), self.calls + 1
        return write_reply(self.calls, self.gauge)


@dataclass
class TurnLabels:
    """What is known about the characters of one turn."""

    marks: list[tuple[int, int, int]] = field(default_factory=list)
    """(start, stop, label)."""
    call_from: int | None = None
    answer: tuple[int, int] | None = None
    end: int = 0
    """The label of the last token: −1 where the turn is malformed."""

    @property
    def right(self) -> bool:
        return self.end == 0 and all(label > 0 for _, _, label in self.marks)


def judge(world: World, order: Order, told: Transcript) -> Verdict:
    """Replay the turns. Reward: the answer is right. Success: so was every decision on the way. Feedback: what an inspector
    says, job by job: the call if it was right, else that it was not."""
    gauge, reward, answered = order.start, 0.0, False
    labels: list[TurnLabels] = []
    states: list[int] = []
    requests: list[int] = []
    inspected: list[Call | None] = [None] * len(order.jobs)
    for step, turn in enumerate(told.turns):
        job = order.jobs[step] if step < len(order.jobs) else None
        ended = not (told.cut_off and step + 1 == len(told.turns))
        call, answer = (read_call(turn), read_answer(turn)) if ended else (None, None)
        states.append(step * GAUGE + gauge)
        requests.append(len(order.jobs) + 1 if answer else min(step, len(order.jobs)) + 1)
        if call is not None:
            wanted = Call(job[0], world.handbook[job]) if job else None
            labels.append(_call_labels(turn, call, wanted))
            gauge = world.after(gauge, *call)
            if call == wanted:
                inspected[step] = call
        elif answer is not None:
            answered, reward = True, float(answer == world.right_answer(order))
            labels.append(_answer_labels(turn, read_gauge(gauge), too_early=job is not None))
        else:
            labels.append(TurnLabels(end=-1))
    wrong = [i for i, turn in enumerate(labels) if not turn.right]
    turn_rewards = [float(call is not None) for call in inspected[: len(labels)]]
    turn_rewards += [0.0] * (len(labels) - len(turn_rewards))
    decisions, calls, answers = _on_tokens(told, labels)
    return Verdict(
        reward,
        answered and reward > 0 and not wrong,
        decisions,
        channels={"answer": reward, "calls": sum(turn_rewards) / len(order.jobs), "format": float(answered)},
        turn_rewards=turn_rewards,
        first_wrong=wrong[0] if wrong else None,
        malformed=sum(turn.end < 0 for turn in labels),
        states=states,
        calls=calls,
        requests=requests,
        answer_span=answers,
        feedback=write_hint(inspected),
    )


def _call_labels(turn: str, call: Call, wanted: Call | None) -> TurnLabels:
    labels = TurnLabels(call_from=turn.index(OPEN))
    found, right = values_in(turn), {} if wanted is None else _texts(wanted)
    written = {value.name: turn[value.start : value.stop] for value in found}
    if any(written.get(name) != text for name, text in _texts(call).items() if name != "mention"):
        # JSON that says the same in another way (escapes): the call is labelled as a whole
        labels.marks = [(labels.call_from or 0, len(turn), 1 if call == wanted else -1)]
    else:
        labels.marks = [_mark(turn, value.start, value.stop, right.get(value.name)) for value in found]
    return labels


def _texts(call: Call) -> dict[str, str]:
    tool = call.choice.tool
    return {"mention": spoken(tool), "tool": tool, "part": call.part, "setting": str(call.choice.setting)}


def _mark(turn: str, start: int, stop: int, right: str | None) -> tuple[int, int, int]:
    """The label of the value at `start`. One that is only the beginning of the right value is wrong where it stops."""
    written = turn[start:stop]
    if written == right:
        return start, stop, 1
    shared = next((i for i, (a, b) in enumerate(zip(written, right or "", strict=False)) if a != b), None)
    if shared is None:
        shared = min(len(written), len(right or ""))
    return start + shared, max(stop, start + shared + 1), -1


def _answer_labels(turn: str, by_gauge: str, too_early: bool) -> TurnLabels:
    (value,) = values_in(turn)
    span = (value.start, value.stop)
    labels = TurnLabels([_mark(turn, *span, by_gauge)], answer=span)
    if too_early:
        labels.marks.insert(0, (0, value.start, -1))
    return labels


# ------------------------------------------------------------------------------------------------ characters to tokens
def _on_tokens(told: Transcript, labels: Sequence[TurnLabels]) -> tuple[list[int], list[int], list[int]]:
    """Decisions, calls and answer per token of the completion; empty where the transcript has no tokens."""
    decisions, calls, answers = ([0] * len(told.pieces) for _ in range(3))
    runs = list(turn_tokens(told))
    if told.pieces and len(runs) != len(labels):
        raise GearError(f"workshop_words: {len(labels)} turns, but the policy's tokens are {len(runs)} runs.")
    for tokens, turn in zip(runs, labels, strict=False):
        for place, start, stop in tokens:
            for first, last, label in turn.marks:
                if start < last and stop > first and decisions[place] != -1:
                    decisions[place] = label
            calls[place] = int(turn.call_from is not None and stop > turn.call_from)
            answers[place] = int(turn.answer is not None and start < turn.answer[1] and stop > turn.answer[0])
        if turn.end:
            decisions[tokens[-1][0]] = turn.end
    return decisions, calls, answers


def turn_tokens(told: Transcript) -> Iterator[list[tuple[int, int, int]]]:
    """For each turn: (place in the completion, first character in the turn, its end) of each of its tokens."""
    place = 0
    for acts, run in groupby(told.action_mask):
        count, at, tokens = len(list(run)), 0, []
        for i in range(place, place + count):
            tokens.append((i, at, at + len(told.pieces[i])))
            at = tokens[-1][2]
        place += count
        if acts:
            yield tokens
