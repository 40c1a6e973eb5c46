"""What the workshop's verdicts say about tokens, turns and whole rollouts, and how it reaches an engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.signals.from_verdicts import (
    VerdictKnowledge,
    at_turns,
    channels_of,
    refuse_what_the_task_cannot_say,
    signal_of,
)
from gear_rl.signals.sampled import Sampled
from gear_rl.tasks.base import SingleTurn, Verdict
from gear_rl.tasks.workshop.environment import judge, tools_used
from gear_rl.tasks.workshop.world import TOOLS, Order, world

WORLD = world(0)
ORDER = Order("yesno", 5, (("valve", "leak"), ("pump", "rust")), WORLD)
RIGHT = ORDER.reference_tools
WRONG = [next(t for t in TOOLS if t != tool) for tool in RIGHT]


def completion(tools, answer="yes"):
    gauge, words = ORDER.start, []
    for (part, _), tool in zip(ORDER.jobs, tools, strict=True):
        gauge = WORLD.turn_gauge(gauge, tool, part)
        words.append(f"well {tool} {part} <end> g{gauge} <bot>")
    return " ".join([*words, f"answer {answer} <end>"])


def test_turns_states_calls_channels_and_feedback():
    text = completion([RIGHT[0], WRONG[1]], ORDER.reference_answer)
    verdict = judge(ORDER, text)
    after_first = WORLD.turn_gauge(5, RIGHT[0], "valve")
    assert verdict.turn_rewards == [1.0, 0.0, 0.0]
    assert verdict.states == [5, 32 + after_first, 64 + WORLD.turn_gauge(after_first, WRONG[1], "pump")]
    assert verdict.calls == [0, 1, 1, 0, 0, 0] * 2 + [0, 0, 0] and len(verdict.calls) == len(text.split())
    assert verdict.requests == [1, 2, 3] and verdict.answer_span == [0] * 12 + [0, 1, 0]
    assert verdict.channels == {"answer": 1.0, "calls": 0.5, "format": 1.0}
    assert verdict.feedback == f"{RIGHT[0]} no" and verdict.first_wrong == 1
    assert verdict.reward == 1.0 and not verdict.success
    assert tools_used(text) == f"{RIGHT[0]} {WRONG[1]}"


def test_a_rollout_that_goes_off_the_rails():
    verdict = judge(ORDER, f"well {RIGHT[0]} valve <end> g1 <bot> so so so")
    assert verdict.turn_rewards == [1.0, 0.0] and verdict.malformed == 1 and verdict.first_wrong == 1
    assert verdict.channels == {"answer": 0.0, "calls": 0.5, "format": 0.0}
    assert verdict.feedback == f"{RIGHT[0]} no"
    assert verdict.requests == [1, 2] and not any(verdict.answer_span)
    early = judge(ORDER, "answer yes <end>")
    assert early.requests == [3] and early.answer_span == [0, 1, 0], "the answer is a request of its own, whenever it comes"
    nothing = judge(ORDER, "")
    assert nothing.turn_rewards == [] and nothing.states == [] and nothing.feedback == "no no"


def test_right_tool_on_the_wrong_part():
    part = "gear"
    verdict = judge(ORDER, f"{RIGHT[0]} {part} <end> g1 <bot>")
    assert verdict.turn_rewards[0] == 0.0 and verdict.feedback.startswith(WORLD.handbook[ORDER.jobs[0]])


def test_values_of_turns_go_to_their_tokens():
    actions = [1, 1, 0, 0, 1, 0, 1, 1, 1]
    assert at_turns(actions, [1, 2, 3], last_only=True) == [0, 1, 0, 0, 2, 0, 0, 0, 3]
    assert at_turns(actions, [1, 2, 3], last_only=False) == [1, 1, 0, 0, 2, 0, 3, 3, 3]
    assert at_turns([], [], last_only=True) == []
    with pytest.raises(GearError, match="2 turns, but the policy took 3"):
        at_turns(actions, [1, 2], last_only=True)


def test_verdicts_become_signals(workshop):
    verdict = judge(ORDER, completion(RIGHT))
    actions = [1, 1, 1, 1, 0, 0] * 2 + [1, 1, 1]
    mask = torch.tensor([[*actions, 0, 0]]).bool()  # padded beyond the completion
    one = torch.zeros(1)
    sampled = Sampled([{}], ["x"], [[1]], [[0] * 15], mask.long(), mask, one, one, verdicts=[verdict])
    assert signal_of("turn_reward", sampled) == [[0, 0, 0, 1, 0, 0] * 2 + [0, 0, 0]]
    assert signal_of("anchor_state", sampled)[0][:6] == [5, 5, 5, 5, 0, 0]
    assert signal_of("request_ids", sampled) == [[1, 1, 1, 1, 0, 0, 2, 2, 2, 2, 0, 0, 3, 3, 3]]
    assert signal_of("answer_span", sampled) == [verdict.answer_span]
    assert signal_of("tool_call", sampled) == [verdict.calls] and signal_of("decision", sampled) == [verdict.decisions]
    assert channels_of([verdict]) == {"answer": [verdict.reward], "calls": [1.0], "format": [1.0]}
    first = workshop.rows("train", 1)[0]
    assert "answer_span" in VerdictKnowledge(workshop, first, method("grail"), None).signals
    assert "answer_span" not in VerdictKnowledge(workshop, first, method("oar_g"), None).signals
    knowledge = VerdictKnowledge(workshop, first, method("serl"), None)
    assert knowledge.feedback(sampled) == [" ".join(RIGHT)]
    with pytest.raises(GearError, match="lacks the reward channel calls, format"):
        channels_of([verdict, Verdict(0.0, False, channels={"answer": 0.0})])
    with pytest.raises(GearError, match="not judged by a task"):
        signal_of("decision", replace(sampled, verdicts=None))


class Quiz(SingleTurn):
    """Knows right from wrong, and nothing else."""

    name = "quiz"

    def rows(self, split, count, seed=0):
        return [{"prompt": [{"role": "user", "content": "1+1"}], "hint": "2", "answer": ""}]

    def judge(self, row, completion):
        return Verdict(float(completion == "2"), completion == "2", channels={"right": 0.0})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mt_grpo", "turn_rewards"), ("crest", "turn_rewards"), ("gigpo", "states"), ("serl", "feedback"),
        ("crpo", "channels"), ("oracle", "decision"), ("igpo", "`answer`"), ("oar_g", "`answer`"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_say_it_is_named_before_a_model_is_loaded(name, message, workshop):
    row = Quiz().rows("train", 1)[0]
    with pytest.raises(GearError, match=rf"{name} .*'quiz'.*{message}"):
        refuse_what_the_task_cannot_say(Quiz(), "quiz", row, method(name))
    refuse_what_the_task_cannot_say(workshop, "workshop", workshop.rows("train", 1)[0], method(name))


@pytest.mark.parametrize("name", ["grpo", "gear", "sdpo", "shear", "high_entropy"])
def test_what_every_task_can_do(name):
    row = Quiz().rows("train", 1)[0]
    refuse_what_the_task_cannot_say(Quiz(), "quiz", row, method(name))


def test_values_are_asked_of_a_critic(workshop):
    with pytest.raises(GearError, match=r"turn_ppo needs values.*critic.*knowledge="):
        refuse_what_the_task_cannot_say(workshop, "workshop", workshop.rows("train", 1)[0], method("turn_ppo"))
