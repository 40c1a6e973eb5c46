"""What this engine cannot train rightly, said before any worker starts."""

from __future__ import annotations

from typing import Any

from gear_rl.engines.refusals import refuse_missing_mix, refuse_missing_needs
from gear_rl.engines.verl.settings import GROUP, Settings
from gear_rl.errors import GearError
from gear_rl.methods import Method
from gear_rl.scoring.scorer import ON_REQUEST, SIGNALS
from gear_rl.signals.from_verdicts import FIELDS, OPTIONAL
from gear_rl.signals.sources import Sources

READ = (*SIGNALS, *ON_REQUEST)
WITHOUT_MODEL = ("sibling_length",)
"""Follow from the batch itself."""
"""Signals that the workers compute."""
TEACHER_SIGNALS = frozenset({"reverse_kl", "teacher_logprob", "forward_kl"})
MODES = ("colocate_async", "separate_async")


def reads_teacher(method: Method) -> bool:
    return bool(TEACHER_SIGNALS & set(method.needs))


def refuse_method(method: Method, settings: Settings) -> None:
    """The workers read the signals `READ`, and `gear_task` brings a task's verdicts; another need is unsupported."""
    name = method.name
    if method.distillation is not None:
        raise GearError(
            f"method {name!r} adds a distillation term to the loss, which the verl engine does not "
            "support: train it with TRL."
        )
    for need in method.needs:
        if need in FIELDS:
            if not settings.task and need not in OPTIONAL:
                raise GearError(
                    f"method {name!r} needs the signal {need!r}, which only a task's verdicts can tell: use the agent loop "
                    f"gear_task (+{GROUP}.task.name=…)."
                )
        elif need not in READ and need not in WITHOUT_MODEL:
            raise GearError(
                f"method {name!r} needs the signal {need!r}, which verl's workers do not compute. They compute "
                f"{', '.join(READ)}: train it with TRL."
            )
    if method.hint in ("own", "other") and not settings.hint and not settings.task:
        raise GearError(
            f"method {name!r} has a teacher that reads the ground truth: name its column, +{GROUP}.hint=COLUMN "
            "(reward_model.ground_truth looks into a nested one)."
        )


def refuse_settings(config: Any, method: Method, settings: Settings) -> None:
    """`config`: verl's whole configuration."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    model, algorithm = config.actor_rollout_ref.model, config.algorithm
    mode = config.trainer.v1.trainer_mode
    if mode != "gear":
        why = " Asynchronous modes are unsupported: their samples come from older weights." if mode in MODES else ""
        raise GearError(
            f"trainer.v1.trainer_mode={mode}, but there is a {GROUP} group: set trainer.v1.trainer_mode=gear.{why}"
        )
    if not config.trainer.get("use_v1", True):
        raise GearError("trainer.use_v1=False: the engine is a v1 trainer. Leave trainer.use_v1 at True.")
    if str(algorithm.adv_estimator) != "grpo":
        raise GearError(
            f"algorithm.adv_estimator={algorithm.adv_estimator}: credit starts from one group advantage per rollout. Set "
            "algorithm.adv_estimator=grpo."
        )
    by_deviation = bool(algorithm.get("norm_adv_by_std_in_grpo", True))
    if method.name == "dr_grpo" and by_deviation:
        raise GearError(
            "credit=dr_grpo leaves out the standard deviation: set algorithm.norm_adv_by_std_in_grpo=False."
        )
    if rollout.n < 2:
        raise GearError(f"actor_rollout_ref.rollout.n={rollout.n}: a group of one has no baseline. Use at least 2.")
    world = config.trainer.get("nnodes", 1) * config.trainer.get("n_gpus_per_node", 1)
    together = rollout.get("tensor_model_parallel_size", 1)
    if world % together:
        raise GearError(
            f"a rollout replica takes {together} GPUs (actor_rollout_ref.rollout.tensor_model_parallel_size), and there are "
            f"{world} workers (trainer.nnodes × trainer.n_gpus_per_node): make it a divisor of their number."
        )
    if method.hint == "other" and config.data.train_batch_size < 2:
        raise GearError(
            f"method {method.name!r} reads another problem's hint: data.train_batch_size must be at least 2."
        )
    correction = algorithm.get("rollout_correction", None)
    if correction and correction.get("bypass_mode", False) and set(READ) & set(method.needs):
        raise GearError(
            "algorithm.rollout_correction.bypass_mode=True leaves out the student's pass, and the sampler's log-probabilities "
            f"are not the student's: method {method.name!r} needs it. Set it to False."
        )
    if not reads_teacher(method):
        return
    if actor.strategy not in ("fsdp", "fsdp2"):
        raise GearError(
            f"actor_rollout_ref.actor.strategy={actor.strategy}: a teacher is read by FSDP workers only. Use fsdp2 or fsdp."
        )
    if (kind := settings.make_teacher(method).kind) != "live" and actor.strategy != "fsdp2":
        raise GearError(
            f"a {kind} teacher ({GROUP}.teacher) needs actor_rollout_ref.actor.strategy=fsdp2, not {actor.strategy}."
        )
    if model.get("use_fused_kernels", False):
        raise GearError(
            "actor_rollout_ref.model.use_fused_kernels=True hides the head that the teacher is read at: turn it off."
        )
    if (
        actor.fsdp_config.get("ulysses_sequence_parallel_size", 1) > 1
        or actor.get("ulysses_sequence_parallel_size", 1) > 1
    ):
        raise GearError("ulysses_sequence_parallel_size > 1 is unsupported with a teacher: use 1.")


def refuse_sources(method: Method, settings: Settings, sources: Sources) -> None:
    refuse_missing_mix(method, settings.mix_steps)
    refuse_missing_needs(method, sources)
