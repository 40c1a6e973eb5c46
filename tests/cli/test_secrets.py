"""Secrets of the environment reach no record, log, report or message: canaries are set, commands run, all is read."""

import base64
import json
import logging

import pytest
from chat_server import message, serving

from gear_rl.cli.main import main

CANARY = "canary-7f3a91c5"
NAMES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "MY_KEY",
)  # fmt: skip
SMALL = ["--set", "train.steps=2", "--set", "train.prompts=2", "--set", "train.generations=2", "--set", "train.eval_rows=2"]


@pytest.fixture
def everything(tmp_path, monkeypatch, capfd, caplog):
    """Run commands; then all that they said and wrote."""
    for name in NAMES:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    monkeypatch.setenv("HTTP_PROXY", f"http://user:{CANARY}@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.chdir(tmp_path)
    said = []

    def run(*words):
        with caplog.at_level(logging.DEBUG, "gear_rl"):
            code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        said.append(out + err + caplog.text)
        return code, out + err

    yield run
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    found = [str(path) for path in files if CANARY.encode() in path.read_bytes()]
    assert not found and not any(CANARY in text for text in said)
    assert not any(base64.b64encode(CANARY.encode()).decode() in text for text in said)


def test_doctor(everything):
    for words in (["doctor"], ["doctor", "--json"], ["doctor", "--debug"]):
        _, text = everything(*words)
        assert "gear" in text


def test_training_and_its_report(everything, tmp_path):
    assert everything("train", *SMALL, "--out", "run")[0] == 0
    assert everything("report", "run", "--out", "report.html")[0] == 0
    assert everything("credit", "run", "--credit", "grpo")[0] == 0
    written = {path.name for path in tmp_path.rglob("*")}
    assert {"config.json", "rollouts.jsonl", "metrics.jsonl", "report.html", "versions.json"} <= written


@pytest.mark.parametrize("trouble", [(400, "bad", {}), (401, "no", {}), (503, "busy", {}), (200, "<html>", {}), None])
def test_a_server_that_echoes_the_key(everything, tmp_path, monkeypatch, trouble):
    def echo(body):
        return message(f"you sent {server.headers[-1]['Authorization']}")

    monkeypatch.setattr("gear_rl.chat.endpoint.LONGEST_PAUSE", 0.01)
    with serving(echo) as server:
        if trouble is not None:
            status, text, headers = trouble
            server.trouble = [(status, f"{text}: Authorization: Bearer {CANARY}-MY_KEY", headers)] * 99
        words = ["eval", "--rows", "1", "--mode", "greedy", "--endpoint", server.url, "--model", "m", "--out", "eval"]
        code, text = everything(*words, "--api-key-env", "MY_KEY", "--debug")
    assert server.headers[0]["Authorization"] == f"Bearer {CANARY}-MY_KEY", "it was sent"
    assert code == (0 if trouble is None else 2)
    if trouble is not None:
        assert "Bearer [key]" in text
    else:
        samples = (tmp_path / "eval" / "samples.jsonl").read_text().splitlines()
        assert "Bearer [key]" in json.loads(samples[-1])["completion"]


@pytest.mark.parametrize("url", ["http://user:{}@127.0.0.1:1/v1", "ftp://user:{}@127.0.0.1/", "http://127.0.0.1/v1?key={}"])
def test_secrets_in_an_address(everything, url):
    assert everything("eval", "--endpoint", url.format(CANARY), "--model", "m", "--rows", "1")[0] == 2
