"""Models into parts: what is played now (`played`) or solved elsewhere (`solved`), once per model and teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from gear_rl.assignment.signals import find_signal
from gear_rl.chat.assistant_tokens import ConversationTokens
from gear_rl.chat.hints import DEFAULT_TEMPLATE, check_template
from gear_rl.chat.templates import end_tokens
from gear_rl.errors import GearError
from gear_rl.localize.arithmetic import arithmetic_chains
from gear_rl.localize.blame import SIGNALS, depends_on_teacher
from gear_rl.localize.labelled import Part
from gear_rl.localize.steps import Solution, from_solutions, read_solutions, solution_of
from gear_rl.localize.tasks import from_task
from gear_rl.localize.teachers import Scored, Teachers
from gear_rl.methods import Method
from gear_rl.models import context_of, find_model, model_for
from gear_rl.signals.providers import compares_group
from gear_rl.signals.sources import Sources
from gear_rl.tasks import Task

Parts = tuple[dict[str, Any], str, Iterator[Part]]


@dataclass(frozen=True)
class Request:
    """What is to be measured, on which models."""

    signals: Sequence[str]
    methods: Sequence[Method]
    models: Sequence[str]
    teacher_model: str | None = None
    rollouts: int = 512
    seed: int = 0
    temperature: float = 1.0
    device: str = "cpu"
    say: Callable[[str], None] = lambda line: None
    """Told what is being done."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The signals that a model has to give. Each problem has one rollout here, so none that compares a group."""
        asked = [n for name in self.signals for n in SIGNALS[name].needs] + [n for m in self.methods for n in m.needs]
        known = [(name, find_signal(name)) for name in dict.fromkeys(asked)]
        return tuple(n for n, signal in known if signal and signal.source == "model" and not compares_group(n))

    @property
    def hinted(self) -> bool:
        asked: list[str | Method] = [*self.signals, *self.methods]
        return any(map(depends_on_teacher, asked))

    def check(self) -> None:
        if self.teacher_model is not None and not self.hinted:
            raise GearError("--teacher-model: nothing that is to be measured depends on a teacher.")

    def teachers(self, model: Any, tokenizer: Any, sources: Sources, default: str | None = None) -> Teachers:
        frozen = None if self.teacher_model is None else find_model(self.teacher_model, default)
        return Teachers(model, tokenizer, frozen, self.device, self.temperature, self.needs, sources)


def played(request: Request, task: Task) -> Parts:
    """Rollouts of `task`, the same problems for every model."""
    request.check()
    default = task.default_model()
    models = list(request.models)
    if not models:
        model_for(task.name, None, default)  # raises where the task has none
        models = ["embedded"]
    rows = task.rows("test", request.rollouts)
    unit = "token" if task.judge_knows_decisions else "turn"
    options: dict[str, Any] = asdict(task) if is_dataclass(task) else {}
    source = {"task": {"name": task.name, **options}, "problems": len(rows), "teacher_model": request.teacher_model}
    source |= {"seed": request.seed, "temperature": request.temperature}

    def parts() -> Iterator[Part]:
        from gear_rl.models import load_model

        for name in models:
            request.say(f"{len(rows)} rollouts by {name} …")
            model, tokenizer = load_model(find_model(name, default), request.device)
            sources = Sources(
                hint_template=task.hint_template,
                answer="answer" if rows[0].get("answer") else None,
                answer_prefix=task.answer_prefix,
            )
            teachers = request.teachers(model, tokenizer, sources, default)
            scored, facts = from_task(
                task, rows, model, tokenizer, teachers,
                hinted=request.hinted, seed=request.seed, temperature=request.temperature,
            )  # fmt: skip
            yield from _as_parts(name, scored, facts)

    return source, unit, parts()


def solved(
    request: Request,
    path: Path | None,
    *,
    truths: tuple[str, ...] = ("solution", "answer"),
    hint_template: str = DEFAULT_TEMPLATE,
    chat_template: str | None = None,
    chat: dict[str, Any] | None = None,
) -> Parts:
    """Solutions with step labels from `path`; None: arithmetic chains, generated."""
    request.check()
    check_template(hint_template)
    read = 0
    solutions: list[Solution] = []
    everything: Iterator[Solution]
    if path is None:
        chains = arithmetic_chains(request.rollouts, request.seed)
        everything = (solution_of(row, truths, row["id"]) for row in chains)
    else:
        everything = read_solutions(path, truths)
    for solution in everything:
        read += 1
        if solution.label < 0 or len(solutions) == request.rollouts:
            continue
        if request.hinted and solution.truth is None:
            raise GearError(
                f"{solution.where}: no {' or '.join(truths)}, which the teacher's hint is made of. Without a teacher: "
                "--signals entropy,surprisal,position,random --credit low_probability."
            )
        solutions.append(solution)
    if not solutions:
        raise GearError(f"none of the {read} solutions has a wrong step, so there is nothing to find.")
    source: dict[str, Any] = {"file": str(path)} if path else {"generated": "arithmetic", "seed": request.seed}
    source |= {"rows": read, "measured": len(solutions), "teacher_model": request.teacher_model}

    def parts() -> Iterator[Part]:
        from gear_rl.models import load_model

        for name in request.models:
            request.say(f"{len(solutions)} solutions scored by {name} …")
            model, tokenizer = load_model(find_model(name), request.device)
            if chat_template is not None:
                tokenizer.chat_template = chat_template
            tokens = ConversationTokens(tokenizer, end_tokens(model, tokenizer), name, chat)
            scored, too_long = from_solutions(
                solutions,
                tokens,
                request.teachers(model, tokenizer, Sources(hint_template=hint_template)),
                hint_template=hint_template,
                hinted=request.hinted,
                context=context_of(model.config),
                device=model.device,
            )
            yield from _as_parts(name, scored, {"left_out_as_too_long": too_long} if too_long else {})

    return source, "step", parts()


def _as_parts(name: str, scored: list[Scored], facts: Mapping[str, float | int | str]) -> Iterator[Part]:
    for one in scored:
        yield Part(name, one.teacher, one.labelled, teacher_only=one.teacher != "live", facts=facts)
