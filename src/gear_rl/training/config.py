"""The configuration of a training run: every setting, its default, and the shape config files and `--set` share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gear_rl.engines import LOSS_TYPES
from gear_rl.errors import GearError, unknown_name
from gear_rl.methods import find_method
from gear_rl.options import LARGEST_SEED, check_instance, check_options, listing, option
from gear_rl.scoring.teacher import KINDS
from gear_rl.tasks import task_options

PRECISIONS = ("float32", "bfloat16")
SCHEDULES = ("linear", "constant")
SAMPLERS = ("own", "continuous_batching", "vllm")


@dataclass
class TrainOptions:
    """`--set train.NAME=VALUE`. The defaults are those of the embedded task (docs/experiments.md says how they were chosen)."""

    steps: int = option(400, at_least=1)
    """Optimizer steps; each samples a fresh batch."""
    prompts: int = option(4, at_least=1)
    """Prompts per step."""
    generations: int = option(8, at_least=2, note="a group of one has no baseline")
    """Rollouts per prompt: the group."""
    rollouts_per_pass: int | None = option(None, at_least=1, note="a divisor of prompts × generations")
    """Rollouts that go through the model at once when the loss is computed. Fewer need less memory and give the same
    gradient. None: all."""
    precision: str = option("float32", choices=PRECISIONS)
    """float32, or bfloat16: weights and optimizer stay in float32, forward and backward passes run in bfloat16, and a
    bfloat16 copy of the policy samples."""
    learning_rate: float | None = option(None, above=0)
    """Of the first step; `schedule` says what follows. None: 6e-4 for the embedded model, 1.5e-5 for any other, 1e-4 with
    LoRA. Models of billions of parameters usually take less."""
    schedule: str = option("linear", choices=SCHEDULES)
    """linear: the learning rate falls to 0 over the run. constant: it stays. At a constant rate some runs of the embedded task
    end where every rollout of a group gives the same answer, which no outcome can correct (docs/experiments.md)."""
    warmup_steps: int = option(0, at_least=0)
    """Steps over which the learning rate rises to `learning_rate` first."""
    optimizer: str = "adamw_torch_fused"
    """A name that transformers knows (its `optim`): adamw_torch, adamw_8bit, adafactor, …"""
    gradient_checkpointing: bool = option(False)
    """Keep fewer activations and compute them again in the backward pass: less memory, more time, the same gradient."""
    lora_rank: int | None = option(None, at_least=1)
    """Train LoRA adapters of this rank alone. The run's model has them merged. None: all weights are trained."""
    lora_alpha: int | None = option(None, at_least=1)
    """LoRA's scale: adapters count alpha / rank. None: twice the rank."""
    lora_targets: str = "all-linear"
    """Which modules get adapters: all-linear, or names with commas, such as q_proj,v_proj."""
    kl: float = option(0.04, at_least=0)
    """β of the KL term towards the starting policy (TRL's `beta`). Above 0, each step reads its rollouts once more with the
    starting weights, which are kept in memory. Without it GRPO collapses on the embedded task at the default learning rate."""
    seeded_sampling: bool = option(False)
    """Give every rollout random numbers of its own, by seed, step and place in the batch. With several processes it is always
    so, and they sample what one process with this option samples."""
    temperature: float = option(1.0, above=0)
    """Of sampling and scoring."""
    top_p: float = option(1.0, above=0.0, at_most=1.0)
    """Sample from the likeliest tokens that together have this probability. Scoring and the loss read the whole distribution,
    as in TRL."""
    max_turn_tokens: int | None = option(None, at_least=1)
    """Tokens of a turn, at most, in training and evaluation. None: the task's own limit."""
    system_prompt: str | None = None
    """A system message for every prompt, in training and evaluation. It comes before the task's own, if that has one."""
    loss_type: str = option("dapo", choices=LOSS_TYPES)
    """TRL's name of the policy loss."""
    teacher: str | None = option(None, choices=KINDS)
    """Which weights read the hint. live: the policy's. sync: a copy of them, renewed every `teacher_every` steps. ema: their
    moving average. base: the starting weights. None: what the method's source uses, else live."""
    teacher_every: int | None = option(None, at_least=1)
    """Steps between two copies (teacher=sync). None: as the method's source, else 20."""
    teacher_decay: float | None = option(None, above=0.0, at_most=1.0)
    """Share of the policy's weights in each update of the moving average (teacher=ema). None: as the method's
    source, else 0.05."""
    mix_steps: int | None = option(None, at_least=0)
    """Steps over which the method's `mix` (λ) falls to 0. None: as the method's source does. 0: it stays."""
    mask_budget: int = option(64, at_least=1)
    """oar_p: tokens, or runs of tokens, that are masked in each rollout, one at a time."""
    value_continuations: int = option(9, at_least=1)
    """vine_ppo, turn_ppo: rollouts from the start of every turn, whose mean reward is its value; spo: of every segment.
    Default: VinePPO's and SPO's."""
    judge: str = "policy"
    """prompted_judge: who is asked which turn decided a rollout. policy: the policy itself, as it is at the step. Else an
    OpenAI-compatible endpoint (http…); its key is read from the environment variable OPENAI_API_KEY."""
    judge_model: str = ""
    """The model's name at the judge's endpoint."""
    judge_tokens: int = option(16, at_least=1)
    """Tokens of the judge's answer, thoughts included."""
    eval_rows: int = option(1000, at_least=1)
    """Problems of the test split for the evaluation before and after."""
    checkpoint_every: int = option(50, at_least=1)
    """Steps between two checkpoints."""
    keep_checkpoints: int = option(2, at_least=2, note="the one being written, and the one before it")
    """The newest that are kept."""
    record_every: int = option(10, at_least=1)
    """Steps between two whose rollouts are kept in the record."""
    record_megabytes: float | None = option(None, above=0)
    """Size of the record after which nothing more is recorded. None: no bound."""
    sampler: str = option("own", choices=SAMPLERS)
    """What samples the rollouts. own: our decoding, exactly resumable. continuous_batching: transformers' paged cache. vllm:
    vLLM in this process, started and updated by TRL. Evaluation before and after is always by our own (docs/vllm.md)."""
    vllm_memory: float | None = option(None, above=0.0, at_most=1.0)
    """Share of the GPU's memory that vLLM takes (sampler=vllm). None: TRL's default, 0.3."""
    engine: str = option("trl")
    """What trains: trl, or one that an installed package adds (entry point group gear_rl.engines)."""
    report_to: str = "none"
    """A tracker of TRL's: tensorboard, trackio, wandb."""
    device: str = "auto"
    """cpu, cuda, cuda:1, … auto: a GPU where there is one."""

    def __post_init__(self) -> None:
        check_instance(self, "train")
        rollouts = self.prompts * self.generations
        if self.rollouts_per_pass is not None and rollouts % self.rollouts_per_pass:
            raise GearError(
                f"train.rollouts_per_pass={self.rollouts_per_pass}: must be a divisor of prompts × generations, "
                f"here {rollouts}."
            )


