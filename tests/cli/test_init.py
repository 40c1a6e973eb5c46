"""`gear init`: what it writes runs as it stands. `gear completion`: what it writes is read by a shell."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys

import pytest
from byte_tokenizers import byte_tokenizer

from gear_rl.cli.init import KINDS
from gear_rl.cli.main import COMMANDS, main
from gear_rl.methods import METHODS

TWO_STEPS = ["train.steps=2", "train.prompts=2", "train.generations=2", "train.eval_rows=2", "train.record_every=1",
             "train.system_prompt=Be brief."]  # fmt: skip


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A tiny chat model with random weights, in a folder."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder, tokenizer = tmp_path_factory.mktemp("model"), byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=1024, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_writes_runs(tmp_path, monkeypatch, capsys, chat_model, kind):
    folder = tmp_path / "mine"
    assert main(["init", str(folder), "--kind", kind, "--model", str(chat_model)]) == 0
    written = sorted(path.name for path in folder.iterdir())
    said = capsys.readouterr().out
    assert {"README.md", "config.toml", "train.py"} < set(written) and all(name in said for name in written)
    monkeypatch.chdir(folder)
    checks = {"data": ["problems.jsonl", "--set", "task.judged_by=number"], "environment": ["my_task:Guess"]}
    assert main(["eval", "--check", *checks[kind]]) == 0
    readme = (folder / "README.md").read_text()
    assert f"gear eval --check {' '.join(checks[kind])}" in readme and "gear train --config config.toml" in readme
    sets = [word for setting in TWO_STEPS for word in ("--set", setting)]
    assert main(["train", "--config", "config.toml", "--out", "runs/RUN", *sets]) == 0
    assert (folder / "runs/RUN/model/model.safetensors").exists()
    assert "system\\nBe brief.<|im_end|>" in (folder / "runs/RUN/rollouts.jsonl").read_text()
    monkeypatch.setattr(sys, "argv", ["train.py", "2"])
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("generations = 8", "generations = 2").replace("_rows = 50", "_rows = 2"))
    try:
        runpy.run_path("train.py", run_name="__main__")
    except SystemExit as ended:
        assert ended.code == 0
    assert (folder / "runs" / "script").is_dir()
    sys.modules.pop("my_task", None)


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    for folder in (tmp_path / "mine", tmp_path / "mine" / "notes.txt"):
        assert main(["init", str(folder), "--kind", "data"]) == 2
        assert "exists: give the name of a new folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert main(["init", str(tmp_path / "mine"), "--kind", "dta"]) == 2


def bash_completes(script, *words):
    ask = f"{script}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _gear; echo \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", ask.replace("''", '""')], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_options_and_methods(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert set(COMMANDS) == set(bash_completes(script, "gear", '""'))
    assert bash_completes(script, "gear", "comp") == ["compare", "completion"]
    assert "--credit" in bash_completes(script, "gear", "train", "--c")
    assert set(METHODS) <= set(bash_completes(script, "gear", "train", "--credit", '""'))
    assert "workshop" in bash_completes(script, "gear", "eval", "--task", "work")
    assert bash_completes(script, "gear", "init", "x", "--kind", "e") == ["environment"]
    assert bash_completes(script, "gear", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(capsys, shell, tmp_path):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS) and "checked_hints" in script
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([found, "-n", str(tmp_path / "script")], check=True)
