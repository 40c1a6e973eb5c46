"""What a task offers: rows, an episode per rollout, a verdict. Tasks know nothing of credit, and nothing of an engine.

    task = make_task("gsm8k", data="...", hint="solution")       options are the task's dataclass fields
    rows = task.rows("test", None)                               None: the whole set
    episode = task.episode(row)                                  a fresh world for one rollout
    reply = episode.reply(turn)                                  turn by turn, until None
    verdict = task.verdict(row, Transcript(...))                 what it was worth

**A row** is a flat dict with these keys, and whatever else the task needs:

    prompt      list of messages, {"role", "content"}: what the policy reads
    hint        text, what the teacher reads beside the prompt; made from the ground truth in the form the option `hint`
                names ("answer", "solution" or "gold_calls": `Task.hint_forms` lists what the task has)
    answer      the ground truth as text (JSON text where it has structure)
    id          text, the same in every run: results are filed and resumed under it
    category    text; evaluation reports by it
    tools       JSON text of this row's tool schemas, where they differ from row to row; else `Task.tools` holds for all

Rows pass through Arrow on their way into training: all rows have the same keys, and anything nested (tools, reference calls, a
database) goes in as JSON text.

**Which method to write.** A task of one turn derives from `SingleTurn` and writes `rows` and `judge(row, completion)`.
A task with a world writes `rows`, `episode` and `verdict(row, transcript)`, and finds what happened in `transcript.turns`
or in `transcript.episode`, the very object that was played. Tasks that label single tokens (`Verdict.decisions`) find them
in `transcript.pieces`; one whose tokens are words may write `judge(row, completion)`, special tokens kept.
`reference(row)` and `empty(row)` let `gear eval --check` show that reference answers score 100 % and empty ones 0 %.

**Time.** Each call of a task may take `Task.time_limit` seconds; then the run ends with a message. Whoever runs a task that
needs longer sets the environment variable GEAR_TASK_SECONDS. A reply of more than `LARGEST_REPLY` characters is cut.
"""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from gear_rl.chat.messages import Message, Prompt, Tools
from gear_rl.errors import GearError, shown
from gear_rl.limits import in_order
from gear_rl.tasks.call_limits import limited, within_time
from gear_rl.tasks.foreign_errors import METHODS, named, naming

Row = dict[str, Any]
"""One problem; the keys are listed above."""
LARGEST_REPLY = 2**20
"""Characters of one reply of an environment; the rest is cut. A model can make a tool write without end, and every character
is tokenised."""


def check_rows(rows: list[Row], split: str) -> list[Row]:
    """`rows`, if they are some and each has a prompt: a task of one's own may give anything."""
    if not isinstance(rows, (list, tuple)):
        raise GearError(f"the {split} split: `rows` returned {shown(rows)}; it must return a list of dicts.")
    if not rows:
        raise GearError(f"the {split} split holds no problem.")
    for i, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), (str, list)):
            held = ", ".join(map(str, row)) or "nothing" if isinstance(row, dict) else None
            is_or_has = f"is a {type(row).__name__}" if held is None else f"has {held}"
            raise GearError(f"row {i} of the {split} split {is_or_has}: a row is a dict with a prompt (text or messages).")
    return rows


def instructed(rows: list[Row], system_prompt: str | None) -> list[Row]:
    """`rows` whose prompts begin with a system message of this text, followed by the task's own, if it has one."""
    if system_prompt is None:
        return rows
    return [{**row, "prompt": _instructed(row["prompt"], system_prompt)} for row in rows]


def _instructed(prompt: Prompt, text: str) -> Prompt:
    if isinstance(prompt, str):
        return f"{text}\n\n{prompt}"
    first, rest = prompt[:1], prompt[1:]
    if first and first[0].get("role") == "system":
        return [{**first[0], "content": f"{text}\n\n{first[0]['content']}"}, *rest]
    return [{"role": "system", "content": text}, *prompt]


@dataclass(frozen=True)
class Verdict:
    """What one finished rollout was worth."""

    reward: float
    """What training sees."""
    success: bool
    """True success: every decision was right. A lucky rollout has reward without it."""
    decisions: list[int] = field(default_factory=list)
    """Per token of the completion: +1 a right decision, −1 a wrong one, 0 none. Empty where the task cannot know."""
    channels: dict[str, float] = field(default_factory=dict)
    """The parts the reward is made of, by name (format, correctness, …), as they were before they were added up."""
    turn_rewards: list[float] | None = None
    """A reward per turn of the policy, where the task has one; as many as there were turns."""
    first_wrong: int | None = None
    """The first turn (from 0) that went wrong. None: no turn did, or the task cannot know."""
    states: list[int] | None = None
    """Per turn of the policy: a number for the state of the world before it. Equal numbers are the same state."""
    calls: list[int] | None = None
    """Per token of the completion: 1 on the tokens of a tool call, 0 elsewhere."""
    requests: list[int] | None = None
    """Per turn of the policy: the number, from 1, of the user request that it belongs to."""
    answer_span: list[int] | None = None
    """Per token of the completion: 1 on the rollout's own final answer, 0 elsewhere. None: the task cannot know."""
    feedback: str | None = None
    """What the environment says about the rollout afterwards, for a teacher to read."""
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Decisions of the rollout by kind, where evaluation is to count some apart: name → (right ones, all)."""
    malformed: int = 0
    """Tool calls that could not be read or, where the task checks that, do not fit their tool's schema."""
    failed_calls: list[str] = field(default_factory=list)
    """Tool calls that the environment answered with an error, where the task tells. None of a reference answer's may."""
    trivially_passable: bool = False
    """Doing nothing passes this problem too: a success here says little. Evaluation counts these apart."""

    def __post_init__(self) -> None:
        try:
            finite = math.isfinite(self.reward)
        except TypeError:
            finite = False
        if not finite:
            raise GearError(f"a verdict's reward must be a finite number, not {self.reward!r}.")


