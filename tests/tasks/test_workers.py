"""The sandbox and its client: what code can do in a fork that should never have run any."""

import json
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gear_rl.errors import GearError
from gear_rl.tasks.workers.client import Workers
from gear_rl.tasks.workers.process import SANDBOX, Died, Overran

SCRIPT = Path(__file__).parents[1] / "helpers" / "hostile_worker.py"
linux = pytest.mark.skipif(sys.platform != "linux", reason="the system-call filter is Linux's")


@pytest.fixture(scope="module")
def workers():
    os.environ["GEAR_TEST_SECRET"] = "gear-test-secret"
    workers = Workers(SCRIPT, guarded=False, memory=2**30)
    yield workers
    workers.close()
    del os.environ["GEAR_TEST_SECRET"]


def run(workers, code, seconds=5.0):
    return workers.ask(seconds, {"code": code})


def clean(workers):
    assert run(workers, "state['seen'] += 1; result = 2 + 2") == {"result": 4, "seen": 0}


@linux
def test_this_platform_gives_every_limit(workers):
    clean(workers)
    assert workers.open_ways == []


@linux
@pytest.mark.parametrize(
    "code",
    [
        "open('{mark}', 'w')",
        "os.open('{mark}', os.O_CREAT)",
        "open('{kept}')",
        "open('/etc/passwd')",
        "os.listdir('/')",
        "os.listdir(os.path.expanduser('~'))",
        "open('/proc/{parent}/environ', 'rb')",
        "open('/proc/self/mem', 'rb')",
        "os.mkdir('{mark}')",
        "os.symlink('/etc/passwd', '{mark}')",
        "os.rename('{kept}', '{mark}')",
        "os.unlink('{kept}')",
        "os.truncate('{kept}', 0)",
        "os.chmod('{kept}', 0)",
        "os.fork()",
        "os.system('touch {mark}') and os.nothing",
        "os.execv('/bin/touch', ['touch', '{mark}'])",
        "os.posix_spawn('/bin/touch', ['touch', '{mark}'], {{}})",
        "import threading; threading.Thread(target=print).start()",
        "import socket; socket.socket()",
        "import socket; socket.socketpair()",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "os.kill(os.getppid() if 0 else 1, 0)",
        "os.kill({parent}, 0)",
        "os.killpg(0, 9)",
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))",
        "import ctypes; c = ctypes.CDLL(None); c.unshare(0x10000000) and os.nothing",
        "import ctypes; c = ctypes.CDLL(None); c.ptrace(16, {parent}, 0, 0) and os.nothing",
    ],
)
def test_what_is_forbidden_fails(workers, tmp_path, code):
    mark, kept = tmp_path / "mark", tmp_path / "kept"
    kept.write_text("kept")
    reply = run(workers, code.format(mark=mark, kept=kept, parent=os.getpid()))
    assert "raised" in reply, reply
    assert not mark.exists() and kept.read_text() == "kept" and kept.stat().st_mode & 0o600
    clean(workers)


def test_nothing_outlives_a_reply(workers):
    run(workers, "import builtins; builtins.float = None; os.environ['X'] = 'y'")
    with pytest.raises(Died):
        run(workers, "import json; json.dumps = None")
    run(workers, "import sys; sys.modules.clear(); state['seen'] = 99")
    clean(workers)
    assert run(workers, "result = os.environ.get('X')")["result"] is None


def test_secrets_and_descriptors_are_not_there(workers):
    assert "gear-test-secret" not in json.dumps(run(workers, "result = dict(os.environ)"))
    held = run(workers, "result = [fd for fd in range(64) if os.path.exists(f'/proc/self/fd/{fd}')]")["result"]
    assert len(held) == 4, "the three standard ones, which lead nowhere, and the pipe for one reply"


@linux
def test_a_kernel_without_a_filter_is_said(monkeypatch, caplog, tmp_path):
    """The same sandbox on a machine that the filters do not know."""
    folder = tmp_path / "workers"
    shutil.copytree(SANDBOX.parent, folder)
    known = (folder / "syscalls.py").read_text()
    (folder / "syscalls.py").write_text(known.replace('sys.platform == "linux"', 'sys.platform == "none"'))
    monkeypatch.setattr("gear_rl.tasks.workers.process.SANDBOX", folder / "sandbox.py")
    workers = Workers(SCRIPT, guarded=False)
    try:
        clean(workers)
    finally:
        workers.close()
    assert workers.open_ways is not None and {"network", "reading files", "signals"} <= set(workers.open_ways)
    assert "on this platform it cannot be kept from: network" in caplog.text


