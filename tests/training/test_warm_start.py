"""A model taught a benchmark's form by `gear warmstart`, then trained on it by `gear train`: a real run's commands, small."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import bfcl_sample
import maths_sample
import pytest
import torch
from bad_input import mistakes
from forked import Forked, killed_at_rename

from gear_rl.chat.templates import TOOLS_IN_WORDS, Replies, tokenized_prompts
from gear_rl.chat.tool_calls import read_turn
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.tasks import make_task
from gear_rl.tasks.base import Row, tools_of
from gear_rl.training.warm_start import ReferenceRollouts, reference_completion

CHATML = (  # as SmolLM2's: it passes over `tools`
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DIALOGUES = 8
needs_bfcl = pytest.mark.skipif(
    "not __import__('importlib').util.find_spec('bfcl_eval')", reason="bfcl-eval is not installed"
)
needs_math = pytest.mark.skipif(
    "not __import__('importlib').util.find_spec('math_verify')", reason="math-verify is not installed"
)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """GSM8K and BFCL of our own making in the published layouts; a short dialogue eight times, so that it can be split."""
    folder = tmp_path_factory.mktemp("data")
    maths_sample.write(folder)
    bfcl = bfcl_sample.write_sample(folder / "bfcl")
    for path in (bfcl / "BFCL_v3_multi_turn_base.json", bfcl / "possible_answer" / "BFCL_v3_multi_turn_base.json"):
        entry = json.loads(path.read_text())
        entry |= {key: entry[key][:1] for key in ("question", "ground_truth") if key in entry}
        entry |= {"involved_classes": ["GorillaFileSystem"]} if "question" in entry else {}
        path.write_text("".join(json.dumps({**entry, "id": f"multi_turn_base_{i}"}) + "\n" for i in range(DIALOGUES)))
    return folder


@pytest.fixture(scope="module")
def blank(tmp_path_factory, data) -> str:
    """A random model of 60 thousand parameters; its tokens were made on these texts, so that they are few."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    marks = ["<pad>", "<|im_start|>", "<|im_end|>"]
    core = ByteLevelBPETokenizer()
    texts = [path.read_text() for path in (*data.glob("gsm8k/*"), *data.glob("bfcl/**/*multi_turn*"), *data.glob("bfcl/*/*"))
             if path.is_file()]  # fmt: skip
    core.train_from_iterator([*texts, TOOLS_IN_WORDS], vocab_size=900, special_tokens=marks, show_progress=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core._tokenizer, pad_token=marks[0], eos_token=marks[2], additional_special_tokens=marks[1:2]
    )
    tokenizer.chat_template = CHATML
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None,
        eos_token_id=2,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model") / "blank"
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def words_for(task: str, data: Path) -> list[str]:
    if task == "gsm8k":
        return ["--task", "gsm8k", "--data", str(data), *settings("task.judges=1", "task.max_turn_tokens=48")]
    own = ("task.category=multi_turn_base", "task.train_share=0.5", "task.max_turns=9", "task.max_turn_tokens=90")
    return ["--task", "bfcl", "--data", str(data / "bfcl"), *settings(*own, "task.reward=turns")]


@pytest.fixture(scope="module")
def tokenizer(blank):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(blank)


# ---------------------------------------------------------------------------------------------------- reference as tokens
@needs_bfcl
def test_reference_calls_are_played_and_only_the_policys_tokens_count(data, tokenizer):
    task = make_task("bfcl", data=str(data / "bfcl"), category="multi_turn_base", train_share=0.5)
    row = task.rows("train", 1)[0]
    found = ReferenceRollouts(tokenizer, task, [row], 4096)
    ((prompt, hinted, reference),) = found.found
    mine, others = (
        tokenizer.decode([t for t, m in zip(reference.ids, reference.mask, strict=True) if m == who]) for who in (1, 0)
    )
    turns = mine.split("<|im_end|>")
    read = [read_turn(turn) for turn in turns[:-1]]
    assert turns[-1] == "" and [c.name for turn in read for c in turn.calls] == ["cd", "mkdir"]
    assert turns[0].startswith('<tool_call>[{"name": "cd"') and not any(turn.malformed for turn in read)
    assert others.count("<|im_start|>tool\n") == 2 and "<tool_call>" not in others and turns[2] == "That is done."
    assert prompt == tokenized_prompts(tokenizer, [row["prompt"]], [tools_of(task, row)])[0]
    assert row["hint"] in tokenizer.decode(hinted) and row["hint"] not in tokenizer.decode(prompt)
    task.close()


@needs_math
def test_reference_that_the_judge_refuses_or_is_too_long_is_left_out_and_counted(data, tokenizer):
    task = make_task("gsm8k", data=str(data), judges=2)
    rows: list[Row] = task.rows("train", 3)
    task.reference = lambda row: "I do not know." if row is rows[0] else type(task).reference(task, row)
    longest = max(len(p) + len(g.ids) for _, p, g in ReferenceRollouts(tokenizer, task, rows[1:], 4096).found)
    found = ReferenceRollouts(
        tokenizer, task, [*rows, {**rows[1], "prompt": [{"role": "user", "content": "x" * 500}]}], longest
    )
    assert (found.rejected, found.too_long, len(found.found)) == (1, 1, 2)
    with pytest.raises(GearError, match="nothing to learn from"):
        ReferenceRollouts(tokenizer, task, rows[:1], 4096)
    task.close()


