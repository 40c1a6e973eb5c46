"""The Triton kernels: they give the naive reference's numbers, and they compile to the instructions they should.

Both run in processes of their own. Whether Triton interprets is settled when it is first imported, and by then another
test of this process has imported it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
HERE = Path(__file__).parents[1] / "helpers"


def run(*command: str, interpret: bool) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_kernels_equal_the_naive_twin():
    cases = str(HERE / "fused_cases.py")
    interpret = not torch.cuda.is_available()
    assert "[100%]" in run("-m", "pytest", cases, "-q", "-p", "no:cacheprovider", interpret=interpret)


def test_kernels_compile_for_hopper_and_ampere_without_a_gpu():
    assert "compiled" in run(str(HERE / "compile_kernels.py"), interpret=False)
