"""Plans follow from what methods declare, and grow as they should."""

from dataclasses import replace

import pytest

from gear_rl.errors import GearError
from gear_rl.methods import METHODS
from gear_rl.planning.hardware import GPUS, find_gpu, known_gpu
from gear_rl.planning.model_shapes import KNOWN
from gear_rl.planning.plan import plan, plan_method, what_would_fit
from gear_rl.planning.readings import readings
from gear_rl.planning.setup import Setup

SETUP = Setup(KNOWN["Qwen3-4B"], GPUS["H200"], rollouts=32, prompt=1024, completion=512)


def planned(name, **changes):
    return plan_method(METHODS[name](), replace(SETUP, **changes))


def test_gear_reads_what_scoring_reads():
    """Four prompts with hint once, every response twice: docs/performance.md counts 9,264 tokens for eight rollouts."""
    (reading,) = readings(METHODS["gear"](), replace(SETUP, rollouts=8))
    assert reading.tokens == 1024 + 64 + 2 * 8 * 512 == pytest.approx(9264, rel=0.002)
    assert reading.head == 2 * 8 * 512


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_declares_decides_whether_it_costs_anything(name):
    declared = METHODS[name].cost
    reads = readings(METHODS[name](), replace(SETUP, turns=4))
    assert bool(reads) == (declared.forwards != 0)
    assert any(reading.backward for reading in reads) == bool(declared.backwards)


def test_a_teacher_with_weights_of_its_own_takes_memory():
    live, sync = planned("rlsd", teacher="live"), planned("rlsd")
    assert live.memory.teacher == 0
    assert sync.memory.teacher == pytest.approx(2 * SETUP.shape.parameters)
    assert sync.time.signals > live.time.signals


def test_sharding_divides_what_is_kept():
    whole, sharded = planned("gear", gpus=8), planned("gear", gpus=8, sharding="fsdp")
    assert sharded.memory.weights * 8 == whole.memory.weights
    assert sharded.memory.optimizer * 8 == whole.memory.optimizer


def test_lora_trains_few_weights():
    assert planned("gear", lora=16).memory.optimizer < 0.05 * planned("gear").memory.optimizer
    assert planned("gear", lora=16).time.loss < planned("gear").time.loss


@pytest.mark.parametrize("change", [{"completion": 1024}, {"prompt": 2048}, {"rollouts": 64}, {"turns": 8}])
def test_more_takes_longer(change):
    assert planned("gear", **change).time.total > planned("gear").time.total


def test_at_long_contexts_attention_rules():
    """Twice the context, more than three times the time."""
    short, long = (planned("grpo", rollouts=8, completion=n).time.total for n in (2**16, 2**17))
    assert long > 3 * short


def test_turns_cost_turn_readers_only():
    few, many = (planned("igpo", turns=n, reply=0).time for n in (2, 16))
    assert many.signals > few.signals
    assert many.loss == few.loss


def test_the_sharding_is_chosen_where_it_must_be():
    setup = Setup(KNOWN["Qwen3-32B"], GPUS["H200"], gpus=8)
    assert [p.setup.sharding for p in plan(setup, ["gear"], choose_sharding=True)] == ["fsdp", "fsdp"]
    small = replace(setup, shape=KNOWN["Qwen3-4B"])
    assert [p.setup.sharding for p in plan(small, ["gear"], choose_sharding=True)] == ["none", "none"]


@pytest.mark.parametrize("model", ["Qwen3-8B", "Qwen3-32B", "Llama-3.1-70B"])
@pytest.mark.parametrize("gpu", ["RTX4090", "H100"])
@pytest.mark.parametrize("prompt", [1024, 120_000])
def test_what_would_fit_fits(model, gpu, prompt):
    base = Setup(KNOWN[model], GPUS[gpu], prompt=prompt)
    failing = plan_method(METHODS["rlsd"](), base)
    assert not failing.fits and what_would_fit(failing)
    for words in what_would_fit(failing):
        flags = dict(zip((w := words.replace(" and ", " ").split())[::2], w[1::2], strict=True))
        changes = {
            "gpus": int(flags.get("--gpus", 1)), "sharding": flags.get("--shard", "none"), "lora": int(flags.get("--lora", 0)),
            "rollouts": int(flags.get("--rollouts", base.rollouts)), "teacher": flags.get("--teacher"),
            "completion": int(flags.get("--completion", base.completion)), "prompt": int(flags.get("--prompt", prompt)),
        }  # fmt: skip
        assert plan_method(METHODS["rlsd"](), replace(base, **changes)).fits, words


def test_nothing_helps_a_model_whose_single_layer_is_too_large():
    shape = replace(KNOWN["Qwen3-32B"], hidden=10**6, intermediate=4 * 10**6)
    failing = plan_method(METHODS["grpo"](), Setup(shape, GPUS["RTX4090"]))
    assert not failing.fits and what_would_fit(failing) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rollouts": 30}, "multiple of --group"),
        ({"gpus": 64}, "multiple of 64"),
        ({"group": 1}, "two rollouts"),
        ({"micro_batch": 5}, "must divide"),
        ({"turns": 1000}, "more than --completion"),
        ({"sharding": "fsdp"}, "at least two GPUs"),
        ({"prompt": 0}, "--prompt 0"),
        ({"completion": 10**10}, "--completion"),
        ({"teacher": "old"}, "unknown teacher"),
    ],
)
def test_impossible_numbers(changes, said):
    with pytest.raises(GearError, match=said):
        replace(SETUP, **changes)


def test_gpus_by_name():
    assert find_gpu("h200", 100).memory == 100
    with pytest.raises(GearError, match="unknown GPU"):
        find_gpu("H20000")
    with pytest.raises(GearError, match="--gpu-memory"):
        find_gpu("H200", 0.1)
    assert known_gpu("NVIDIA A100-SXM4-40GB", 39.5) == replace(GPUS["A100-40GB"], memory=39.5)
    assert known_gpu("NVIDIA GeForce RTX 4090", 23.5).tflops == GPUS["RTX4090"].tflops
    assert known_gpu("NVIDIA L4", 22.0) is None
