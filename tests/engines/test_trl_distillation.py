"""The distillation term inside TRL's loss: the gradient of full logits, kept or read again, accumulated, resumed."""

from __future__ import annotations

import pytest
import torch
from engine_runs import build, watch

from gear_rl.signals import distillation as trl_distillation


def a_batch(trainer):
    """What TRL would hand to the loss, for two prompts of four rollouts."""
    rows = [dict(row) for row in trainer.train_dataset.to_list()[:2] for _ in range(4)]
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions(rows)


def gradients(trainer, loss) -> dict[str, torch.Tensor]:
    trainer.model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in trainer.model.named_parameters()}


def log_probs(model, prompts, batch):
    """Full logits, one padded batch: (B, T, V) at the completion's tokens, behind any prompt."""
    rows = []
    for prompt, ids in zip(prompts, batch["completion_ids"].tolist(), strict=True):
        out = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        rows.append(out.log_softmax(-1))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "credit",
    [
        "opsd", {"name": "opsd", "beta": 0.5, "entry_clip": 0.0}, {"name": "sdpo", "top_k": 7},
        {"name": "sdpg", "coefficient": 0.5, "reference": 0.3},
        {"name": "sdpg", "coefficient": 0.5, "reference": 0.3, "reference_mode": "fkl"},
    ],
    ids=str,
)  # fmt: skip
def test_loss_and_gradient_are_those_of_full_logits(tmp_path, credit):
    trainer = build(credit, tmp_path / "run")
    with torch.no_grad():  # as if some steps had been taken: student, teacher and starting policy differ
        trainer.model.model.layers[0].mlp.up_proj.weight.mul_(1.1)
        trainer.model.lm_head.weight.mul_(1.1)
    seen = watch(trainer)
    batch = a_batch(trainer)
    name = credit if isinstance(credit, str) else credit["name"]
    got = trainer._compute_loss(trainer.model, batch)
    ours = gradients(trainer, got)

    model, mask = trainer.model, seen[0]["rollouts"].action_mask.float()
    p = log_probs(model, seen[0]["prompts"], batch)
    with torch.no_grad(), trainer.teacher.in_place():
        q = log_probs(model, seen[0]["hinted"], batch)
    if credit == "opsd":  # its later state: forward KL, every entry of the sum clamped
        term = (q.exp() * (q - p)).clamp(max=0.05).sum(-1) * mask
        expected = term.sum() / mask.sum()
    elif name == "opsd":
        m = torch.logaddexp(p, q) - torch.tensor(2.0).log()
        term = (0.5 * (p.exp() * (p - m)).sum(-1) + 0.5 * (q.exp() * (q - m)).sum(-1)) * mask
        expected = term.sum() / mask.sum()
    elif name == "sdpo":
        top = p.detach().topk(7, -1).indices
        of_p, of_q = p.exp().gather(-1, top), q.exp().gather(-1, top)
        of_p, of_q = (torch.cat([x, 1 - x.sum(-1, keepdim=True)], -1).clamp(min=1e-9) for x in (of_p, of_q))
        m = (of_p + of_q) / 2
        term = (0.5 * (of_p * (of_p / m).log()).sum(-1) + 0.5 * (of_q * (of_q / m).log()).sum(-1)) * mask
        expected = term.sum() / mask.sum()
    else:
        with torch.no_grad(), trainer.distillation.reference.in_place():
            start = log_probs(model, seen[0]["prompts"], batch)
        sampled = p.gather(-1, batch["completion_ids"][..., None])[..., 0]
        policy = -((sampled - sampled.detach()).exp() * batch["advantages"][:, None] * mask).sum() / batch["num_items_in_batch"]
        kl = (p.exp() * (p - q)).sum(-1).clamp(max=20) * mask
        gap = sampled - start.gather(-1, batch["completion_ids"][..., None])[..., 0]
        to_start = ((-gap).exp() if "reference_mode" in credit else 0.5 * gap.square()) * mask
        expected = policy + (0.5 * kl.sum() + 0.3 * to_start.sum()) / mask.sum()
    theirs = gradients(trainer, expected)
    torch.testing.assert_close(got, expected, rtol=2e-3, atol=1e-5)
    for parameter in ours:
        torch.testing.assert_close(
            ours[parameter], theirs[parameter], rtol=2e-2, atol=2e-3 * float(theirs[parameter].abs().max())
        )


def test_the_importance_weight_is_bounded_above_alone(tmp_path):
    trainer = build({"name": "sdpo", "top_k": 0, "beta": 1.0}, tmp_path / "run")
    seen, batch = watch(trainer), a_batch(trainer)
    with torch.no_grad():
        mask = seen[0]["rollouts"].action_mask.float()
        p = log_probs(trainer.model, seen[0]["prompts"], batch)
        with trainer.teacher.in_place():
            q = log_probs(trainer.model, seen[0]["hinted"], batch)
        now = p.gather(-1, batch["completion_ids"][..., None])[..., 0]
        moved = torch.linspace(-2, 2, now.numel()).view(now.shape)
        term = (p.exp() * (p - q)).sum(-1) * moved.exp().clamp(max=2.0) * mask
        batch["old_per_token_logps"] = now - moved
        got = trainer._compute_loss(trainer.model, batch)
    torch.testing.assert_close(got, term.sum() / mask.sum(), rtol=2e-3, atol=1e-5)


