"""The parts of the verl engine that need no verl: options, what is unsupported, rows, positions, a teacher of shards, data."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from out_of_memory import run_out_of_memory

from gear_rl.engines.verl.data import as_verl, main
from gear_rl.engines.verl.positions import Positions
from gear_rl.engines.verl.reader import make_reader
from gear_rl.engines.verl.refusals import refuse_method, refuse_settings
from gear_rl.engines.verl.rows import check_data, check_lengths, task_row, value_at
from gear_rl.engines.verl.settings import Settings
from gear_rl.engines.verl.shard_teacher import ShardTeacher
from gear_rl.engines.versions import check_version
from gear_rl.errors import GearError
from gear_rl.methods import METHODS, method
from gear_rl.scoring.teacher import Teacher
from gear_rl.signals.sources import Sources


class Config(dict):
    """Enough of OmegaConf: attributes, and `get`."""

    def __getattr__(self, name):
        return self[name]


def config(**changed) -> Config:
    values = {
        "trainer.v1.trainer_mode": "gear", "trainer.use_v1": True, "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.rollout.n": 4, "actor_rollout_ref.actor.strategy": "fsdp2", "data.train_batch_size": 4,
        "actor_rollout_ref.actor.fsdp_config.x": 0, "actor_rollout_ref.model.x": 0,
        **{name.replace("__", "."): value for name, value in changed.items()},
    }  # fmt: skip
    whole = Config()
    for name, value in values.items():
        place = whole
        *path, last = name.split(".")
        for part in path:
            place = place.setdefault(part, Config())
        place[last] = value
    return whole


# ------------------------------------------------------------------------------------------------ versions and options
@pytest.mark.parametrize("found", ["0.8.3", "0.10.0", "1.0"])
def test_another_version_of_verl_is_named_with_the_tested_one(found):
    with pytest.raises(GearError, match=rf"verl {found} is installed.*0\.9"):
        check_version("verl", found)


def test_the_tested_version_is_taken():
    assert check_version("verl", "0.9.7") == "0.9.7"


@pytest.mark.parametrize(
    "given, said",
    [
        ({"credti": "gear"}, "credti.*Did you mean 'credit'"),
        ({"teacher": "liev"}, "teacher='liev'"),
        ({"record_every": 0}, "record_every=0"),
        ({"task": {"steps": 4}}, "gear.task needs a name"),
    ],
)
def test_wrong_options_are_named(given, said):
    with pytest.raises(GearError, match=said):
        Settings.from_dict(given)


def test_a_method_s_unknown_option_is_named():
    with pytest.raises(GearError, match="alhpa"):
        Settings.from_dict({"options": {"alhpa": 2}}).make_method()


def test_the_task_gives_hint_column_and_template():
    settings = Settings.from_dict({"task": {"name": "workshop", "steps": 4}})
    task = settings.make_task()
    assert task.steps == 4 and settings.hint_column(task) == "hint" and settings.template(task) == task.hint_template


# ------------------------------------------------------------------------------------------------ what is unsupported
UNSUPPORTED = {
    "opsd": "distillation", "sdpo": "distillation", "sdpg": "distillation", "checked_hints": "distillation",
    "cepo": "wrong_teacher_logprob", "rlcsd": "wrong_teacher_logprob", "oar_p": "saliency_mask", "oar_g": "saliency_grad",
    "grail": "answer_saliency", "shear": "span_distance", "igpo": "answer_logprob", "trace": "frozen_answer_logprob",
    "hcapo": "hindsight_logprob", "turn_ppo": "values", "vine_ppo": "values", "spo": "prefix_value",
    "prompted_judge": "judged_turn",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_is_supported_with_a_task_or_named_with_what_it_lacks(name):
    settings = Settings.from_dict({"credit": name, "task": {"name": "workshop"}})
    chosen = settings.make_method()
    if name not in UNSUPPORTED:
        return refuse_method(chosen, settings)
    with pytest.raises(GearError, match=rf"method '{name}'.*{UNSUPPORTED[name]}"):
        refuse_method(chosen, settings)


def test_a_teacher_is_what_the_user_names_else_what_the_source_uses():
    assert Settings().make_teacher(method("gear")).kind == "live"
    source = method("rlsd").schedule
    assert Settings().make_teacher(method("rlsd")).kind == (source.teacher or "live")
    assert Settings(teacher="base").make_teacher(method("rlsd")).kind == "base"


def test_what_only_verdicts_tell_needs_a_task():
    with pytest.raises(GearError, match=r"'mt_grpo' needs the signal 'turn_reward'.*gear_task"):
        refuse_method(method("mt_grpo"), Settings())


def test_a_hint_must_be_named():
    with pytest.raises(GearError, match=r"\+gear.hint=COLUMN"):
        refuse_method(method("gear"), Settings())


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"trainer__v1__trainer_mode": "colocate_async"}, "Asynchronous modes are unsupported"),
        ({"trainer__v1__trainer_mode": "sync"}, "set trainer.v1.trainer_mode=gear"),
        ({"trainer__use_v1": False}, "trainer.use_v1=False"),
        ({"algorithm__adv_estimator": "gae"}, "adv_estimator=gae"),
        ({"actor_rollout_ref__rollout__n": 1}, "group of one"),
        ({"trainer__n_gpus_per_node": 2, "actor_rollout_ref__rollout__tensor_model_parallel_size": 4}, "there are 2 workers"),
        ({"algorithm__rollout_correction": Config(bypass_mode=True)}, "bypass_mode"),
        ({"actor_rollout_ref__actor__strategy": "megatron"}, "strategy=megatron"),
        ({"actor_rollout_ref__model__use_fused_kernels": True}, "use_fused_kernels"),
        ({"actor_rollout_ref__actor__fsdp_config__ulysses_sequence_parallel_size": 2}, "ulysses"),
    ],
)
def test_settings_of_verl_that_do_not_go_with_token_credit_are_named(changed, said):
    refuse_settings(config(), method("gear"), Settings())
    with pytest.raises(GearError, match=said):
        refuse_settings(config(**changed), method("gear"), Settings())


def test_teachers_with_weights_of_their_own_need_fsdp2():
    with pytest.raises(GearError, match=r"ema teacher.*needs.*fsdp2"):
        refuse_settings(config(actor_rollout_ref__actor__strategy="fsdp"), method("gear"), Settings(teacher="ema"))


def test_dr_grpo_asks_verl_to_leave_out_the_deviation():
    with pytest.raises(GearError, match="norm_adv_by_std_in_grpo=False"):
        refuse_settings(config(), method("dr_grpo"), Settings())
    refuse_settings(config(algorithm__norm_adv_by_std_in_grpo=False), method("dr_grpo"), Settings())


# ------------------------------------------------------------------------------------------------ data
class Data(list):
    """Enough of a datasets.Dataset."""

    @property
    def column_names(self):
        return list(super().__getitem__(0))

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def test_nested_columns_are_looked_into():
    row = {"reward_model": {"ground_truth": "4"}, "extra_info": '{"answer": {"value": 7}}', "hint": "h"}
    assert value_at(row, "hint") == "h" and value_at(row, "reward_model.ground_truth") == "4"
    assert (
        value_at(row, "extra_info.answer.value") == 7
        and value_at(row, "hint.a") is None
        and value_at(row, "no.a") is None
    )


def test_a_missing_hint_column_is_named_with_those_there_are():
    with pytest.raises(GearError, match=r"no column 'hnit'.*Did you mean 'hint'.*Columns: prompt, hint"):
        check_data(Data([{"prompt": [], "hint": "x"}]), method("gear"), Settings(hint="hnit"), None)


def test_data_smaller_than_a_batch_is_named():
    data = Data([{"prompt": "p", "answer": "a"}] * 3)
    check_data(data, method("gear"), Settings(hint="answer"), None, 3)
    with pytest.raises(GearError, match=r"has 3 rows, and a step takes data\.train_batch_size=4"):
        check_data(data, method("gear"), Settings(hint="answer"), None, 4)


def test_a_row_without_ground_truth_is_named():
    rows = Data([{"reward_model": {"ground_truth": "1"}}, {"reward_model": {"ground_truth": ""}}])
    with pytest.raises(GearError, match=r"row 1: 'reward_model.ground_truth'"):
        check_data(rows, method("gear"), Settings(hint="reward_model.ground_truth"), None)


def test_a_task_needs_rows_that_were_written_for_it(workshop):
    settings = Settings.from_dict({"task": {"name": "workshop", "steps": 4}})
    with pytest.raises(GearError, match="no column 'gear_row'"):
        check_data(Data([{"prompt": [], "hint": "x"}]), method("gear"), settings, workshop)
    line = as_verl(workshop.rows("train", 1)[0], 0, "train", "workshop")
    with pytest.raises(GearError, match="rows name the agent loop single_turn_agent"):
        check_data(Data([{**line, "agent_name": "single_turn_agent"}]), method("gear"), settings, workshop)
    check_data(Data([line]), method("gear"), settings, workshop)


def test_a_task_s_row_survives_the_file(workshop):
    row = workshop.rows("train", 1)[0]
    line = as_verl(row, 3, "train", "workshop")
    assert task_row(line) == row and line["extra_info"]["index"] == 3 and line["agent_name"] == "gear_task"
    for broken in ({}, {"gear_row": None}, {"gear_row": "[]"}, {"gear_row": "{"}):
        with pytest.raises(GearError, match="no task row"):
            task_row(broken)


def test_a_hint_longer_than_the_context_is_named_and_short_ones_are_not_tokenised():
    asked = []

    def tokenize(prompts, rows):
        asked.append(prompts[0])
        return [list(range(len(prompts[0].split())))]

    rows = [({"hint": "a b"}, "one two"), ({"hint": "x " * 90}, "one two")]
    check_lengths(rows[:1], "hint", "{prompt} {hint}", tokenize, 100, 10, 20)
    assert not asked
    with pytest.raises(GearError, match=r"row 1: its hinted prompt has 92 tokens.*context of 100"):
        check_lengths(rows, "hint", "{prompt} {hint}", tokenize, 100, 10, 20)


def test_the_data_writer(tmp_path, capsys):
    datasets = pytest.importorskip("datasets")
    out = tmp_path / "train.parquet"
    assert main(["workshop", "--set", "steps=4", "--count", "3", "--out", str(out)]) == 0
    lines = datasets.Dataset.from_parquet(str(out))
    assert len(lines) == 3 and len(json.loads(lines[0]["gear_row"])["order"].split()) > 0
    assert main(["workshop", "--set", "stepz=4", "--out", str(out)]) == 2
    assert main(["workshop", "--out", str(tmp_path / "train.csv")]) == 2
    errors = capsys.readouterr().err
    assert "stepz" in errors and "parquet" in errors


# ------------------------------------------------------------------------------------------------ positions
def test_states_before_sampled_tokens_packed_and_padded_are_the_same():
    masks = [torch.tensor([1, 0, 1]), torch.tensor([0, 1])]
    prompts, width = [2, 4], 8
    positions = Positions.of(prompts, masks)
    padded = torch.randn(2, width, 3)
    packed = torch.cat([padded[0, :5], padded[1, :6]])[None]
    wanted = torch.stack([padded[0, 1], padded[0, 3], padded[1, 4]])
    assert torch.equal(positions.states(padded, False), wanted) and torch.equal(positions.states(packed, True), wanted)


def test_values_stand_where_verl_looks_for_them():
    """verl cuts a response out of (prompt + response) as [end − length − 1, end − 1)."""
    mask = torch.tensor([1, 0, 1])
    spread = Positions.of([2], [mask]).spread(torch.tensor([5.0, 7.0]), 5)
    assert spread[5 - 3 - 1 : 5 - 1].tolist() == [5.0, 0.0, 7.0]


def test_a_batch_without_a_sampled_token_has_no_positions():
    positions = Positions.of([3], [torch.tensor([0])])
    assert positions.states(torch.randn(1, 4, 2), False).shape == (0, 2)
    assert positions.spread(torch.zeros(0), 4).tolist() == [0.0] * 4


# ------------------------------------------------------------------------------------------------ teachers
@pytest.mark.parametrize("kind", ["sync", "ema", "base"])
def test_a_teacher_of_shards_is_the_plain_teacher(kind, tmp_path):
    model = torch.nn.Linear(3, 2)
    plain, shards = Teacher(model, kind, 2, 0.3), ShardTeacher(model, kind, 2, 0.3)
    for step in range(1, 6):
        with torch.no_grad():
            model.weight += 0.1 * step
        plain.after_step(step)
        shards.after_step()
        kept = model.weight.detach().clone()
        with plain.in_place():
            wanted = model.weight.detach().clone()
        with shards.in_place():
            assert torch.allclose(model.weight, wanted)
        assert torch.equal(model.weight, kept)
    shards.save(tmp_path / "t.safetensors")
    other = ShardTeacher(torch.nn.Linear(3, 2), kind, 2, 0.3)
    other.load(tmp_path / "t.safetensors")
    assert other.steps == 5 and all(torch.equal(other._shadow[n], shards._shadow[n]) for n in shards._shadow)


def test_a_checkpoint_without_the_teacher_is_an_error(tmp_path):
    teacher = ShardTeacher(torch.nn.Linear(3, 2), "ema", 2, 0.3)
    with pytest.raises(GearError, match=r"no x.safetensors, so the 'ema' teacher"):
        teacher.load(tmp_path / "x.safetensors")
    ShardTeacher(torch.nn.Linear(3, 2), "base", 2, 0.3).save(tmp_path / "x.safetensors")
    with pytest.raises(GearError, match="holds a 'base' teacher"):
        teacher.load(tmp_path / "x.safetensors")


def test_a_teacher_of_shards_that_does_not_fit_says_what_would(monkeypatch):
    run_out_of_memory(monkeypatch)
    with pytest.raises(GearError, match=r"'ema' teacher.*does not fit.*teacher=live"):
        ShardTeacher(torch.nn.Linear(3, 2), "ema", 2, 0.3)


def test_a_signal_that_the_workers_did_not_send_is_named():
    reader = make_reader(
        SimpleNamespace(max_position_embeddings=8),
        Teacher(torch.nn.Identity()),
        None,
        Sources(),
        lambda p, r: [],
        method("gear"),
    )
    mask = torch.tensor([[True, False]])
    known = {"entropy": torch.tensor([[2.0, 3.0]])}
    found = reader.scorer.score([], [], [], mask, reader.teacher, ["entropy"], known)
    assert found["entropy"].tolist() == [[2.0, 0.0]]
    with pytest.raises(GearError, match="'gear' needs the signal 'reverse_kl'"):
        reader.scorer.score([], [], [], mask, reader.teacher, ["reverse_kl"], known)
