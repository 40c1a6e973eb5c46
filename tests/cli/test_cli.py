"""The command line as a user meets it: quick, clear, and with the promised exit codes."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from records_made import new_record

from gear_rl import METHODS
from gear_rl.cli import doctor
from gear_rl.cli.main import COMMANDS, main
from gear_rl.records.record import read_record

SCRIPT = Path(sys.executable).with_name("gear")
GEAR = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "gear_rl.cli.main"]


def gear(*words, **options):
    """The real command, in a process of its own."""
    return subprocess.run([*GEAR, *map(str, words)], capture_output=True, text=True, timeout=120, **options)


@pytest.fixture
def fails(capsys):
    """Run a command that must be refused, and give back its message: one line on stderr, exit code 2, no traceback."""

    def run(*words):
        assert main([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("gear: error: ") and err.count("\n") == 1
        return err

    return run


@pytest.fixture
def record(tmp_path):
    return new_record(tmp_path / "rollouts.jsonl")


# ---------------------------------------------------------------------------------------------------- quick
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_answers_at_once(words):
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = gear(*words)
        seconds.append(time.perf_counter() - start)
    assert done.returncode == 0 and "usage: gear" in done.stdout
    assert min(seconds) < 0.5


def test_help_imports_nothing_heavy():
    code = f"""if True:
        import sys
        from gear_rl.cli.main import main
        for words in [[], *([name] for name in {list(COMMANDS)}), ["methods", "--nonsense"]]:
            try:
                main([*words, "--help"])
            except SystemExit:
                pass
        print(sorted({{"torch", "numpy", "transformers", "trl", "rich"}} & set(sys.modules)), file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"
    assert all(f"usage: gear {name}" in done.stdout for name in COMMANDS)


def test_help_fits_a_terminal():
    for words in ([], *([name] for name in COMMANDS)):
        done = gear(*words, "--help", env={**os.environ, "COLUMNS": "80"})
        wide = [line for line in done.stdout.splitlines() if len(line) > 80]
        assert done.returncode == 0 and "usage: gear" in done.stdout and not wide, (words, wide)


# ---------------------------------------------------------------------------------------------------- clear
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trian"], "unknown command 'trian'. Did you mean 'train'?"),
        (["methods", "--jsno"], "unknown option '--jsno'. Did you mean '--json'?"),
        (["methods", "--js"], "unknown option '--js'"),
        (["methods", "gear", "grpo"], "too many arguments: grpo"),
        (["--sed", "1", "train"], "unknown option '--sed'. Options of a command follow its name"),
        (["train", "--seed", "one"], "--seed: 'one' must be a whole number, at least 0"),
        (["credit", "r.jsonl"], "name the method with --credit"),
        (["methods", "grop"], "unknown method 'grop'. Did you mean 'grpo'"),
        (["credit", "gone.jsonl", "--credit", "gear"], "there is no record gone.jsonl"),
        (["credit", "gone.jsonl", "--credit", "gera"], "Did you mean 'gear'"),
    ],
)
def test_mistakes_are_explained(fails, words, says):
    assert says in fails(*words)


def test_no_command_shows_the_help():
    done = gear()
    assert done.returncode == 2 and done.stdout == "" and "commands:" in done.stderr


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out.startswith("gear 0.")


@pytest.mark.parametrize("words", [["--debug", "methods", "grop"], ["methods", "grop", "--debug"]])
def test_debug_shows_the_traceback(capsys, words):
    assert main(words) == 2
    assert "Traceback" in capsys.readouterr().err


def raising(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "gear: interrupted."),
        (OSError(errno.ENOSPC, "No space left on device", "runs"), 2, "error: runs: no space left on device. Free"),
        (PermissionError(errno.EACCES, "Permission denied", "runs"), 2, "gear: error: runs: permission denied."),
        (OSError("nobody/no-model is not a model"), 2, "gear: error: nobody/no-model is not a model"),
        (ModuleNotFoundError(name="trl.x"), 2, "gear: error: trl is not installed: pip install 'gear-rl[trl]'."),
        (ModuleNotFoundError(name="math_verify"), 2, "math-verify is not installed: pip install 'gear-rl[math]'."),
    ],
)
def test_what_a_user_can_mend_is_one_line(monkeypatch, capsys, error, code, says):
    monkeypatch.setattr(doctor, "run", raising(error))
    assert main(["doctor"]) == code
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_our_own_mistakes_keep_their_traceback(monkeypatch):
    for error in (ModuleNotFoundError(name="gear_rl.gone"), RuntimeError("a bug")):
        monkeypatch.setattr(doctor, "run", raising(error))
        with pytest.raises(type(error)):
            main(["doctor"])


