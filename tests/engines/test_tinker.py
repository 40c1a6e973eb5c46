"""Credit as data for Tinker: against the published client's own types, with a real model in the server's place."""

from __future__ import annotations

import inspect
from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch
from played_rollouts import rolled

from gear_rl import credit as credit_of
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.chat.hints import hinted_prompt
from gear_rl.engines.tinker import TinkerRollout, assign, method_for_tinker, to_data
from gear_rl.errors import GearError
from gear_rl.models import load_model
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.tasks import make_task

tinker = pytest.importorskip("tinker")


class LocalClient:
    """`SamplingClient.compute_logprobs`, computed by a model in this process."""

    def __init__(self, model):
        self.model = model

    def compute_logprobs(self, prompt: tinker.ModelInput, prompt_logprobs_last_n: int | None = None):
        ids = torch.tensor([prompt.to_ints()])
        with torch.no_grad():
            logits = self.model(ids).logits[0, :-1].log_softmax(-1)
        scored = logits.gather(1, ids[0, 1:, None])[:, 0].tolist()
        skipped = 0 if prompt_logprobs_last_n is None else len(scored) - prompt_logprobs_last_n
        future = Future()
        future.set_result([None, *[None] * skipped, *scored[skipped:]])
        return future


@pytest.fixture(scope="module")
def played():
    """A client, its rollouts, and the same with the signals that our own scorer gives."""
    task = make_task("workshop", steps=4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    client, found = LocalClient(model), rolled(task, (model, tokenizer))
    hinted = [
        tokenizer.apply_chat_template(
            hinted_prompt(row["prompt"], row["hint"], task.hint_template), add_generation_prompt=True, return_dict=False
        )
        for row in found.rows
    ]
    rollouts = []
    for i, (prompt, completion) in enumerate(zip(found.prompts, found.completions, strict=True)):
        sampled = client.compute_logprobs(tinker.ModelInput.from_ints([*prompt, *completion])).result()
        rollouts.append(
            TinkerRollout(
                prompt,
                completion,
                found.mask[i, : len(completion)].long().tolist(),
                sampled[-len(completion) :],
                reward=float(i % 3 == 0),
                group=i // 3,
                hinted_prompt_ids=hinted[i],
            )
        )
    scores = Scorer(model).score(found.prompts, hinted, found.completions, found.mask, Teacher(model, "live"))
    return client, rollouts, found, scores


def test_the_client_has_what_we_call():
    theirs = inspect.signature(tinker.SamplingClient.compute_logprobs).parameters
    assert list(theirs)[1:] == list(inspect.signature(LocalClient(None).compute_logprobs).parameters)


def test_data_hold_what_the_model_read_predicted_and_is_credited_with(played):
    client, rollouts, _, _ = played
    credit = assign(method_for_tinker("rlsd"), rollouts, client)
    data = to_data(rollouts, credit)
    request = tinker.types.ForwardBackwardInput(data=data, loss_fn="importance_sampling")
    assert len(request.data) == len(rollouts)
    for i, (datum, rollout) in enumerate(zip(data, rollouts, strict=True)):
        tensors = datum.loss_fn_inputs
        assert set(tensors) == {"target_tokens", "logprobs", "advantages"}
        assert {t.shape[0] for t in tensors.values()} == {datum.model_input.length}
        assert [tensors[k].dtype for k in ("target_tokens", "logprobs", "advantages")] == ["int64", "float32", "float32"]
        whole = [datum.model_input.to_ints()[0], *tensors["target_tokens"].data]
        assert whole == [*rollout.prompt_ids, *rollout.completion_ids]
        # what the model gives for each target, in its place: the proof that nothing is shifted
        given = torch.tensor(client.compute_logprobs(tinker.ModelInput.from_ints(whole)).result()[1:])
        mask = torch.tensor([0] * (len(rollout.prompt_ids) - 1) + rollout.action_mask)
        torch.testing.assert_close(tensors["logprobs"].to_torch(), given * mask)
        expected = credit.advantages[i, : len(rollout.completion_ids)]
        torch.testing.assert_close(tensors["advantages"].to_torch()[-len(expected) :], expected)
        assert not tensors["advantages"].to_torch()[mask == 0].any()


@pytest.mark.parametrize("name", ["grpo", "low_probability", "rlsd", "opd"])
def test_credit_is_what_the_same_method_gives_with_our_own_scorer(played, name):
    client, rollouts, found, scores = played
    chosen = method_for_tinker(name)
    rewards = torch.tensor([r.reward for r in rollouts])
    groups = torch.tensor([r.group for r in rollouts])
    signals = {need: scores[need] for need in chosen.needs}
    expected = credit_of(name, Rollouts(action_mask=found.mask, rewards=rewards, group_ids=groups, signals=signals))
    torch.testing.assert_close(assign(chosen, rollouts, client).advantages, expected.advantages, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gear", "it reads reverse_kl"),
        ("high_entropy", "it reads entropy"),
        ("oar_g", "it reads saliency_grad"),
        ("opsd", "adds a divergence to the loss"),
        ("gigpo", "it reads anchor_state"),
    ],
)
def test_what_needs_logits_is_unsupported(name, says):
    with pytest.raises(GearError, match=says) as error:
        method_for_tinker(name)
    assert "rlsd" in str(error.value) and "grpo" in str(error.value)


def test_a_teacher_needs_a_client_and_hints(played):
    client, rollouts, _, _ = played
    with pytest.raises(GearError, match="give the sampling client"):
        assign(method_for_tinker("rlsd"), rollouts)
    with pytest.raises(GearError, match="rollout 0 has no hinted_prompt_ids"):
        assign(method_for_tinker("rlsd"), [replace(r, hinted_prompt_ids=None) for r in rollouts], client)
    told = [replace(r, channels={"a": r.reward, "b": float(i % 2)}) for i, r in enumerate(rollouts)]
    assert assign(method_for_tinker("crpo"), told, client).advantages.any()
    with pytest.raises(GearError, match="equally long"):
        replace(rollouts[0], logprobs=[0.0])
