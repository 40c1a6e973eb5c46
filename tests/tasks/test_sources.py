"""Reading published files and the hub's cache, by the real readers."""

import json

import pytest

from gear_rl.errors import GearError
from gear_rl.tasks.sources import LONGEST_LINE, Record, Source, load, read_records


def test_the_hub_is_read_through_datasets(tmp_path):
    """A local folder stands in for the hub: the same `load_dataset`, no network."""
    (tmp_path / "test.jsonl").write_text(
        '{"question": "q", "answer": "#### 1"}\n{"question": "r", "answer": "#### 2"}\n'
    )
    records = load(Source("sample", ("test.jsonl",), "home", hub=str(tmp_path)), None)
    assert [r.values["question"] for r in records] == ["q", "r"] and records[1].where.endswith("split test, row 1")


def test_a_source_without_a_hub_asks_for_a_folder():
    with pytest.raises(GearError, match=r"name a folder with its data, --data DIR. It should hold a.jsonl: home"):
        load(Source("sample", ("a.jsonl",), "home"), None)


def test_parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": ["x", "y"]}), tmp_path / "test.parquet")
    records = list(read_records(tmp_path / "test.parquet"))
    assert [r.text("a") for r in records] == ["x", "y"] and records[1].where.endswith("test.parquet, row 1")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(GearError, match="no readable parquet"):
        list(read_records(tmp_path / "bad.parquet"))


def test_blank_lines_and_emptiness(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"x": 1}\n\n')
    (record,) = read_records(tmp_path / "a.jsonl")
    assert record.where.endswith("line 2")
    (tmp_path / "b.jsonl").write_text("\n")
    with pytest.raises(GearError, match="empty"):
        load(Source("sample", ("b.jsonl",), "home"), str(tmp_path))


def test_a_line_without_end_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"x": "y" * (LONGEST_LINE + 5)}))
    with pytest.raises(GearError, match="line 1: longer than"):
        list(read_records(tmp_path / "a.jsonl"))


def test_numbers_become_text():
    record = Record("here", {"a": 27.0, "b": 0.5, "c": -3, "d": True, "e": " "})
    assert [record.text(c) for c in "abc"] == ["27", "0.5", "-3"] and record.optional("e", "f") == ""
    with pytest.raises(GearError, match="here: no text in 'd' or 'e'"):
        record.text("d", "e")
