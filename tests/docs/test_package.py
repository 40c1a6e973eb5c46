"""The wheel and the sdist are complete: built from a clean copy, installed into an environment of its own, and used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "src")


def succeed(*command: object, cwd: Path | None = None) -> str:
    """What the command prints. It sees nothing of this process's PYTHONPATH, which would lead back to the sources."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, cwd=cwd, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that was made from that sdist."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SHIPPED:  # a copy: no leftovers of earlier builds get in, and none are left behind
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy(source, copy / name)
    succeed(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy)
    return out


@pytest.fixture(scope="module")
def environment(built, tmp_path_factory) -> Path:
    """An empty environment with the wheel in it; the wheel's dependencies are lent by the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    succeed(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    # A path named in a .pth file is searched for modules, but .pth files inside it are not read: an editable install of
    # this project stays invisible.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_sdist_and_wheel_hold_the_embedded_model_and_the_report(built):
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[-1] for name in archive.getnames()}
    data = [
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and path.suffix not in (".pyc",) and ".egg-info" not in str(path)
    ]
    assert not [name for name in data if name not in in_wheel]
    assert not [name for name in data if f"src/{name}" not in in_sdist]
    assert {"LICENSE", "README.md"} <= in_sdist


@pytest.mark.slow
def test_the_wheel_trains_two_steps_in_an_empty_environment(environment, tmp_path):
    python = environment / "bin" / "python"
    where = succeed(python, "-c", "import gear_rl; print(gear_rl.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(environment), where
    succeed(
        environment / "bin" / "gear", "train", "--set", "train.steps=2", "--set", "train.eval_rows=4", "--out", "run",
        cwd=tmp_path,
    )  # fmt: skip
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    assert "after" in json.loads((tmp_path / "run" / "evaluation.json").read_text())
