"""`gear eval`: interrupted and resumed, one model met in two ways, checks, and the command itself."""

import json
import random
from typing import ClassVar

import pytest
import torch
from chat_server import message, serving
from out_of_memory import limit_batch

from gear_rl.chat.endpoint import Endpoint
from gear_rl.chat.tool_calls import read_turn
from gear_rl.cli.eval_report import show_check
from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.evaluation.evaluate import evaluate, evaluate_model, key_of, plan, with_ids
from gear_rl.evaluation.result_folder import ResultFolder
from gear_rl.evaluation.task_check import check_split
from gear_rl.sampling.endpoint_player import EndpointPlayer, converse
from gear_rl.sampling.players import Job, LocalPlayer
from gear_rl.tasks import SingleTurn, Task, Verdict, choose, make_task
from gear_rl.tasks.workshop.environment import WorkshopEpisode
from gear_rl.tasks.workshop.world import Order


# ---------------------------------------------------------------------------------------------------- local
@pytest.fixture
def jobs(workshop):
    rows = with_ids(workshop.rows("test", 24), "test")
    return plan(workshop, rows, samples=2, greedy=True, temperature=1.0, top_p=1.0, seed=0, hinted=False)


class Stopping:
    """A player that is interrupted after some samples."""

    def __init__(self, player, after):
        self.player, self.after = player, after

    def play(self, task, jobs, done):
        for i, sample in enumerate(self.player.play(task, jobs, done)):
            if i == self.after:
                raise KeyboardInterrupt
            yield sample


def kept(folder):
    return sorted((s["how"], s["id"], s["k"], s["completion"]) for s in folder.samples)


def test_interrupted_and_resumed_gives_the_same_samples(tmp_path, workshop, model_and_tokenizer, jobs):
    """Batches differ, a line is torn, and still every sample of this small model is what it would have been."""
    whole = ResultFolder(tmp_path / "whole", {"a": 1})
    summary = evaluate(LocalPlayer(*model_and_tokenizer, {}, 2**17), workshop, jobs, whole)
    assert summary["sampled"]["samples"] == 48 and summary["greedy"]["n"] == 24 and summary["speed"]["tokens"] > 0
    parts = ResultFolder(tmp_path / "parts", {"a": 1})
    with pytest.raises(KeyboardInterrupt):
        evaluate(Stopping(LocalPlayer(*model_and_tokenizer, {}, 700), 17), workshop, jobs, parts)
    parts.close()
    with open(tmp_path / "parts" / "samples.jsonl", "a") as file:
        file.write('{"id": "test-3", "how": "samp')
    again = ResultFolder(tmp_path / "parts", {"a": 1})
    assert len(again.samples) == 17
    resumed = evaluate(LocalPlayer(*model_and_tokenizer, {}, 300), workshop, jobs, again)
    assert kept(again) == kept(whole)
    assert {k: v for k, v in resumed.items() if k != "speed"} == {k: v for k, v in summary.items() if k != "speed"}
    assert resumed["speed"]["samples"] == 72 - 17
    for line in (tmp_path / "parts" / "samples.jsonl").read_text().splitlines():
        json.loads(line)


def test_a_resumed_evaluation_plays_the_batches_of_an_undisturbed_one(
    tmp_path, workshop, model_and_tokenizer, jobs, monkeypatch
):
    """A batch of another shape rounds differently, and would change samples of models with less certain tokens."""
    from gear_rl.sampling import players

    batches, real = [], players.play
    monkeypatch.setattr(players, "play", lambda *a, **k: (batches.append([row["id"] for row in a[3]]), real(*a, **k))[1])
    player, parts = LocalPlayer(*model_and_tokenizer, {}, 400), ResultFolder(tmp_path / "parts", {})
    evaluate(player, workshop, jobs, ResultFolder(tmp_path / "whole", {}))
    undisturbed, batches[:] = list(batches), []
    with pytest.raises(KeyboardInterrupt):
        evaluate(Stopping(player, 17), workshop, jobs, parts)
    played, batches[:] = len(batches), []
    summary = evaluate(player, workshop, jobs, parts)
    assert 1 < played < len(undisturbed) and 17 % len(undisturbed[0])
    assert batches == undisturbed[played - 1 :], "the one that was saved in part is played whole"
    assert len(parts.samples) == 72 and summary["speed"]["samples"] == 72 - 17