def test_a_closed_pipe_is_no_error():
    process = subprocess.Popen([*GEAR, "methods", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141


# ---------------------------------------------------------------------------------------------------- gear methods
def test_methods_as_json(capsys):
    assert main(["methods", "--json"]) == 0
    listed = {m["name"]: m for m in json.loads(capsys.readouterr().out)}
    assert set(METHODS) <= set(listed)
    keys = ["name", "summary", "needs", "cost", "standing", "paper", "hint", "fewest_channels", "distillation",
            "schedule", "preserves_mass", "mass", "strength", "options"]  # fmt: skip
    assert all(list(m) == keys and set(m["cost"]) == {"forwards", "backwards", "why"} for m in listed.values())
    alpha = next(o for o in listed["gear"]["options"] if o["name"] == "alpha")
    assert alpha["default"] == 2.0 and alpha["range"] == "a number, at least 0"
    assert alpha["description"].startswith("α of (7)")
    assert all(o["description"] for m in listed.values() for o in m["options"]), "every option is explained"


def test_methods_fit_a_terminal_also_one_without_greek():
    done = gear("methods", env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
    assert all(any(line.startswith(name + " ") for line in done.stdout.splitlines()) for name in METHODS)


def test_one_method_in_full(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, method in METHODS.items():
        assert main(["methods", name]) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        assert all(f"  {option} = " in out for option in method.Options.__dataclass_fields__)


# ---------------------------------------------------------------------------------------------------- gear credit
def test_credit_writes_a_new_record(record, capsys):
    before = record.read_bytes()
    assert main(["credit", str(record.parent), "--credit", "token", "--set", "alpha=8"]) == 0
    out = capsys.readouterr().out
    assert "12 rollouts of 3 steps" in out and "turn 2" in out and max(map(len, out.splitlines()[:-1])) <= 80
    old, new = read_record(record), read_record(record.with_name("rollouts.token.jsonl"))
    assert record.read_bytes() == before
    assert new.header["method"] == "token" and new.header["options"]["alpha"] == 8
    assert new.header["trained_with"] == {"method": "gear", "options": {"alpha": 2.0}}
    assert new.header["task"] == old.header["task"]
    for a, b in zip(old.rollouts, new.rollouts, strict=True):
        for kept in ("step", "group", "prompt", "hinted_prompt", "token_texts", "signals", "turns", "success"):
            assert getattr(a, kept) == getattr(b, kept)
    assert any(a.weights != b.weights for a, b in zip(old.rollouts, new.rollouts, strict=True))


def test_credit_takes_an_option_by_each_of_its_names(record, fails, capsys):
    for pair in ("alpha=8", "credit.alpha=8", "credit.gear.alpha=8"):
        assert main(["credit", str(record), "--credit", "gear", "--set", pair, "--force"]) == 0
        assert read_record(record.with_name("rollouts.gear.jsonl")).header["options"]["alpha"] == 8
    capsys.readouterr()
    assert "gear credit takes credit.NAME and chat.NAME" in fails("credit", record, "--credit", "gear", "--set", "task.a=1")


def test_credit_by_the_same_method_is_the_same(record):
    again = record.with_name("again.jsonl")
    assert main(["credit", str(record), "--credit", "gear", "--set", "credit.alpha=2", "-o", str(again)]) == 0
    for a, b in zip(read_record(record).rollouts, read_record(again).rollouts, strict=True):
        assert a.segments == b.segments and a.advantages == pytest.approx(b.advantages, rel=1e-4, abs=1e-5)


def test_credit_loses_nothing(record, fails, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("precious")
    assert "exists" in fails("credit", record, "--credit", "grpo", "-o", out)
    assert "the record being read" in fails("credit", record, "--credit", "grpo", "-o", record, "--force")
    assert "needs the signal 'decision'" in fails("credit", record, "--credit", "oracle", "-o", out, "--force")
    record.write_bytes(record.read_bytes()[:-30])
    assert "line 13: cut off" in fails("credit", record, "--credit", "grpo", "-o", out, "--force")
    assert out.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "rollouts.jsonl"], "no scratch file stays behind"


def test_credit_replaces_when_forced(record, capsys):
    out = record.with_name("out.jsonl")
    out.write_text("old")
    assert main(["credit", str(record), "--credit", "grpo", "-o", str(out), "--force"]) == 0
    assert read_record(out).header["method"] == "grpo"


def test_credit_refuses_what_would_have_no_effect(record, fails, capsys):
    assert "--from-rewards" in fails("credit", record, "--credit", "dr_grpo")
    assert "--from-rewards" in fails("credit", record, "--credit", "gear", "--set", "scale_rewards=false")
    assert main(["credit", str(record), "--credit", "dr_grpo", "--from-rewards"]) == 0


@pytest.mark.parametrize(
    ("pair", "says"),
    [("alfa=1", "Did you mean 'alpha'"), ("alpha=-1", "at least 0"), ("alpha=big", "a number"), ("alpha", "key=value")],
)
def test_credit_refuses_bad_options(record, fails, pair, says):
    assert says in fails("credit", record, "--credit", "gear", "--set", pair)


def test_credit_needs_rollouts_and_a_folder(record, fails, tmp_path):
    assert "is not a file" in fails("credit", record, "--credit", "grpo", "-o", tmp_path, "--force")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in fails("credit", record, "--credit", "grpo", "-o", tmp_path / "pipe", "--force")
    assert "no folder" in fails("credit", record, "--credit", "grpo", "-o", tmp_path / "gone" / "out.jsonl")
    record.write_bytes(record.read_bytes().splitlines(keepends=True)[0])
    assert "no rollouts" in fails("credit", record, "--credit", "grpo")


def test_what_a_model_wrote_cannot_steer_the_terminal(record, capsys):
    text = record.read_text().replace('"t0"', r'"\u001b[2J"').replace('"method":"gear"', r'"method":"\u001b]0;x"')
    record.write_text(text)
    assert main(["credit", str(record), "--credit", "grpo"]) == 0
    assert "\x1b" not in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- gear doctor
def test_doctor_is_healthy_here(tmp_path):
    done = gear("doctor", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["healthy"], report["checks"]
    assert report["packages"]["torch"] and set(report["packages"]) == set(doctor.SHOWN)
    assert {check["name"] for check in report["checks"]} >= {"divergence on cpu", "method invariants", "TRL seam"}
    assert list(tmp_path.iterdir()) == []


def test_doctor_reports_a_broken_check_and_exits_1(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "divergence_agrees", raising(RuntimeError("kernel broke")))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  divergence on cpu: RuntimeError: kernel broke" in out and "ok      method invariants" in out
    assert max(map(len, out.splitlines())) <= 80


def test_doctor_knows_the_trl_it_is_written_for(monkeypatch):
    for version, fits in (("1.16.0", True), ("1.16.3", True), ("1.17.0", False), ("1.1.6", False), (None, True)):
        monkeypatch.setattr(doctor, "installed_version", lambda name, version=version: version)
        assert doctor.trl_is_supported()[0] is fits


def test_doctor_reports_a_folder_without_permission(monkeypatch):
    def refuse(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    assert doctor.folder_is_writable() == (False, "cannot write here: permission denied")


SIGNALLED = {
    "while modules load": """
class Finder:
    def find_spec(self, name, *_):
        if name == "argparse":
            press()
sys.meta_path.insert(0, Finder())
""",
    "where no one can catch it": """
import gear_rl.cli.main as cli
class Dropped:
    def __del__(self):
        press()
cli.parse = lambda argv: Dropped() and None
""",
    "while an error is described": """
import gear_rl.cli.main as cli
cli._describe_os_error = lambda error: press()
def fails(argv):
    raise OSError("no")
cli.parse = fails
""",
    "in another library's exit hook": "atexit.register(press)",
    "while threads are waited for": """
import threading
threading.Thread(target=lambda: (threading.main_thread().join(), time.sleep(1), press(), time.sleep(60))).start()
""",
}


@pytest.mark.parametrize("moment", SIGNALLED)
def test_ctrl_c_at_any_moment_is_one_line_and_exit_code_130(moment):
    code = "import atexit, os, signal, sys, time\npress = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
    code += f"{SIGNALLED[moment]}\nsys.argv = ['gear', '--version']\nfrom gear_rl.__main__ import gear\ngear()"
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # where the tests run in the background, it is ignored
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, preexec_fn=heard)
    assert (done.returncode, done.stderr) == (130, "gear: interrupted.\n")
