"""Every command that reads a file, on every kind of damage: one line on standard error and exit code 2, never a traceback."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path

import pytest
from records_made import new_record

from gear_rl.cli.main import main
from gear_rl.compare.plan import Plan, open_folder
from gear_rl.compare.results import read_outcome
from gear_rl.compare.tuning import training_reward
from gear_rl.errors import GearError
from gear_rl.evaluation import result_folder
from gear_rl.evaluation.estimates import summarise
from gear_rl.evaluation.result_folder import ResultFolder
from gear_rl.tasks import make_task
from gear_rl.training.config import TrainConfig
from gear_rl.training.run_folder import FORMAT, RunFolder

DAMAGE = {  # the content of a file → what is there instead; none of it can be read
    "empty": lambda content: b"",
    "cut": lambda content: content.rstrip()[: len(content.rstrip()) * 3 // 5],
    "not JSON": lambda content: b"hello\n",
    "one bracket": lambda content: b"{\n",
    "two values": lambda content: b"{} {}\n",
    "5,000 digits": lambda content: b'{"step": ' + b"9" * 5000 + b"}\n",
    "400 digits": lambda content: b'{"step": ' + b"9" * 400 + b"}\n",
    "deep lists": lambda content: b"[" * 100_000 + b"\n",
    "deep objects": lambda content: b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
    "bad bytes": lambda content: b'{"a": "\xff\xfe"}\n',
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "zero bytes": lambda content: b"\0" * 100,
    "a list": lambda content: b"[1, 2]\n",
    "text": lambda content: b'"x"\n',
    "a number": lambda content: b"3\n",
    "null": lambda content: b"null\n",
    "gzip": lambda content: gzip.compress(content),
}
OTHER = [None, True, -1, 3.5, 10**299, 1e308, "x", "\ud800", [], {}, [[1]], {"a": [{}]}, [None] * 3]
"""Values of other kinds, in place of each value of a file in turn."""


def others(content: bytes, lines: bool) -> list[bytes]:
    """Up to 80 of the files that differ from `content` in one value."""
    documents = [json.loads(line) for line in content.splitlines()] if lines else [json.loads(content)]
    places: list[list] = []

    def walk(value, place):
        items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for key, inner in items:
            places.append([*place, key])
            walk(inner, [*place, key])

    for number, document in enumerate(documents[:2]):
        walk(document, [number])
    made = []
    for place in places:
        for value in OTHER:
            changed = copy.deepcopy(documents)
            inner = changed
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            written = [json.dumps(document) for document in changed]
            made.append("".join(line + "\n" for line in written).encode())
    return random.Random(0).sample(made, min(80, len(made)))


# ------------------------------------------------------------------------------------------------------- the files
EMBEDDED = str(make_task("workshop").default_model())
CONFIG = TrainConfig().as_dict()
SCORES = {"success": 0.5, "reward": 0.5, "success_interval": [0.4, 0.6], "n": 100}
EVALUATION = {when: {"sampled": SCORES, "greedy": SCORES} for when in ("before", "after")}
METRICS = [{"step": i + 1, "success": 0.5, "reward": 0.5} for i in range(3)]
SAMPLE = {
    "id": "a", "k": 0, "how": "sampled", "success": True, "reward": 1.0, "category": "all", "channels": {"x": 1.0},
    "malformed": 0, "cut_off": False, "tokens": 5, "trivially_passable": False,
}  # fmt: skip
TALK = [{"role": "user", "content": "yesno g2 spring dent"}, {"role": "assistant", "content": "valve"}]
SHAPE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 50}


def as_lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    new_record(run / "rollouts.jsonl", steps=2)
    texts = {
        "run/config.json": json.dumps({"format": FORMAT, **CONFIG}),
        "run/metrics.jsonl": as_lines(METRICS),
        "run/evaluation.json": json.dumps(EVALUATION),
        "settings.json": json.dumps(CONFIG),
        "own.jsonl": as_lines({"prompt": f"{i}?", "answer": str(i)} for i in range(20)),
        "model/config.json": json.dumps(SHAPE),
        "talk.jsonl": as_lines({"messages": TALK, "reward": r, "ground_truth": "valve"} for r in (0.0, 1.0)),
        "steps.jsonl": as_lines([{"problem": "1+1", "steps": ["2", "3"], "label": 1}]),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own.jsonl.gz").write_bytes(gzip.compress(texts["own.jsonl"].encode()))
    return tmp_path


def cli(*words: str):
    def read(folder: Path) -> bool:
        """Whether it was refused."""
        return main([word.replace("DIR", str(folder)) for word in words]) == 2

    return read


def refuses(function):
    def read(folder: Path) -> bool:
        try:
            function(folder)
        except GearError as error:
            assert str(error) and "\n" not in str(error)
            return True
        return False

    return read


def results(folder: Path) -> None:
    found = ResultFolder(folder / "eval", {"seed": 0})
    try:
        if found.samples:
            summarise(found.samples)
    finally:
        found.close()


READERS = {  # name → the file that is damaged, and what reads it
    "train --config": ("settings.json", cli("train", "--config", "DIR/settings.json", "--settings")),
    "train --resume": ("run/config.json", refuses(lambda f: TrainConfig.from_dict(RunFolder.open(f / "run")[1]))),
    "report, config": ("run/config.json", cli("report", "DIR/run", "-o", "DIR/page.html", "--force")),
    "report, metrics": ("run/metrics.jsonl", cli("report", "DIR/run", "-o", "DIR/page.html", "--force")),
    "report, evaluation": ("run/evaluation.json", cli("report", "DIR/run", "-o", "DIR/page.html", "--force")),
    "report, record": ("run/rollouts.jsonl", cli("report", "DIR/run/rollouts.jsonl", "-o", "DIR/page.html", "--force")),
    "credit": ("run/rollouts.jsonl", cli("credit", "DIR/run/rollouts.jsonl", "--credit", "gear", "-o", "DIR/o", "--force")),
    "credit, transcripts": (
        "talk.jsonl", cli("credit", "DIR/talk.jsonl", "--credit", "grpo", "--model", EMBEDDED, "-o", "DIR/o", "--force")),
    "localize": ("run/rollouts.jsonl", cli("localize", "DIR/run/rollouts.jsonl", "--json")),
    "localize, steps": ("steps.jsonl", cli("localize", "DIR/steps.jsonl", "--model", EMBEDDED, "--json")),
    "plan": ("model/config.json", cli("plan", "--model", "DIR/model")),
    "eval, own task": ("own.jsonl", cli("eval", "--check", "DIR/own.jsonl")),
    "compare, plan": ("compare.json", refuses(lambda f: open_folder(f, None))),
    "compare, evaluation": ("run/evaluation.json", refuses(lambda f: read_outcome(f / "run", 0.5))),
    "compare, metrics": ("run/metrics.jsonl", refuses(lambda f: (training_reward(f / "run"), read_outcome(f / "run", 0.5)))),
    "compare, config": ("run/config.json", refuses(lambda f: read_outcome(f / "run", 0.5))),
    "eval, settings": ("eval/settings.json", refuses(results)),
    "eval, samples": ("eval/samples.jsonl", refuses(results)),
}  # fmt: skip
DROPS_TORN = {"eval, samples", "report, metrics"}
"""A line without its end is what a killed process leaves: left out, not refused."""


@pytest.fixture
def whole(folder):
    (folder / "compare").mkdir()
    open_folder(folder / "compare", Plan(["grpo", "gear"], 2, [1e-4], 0, settings={"task": "workshop"}))
    (folder / "compare" / "compare.json").rename(folder / "compare.json")
    (folder / "eval").mkdir()
    (folder / "eval" / "settings.json").write_text(json.dumps({"format": result_folder.FORMAT, "seed": 0}))
    (folder / "eval" / "samples.jsonl").write_text(as_lines([SAMPLE, {**SAMPLE, "k": 1}]))
    return folder


@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_line(whole, capsys, name):
    place, read = READERS[name]
    content = (whole / place).read_bytes()
    lines = place.endswith(".jsonl")
    ok = read(whole)
    said = capsys.readouterr().err
    assert not ok or name.startswith("localize"), said
    for damage, apply in DAMAGE.items():
        (whole / place).write_bytes(apply(content))
        refused = read(whole)
        out, err = capsys.readouterr()
        left_out = lines and (
            damage in ("empty", "zero bytes") or (damage in ("cut", "gzip", "UTF-16") and name in DROPS_TORN)
        )
        assert refused or left_out, (damage, out)
        assert err.count("\n") == refused * ("gear: error:" in err) or "announce" in err, (damage, err)
        (whole / place).write_bytes(content)
    for changed in others(content, lines):
        (whole / place).write_bytes(changed)
        read(whole)  # may be refused, may not; must not raise
        assert "Traceback" not in capsys.readouterr().err
    (whole / place).write_bytes(content)


@pytest.mark.parametrize("damage", ["cut", "not gzip", "bad bytes", "empty", "flipped"])
def test_gzip_files(whole, capsys, damage):
    path = whole / "own.jsonl.gz"
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 255
    changed = {"cut": content[:-20], "not gzip": b"hello", "bad bytes": gzip.compress(b"\xff\xfe"), "empty": b"",
               "flipped": bytes(flipped)}[damage]  # fmt: skip
    path.write_bytes(changed)
    assert main(["eval", "--check", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("gear: error:") and err.count("\n") == 1, err


@pytest.mark.parametrize(
    "value",
    ["9" * 5000, "9" * 400, "1e999", "[" * 100_000, '"\\ud800', "[1,", "{}", '["\ud800"]', "NaN", "-" * 50, "[NaN]"],
)
@pytest.mark.parametrize("key", ["train.steps", "train.learning_rate", "credit.alpha", "task.steps", "a.b.c", "seed"])
def test_set(capsys, key, value):
    code = main(["train", "--set", f"{key}={value}", "--settings"])
    assert (code, capsys.readouterr().err.count("\n")) in ((2, 1), (0, 0))
