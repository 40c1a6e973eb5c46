"""A log that inspect_ai itself has written, opened by `gear report`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gear_rl.cli.main import main
from gear_rl.report import open_source

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-inspect" / "bin" / "python"


@pytest.mark.apart
def test_a_log_of_inspect_ai(tmp_path):
    if not PYTHON.exists():
        pytest.skip("no .venv-inspect: make inspect")
    command = [str(PYTHON), str(ROOT / "tests" / "helpers" / "inspect_eval.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("*.json")
    source = open_source(log)
    rollouts = list(source.rollouts())
    assert (source.task, source.header["model"]) == ("sums", "mockllm/model")
    assert [r.reward for r in rollouts] == [0.0, 1.0, 1.0, 0.0] and [r.success for r in rollouts] == [False, True, True, False]
    assert [r.group_advantage for r in rollouts] == [-0.5, 0.5, 0.5, -0.5]
    for rollout, answer in zip(rollouts, ["it is 7", "5", "5", "6"], strict=True):
        assert rollout.prompt == "system: You add.\nuser: What is 2 + 3? </script>\n"
        said = "".join(text for text, sampled in zip(rollout.token_texts, rollout.action_mask, strict=True) if sampled)
        assert '{"name": "add", "arguments": {"x": 2, "y": 3}}' in said and said.rstrip().endswith(answer)
        assert "tool: 5" in "".join(rollout.token_texts) and "tool: 5" not in said
    page = tmp_path / "page.html"
    assert main(["report", str(log), "--out", str(page)]) == 0
    text = page.read_text()
    assert "mockllm/model" in text and "What is 2 + 3? </script>" not in text  # inside the page it is escaped
    print(f"inspect_ai: {len(rollouts)} rollouts, a page of {len(text)} characters")
