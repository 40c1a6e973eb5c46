"""The teacher: which weights it has, and when."""

from __future__ import annotations

import pytest
import torch
from out_of_memory import run_out_of_memory
from tiny_models import tiny

from gear_rl.errors import GearError
from gear_rl.scoring.teacher import KINDS, Teacher


def value(model):
    return float(model.weight.detach()[0, 0])


def one(number):
    model = torch.nn.Linear(1, 1, bias=False)
    move(model, number)
    return model


def move(model, number):
    with torch.no_grad():
        model.weight.fill_(number)


def taught(model, teacher):
    with teacher.in_place():
        return value(model)


def test_each_kind_over_five_steps():
    expected = {
        "live": [1, 2, 3, 4, 5],
        "base": [0, 0, 0, 0, 0],
        "sync": [0, 2, 2, 4, 4],
        "ema": [0.25, 0.6875, 1.265625, 1.94921875, 2.7119140625],
    }
    assert expected.keys() == set(KINDS)
    for kind, values in expected.items():
        model = one(0.0)
        teacher = Teacher(model, kind, every=2, decay=0.25)
        seen = []
        for step in range(1, 6):
            move(model, float(step))
            teacher.after_step(step)
            seen.append(taught(model, teacher))
            assert value(model) == step, "the policy is back after the teacher"
        assert seen == values, kind


def test_the_policy_is_back_after_an_error():
    model = one(1.0)
    teacher = Teacher(model, "base")
    move(model, 2.0)
    with pytest.raises(RuntimeError), teacher.in_place():
        assert value(model) == 1.0
        raise RuntimeError
    assert value(model) == 2.0 and taught(model, teacher) == 1.0


def test_optimizers_keep_their_parameter():
    """Weights are swapped inside the parameter: the optimizer and hooks hold on to the object."""
    model = one(1.0)
    parameter, teacher = model.weight, Teacher(model, "base")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        with teacher.in_place():
            pass
        model(torch.ones(1, 1)).sum().backward()
        optimizer.step()
    assert model.weight is parameter and taught(model, teacher) == 1.0 and value(model) < 0


def test_only_what_is_trained_is_copied():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny("llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    shadow = Teacher(model, "base").state()
    assert shadow and all("lora" in name for name in shadow)
    assert Teacher(model, "live").state() == {}


def test_checkpoints():
    model = one(1.0)
    teacher = Teacher(model, "ema", decay=0.5)
    move(model, 3.0)
    teacher.after_step(1)
    saved = {name: tensor.clone() for name, tensor in teacher.state().items()}
    other = Teacher(one(9.0), "ema", decay=0.5)
    other.load_state(saved)
    assert float(next(iter(other.state().values()))) == 2.0
    with pytest.raises(GearError, match="other parameters"):
        Teacher(one(0.0), "live").load_state(saved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(kind="lively"), "Did you mean 'live'"),
        (dict(kind="sync", every=0), "teacher_every"),
        (dict(kind="ema", decay=0.0), "teacher_decay"),
        (dict(kind="ema", decay=1.5), "teacher_decay"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(GearError, match=message):
        Teacher(one(0.0), **options)


@pytest.mark.parametrize("kind", ["sync", "ema", "base"])
def test_a_teacher_that_does_not_fit_says_what_would(monkeypatch, kind):
    model = one(1.0)
    run_out_of_memory(monkeypatch)
    Teacher(model, "live")
    with pytest.raises(GearError, match=rf"'{kind}' teacher keeps a copy.*does not fit.*teacher=live.*LoRA"):
        Teacher(model, kind)