class Episode(Protocol):
    """One rollout's world, driven turn by turn."""

    def reply(self, turn: str) -> str | list[Message] | None:
        """What the environment answers to the policy's `turn` (decoded, end mark cut off).

        A string is one tool message. A list of messages is for everything else: a tool message per call where there were
        several, a user who speaks. None: the episode is over.
        """


@dataclass
class Transcript:
    """What one rollout said, however it was sampled: locally, through an endpoint, or from a script."""

    completion: str
    """All that follows the prompt, the environment's text included; special tokens kept where there were any."""
    turns: list[str]
    """The policy's own turns, end marks cut off."""
    episode: Episode | None = None
    """The world they were played in, as it was left."""
    cut_off: bool = False
    """The last turn ran into a limit before its end."""
    pieces: list[str] = field(default_factory=list)
    """The text of each token of the completion by itself, for judges that label tokens (`Task.judge_knows_decisions`). Empty
    where there are no tokens, as with an endpoint."""
    action_mask: list[int] = field(default_factory=list)
    """For each of `pieces`: 1 where the policy sampled it."""


@dataclass(frozen=True)
class Demonstration:
    """A rollout written for the warm start; it need not be right."""

    hint: str
    """What it was given beside the prompt; "" for nothing."""
    turns: list[str]


class Task(ABC):
    """A source of problems with a verifiable outcome."""

    name: ClassVar[str]
    summary: ClassVar[str]
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    """What `rows` can give. "train" and "test" are what training uses."""
    hint_forms: ClassVar[tuple[str, ...]] = ()
    """What the option `hint` may be, the first the default. Empty: the task has one form only, and no such option."""
    hint_template: str = "{prompt}\n\n{hint}"
    """How the teacher's prompt is made from the last user message and the hint. Shown in every run's config."""
    tools: list[dict[str, Any]] | None = None
    """JSON schemas ({"type": "function", "function": {…}}) the chat template is given as `tools=`, for every row."""
    unpassable: ClassVar[dict[str, str]] = {}
    """Ids of problems that not even their reference answer passes, and why. They stay in, as in the benchmark; `--check` lists
    them, and asks that they do fail."""
    corrected: ClassVar[dict[str, str]] = {}
    """Ids of problems whose published reference answer contradicts its own problem, and how; `reference` gives a right one."""
    max_turns: int = 1
    """Turns of the policy in one episode, at most."""
    max_turn_tokens: int = 256
    """Tokens of one turn, at most."""
    concurrent_replies: int = 1
    """Episodes of a batch answered at once, in threads. More than 1 is for worlds that wait: a user behind an endpoint."""
    concurrent_verdicts: int = 1
    """Rollouts judged at once, in threads. More than 1 is for judges in processes of their own."""
    judge_knows_decisions: bool = False
    """Whether verdicts say which decisions were wrong: what the `oracle` control needs."""
    judge_process: Any = None
    """The processes that judge answers, where a task has some (`tasks.workers`). Evaluation prints their `tally`."""
    answer_prefix: str = ""
    """What the policy writes before its answer: the log-probability of the reference answer is taken behind it."""
    time_limit: float = 600.0
    """Seconds that one call (`rows`, `episode`, a reply, a verdict) may take."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in METHODS:
            if name in vars(cls):
                setattr(cls, name, limited(naming(vars(cls)[name])))

    @abstractmethod
    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        """`count` problems of a split; the same arguments always give the same rows. None: the whole set (a task that
        generates its problems says how many that is). "train" is shuffled by `seed` and goes round again, shuffled again,
        when `count` exceeds the set; any other split gives each problem at most once. `choose` does just that."""

    @abstractmethod
    def episode(self, row: Row) -> Episode:
        """A fresh world for one rollout of `row`."""

    def judge(self, row: Row, completion: str) -> Verdict:
        """The verdict on a whole completion, environment's text included, special tokens kept."""
        raise GearError(f"task {type(self).__name__} has no `judge`: write it, or `verdict`.")

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        """The verdict on a finished rollout: what evaluation and training call."""
        return self.judge(row, transcript.completion)

    def as_completion(self, turn: str) -> str:
        """An endpoint's turn as the model itself wrote it, for tasks whose calls are not written <tool_call>…</tool_call>:
        servers that know a model's calls set them apart, and ours come back in that form. Unchanged: nothing to restore."""
        return turn

    def as_hint(self, completion: str) -> str | None:
        """A successful rollout in the form in which the task's model reads hints, for a teacher that reads a sibling's. None:
        the completion itself will do."""
        return None

    def reference(self, row: Row) -> str | list[str]:
        """A rollout that must score 100 %: a whole completion (a str, judged by `judge`) or the policy's turns (a list,
        played against a fresh `episode`)."""
        raise GearError(f"task {type(self).__name__} has no `reference`, so its judge cannot be checked.")

    def demonstration(self, row: Row, rng: random.Random, hinted: bool) -> Demonstration | None:
        """A rollout of `row` that the warm start teaches in place of the reference answer, drawn again in every epoch: for a
        task that wants a model to know some things and not others. `hinted`: with a hint that it follows. None: the task has
        no such rollouts."""
        return None

    def empty(self, row: Row) -> str | list[str]:
        """A rollout that does nothing, in the same form: it must score 0 %, or the problem is trivially passable."""
        return [""]

    def default_model(self) -> str | None:
        """A model that comes with the task, or None."""
        return None

    def close(self) -> None:
        """End processes and connections the task holds. May be called twice; a later call opens them again."""
        return None


