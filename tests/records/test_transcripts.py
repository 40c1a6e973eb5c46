"""Transcripts recorded elsewhere: exact assistant masks by a model's own template, bad rows by file and line, a record out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gear_rl import credit
from gear_rl.chat.assistant_tokens import ConversationTokens
from gear_rl.chat.hints import hinted_prompt
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.methods import method
from gear_rl.models import load_model
from gear_rl.records import json_rows as reading
from gear_rl.records.record import read_record, to_rollouts
from gear_rl.records.transcripts import groups_of, read_transcripts
from gear_rl.sampling.play import play
from gear_rl.scoring.scorer import Scorer
from gear_rl.scoring.teacher import Teacher
from gear_rl.tasks import make_task


# ---------------------------------------------------------------------------------------------------- the embedded template
def episodes(task, model, tokenizer, rows):
    """Rollouts as the engine has them (ids), and the same as OpenAI-style transcripts."""
    torch.manual_seed(0)
    played = play(model, tokenizer, task, rows)
    transcripts = []
    for row, rollout in zip(rows, played, strict=True):
        messages, world = list(row["prompt"]), task.episode(row)
        for turn in rollout.turns:
            *talk, tool, part = turn.split()
            reply = world.reply(turn)
            if reply is None:
                messages.append({"role": "assistant", "content": turn})
                continue
            call = {"name": tool, "arguments": json.dumps({"part": part})}
            calls = [{"id": "call_0", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": " ".join(talk) or None, "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": "call_0", "content": reply})
        verdict = task.verdict(row, rollout.transcript(tokenizer.decode(rollout.completion_ids)))
        transcripts.append({"messages": messages, "reward": verdict.reward, "ground_truth": row["hint"]})
    return played, transcripts


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """(task, model, tokenizer, rows, rollouts, path of the same rollouts as transcripts)."""
    task = make_task("workshop", steps=4)
    model, tokenizer = load_model(task.default_model(), "cpu")
    rows = [row for row in task.rows("test", 6) for _ in range(4)]
    played, transcripts = episodes(task, model, tokenizer, rows)
    path = tmp_path_factory.mktemp("transcripts") / "workshop.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in transcripts))
    return task, model, tokenizer, rows, played, path


def test_the_embedded_template_gives_back_what_was_sampled_token_by_token(sampled):
    _, _, tokenizer, _, played, path = sampled
    tokens = ConversationTokens(tokenizer, {tokenizer.eos_token_id}, "embedded")
    for rollout, row in zip(played, read_transcripts(path), strict=True):
        found = tokens.split(row.messages, None, row.where)
        assert found.prompt_ids == rollout.prompt_ids
        assert found.completion_ids == rollout.completion_ids
        assert found.action_mask == rollout.action_mask


# ---------------------------------------------------------------------------------------------------- reading
GOOD = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "reward": 1, "answer": 4}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def with_message(**message):
    return {**GOOD, "messages": [*GOOD["messages"], message]}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: must be an object"),
        ("3", "line 2: must be an object"),
        ('{"messages": [], "reward": NaN}', "line 2: not JSON: NaN is not a JSON number"),
        ({**GOOD, "reward": "1"}, "line 2: reward must be a finite number, not 1"),
        (
            '{"messages": [{"role": "assistant", "content": "a"}], "reward": 1e999}',
            "line 2: not JSON: the number 1e999 is too large",
        ),
        ({**GOOD, "reward": None}, "line 2: reward must be a finite number"),
        ({"messages": GOOD["messages"]}, "line 2: has no 'reward'. Its keys: messages"),
        ({**GOOD, "messages": []}, "line 2: messages must be a list of messages, not an empty list"),
        ({**GOOD, "messages": "hello"}, "line 2: messages must be a list of messages, not text"),
        ({**GOOD, "messages": GOOD["messages"][:1]}, "line 2: no assistant message"),
        (with_message(role="robot", content=""), "line 2, message 2: must have a role"),
        (with_message(role="user", content=[{"type": "image_url"}]), "message 2: content is not plain text"),
        (with_message(role="assistant", tool_calls="add"), "message 2: tool_calls must be a list"),
        (with_message(role="assistant", tool_calls=[{"name": 3}]), "message 2, tool call 0: must be"),
        (with_message(role="assistant", tool_calls=[{"name": "f", "arguments": 3}]), "tool call 0: arguments must be"),
        ({**GOOD, "messages": GOOD["messages"] * 300}, "600 messages; at most 500"),
        ({**GOOD, "group": [1]}, "line 2: group must be text or a whole number"),
        ({**GOOD, "success": 1}, "line 2: success must be true or false"),
        ({**GOOD, "tools": {}}, "line 2: tools must be a list"),
        ({**GOOD, "advantage": True}, "line 2: advantage must be a finite number"),
        ({**GOOD, "advantage": 1.0}, "line 1: no advantage, though others here have one"),
        ("[" * 100_000, "line 2: not JSON: nested too deeply"),
    ],
)
def test_malformed_rows_are_named_by_file_and_line(tmp_path, row, says):
    path = write(tmp_path / "rows.jsonl", GOOD, row)
    with pytest.raises(GearError) as caught:
        read_transcripts(path)
    assert says in str(caught.value) and "rows.jsonl" in str(caught.value)


def test_json_and_json_lines_are_the_same(tmp_path):
    rows = [GOOD, {**GOOD, "reward": 0.5}]
    lines = read_transcripts(write(tmp_path / "a.jsonl", GOOD, "", rows[1]))
    (tmp_path / "b.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "c.json").write_text(json.dumps(rows))
    for path in ("b.json", "c.json"):
        found = read_transcripts(tmp_path / path)
        assert [vars(row) | {"where": ""} for row in found] == [vars(row) | {"where": ""} for row in lines]
    assert [row.where.split(", ")[1] for row in lines] == ["line 1", "line 3"]
    (tmp_path / "d.json").write_text(json.dumps(GOOD, indent=1))
    assert len(read_transcripts(tmp_path / "d.json")) == 1
    (tmp_path / "e.json").write_text("[{\n]")
    with pytest.raises(GearError, match=r"e.json, line 2: not JSON"):
        read_transcripts(tmp_path / "e.json")


def test_empty_missing_and_huge_files(tmp_path, monkeypatch):
    for name, content, says in (
        ("a", b"", "is empty"),
        ("b", b"\n\n", "is empty"),
        ("c", b"[]", "no rows"),
        ("d", b"\xff{", "UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GearError, match=says):
            read_transcripts(tmp_path / name)
    for path, says in ((tmp_path / "gone", "there is no file"), (tmp_path, "is not a file")):
        with pytest.raises(GearError, match=says):
            read_transcripts(path)
    path = write(tmp_path / "rows.jsonl", GOOD, {**GOOD, "answer": "x" * 3000})
    monkeypatch.setattr(reading, "LONGEST_LINE", 2000)
    with pytest.raises(GearError, match="line 2: longer than"):
        read_transcripts(path)
    monkeypatch.setattr(reading, "LARGEST_FILE", 1000)
    with pytest.raises(GearError, match="Split it by group"):
        read_transcripts(path)


def test_tool_calls_and_content_are_put_as_templates_expect_them(tmp_path):
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}]
    odd = [{"name": "g", "arguments": "{not json"}]
    parts = [{"type": "text", "text": "o"}, {"type": "text", "text": "k"}]
    path = write(
        tmp_path / "rows.jsonl",
        with_message(role="assistant", content=None, tool_calls=calls),
        with_message(role="assistant", content=parts, tool_calls=odd),
        with_message(role="assistant", content="x", tool_calls=None),
    )
    first, second, third = (row.messages[2] for row in read_transcripts(path))
    assert first["content"] == "" and first["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}}
    ]
    assert second["content"] == "ok" and second["tool_calls"][0]["function"] == {"name": "g", "arguments": "{not json"}
    assert "tool_calls" not in third


def test_ground_truth_may_have_three_names_and_any_shape(tmp_path):
    bare = {key: GOOD[key] for key in ("messages", "reward")}
    rows = [GOOD, {**bare, "ground_truth": ["a", 1], "answer": "no"}, {**bare, "hint": " ", "answer": "yes"}, bare]
    found = read_transcripts(write(tmp_path / "rows.jsonl", *rows))
    assert [row.truth for row in found] == ["4", '["a", 1]', "yes", None]


def test_groups_are_by_name_or_by_prompt(tmp_path):
    other = {**GOOD, "messages": [{"role": "user", "content": "r"}, *GOOD["messages"][1:]]}
    longer = {**GOOD, "messages": [*GOOD["messages"], {"role": "user", "content": "go on"}, GOOD["messages"][1]]}
    with_tools = {**GOOD, "tools": [{"type": "function"}]}
    rows = [GOOD, other, longer, {**other, "group": 7}, {**GOOD, "group": "7"}, with_tools]
    found = read_transcripts(write(tmp_path / "rows.jsonl", *rows))
    assert groups_of(found) == [[0, 2], [1], [3, 4], [5]]


# ---------------------------------------------------------------------------------------------------- gear credit
TEMPLATE = ["--hint-template", "{prompt} hint {hint}"]


def gear(*words):
    return main([str(word) for word in words])


@pytest.fixture
def refused(capsys):
    def run(*words):
        assert gear(*words) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("gear: error: ") and err.count("\n") == 1
        return err

    return run


def test_credit_of_transcripts_is_the_credit_of_the_rollouts_they_came_from(sampled, tmp_path, capsys):
    task, model, tokenizer, rows, played, path = sampled
    out = tmp_path / "credited.jsonl"
    assert gear("credit", path, "--credit", "gear", "--model", task.default_model(), *TEMPLATE, "-o", out) == 0
    assert "24 rollouts" in (said := capsys.readouterr().out) and max(map(len, said.splitlines()[:-1])) <= 80
    record = read_record(out)
    found = to_rollouts(record.rollouts)
    assert record.header["method"] == "gear" and record.header["task"] == "transcripts"
    assert [line.token_ids for line in record.rollouts] == [p.completion_ids for p in played]

    hinted = [hinted_prompt(row["prompt"], row["hint"], task.hint_template) for row in rows]
    hinted_ids = [tokenizer.apply_chat_template(p, add_generation_prompt=True)["input_ids"] for p in hinted]
    expected = Scorer(model).score(
        [p.prompt_ids for p in played],
        hinted_ids,
        [p.completion_ids for p in played],
        found.action_mask,
        Teacher(model),
    )
    for name, signal in expected.items():
        torch.testing.assert_close(found.signals[name], signal, rtol=1e-4, atol=1e-4)
    weights = credit("gear", found).weights
    for line, row in zip(record.rollouts, weights, strict=True):
        assert line.weights == pytest.approx(row[: len(line.weights)].tolist(), rel=1e-4, abs=1e-5)
        assert len(set(line.hinted_prompt.split()) - set(line.prompt.split())) >= 1


@pytest.mark.parametrize("name", ["cepo", "rlcsd", "sc_grpo", "trace", "hcapo", "grail", "shear"])
def test_signals_of_a_model_are_made_from_transcripts(sampled, tmp_path, capsys, name):
    task, *_, rows, _, path = sampled
    transcripts = [json.loads(line) for line in path.read_text().splitlines()]
    hinted = [{**line, "answer": row["answer"], "hint": row["hint"]} for line, row in zip(transcripts, rows, strict=True)]
    source, out = tmp_path / "hinted.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in hinted))
    command = ["credit", str(source), "--credit", name, "--model", task.default_model(), "--device", "cpu", "-o", str(out)]
    assert main([*command, "--hint-template", "{prompt} hint {hint}"]) == 0
    written = read_record(out)
    assert len(written.rollouts) == len(rows)
    assert set(method(name).needs) <= to_rollouts(written.rollouts).signals.keys()


def test_what_is_written_opens_again(sampled, tmp_path, capsys):
    task, path = sampled[0], sampled[5]
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert gear("credit", path, "--credit", "gear", "--model", task.default_model(), *TEMPLATE, "-o", first) == 0
    assert gear("credit", first, "--credit", "token", "-o", second) == 0
    assert read_record(second).header["trained_with"]["method"] == "gear"
    assert gear("report", first, "--format", "json", "-o", "-") == 0
    assert '"gear"' in capsys.readouterr().out


def test_groups_are_whole_however_they_are_batched(sampled, tmp_path, monkeypatch):
    from gear_rl.engines import transcripts as transcript_credit

    task, path = sampled[0], sampled[5]
    wanted = ["credit", path, "--credit", "gear", "--model", task.default_model(), *TEMPLATE, "-o"]
    assert gear(*wanted, tmp_path / "a.jsonl") == 0
    monkeypatch.setattr(transcript_credit, "AT_ONCE", 5)
    assert gear(*wanted, tmp_path / "b.jsonl") == 0
    one, other = (read_record(tmp_path / name).rollouts for name in ("a.jsonl", "b.jsonl"))
    assert [line.group for line in one] == [line.group for line in other] == [i // 4 for i in range(24)]
    for a, b in zip(one, other, strict=True):
        assert a.advantages == pytest.approx(b.advantages, rel=1e-3, abs=1e-5)


def test_a_method_without_signals_needs_the_tokenizer_alone(sampled, tmp_path):
    task, path = sampled[0], sampled[5]
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for file in Path(task.default_model()).iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            (folder / file.name).write_bytes(file.read_bytes())
    assert gear("credit", path, "--credit", "grpo", "--model", folder, "-o", tmp_path / "out.jsonl") == 0
    line = read_record(tmp_path / "out.jsonl").rollouts[0]
    assert line.signals == {} and line.hinted_prompt is None


def test_given_advantages_allow_a_group_of_one(sampled, tmp_path, refused):
    model, rows = sampled[0].default_model(), [json.loads(line) for line in sampled[5].read_text().splitlines()[::4]]
    path, out = write(tmp_path / "rows.jsonl", *rows), tmp_path / "out.jsonl"
    wanted = ["credit", path, "--credit", "grpo", "--model", model, "-o", out]
    assert "rows.jsonl, line 1: the only row of its group" in refused(*wanted)
    write(path, *({**row, "advantage": i - 2.5} for i, row in enumerate(rows)))
    assert "dr_grpo would scale rewards" in refused(*wanted[:3], "dr_grpo", *wanted[4:])
    assert "line 1: the only row" in refused(*wanted, "--from-rewards")
    assert gear(*wanted) == 0
    assert [line.group_advantage for line in read_record(out).rollouts] == [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]


def test_what_cannot_be_credited_is_refused_before_a_model_is_loaded(sampled, tmp_path, refused):
    path, rows = sampled[5], [json.loads(line) for line in sampled[5].read_text().splitlines()]
    nowhere = ["--model", tmp_path / "no-model"]
    assert "--model MODEL" in refused("credit", path, "--credit", "gear")
    assert "oracle needs decision" in refused("credit", path, "--credit", "oracle", *nowhere)
    del rows[5]["ground_truth"]
    bare = write(tmp_path / "bare.jsonl", *rows)
    assert "bare.jsonl, line 6: no hint, ground_truth or answer" in refused(
        "credit", bare, "--credit", "gear", *nowhere
    )
    same = write(tmp_path / "same.jsonl", *({**row, "ground_truth": "x"} for row in rows))
    assert "all problems here have the same ground truth" in refused("credit", same, "--credit", "wrong_hint", *nowhere)
    assert "lacks {hint}" in refused("credit", path, "--credit", "gear", *nowhere, "--hint-template", "{prompt}")
    assert "must be a number, above 0" in refused("credit", path, "--credit", "gear", *nowhere, "--temperature", "0")
    assert "no chat template" in refused(
        "credit", path, "--credit", "gear", *nowhere, "--chat-template", tmp_path / "t"
    )
    assert "no model could be loaded" in refused("credit", path, "--credit", "gear", *nowhere)
    assert not list(path.parent.glob("*.gear.jsonl")) and not list(path.parent.glob(".*"))


def test_a_row_beyond_the_models_context_is_named(sampled, tmp_path, refused):
    task, path = sampled[0], sampled[5]
    rows = [json.loads(line) for line in path.read_text().splitlines()[:4]]
    rows[2]["messages"][-1]["content"] = "so " * 3000
    long = write(tmp_path / "long.jsonl", *rows)
    said = refused("credit", long, "--credit", "gear", "--model", task.default_model(), *TEMPLATE)
    assert "long.jsonl, line 3: longer than the context" in said


def test_a_record_takes_no_model(sampled, tmp_path, refused, capsys):
    task, path = sampled[0], sampled[5]
    out = tmp_path / "record.jsonl"
    assert gear("credit", path, "--credit", "grpo", "--model", task.default_model(), "-o", out) == 0
    capsys.readouterr()
    for extra in (["--model", "x"], ["--device", "cpu"], ["--set", "chat.enable_thinking=false"]):
        assert "is a record: its signals are in it" in refused(
            "credit", out, "--credit", "grpo", *extra, "-o", tmp_path / "o"
        )


def test_a_tokenizer_that_does_not_know_the_words_is_refused(tmp_path, capsys):
    embedded = str(make_task("workshop").default_model())
    known = [{"role": "user", "content": "yesno g2 spring dent"}, {"role": "assistant", "content": "weld spring"}]
    foreign = [{"role": "user", "content": "Please repair my \x1b[31mkettle"}, {"role": "assistant", "content": "weld spring"}]

    def written(*talks):
        path = tmp_path / "talks.jsonl"
        path.write_text("".join(json.dumps({"messages": t, "reward": i % 2}) + "\n" for i, t in enumerate(talks)))
        return main(["credit", str(path), "--credit", "grpo", "--model", embedded, "-o", str(tmp_path / "o"), "--force"])

    assert written(known, known) == 0
    capsys.readouterr()
    assert written(*[foreign] * 2) == 2
    err = capsys.readouterr().err
    assert "line 1" in err and "'Please', 'repair', 'my'" in err and "% of the tokens (" in err and "are '<unk>'" in err
    assert err.count("\n") == 1 and "\x1b" not in err