def test_sampling_follows_the_model(workshop, model_and_tokenizer):
    """Sampling by a generator per row gives the distribution that torch's sampler gives."""
    from gear_rl.sampling.play import play

    model, tokenizer = model_and_tokenizer
    row = workshop.rows("test", 1)[0]
    torch.manual_seed(0)
    plain = play(model, tokenizer, workshop, [row] * 600)
    per_row = play(model, tokenizer, workshop, [row] * 600, rngs=[random.Random(i) for i in range(600)])
    counts = [
        {t: sum(p.turns[0] == t for p in played) / 600 for t in {p.turns[0] for p in played}}
        for played in (plain, per_row)
    ]
    distance = sum(abs(counts[0].get(t, 0) - counts[1].get(t, 0)) for t in counts[0].keys() | counts[1].keys()) / 2
    assert distance < 0.12, "total variation of the first turn; two samples of 600 differ by about 0.05"


def test_top_p_keeps_the_likeliest(workshop, model_and_tokenizer):
    from gear_rl.sampling.own_turns import _nucleus
    from gear_rl.sampling.play import play

    shares = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.9, 0.03, 0.02]])
    assert (_nucleus(shares, 0.7) > 0).tolist() == [[True, True, False, False], [False, True, False, False]]
    rows = workshop.rows("test", 20)
    greedy = play(*model_and_tokenizer, workshop, rows, temperature=0.0)
    nearly = play(*model_and_tokenizer, workshop, rows, top_p=1e-6, rngs=[random.Random(0)] * 20)
    assert [p.completion_ids for p in greedy] == [p.completion_ids for p in nearly]


def test_memory_that_runs_out_halves_the_batch(workshop, model_and_tokenizer, jobs, monkeypatch, caplog):
    """The error comes from a forward in the middle of the rollouts; the samples are those of a large device."""
    whole = {key_of(s): s for s in LocalPlayer(*model_and_tokenizer).play(workshop, jobs)}
    sizes = limit_batch(monkeypatch, 10)
    player = LocalPlayer(*model_and_tokenizer)
    assert {key_of(s): s for s in player.play(workshop, jobs)} == whole and len(whole) == 72
    assert sizes[:4] == [48, 24, 12, 6] and max(sizes[4:]) < 10
    assert "memory ran out with 12 rollouts at once: 6 from here on." in caplog.text


def test_one_rollout_that_does_not_fit_is_an_error(workshop, model_and_tokenizer, jobs, monkeypatch):
    limit_batch(monkeypatch, 0)
    with pytest.raises(GearError, match="memory ran out with a single rollout"):
        list(LocalPlayer(*model_and_tokenizer).play(workshop, jobs))


def test_a_model_in_memory_is_scored_as_gear_eval_does(workshop, model_and_tokenizer, jobs, tmp_path, monkeypatch):
    """Training's evaluation: for this small model the same in other batches; the model's mode and torch's state are kept."""
    model, tokenizer = model_and_tokenizer
    rows = workshop.rows("test", 24)
    model.train()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    scores = evaluate_model(model, tokenizer, workshop, rows)
    assert torch.equal(torch.get_rng_state(), before) and model.training
    model.eval()
    once = plan(workshop, with_ids(rows, "test"), samples=1, greedy=True)
    summary = evaluate(LocalPlayer(model, tokenizer, batch_tokens=500), workshop, once, ResultFolder(tmp_path / "r", {}))
    for how in ("sampled", "greedy"):
        assert scores[how] == {name: summary[how][name] for name in ("reward", "success", "success_interval", "n")}
    sizes = limit_batch(monkeypatch, 5)
    assert evaluate_model(model, tokenizer, workshop, rows) == scores and sizes[:3] == [24, 12, 6]


def test_a_prompt_that_does_not_fit_is_refused(model_and_tokenizer, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "g1 " * 300, "answer": "yes"}))
    file = str(tmp_path / "a.jsonl")
    task = make_task(file, test=file)
    with pytest.raises(GearError, match="does not fit the model's context of 256"):
        list(LocalPlayer(*model_and_tokenizer, {}, 2**17).play(task, jobs_of(task)))


def jobs_of(task, **more):
    how = {"samples": 0, "greedy": True, "temperature": 1.0, "top_p": 1.0, "seed": 0, "hinted": False, **more}
    return plan(task, with_ids(task.rows("test", None), "test"), **how)