class Over:
    """The episode of a task that ends with the policy's first turn."""

    def reply(self, turn: str) -> None:
        return None


class SingleTurn(Task):
    """A task of one question and one answer. Write `rows` and `judge(row, completion)`; `completion` is the answer."""

    def episode(self, row: Row) -> Episode:
        return Over()

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        return self.judge(row, transcript.turns[-1] if transcript.turns else transcript.completion)


def reply_of(task: Task, episode: Episode | None, turn: str) -> str | list[Message] | None:
    """`episode.reply(turn)` within the task's time and `LARGEST_REPLY`, if it is a reply."""
    if not callable(getattr(episode, "reply", None)):
        raise GearError(
            f"task {type(task).__name__}: `episode` returned {shown(episode)}; it must return an object with `reply(turn)`."
        )
    what = "`reply` of its episode"
    with within_time(task, what), named(task, what):
        reply = episode.reply(turn)  # type: ignore[union-attr]
    if isinstance(reply, str):
        return _cut(reply, LARGEST_REPLY)
    if reply is None:
        return None
    if isinstance(reply, list) and all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in reply):
        if sum(map(_characters, reply)) <= LARGEST_REPLY:
            return reply
        share = LARGEST_REPLY // len(reply)
        if all(isinstance(m.get("content"), str) for m in reply):
            return [{**m, "content": _cut(m["content"], share)} for m in reply]
        reply = "messages that are too large to read"
    raise GearError(f"task {type(task).__name__}: `reply` returned {shown(reply)}; it must be text, messages or None.")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut: the first {most} of {len(text)} characters]"


def _characters(message: Message) -> int:
    return len(content) if isinstance(content := message.get("content"), str) else len(repr(content))


def tools_of(task: Task, row: Row) -> Tools | None:
    """The tool schemas `row`'s prompt is rendered with: its own, else the task's."""
    return json.loads(row["tools"]) if row.get("tools") else task.tools


def replay(task: Task, row: Row, said: str | Sequence[str]) -> Verdict:
    """The verdict on what was written beforehand: `Task.reference`, `Task.empty`, a dialogue on record."""
    if isinstance(said, str):
        return _checked(task, task.judge(row, said))
    episode, turns = task.episode(row), list(said)
    for i, turn in enumerate(turns):
        if reply_of(task, episode, turn) is None and i + 1 < len(turns):
            raise GearError(
                f"task {type(task).__name__}, {row.get('id', 'a row')}: the episode ended after turn {i} of {len(turns)}."
            )
    return _checked(task, task.verdict(row, Transcript("\n".join(turns), turns, episode)))


def verdicts(task: Task, rows: Sequence[Row], transcripts: Sequence[Transcript]) -> list[Verdict]:
    """The verdict on each rollout, several at once where the task's judge allows it."""
    pairs = list(zip(rows, transcripts, strict=True))
    return in_order(lambda pair: _checked(task, task.verdict(*pair)), pairs, task.concurrent_verdicts)


def _checked(task: Task, verdict: Verdict) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise GearError(
            f"task {type(task).__name__}: its verdict must be a Verdict(reward, success), not {shown(verdict)}."
        )
    return verdict


def choose(rows: Sequence[Row], split: str, count: int | None, seed: int) -> list[Row]:
    """`count` of a set's rows by the rule of `Task.rows`. A part of an evaluation set is drawn evenly over the whole set
    (files are often sorted by topic), and keeps its order."""
    if split == "train":
        drawn: list[Row] = []
        wanted, lap = len(rows) if count is None else count, 0
        while len(drawn) < wanted:
            order = random.Random(f"{seed}-{lap}").sample(range(len(rows)), len(rows))
            drawn += [rows[i] for i in order[: wanted - len(drawn)]]
            lap += 1
        return drawn
    if count is None or count >= len(rows):
        return list(rows)
    return [rows[i] for i in sorted(random.Random(str(seed)).sample(range(len(rows)), count))]