def test_packages_can_still_be_imported(workers):
    code = "import colorsys, sqlite3, numpy.polynomial as p, zoneinfo; result = [colorsys.__name__, p.__name__]"
    assert run(workers, code)["result"] == ["colorsys", "numpy.polynomial"]


def test_a_reply_cannot_be_forged_for_another_request(workers):
    forged = json.dumps({"token": "0" * 32, "value": {"result": "forged"}})
    with pytest.raises(Died):  # only its own pipe takes it, and there it is no reply
        run(workers, f"for fd in range(64):\n try: os.write(fd, b'''{forged}\\n''')\n except OSError: pass")
    clean(workers)
    with pytest.raises(Died):
        run(workers, "for fd in range(64):\n try: os.write(fd, b'[[[[\\n')\n except OSError: pass")
    clean(workers)


def test_a_reply_with_the_wrong_token_is_refused(workers):
    clean(workers)
    process = workers._all[0]
    process._unread += b'{"token": "stale", "value": {"result": 5}}\n'
    with pytest.raises(Died, match="not asked for"):
        run(workers, "result = 1")
    clean(workers)


def test_limits_on_time_memory_and_size(workers):
    restarts = workers.tally.restarts
    for code in ("import time; time.sleep(60)", "while True: pass", "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
                 "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: pass"):  # fmt: skip
        began = time.monotonic()
        with pytest.raises(Overran):
            run(workers, code, 0.5)
        assert time.monotonic() - began < 1.5
    for code in ("x = bytearray(2**31)", "os._exit(0)", "import sys; sys.exit()", "import ctypes; ctypes.string_at(1)"):
        with pytest.raises(Died):
            run(workers, code)
    with pytest.raises(Died, match="too large"):
        run(workers, "result = 'x' * (2**26 + 10)", 20.0)
    clean(workers)
    assert workers.tally.restarts == restarts, "only the fork of the answer ends"


def test_a_worker_that_is_killed_or_stopped_is_replaced(workers):
    clean(workers)
    os.kill(workers._all[0].process.pid, signal.SIGKILL)
    with pytest.raises(Died):
        run(workers, "result = 1")
    clean(workers)
    os.kill(workers._all[0].process.pid, signal.SIGSTOP)
    with pytest.raises(Overran):
        run(workers, "result = 1" + " " * 2**20, 0.3)
    clean(workers)


@linux
def test_a_fork_ends_with_its_worker(workers):
    clean(workers)
    worker = workers._all[0].process.pid

    def runs(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def forks():
        return [pid for pid in Path(f"/proc/{worker}/task/{worker}/children").read_text().split() if runs(pid)]

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(run, workers, "import time; time.sleep(60)", 30.0)
        for _ in range(100):
            time.sleep(0.05)
            if running := forks():
                break
        time.sleep(0.3)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(Died):
            asked.result(10)
    time.sleep(0.5)
    assert running and not any(runs(pid) for pid in running)
    clean(workers)


def test_threads_and_forks_of_ours(workers):
    several = Workers(SCRIPT, guarded=False, processes=2)
    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(lambda i: run(several, f"result = {i}")["result"], range(40)))
    assert replies == list(range(40))
    running = [worker.process for worker in several._all]
    child = os.fork()
    if child == 0:
        try:
            right = run(several, "result = 7")["result"] == 7
            several.close()
        except BaseException:
            right = False
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(process.poll() is None for process in running), "the copy has ended its own only"
    assert run(several, "result = 8")["result"] == 8
    several.close()
    assert all(process.poll() is not None for process in running)


def test_a_script_that_does_not_start_is_an_error(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_this_name\n")
    with pytest.raises(GearError, match=r"pip install it.*nothing_of_this_name"):
        Workers(broken, install="pip install it.").ask(1.0, {})
    broken.write_text("raise SystemExit\n")
    with pytest.raises(GearError, match="did not start"):
        Workers(broken).ask(1.0, {})