# ---------------------------------------------------------------------------------------------------- endpoint
class Dialogues(Task):
    """The workshop judged by its turns, as a task for any chat model would be."""

    max_turns, max_turn_tokens = 5, 6

    def rows(self, split, count, seed=0):
        return make_task("workshop", steps=4).rows(split, count or 12, seed)

    def episode(self, row):
        return WorkshopEpisode(Order.parse(row["order"]))

    def verdict(self, row, transcript):
        right = transcript.turns[-1].split()[-1:] == [Order.parse(row["order"]).reference_answer]
        return Verdict(float(right), right)


def generated(model, tokenizer):
    """The server's side: transformers' own generate, one request at a time, the whole dialogue rendered again."""

    def answer(body):
        ids = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=False
        )
        sampled = body["temperature"] > 0
        more = {"temperature": body["temperature"], "top_p": body["top_p"]} if sampled else {}
        torch.manual_seed(body.get("seed", 0))
        out = model.generate(ids, max_new_tokens=body["max_tokens"], do_sample=sampled, **more)[
            0, ids.shape[1] :
        ].tolist()
        ended = out[-1] == tokenizer.eos_token_id
        text = tokenizer.decode(out[:-1] if ended else out)
        return message(text, finish_reason="stop" if ended else "length")

    return answer


def test_one_model_locally_and_through_an_endpoint_says_the_same(tmp_path, model_and_tokenizer):
    task = Dialogues()
    local, remote = ResultFolder(tmp_path / "local", {}), ResultFolder(tmp_path / "remote", {})
    jobs = jobs_of(task)
    ours = evaluate(LocalPlayer(*model_and_tokenizer, {}, 2**17), task, jobs, local)
    with serving(generated(*model_and_tokenizer)) as server:
        server.trouble = [(503, "warming up", {})]
        player = EndpointPlayer(Endpoint(server.url, "m", first_pause=0.01), {}, concurrency=2)
        theirs = evaluate(player, task, jobs, remote)
    marks = ("<end>", "<bot>")
    words = [[(i, [w for w in text.split() if w not in marks]) for _, i, _, text in kept(f)] for f in (local, remote)]
    assert words[0] == words[1] and ours["greedy"]["success"] == theirs["greedy"]["success"]
    assert len(server.requests) > 5 * 12 and server.requests[-1]["messages"][-1]["role"] == "tool"


