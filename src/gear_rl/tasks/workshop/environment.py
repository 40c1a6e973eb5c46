"""The workshop as an environment: turn by turn for our own loop, as tools for TRL, and the judge of a finished rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gear_rl.chat.tool_calls import read_turn
from gear_rl.errors import GearError
from gear_rl.tasks.base import Row, Verdict
from gear_rl.tasks.workshop.hints import is_hidden
from gear_rl.tasks.workshop.tokenizer import ANSWER, BOT, END
from gear_rl.tasks.workshop.world import GAUGE, PARTS, TOOLS, Order


def tool_call(words: list[str]) -> tuple[str, str] | None:
    """`… tool part` → (tool, part). Words before it are free talk."""
    if len(words) >= 2 and words[-2] in TOOLS and words[-1] in PARTS:
        return words[-2], words[-1]
    return None


def spoken(turn: str) -> str:
    """A turn whose calls a server returned separately, again as the text that the embedded model writes."""
    read = read_turn(turn)
    called = [word for call in read.calls for word in (call.name, *map(str, call.arguments.values()))]
    return " ".join([read.text, *called]).strip() if called else turn


def order_of(row: Row) -> Order:
    """The order of a row. Rows without a world are of world 0."""
    return Order.parse(row["order"], int(row.get("world") or 0))


class WorkshopEpisode:
    """One rollout's gauge."""

    def __init__(self, order: Order) -> None:
        self.gauge, self._world = order.start, order.world

    def reply(self, turn: str) -> str | None:
        call = tool_call(turn.split())
        if call is None:  # an answer, or a malformed turn: either ends the episode
            return None
        self.gauge = self._world.turn_gauge(self.gauge, *call)
        return GAUGE[self.gauge]


class WorkshopEnvironment:
    """The same world for `trl.GRPOTrainer(environment_factory=WorkshopEnvironment)`: each tool is a method."""

    def reset(self, **row: Any) -> None:
        self._episode = WorkshopEpisode(order_of(row))


def _tool_method(tool: str) -> Callable[[WorkshopEnvironment, str], str]:
    def use(self, part: str) -> str:  # no type for self: a schema would list it
        reply = self._episode.reply(f"{tool} {part}")
        if reply is None:
            raise ValueError(f"there is no part called {part}")
        return reply

    use.__name__ = tool
    use.__doc__ = f"Use the {tool} tool.\n\nArgs:\n    part: the part to work on\n\nReturns:\n    the gauge"
    return use


for _tool in TOOLS:
    setattr(WorkshopEnvironment, _tool, _tool_method(_tool))


def split_turns(completion: str) -> list[list[str]]:
    """The policy's turns of a completion, environment tokens cut out. The last may lack its end mark (truncated)."""
    turns, words = [], completion.split()
    while words:
        stop = words.index(END) + 1 if END in words else len(words)
        turns.append(words[:stop])
        words = words[stop:]
        if words[:1] and words[0] in GAUGE and words[1:2] == [BOT]:  # the environment's reply and the next opening
            words = words[2:]
    return turns


def judge(order: Order, completion: str, hidden: float = 0.0) -> Verdict:
    """Replay the completion. Reward: the answer is right. Success: so was every decision on the way. Feedback: what an
    inspector says, job by job: the tool if it was the right one, else "no". `hidden`: the share of facts that hints never
    show; jobs on them and on the others are then counted apart."""
    decisions: list[int] = []
    calls: list[int] = []
    states: list[int] = []
    requests: list[int] = []  # a job each; the answer is one of its own
    answer_span: list[int] = []
    turn_rewards: list[float] = []
    inspected = ["no"] * len(order.jobs)
    gauge, reward, answered, malformed, first_wrong = order.start, 0.0, False, 0, None
    turns = split_turns(completion)
    for step, turn in enumerate(turns):
        states.append(step * len(GAUGE) + gauge)
        labels, called, right = [0] * len(turn), [0] * len(turn), False
        words, spanned, request = (
            turn[:-1] if turn[-1] == END else turn,
            [0] * len(turn),
            min(step, len(order.jobs)) + 1,
        )
        call = tool_call(words) if turn[-1] == END else None
        if call is not None:
            tool, part = call
            job = order.jobs[step] if step < len(order.jobs) else None
            labels[-3] = 1 if job and tool == order.world.handbook[job] else -1
            labels[-2] = 1 if job and part == job[0] else -1
            called[-3:-1] = 1, 1
            right = labels[-3] == labels[-2] == 1
            if job and labels[-3] == 1:
                inspected[step] = tool
            gauge = order.world.turn_gauge(gauge, tool, part)
        elif turn[-1] == END and len(words) >= 2 and words[-2] == ANSWER:
            answered, spanned[-2], request = True, 1, len(order.jobs) + 1
            labels[-3] = 1 if step == len(order.jobs) else -1
            labels[-2] = 1 if words[-1] == order.world.read_gauge(gauge, order.answer) else -1
            reward = float(words[-1] == order.reference_answer)
        else:
            labels[-1] = -1  # malformed or cut off: the token that ended it
            malformed += 1
        decisions += labels
        calls += called
        requests.append(request)
        answer_span += spanned
        turn_rewards.append(float(right))
        if first_wrong is None and -1 in labels:
            first_wrong = step
        if step + 1 < len(turns):
            if answered or call is None:
                raise GearError(f"workshop: the completion goes on after the episode ended: {completion[:200]!r}")
            decisions += [0, 0]  # the gauge and the next opening: the environment's tokens
            calls += [0, 0]
            answer_span += [0, 0]
    return Verdict(
        reward,
        answered and reward > 0 and -1 not in decisions,
        decisions,
        channels={"answer": reward, "calls": sum(turn_rewards) / len(order.jobs), "format": float(answered)},
        turn_rewards=turn_rewards,
        first_wrong=first_wrong,
        malformed=malformed,
        states=states,
        calls=calls,
        requests=requests,
        answer_span=answer_span,
        feedback=" ".join(inspected),
        parts=_by_fact(order, inspected, hidden) if hidden else {},
    )


def _by_fact(order: Order, inspected: list[str], hidden: float) -> dict[str, tuple[int, int]]:
    """Jobs done with the right tool, of how many: those whose fact hints show, and those whose fact they never show."""
    parts = {}
    for name, wanted in (("shown facts", False), ("hidden facts", True)):
        right = [said != "no" for said, job in zip(inspected, order.jobs, strict=True)
                 if is_hidden(order.world, job, hidden) == wanted]  # fmt: skip
        parts[name] = (sum(right), len(right))
    return parts


def tools_used(completion: str) -> str:
    """The tools of a completion's calls in order: what it did, in the words of a hint."""
    calls = (tool_call(turn[:-1]) for turn in split_turns(completion) if turn[-1] == END)
    return " ".join(call[0] for call in calls if call is not None)
