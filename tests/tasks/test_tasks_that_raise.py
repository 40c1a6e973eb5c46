"""A user's task that raises or returns nonsense: an error with its name and the method's, in the library and the CLI."""

import textwrap

import pytest

from gear_rl.cli.main import main
from gear_rl.errors import GearError
from gear_rl.tasks import Task, Transcript, Verdict, replay
from gear_rl.tasks.base import LARGEST_REPLY, check_rows, reply_of

CODE = """
    from gear_rl.tasks import Task, Verdict

    class Broken(Task):
        name, summary = "broken", "breaks"
        max_turns = 3

        def rows(self, split, count, seed=0):
            {rows}

        def episode(self, row):
            class World:
                def reply(self, turn):
                    {reply}
            {episode}
            return World()

        def verdict(self, row, transcript):
            {verdict}

        def reference(self, row):
            return ["a", "b"]
"""
FINE = {
    "rows": "return [{'prompt': [{'role': 'user', 'content': 'x'}], 'id': 'a'}]",
    "reply": "return 'ok'",
    "episode": "pass",
    "verdict": "return Verdict(1.0, True)",
}
RAISES = "raise KeyError('secret\\nplace')"


@pytest.mark.parametrize(
    ("place", "code", "says"),
    [
        ("rows", RAISES, "`rows` raised KeyError"),
        ("rows", "return None", "`rows` returned None; it must return a list"),
        ("rows", "return (x for x in [])", "`rows` returned <generator"),
        ("rows", "return [3]", "row 0 of the test split is a int"),
        ("episode", RAISES, "`episode` raised KeyError"),
        ("reply", RAISES, "`reply` of its episode raised KeyError"),
        ("reply", "return 3", "`reply` returned 3; it must be text, messages or None"),
        ("reply", "return [3]", r"`reply` returned \[3\]"),
        ("verdict", RAISES, "`verdict` raised KeyError"),
        ("rows", "raise SystemExit", "`rows` raised SystemExit"),
        ("episode", "import sys; sys.exit(3)", "`episode` raised SystemExit: 3"),
        ("reply", "raise SystemExit(3)", "`reply` of its episode raised SystemExit: 3"),
        ("verdict", "raise SystemExit(0)", "`verdict` raised SystemExit: 0"),
        ("episode", "return None", "`episode` returned None; it must return an object with `reply"),
        ("verdict", "return None", "its verdict must be a Verdict"),
        ("verdict", "return Verdict(float('nan'), True)", "reward must be a finite number"),
        ("verdict", "return Verdict('1', True)", "reward must be a finite number"),
    ],
)
def test_one_line_in_the_command(tmp_path, monkeypatch, capsys, request, place, code, says):
    module = f"broken_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(CODE).format(**FINE | {place: code}))
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["eval", "--check", f"{module}:Broken"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("gear: error: ") and err.count("\n") == 1, err
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(err)


def test_a_module_that_ends_the_process_when_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "ends_at_once.py").write_text("import sys\nsys.exit()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["eval", "--check", "ends_at_once:Task"]) == 2
    assert "importing ends_at_once failed: SystemExit" in capsys.readouterr().err


class Raising(Task):
    """`verdict` catches what `judge` raises, as a task of one's own may."""

    def rows(self, split, count, seed=0):
        return []

    def episode(self, row):
        return None

    def judge(self, row, completion):
        raise ZeroDivisionError("mine")

    def verdict(self, row, transcript):
        try:
            return self.judge(row, "")
        except ZeroDivisionError:
            return Verdict(0.5, False)


def test_the_users_traceback_is_kept_and_a_task_may_catch_its_own():
    task = Raising()
    assert task.verdict({}, Transcript("", [])).reward == 0.5
    with pytest.raises(GearError, match=r"task Raising: `judge` raised ZeroDivisionError: mine.$") as caught:
        replay(task, {}, "x")
    assert isinstance(caught.value.__cause__, ZeroDivisionError) and caught.value.__cause__.__traceback__ is not None
    with pytest.raises(GearError, match="`rows` returned 'x'"):
        check_rows("x", "test")
    assert reply_of(task, type("World", (), {"reply": lambda self, turn: turn})(), "y") == "y"


def test_a_reply_is_cut_to_a_size_that_can_be_read():
    task, text = Raising(), "x" * (LARGEST_REPLY + 1)

    def said(reply):
        return reply_of(task, type("World", (), {"reply": lambda self, turn: reply})(), "y")

    assert said(text[1:]) == text[1:] and said(text) == f"{text[1:]}\n[cut: the first {2**20} of {2**20 + 1} characters]"
    few, many = [{"role": "tool", "content": "x"}] * 2, [{"role": "tool", "content": text}] * 2
    assert said(few) is few and all(len(m["content"]) < LARGEST_REPLY / 2 + 100 for m in said(many))
    with pytest.raises(GearError, match="messages that are too large"):
        said([{"role": "tool", "content": [{"type": "text", "text": text}]}])
