"""Files that are whole or absent, and lines that are whole or absent."""

import json
import os

import pytest

from gear_rl.files import LineFile, replacing, replacing_folder, write_json, write_text


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


def test_a_folder_is_whole_or_absent(tmp_path):
    left = tmp_path / ".model.999999999.partial"  # of a killed process
    left.mkdir()
    (tmp_path / ".other.999999999.partial").mkdir()
    with pytest.raises(KeyboardInterrupt), replacing_folder(tmp_path / "model") as scratch:
        (scratch / "half").write_text("")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == [".other.999999999.partial"]
    (tmp_path / "model").mkdir()
    with replacing_folder(tmp_path / "model") as scratch:
        (scratch / "whole").write_text("")
    assert os.listdir(tmp_path / "model") == ["whole"] and not left.exists()
    with pytest.raises(OSError, match="not empty"), replacing_folder(tmp_path / "model"):
        pass


def test_a_file_that_was_deleted_or_replaced_is_lost(tmp_path):
    path = tmp_path / "lines"
    with LineFile(path) as file:
        assert not file.is_lost()
        write_text(path, "another")
        assert file.is_lost()
        path.unlink()
        assert file.is_lost()


def test_what_a_killed_process_left_is_removed(tmp_path):
    left, other = tmp_path / ".page.html.999999999.partial", tmp_path / ".other.html.999999999.partial"
    running = tmp_path / f".page.html.{os.getppid()}.partial"
    for path in (left, other, running):
        path.write_text("half")
    write_text(tmp_path / "page.html", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([other.name, running.name, "page.html"])