class Tools(Task):
    """Asks for the time; a call is answered, a malformed one too, and counted."""

    max_turns, max_turn_tokens = 4, 50
    tools = [{"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}]  # noqa: RUF012

    def rows(self, split, count, seed=0):
        return choose([{"prompt": [{"role": "user", "content": "Time?"}], "id": "a"}], split, count, seed)

    def episode(self, row):
        class World:
            def reply(self, turn):
                items = read_turn(turn).items
                said = [{"role": "tool", "content": i.reply() if hasattr(i, "reply") else "noon"} for i in items]
                return said or None

        return World()

    def verdict(self, row, transcript):
        right = "noon" in transcript.turns[-1]
        return Verdict(float(right), right, malformed=sum(read_turn(t).malformed for t in transcript.turns))


def test_a_dialogue_with_tools_through_an_endpoint():
    def call(i, arguments="{}"):
        return {"id": f"id{i}", "type": "function", "function": {"name": "time", "arguments": arguments}}

    script = iter(
        [message("", tool_calls=[call(1), call(2)]), message("", tool_calls=[call(3, "{oops")]), message("It is noon.")]
    )
    with serving(lambda body: next(script)) as server:
        task = Tools()
        transcript, tokens = converse(Endpoint(server.url, "m"), task, jobs_of(task)[0], {"enable_thinking": False})
    verdict = task.verdict({}, transcript)
    assert verdict.success and verdict.malformed == 1 and tokens == 9 and len(transcript.turns) == 3
    last = server.requests[-1]
    assert last["tools"] == Tools.tools and last["chat_template_kwargs"] == {"enable_thinking": False}
    assert [m.get("tool_call_id") for m in last["messages"]] == [None, None, "id1", "id2", None, "id3"]
    assert "malformed tool call" in last["messages"][-1]["content"]


def test_calls_that_a_server_set_apart_come_back_as_the_models_own_words(workshop):
    """`transformers serve` parses the embedded model's calls, and drops what was said beside one from its history."""
    row = {**workshop.rows("test", 1)[0], "id": "a"}
    reference = [turn.split(" <end>")[0] for turn in workshop.reference(row).split("<bot> ")]

    def parsed(body):
        said = reference[sum(m["role"] == "assistant" for m in body["messages"])].split()
        if said[0] == "answer":
            return message(" ".join(said))
        function = {"name": said[0], "arguments": json.dumps({"part": said[1]})}
        return message("well", tool_calls=[{"id": "x", "type": "function", "function": function}])

    with serving(parsed) as server:
        transcript, _ = converse(
            Endpoint(server.url, "m"), workshop, Job(row, row["prompt"], "greedy", 0, 0.0, 1.0, 0), {}
        )
    assert transcript.turns[0] == f"well {reference[0]}" and workshop.verdict(row, transcript).success
    assert server.requests[1]["messages"][1] == {"role": "assistant", "content": f"well {reference[0]}"}


def test_an_endpoint_that_fails_keeps_what_was_sampled(tmp_path):
    class Echo(SingleTurn):
        def rows(self, split, count, seed=0):
            return [{"prompt": [{"role": "user", "content": str(i)}], "id": str(i)} for i in range(6)]

        def judge(self, row, completion):
            return Verdict(1.0, completion == row["id"])

    task, folder = Echo(), ResultFolder(tmp_path / "r", {})
    with serving(lambda body: message(body["messages"][-1]["content"])) as server:
        endpoint = Endpoint(server.url, "m", retries=0, first_pause=0.01)
        server.trouble = [None, None, None, (503, "gone", {})]
        with pytest.raises(GearError, match="gave up after 1 attempts"):
            evaluate(EndpointPlayer(endpoint, {}, 1), task, jobs_of(task), folder)
        assert len(folder.samples) == 3
        summary = evaluate(EndpointPlayer(endpoint, {}, 3), task, jobs_of(task), folder)
    assert summary["greedy"]["success"] == 1.0 and summary["speed"]["samples"] == 3
    assert summary["speed"]["judged"] == 3 and summary["speed"]["judging_seconds"] > 0


def test_seeds_make_endpoint_samples_differ_and_repeat():
    row = {"prompt": [], "id": "a"}
    first, again, other = (Job(row, [], "sampled", k, 1.0, 1.0, 0) for k in (0, 0, 1))
    assert first.rng().getrandbits(31) == again.rng().getrandbits(31) != other.rng().getrandbits(31)


# ---------------------------------------------------------------------------------------------------- checks
def test_check_finds_a_judge_that_is_wrong():
    class Broken(SingleTurn):
        def rows(self, split, count, seed=0):
            return [{"prompt": [], "id": i, "answer": i} for i in "abcd"]

        def reference(self, row):
            return row["answer"]

        def judge(self, row, completion):
            lucky = row["id"] == "c"
            right = (completion == row["answer"] and row["id"] != "a") or row["id"] == "b" or lucky
            return Verdict(float(right), right, trivially_passable=lucky)

    check = check_split(Broken(), "test", None)
    assert (check.problems, check.reference_right, check.empty_right, check.trivially_passable) == (4, 3, 2, 1)
    assert not check.passed and len(check.failures) == 2
    assert "a: the reference answer is judged wrong" in check.failures[0] and "b: an empty answer" in check.failures[1]


@pytest.mark.parametrize(
    ("rows", "verdict", "says"),
    [
        ([], None, "the test split holds no problem"),
        (["x"], None, "row 0 of the test split is a str"),
        ([{"prompt": "x"}, {"id": "a"}], None, "row 1 of the test split has id: a row is a dict with a prompt"),
        ([{"prompt": "x"}], 1.0, "must be a Verdict(reward, success), not 1.0"),
    ],
)
def test_a_task_that_gives_something_else_is_told_what(rows, verdict, says):
    class Own(SingleTurn):
        def rows(self, split, count, seed=0):
            return rows

        def reference(self, row):
            return "x"

        def judge(self, row, completion):
            return verdict

    with pytest.raises(GearError) as caught:
        check_split(Own(), "test", None)
    assert says in str(caught.value)


def test_check_names_what_the_benchmark_gets_wrong(capsys):
    class Flawed(SingleTurn):
        name, summary = "flawed", ""
        unpassable: ClassVar = {"a": "its reference answer is refused", "z": "not in this split"}
        corrected: ClassVar = {"b": "it had a typing error"}

        def rows(self, split, count, seed=0):
            return [{"prompt": [], "id": i, "answer": i} for i in "abc"]

        def reference(self, row):
            return row["answer"]

        def judge(self, row, completion):
            right = completion == row["answer"] and row["id"] != "a"
            return Verdict(float(right), right)

    check = check_split(Flawed(), "test", None)
    assert check.passed and check.reference_right == 2 and list(check.unpassable) == ["a"] and list(check.corrected) == ["b"]
    show_check("flawed", check)
    said = capsys.readouterr().out
    assert (
        "a: its reference answer is refused" in said
        and "b: it had a typing error" in said
        and "answers judged a second" in said
    )
    Flawed.unpassable = {"c": "so they say"}
    stale = check_split(Flawed(), "test", None)
    assert [f.split(":")[0] for f in stale.failures] == ["a", "c"] and "said to be unpassable" in stale.failures[1]


# ---------------------------------------------------------------------------------------------------- the command
@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_gear_eval(here, capsys):
    words = ["eval", "--rows", "12", "--samples", "3", "--set", "task.steps=4"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in ("avg@3", "pass@2", "pass^3", "true success", "48 samples in", "tokens"))
    assert max(map(len, out.splitlines()[1:-1])) <= 80
    (folder,) = (here / "evals").iterdir()
    assert {p.name for p in folder.iterdir()} == {"settings.json", "samples.jsonl", "summary.json"}
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["speed"]["samples"] == 0 and result["out"] == str(folder.relative_to(here))
    assert {"reward", "success", "success_interval", "n"} <= result["greedy"].keys() and result["sampled"]["n"] == 12
    assert main([*words, "--temperature", "0.5", "--out", str(folder)]) == 2
    assert "other settings: sampled is" in capsys.readouterr().err
    assert main([*words, "--hinted", "--mode", "greedy", "--samples", "1"]) == 0
    hinted = capsys.readouterr().out
    assert "sampled" not in hinted and len(list((here / "evals").iterdir())) == 2


def test_gear_eval_check(here, capsys):
    assert main(["eval", "--check", "workshop", "--rows", "50", "--split", "test"]) == 0
    out = capsys.readouterr().out
    assert (
        "workshop test: 50 problems" in out and "reference    50 right, 100 %" in out and "empty         0 right, 0 %" in out
    )
    (here / "checked_task.py").write_text(
        "from gear_rl.tasks import SingleTurn, Verdict\n"
        "class T(SingleTurn):\n"
        "    def rows(self, split, count, seed=0): return [{'prompt': [], 'id': 'a'}]\n"
        "    def judge(self, row, completion): return Verdict(0.0, False)\n"
        "    def reference(self, row): return 'x'\n"
    )
    assert main(["eval", "--check", "checked_task:T", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"][0]["failures"] == [
        "a: the reference answer is judged wrong (reward 0)"
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rows", "0"], "--rows: '0' must be a whole number, at least 1"),
        (["--temperature", "0"], "--mode greedy is temperature 0"),
        (["--mode", "greedy", "--samples", "4"], "would all be the same"),
        (["--check", "gsm8k", "--model", "x"], "leave out --model"),
        (["--endpoint", "localhost:1"], "name the model"),
        (["--endpoint", "localhost:1", "--model", "m"], "http://localhost:1/v1: no connection"),
        (["--endpoint", "localhost:1", "--model", "m", "--api-key-env", "NOT_SET_HERE"], "NOT_SET_HERE: that environment"),
        (["--set", "train.steps=3"], "gear eval takes task.NAME and chat.NAME"),
        (["--split", "tset"], "Did you mean 'test'"),
        (["--task", "aime24"], "brings no model of its own"),
        (["--task", "aime24", "--model", "m", "--data", "gone"], "there is no folder 'gone'"),
        (["--model", "gone/model"], "no model could be loaded"),
    ],
)  # fmt: skip
def test_mistakes_are_explained_before_anything_is_done(here, capsys, words, says):
    assert main(["eval", *words]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and not (here / "evals").exists()