def test_a_task_whose_reference_is_no_list_of_turns_is_refused(tokenizer):
    task = make_task("workshop")
    with pytest.raises(GearError, match="whole completions"):
        reference_completion(tokenizer, task, task.rows("train", 1)[0], Replies(tokenizer), False)


# ---------------------------------------------------------------------------------------------------- the two commands
@pytest.mark.parametrize("task", [pytest.param("gsm8k", marks=needs_math), pytest.param("bfcl", marks=needs_bfcl)])
def test_a_warm_start_and_steps_of_gear(task, data, blank, tmp_path, capsys):
    """Warm enough to be rewarded at times; then two steps, all of them with a gradient."""
    warm, run = tmp_path / "warm", tmp_path / "run"
    taught = settings(*(f"warm.{pair}" for pair in WARM[task]))
    assert main(["warmstart", *words_for(task, data), "--model", blank, "--out", str(warm), *taught]) == 0
    told = capsys.readouterr().out
    next_command = shlex.split(told.splitlines()[-1].split(": ", 1)[1])
    assert sorted(next_command[2:]) == sorted([*words_for(task, data), "--model", str(warm)]), "the same task"
    saved = json.loads((warm / "warm_start.json").read_text())
    assert saved["curve"][-1]["loss"] < 0.2 * saved["curve"][0]["loss"] and saved["counts"]["rejected"] == 0
    trained = settings("train.steps=2", "train.prompts=2", "train.generations=4", "train.rollouts_per_pass=2",
                       "train.eval_rows=2", "train.learning_rate=1e-4", "train.record_every=1")  # fmt: skip
    assert main(["train", *words_for(task, data), "--model", str(warm), "--out", str(run), *trained]) == 0
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics] == [1, 2] and all("malformed" in m for m in metrics)
    assert any(m["reward"] > 0 and m["grad_norm"] > 0 for m in metrics), metrics
    assert all(m["signals/reverse_kl"] > 0 for m in metrics)
    assert "reference rollouts" in told


@needs_math
def test_a_warm_start_killed_while_saving_is_started_again(data, blank, tmp_path):
    """SIGKILL when all is written and not yet in its place: the folder does not exist, and the same command makes it whole."""
    warm = tmp_path / "warm"
    words = ["warmstart", *words_for("gsm8k", data), "--model", blank, *settings("warm.epochs=1")]
    done = Forked([*words, "--out", str(warm)], killed_at_rename("warm")).wait()
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not warm.exists() and len(list(tmp_path.glob(".warm.*.partial/model.safetensors"))) == 1
    assert main([*words, "--out", str(warm)]) == 0 and list(tmp_path.iterdir()) == [warm]
    assert main([*words, "--out", str(tmp_path / "again")]) == 0
    assert (warm / "model.safetensors").read_bytes() == (tmp_path / "again" / "model.safetensors").read_bytes()


WARM = {
    "gsm8k": ("epochs=60", "batch=9", "learning_rate=0.01"),
    "bfcl": ("epochs=90", "batch=3", "learning_rate=0.01"),
}


@pytest.mark.parametrize("task", [pytest.param("gsm8k", marks=needs_math), pytest.param("bfcl", marks=needs_bfcl)])
def test_the_embedded_model_takes_the_same_commands(task, data, tmp_path):
    """It knows no word of these tasks, so nothing is learned; everything else is as in a real run."""
    model = make_task("workshop").default_model()
    trained = settings("train.steps=1", "train.prompts=2", "train.generations=2", "train.eval_rows=1")
    if task == "bfcl":
        trained += settings("task.max_turns=2", "task.max_turn_tokens=8")
    assert main(["train", *words_for(task, data), "--model", model, "--out", str(tmp_path / "run"), *trained]) == 0
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["after"]["greedy"]["success"] == 0


# ---------------------------------------------------------------------------------------------------- bad input
@mistakes("""
    --set warm.epochs=0 -> warm.epochs=0
    --set warm.hinted=2 -> at least 0 and at most 1
    --set warm.epoch=1 -> Did you mean 'epochs'
    --set wram.epochs=1 -> Did you mean 'warm'
    --set warm=1 -> warm.NAME=VALUE
    --set task.dta=x -> Did you mean 'data'
    --out . -> exists
""")
def test_bad_input_is_refused_before_a_model_is_loaded(words, says, data, capsys):
    given = ["warmstart", "--task", "gsm8k", "--data", str(data), "--model", "nowhere", "--out", "never", *words]
    assert main(given) == 2 and says in capsys.readouterr().err
    assert not Path("never").exists()


def test_tools_in_words_name_the_form_that_is_read():
    example = TOOLS_IN_WORDS.split("calls:\n")[1].split("\n")[0]
    (call,) = read_turn(example).calls
    assert call.name == "function_name" and call.arguments == {"argument": "value"}