def test_states_kept_or_read_again_give_the_same(tmp_path, monkeypatch):
    trainer = build({"name": "sdpg", "coefficient": 0.5, "reference": 0.3}, tmp_path / "run")
    batch = a_batch(trainer)
    assert "gear_teacher_states" in batch and "gear_reference_states" in batch
    kept = trainer._compute_loss(trainer.model, batch)
    lacking = {k: v for k, v in batch.items() if not k.endswith("_states")}
    torch.testing.assert_close(trainer._compute_loss(trainer.model, lacking), kept, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(trl_distillation, "KEPT_BYTES", 0)
    assert "gear_teacher_states" not in a_batch(trainer)
    # Another optimizer step since: what was kept belongs to older weights, and is not used.
    with torch.no_grad():
        trainer.model.model.layers[0].mlp.up_proj.weight.mul_(1.3)
    trainer.state.global_step += 1
    moved = trainer._compute_loss(trainer.model, batch)
    torch.testing.assert_close(moved, trainer._compute_loss(trainer.model, lacking))
    trainer.state.global_step -= 1
    assert not torch.allclose(moved, trainer._compute_loss(trainer.model, batch), rtol=1e-3)


def test_the_students_body_runs_once(tmp_path):
    trainer = build("opsd", tmp_path / "run")
    batch = a_batch(trainer)
    calls = []
    trainer.model.model.register_forward_hook(lambda *_: calls.append(1))
    trainer._compute_loss(trainer.model, batch)
    assert len(calls) == 1


def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path):
    """The mean is over the tokens of the optimizer step, however it is cut into micro-batches."""
    trainer = build({"name": "sdpo"}, tmp_path / "run")
    batch = a_batch(trainer)
    whole = gradients(trainer, trainer._compute_loss(trainer.model, batch))
    parts = [{k: v if isinstance(v, torch.Tensor) and v.ndim == 0 else v[s] for k, v in batch.items()}
             for s in (slice(0, 3), slice(3, 8))]  # fmt: skip
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = 2
    trainer.model.zero_grad()
    losses = [trainer._compute_loss(trainer.model, part) for part in parts]
    sum(losses).backward()
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.grad, whole[name], rtol=1e-3, atol=1e-6)
    # Two optimizer steps out of the same samples: each has half of the tokens to take its mean over.
    trainer.current_gradient_accumulation_steps = 1
    for part, loss in zip(parts, losses, strict=True):
        torch.testing.assert_close(trainer._compute_loss(trainer.model, part), 2 * loss)


def test_rollouts_without_anything_to_read_are_left_out(tmp_path):
    trainer = build({"name": "sdpo", "success_by": "group_mean"}, tmp_path / "run")  # of equal rewards none is above the mean
    trainer.credit_step.reader.sources.knowledge.has_feedback = False
    batch = a_batch(trainer)
    read = [bool(prompt) for prompt in batch["gear_hinted"]]
    mask = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
    assert 0 < sum(read) < 8, "some have a successful sibling, some do not: try another seed"
    assert int(batch["gear_distilled"]) == int(mask[torch.tensor(read)].sum())
    assert [len(s) > 0 for s in batch["gear_teacher_states"]] == read


def test_lora_trains_adapters_alone_and_several_iterations(tmp_path, workshop, model_and_tokenizer):
    from datasets import Dataset
    from peft import LoraConfig
    from trl_setups import build as build_plain
    from trl_setups import own_rollouts

    from gear_rl.engines.trl import CreditGRPOTrainer

    trainer = build_plain(
        CreditGRPOTrainer, tmp_path, workshop, model_and_tokenizer, Dataset.from_list(workshop.rows("train", 32)),
        credit="sdpg", credit_options=dict(coefficient=0.5, reference=0.5),
        peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"]),
        per_device_train_batch_size=4, gradient_accumulation_steps=2, num_iterations=2, max_steps=4,
        rollout_func=own_rollouts(workshop, model_and_tokenizer[1]),
    )  # fmt: skip
    before = {n: p.detach().clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    moved = [n for n, p in trainer.model.named_parameters() if not torch.equal(before[n], p)]
    assert moved and all("lora" in n for n in moved)
    drift = [log["distillation/reference"] for log in trainer.state.log_history if "distillation/reference" in log]
    assert drift[0] < 1e-6 < drift[-1], "the starting policy is left step by step"


def test_the_starting_policy_survives_a_resume(tmp_path):
    trainer = build("sdpg", tmp_path / "run", checkpoint_every=1)
    trainer.train()
    start = {k: v.clone() for k, v in trainer.distillation.reference.state().items()}
    again = build("sdpg", tmp_path / "again", steps=3)
    with torch.no_grad():
        for shadow in again.distillation.reference.state().values():
            shadow.zero_()  # as if the run had been begun from elsewhere
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoints" / "checkpoint-2"))
    assert again.state.global_step == 3
    for name, shadow in again.distillation.reference.state().items():
        assert torch.equal(shadow, start[name])
