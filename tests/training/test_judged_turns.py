"""`gear train --credit prompted_judge`: the embedded model cannot judge and the run is GRPO; a judge behind HTTP is heeded."""

from __future__ import annotations

import json

import pytest
import torch
from chat_server import message, serving

from gear_rl.audition.groups import Groups, play_groups
from gear_rl.cli.main import main
from gear_rl.methods import method
from gear_rl.models import load_model
from gear_rl.sampling.answers import by_model
from gear_rl.tasks import make_task
from gear_rl.training.judged_turns import JudgedTurns, endpoint_judge

TASK = make_task("workshop", steps=4)


@pytest.fixture(scope="module")
def groups() -> Groups:
    return play_groups(TASK, *load_model(TASK.default_model(), "cpu"), TASK.rows("train", 4), 4)


def judged(groups: Groups, ask) -> tuple[JudgedTurns, torch.Tensor]:
    knowledge = JudgedTurns(TASK, groups.rows[0], method("prompted_judge"), groups.tokenizer, ask)
    rows = knowledge.token_signals(groups.sampled)["judged_turn"]
    return knowledge, torch.tensor([row + [0.0] * (groups.sampled.action_mask.shape[1] - len(row)) for row in rows])


def test_the_embedded_model_names_no_turn_and_it_is_grpo(groups, caplog):
    scored, plain = groups.credit(method("prompted_judge")), groups.credit(method("grpo"))
    asked, unreadable = scored.metrics["judge/asked"], scored.metrics["judge/unreadable"]
    assert asked == unreadable > 0 and f"{int(asked)} answers name no turn" in caplog.text
    assert torch.equal(scored.credit.advantages, plain.credit.advantages)


def test_a_judge_behind_an_endpoint_is_heeded_where_its_answer_can_be_read(groups, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def answer(body: dict) -> dict:
        lost = "went wrong" in body["messages"][0]["content"]
        return message("Turn 2." if lost else "I cannot tell.")

    with serving(answer) as server:
        knowledge, signal = judged(groups, endpoint_judge(f"{server.url}/v1", "m", most=16))
    assert all(body["max_tokens"] == 16 and body["temperature"] == 0 for body in server.requests)
    means = groups.sampled.rewards.view(-1, 4).mean(1).repeat_interleave(4)
    lost, won = groups.sampled.rewards < means, groups.sampled.rewards > means
    assert lost.any() and won.any()
    counts = {"judge/asked": float((lost | won).sum()), "judge/unreadable": float(won.sum())}
    assert knowledge.metrics == counts and len(server.requests) == counts["judge/asked"]
    turns = torch.tensor([[1.0 if lost[i] else 0.0] for i in range(len(groups.rows))])
    assert torch.equal(signal.amax(1, keepdim=True), turns)
    second = signal[int(lost.nonzero()[0])].nonzero().flatten()
    mask = groups.sampled.action_mask[int(lost.nonzero()[0])]
    assert mask[second].all() and second[0] > 0 and not mask[second[0] - 1]  # a whole turn, and not the first


def test_a_question_that_does_not_fit_the_context_is_not_asked(groups):
    long = [{"role": "user", "content": "saw " * 400}]
    short = [{"role": "user", "content": "saw"}]
    answers = by_model(groups.model, groups.tokenizer, [long, short], 8)
    assert answers[0] is None and isinstance(answers[1], str)


@pytest.mark.parametrize(
    ("given", "said"),
    [(["train.judge=gpt"], "train.judge='gpt'"), (["train.judge=http://127.0.0.1:9"], "train.judge_model"),
     (["train.judge=http://127.0.0.1:9", "train.judge_model=m"], "no connection")],
)  # fmt: skip
def test_a_judge_that_is_not_there_is_an_error_before_a_model_is_loaded(given, said, capsys):
    settings = [word for one in given for word in ("--set", one)]
    assert main(["train", "--credit", "prompted_judge", *settings]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_training_logs_the_counts(tmp_path):
    small = ["train.steps=1", "train.prompts=2", "train.generations=4", "train.eval_rows=2", "task.steps=4"]
    settings = [word for one in small for word in ("--set", one)]
    assert main(["train", "--credit", "prompted_judge", *settings, "--out", str(tmp_path / "run")]) == 0
    step = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert step["judge/unreadable"] == step["judge/asked"] and step["signals/judged_turn"] == 0
