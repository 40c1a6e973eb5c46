"""Files that are whole or absent, and lines that are whole or absent."""

import json
import os

import pytest

from gear_rl.files import LineFile, replacing, write_json, write_text


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    with pytest.raises(KeyboardInterrupt), replacing(path) as scratch:
        scratch.write_text("half")
        raise KeyboardInterrupt
    assert json.loads(path.read_text()) == {"a": 1} and os.listdir(tmp_path) == ["a.json"]
    write_text(path, "é")
    assert path.read_bytes() == "é".encode() and os.listdir(tmp_path) == ["a.json"]


def test_a_torn_line_is_dropped(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthr")
    with LineFile(path) as file:
        file.drop_torn_line()
        file.append(b"three\n")
        file.drop_torn_line()
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    path.write_bytes(b"x" * (3 * 2**20))  # no line end in sight
    with LineFile(path) as file:
        file.drop_torn_line()
    assert path.read_bytes() == b""


def test_one_process_at_a_time(tmp_path):
    with LineFile(tmp_path / "lines") as first, LineFile(tmp_path / "lines") as second:
        assert first.lock() and not second.lock()
    with LineFile(tmp_path / "lines") as third:
        assert third.lock(), "closing releases the lock"