@dataclass
class TrainConfig:
    """All of a run. What is not said here is TRL's default."""

    task: str = "workshop"
    task_options: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    """A folder or hub name. None: the model that comes with the task."""
    credit: str = "gear"
    credit_options: dict[str, Any] = field(default_factory=dict)
    seed: int = option(0, at_least=0, at_most=LARGEST_SEED)
    """Of data order and sampling."""
    train: TrainOptions = field(default_factory=TrainOptions)
    trl: dict[str, Any] = field(default_factory=dict)
    """Fields of TRL's `GRPOConfig` beyond those that `train` has."""

    def __post_init__(self) -> None:
        check_instance(self)
        if self.train.learning_rate is None:  # said in the run's config.json, so that a later default changes no run
            self.train = replace(self.train, learning_rate=usual_rate(self.model, self.train.lora_rank))

    @staticmethod
    def from_dict(values: dict[str, Any]) -> TrainConfig:
        """From `{"task": {"name": …, option: …}, "credit": {"name": …}, "model": …, "seed": …, "train": {…}, "trl": {…}}`: what
        a config file, `--set` and a run's config.json look like. A bare name may stand for {"name": name}."""
        known = ("task", "credit", "model", "seed", "train", "trl")
        for name in values:
            if name not in known:
                raise unknown_name("configuration key", name, known)
        task, credit = _named(values.get("task", {}), "task"), _named(values.get("credit", {}), "credit")
        train, trl = values.get("train", {}), values.get("trl", {})
        for name, table, example in (("train", train, "train.steps=100"), ("trl", trl, "trl.epsilon_high=0.28")):
            if not isinstance(table, dict):
                raise GearError(f"{name}={table!r}: must be a table of options, such as {example}.")
        check_options(TrainOptions, train, "train")  # names too, which `TrainOptions(**train)` would not explain
        return TrainConfig(
            task=task.pop("name", "workshop"),
            task_options=task,
            model=values.get("model"),
            credit=credit.pop("name", "gear"),
            credit_options=credit,
            seed=values.get("seed", 0),
            train=TrainOptions(**train),
            trl=trl,
        )

    def as_dict(self) -> dict[str, Any]:
        """The inverse of `from_dict`."""
        return {
            "task": {"name": self.task, **self.task_options},
            "model": self.model,
            "credit": {"name": self.credit, **self.credit_options},
            "seed": self.seed,
            "train": asdict(self.train),
            "trl": self.trl,
        }


def usual_rate(model: str | None, lora_rank: int | None) -> float:
    """The learning rate where none is given. 6e-4: tuned on the embedded task. 1.5e-5: the lowest of three that were tried on
    SmolLM2-135M; GRPO's best, and every method learns with it (docs/evidence.md). 1e-4: ours, not measured."""
    if model is None:
        return 6e-4
    return 1e-4 if lora_rank else 1.5e-5


def settings(task: str, credit: str) -> list[dict[str, Any]]:
    """Every setting of a run with this task and method, as `options.listing` has them: what `gear train --settings` shows."""
    common = [entry for entry in listing(TrainConfig) if entry["name"] in ("model", "seed")]
    method, train = listing(find_method(credit).Options, "credit."), listing(TrainOptions, "train.")
    return [*common, *train, *method, *({**entry, "name": f"task.{entry['name']}"} for entry in task_options(task))]


def _named(value: Any, what: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, dict):
        raise GearError(f"{what}={value!r}: must be a name or a table with a name and options.")
    return dict(value)
