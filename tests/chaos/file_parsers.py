"""Parsers of files that come from outside: configs, records, transcripts, data, metrics, checkpoints, templates, models."""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parsers import Target


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def sample_run(folder: Path) -> None:
    """The files of a short run, by the product's own writers."""
    from records_made import new_record

    from gear_rl.files import write_json
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.run_folder import RunFolder

    run = RunFolder.create(folder, TrainConfig().as_dict())
    new_record(run.rollouts, steps=1)
    for step in (1, 2):
        run.add_metrics(step, {"loss": 0.5, "reward": 0.25, "guards/alarm": 0.0, "guards/leak": 0.1})
    scores = {"reward": 0.5, "success": 0.5, "success_interval": [0.1, 0.9], "n": 4}
    write_json(run.evaluation, {"before": {"sampled": scores}, "after": {"sampled": scores, "greedy": scores}})
    checkpoint = run.checkpoints / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    run.complete(checkpoint)


def file_targets() -> dict[str, Target]:
    from gear_rl.chat.assistant_tokens import ConversationTokens
    from gear_rl.chat.templates import read_template
    from gear_rl.cli.settings import load_config
    from gear_rl.compare.plan import Plan, open_folder
    from gear_rl.evaluation.result_folder import ResultFolder
    from gear_rl.localize.steps import read_solutions
    from gear_rl.models import load_model
    from gear_rl.records.measured import SCHEMA, VERSION, read_measured
    from gear_rl.records.record import is_record, open_record, to_rollouts
    from gear_rl.records.transcripts import looks_like_transcripts, read_transcripts
    from gear_rl.report import collect, html_page, open_source
    from gear_rl.report.notes import Notes
    from gear_rl.tasks.jsonl import Jsonl
    from gear_rl.training.config import TrainConfig
    from gear_rl.training.run_folder import RunFolder, is_complete

    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="gear-fuzz-", dir=base))
    run = home / "run"
    sample_run(run)
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    read = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    record = read["rollouts.jsonl"]

    def at(name: str, then: Callable[[Path], Any]) -> Callable[[bytes], Any]:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)

        def parse(data: bytes) -> None:
            path.write_bytes(data)
            then(path)

        return parse

    def config(path: Path) -> None:
        settings = load_config(path)
        settings.pop("format", None)
        TrainConfig.from_dict(settings)

    def whole_record(path: Path) -> None:
        is_record(path)
        to_rollouts(list(open_record(path)[1])[:50])

    def report(path: Path) -> None:
        html_page(collect([open_source(path)]))

    def in_run(name: str) -> Callable[[bytes], Any]:
        good = (run / name).read_bytes()

        def parse(data: bytes) -> None:
            (run / name).write_bytes(data)
            try:
                TrainConfig.from_dict(RunFolder.open(run)[1])
                open_source(run)
            finally:
                (run / name).write_bytes(good)

        return parse

    def resumed_metrics(path: Path) -> None:
        RunFolder(path.parent).cut_after(1)

    def transcripts(path: Path) -> None:
        looks_like_transcripts(path)
        read_transcripts(path)

    def problems(path: Path) -> None:
        Jsonl(str(path)).rows("train", 3)

    def results(path: Path) -> None:
        folder = path.parent
        (folder / "settings.json").write_text('{"format": 1, "a": 1}')
        ResultFolder(folder, {"a": 1}).close()

    def checkpoint(path: Path) -> None:
        is_complete(path.parent)

    from gear_rl.tasks.workshop.task import FOLDER

    tokenizer = load_tokenizer(FOLDER / "model")
    asked = [{"role": "user", "content": "valve leak"}, {"role": "assistant", "content": "weld valve"}]

    def template(path: Path) -> None:
        tokenizer.chat_template = read_template(path)
        ConversationTokens(tokenizer, {tokenizer.eos_token_id}, "model").split(asked, None, "row 0")

    def model(name: str, rest: bytes = b"") -> Callable[[bytes], Any]:
        folder = home / f"model-{name}"
        shutil.copytree(FOLDER / "model", folder)

        def parse(data: bytes) -> None:
            (folder / name).write_bytes(data + rest)
            load_model(str(folder), "cpu")

        return parse

    def solutions(path: Path) -> None:
        list(read_solutions(path, ("answer",)))

    conversation = {"messages": [*asked, {"role": "tool", "content": "g1"}, {"role": "assistant", "content": "answer yes"}],
                    "reward": 1.0, "answer": "yes", "group": "a", "tools": [{"name": "f"}]}  # fmt: skip
    called = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    step = {"problem": "p", "steps": ["a", "b"], "label": 1, "answer": "x"}
    prm = {"question": {"problem": "p", "ground_truth_answer": "1"}, "label": {"steps": [
        {"completions": [{"text": "a", "rating": 1}], "chosen_completion": 0, "human_completion": None}]}}  # fmt: skip
    sample = {"how": "greedy", "id": "test-0", "k": 0, "reward": 1.0, "success": True}
    toml = 'model = "x"\nseed = 1\n[train]\nsteps = 3\nlearning_rate = 1e-3\n[credit]\nname = "gear"\n[task]\nsteps = 4\n'
    weights = (FOLDER / "model" / "model.safetensors").read_bytes()
    slow = {"share": 0.003, "seconds": 10.0}
    described = {name: (FOLDER / "model" / name).read_bytes() for name in ("config.json", "tokenizer.json")}
    head = 8 + int.from_bytes(weights[:8], "little")
    open_folder(home / "cmp", Plan(["grpo", "gear"], 2, [0.001]))
    plan = (home / "cmp" / "compare.json").read_bytes()
    row = {"prompt": "p", "answer": "1"}
    tool = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "tool_calls": [{"function": "f", "arguments": {}}]}
    scored = {"id": 1, "messages": [asked[0], tool], "scores": {"s": {"value": "C", "explanation": "x"}}, "attachments": {}}
    inspected = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": [scored]}
    note = {"step": 0, "group": 0, "rollout": 1, "token": None, "text": "x"}
    notes = {"schema": "gear_rl.notes", "version": 1, "notes": [note, {**note, "token": 3}]}
    turn = {"step": 0, "group": 1, "rollout": 2, "turn": 3, "advantage": -0.5, "before": 0.75, "after": 0.25, "tokens": "0a",
            "interval": [-0.75, -0.25], "continuations": 64, "credit": {"gear": -1.5, "grpo": -1.0}}  # fmt: skip
    measured = json.dumps({"schema": SCHEMA, "version": VERSION, "turns": [turn, turn]}).encode()
    complete = (run / "checkpoints" / "checkpoint-1" / "complete.json").read_bytes()
    return {
        "config .json": Target(at("c.json", config), [read["config.json"]]),
        "config .toml": Target(at("c.toml", config), [toml.encode()]),
        "run config.json": Target(in_run("config.json"), [read["config.json"]], share=0.3),
        "metrics.jsonl": Target(in_run("metrics.jsonl"), [read["metrics.jsonl"]], share=0.3),
        "metrics.jsonl, resumed": Target(at("cut/metrics.jsonl", resumed_metrics), [read["metrics.jsonl"]], share=0.3),
        "evaluation.json": Target(in_run("evaluation.json"), [read["evaluation.json"]], share=0.3),
        "records": Target(at("r.jsonl", whole_record), [record], share=0.3),
        "records, reported": Target(at("p.jsonl", report), [record], share=0.02),
        "measured turns": Target(at("r.measured.json", read_measured), [measured]),
        "transcripts": Target(at("t.jsonl", transcripts), [lines(conversation, {"messages": [asked[0], called], "reward": 0})]),
        "messages, reported": Target(at("m.jsonl", report), [lines(conversation)], share=0.1),
        "Inspect logs": Target(at("i.json", report), [json.dumps(inspected).encode()], share=0.1),
        "notes.json": Target(at("notes.json", lambda path: Notes(path).read()), [json.dumps(notes).encode()]),
        "problems .jsonl": Target(at("q.jsonl", problems), [lines(*[{**row, "prompt": f"p{i}"} for i in range(4)])]),
        "problems .jsonl.gz": Target(at("q.jsonl.gz", problems), [gzip.compress(lines(row, row))], share=0.3),
        "labelled solutions": Target(at("s.jsonl", solutions), [lines(step), lines(prm)]),
        "evaluation samples": Target(at("ev/samples.jsonl", results), [lines(sample, {**sample, "k": 1})], share=0.3),
        "comparison plans": Target(at("cmp/compare.json", lambda path: open_folder(path.parent, None)), [plan]),
        "checkpoint hashes": Target(at("cp/complete.json", checkpoint), [complete]),
        "chat templates": Target(at("t.jinja", template), [tokenizer.chat_template.encode()], share=0.05),
        "model config.json": Target(model("config.json"), [described["config.json"]], **slow),
        "model weights": Target(model("model.safetensors", weights[head:]), [weights[:head]], **slow),
        "tokenizer.json": Target(model("tokenizer.json"), [described["tokenizer.json"]], **slow),
    }  # fmt: skip


def load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)

