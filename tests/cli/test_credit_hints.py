"""`gear credit` on a record: the signals in it were read with one hint, and pass for no other method's."""

import pytest
from records_made import HEADER, write

from gear_rl.cli.main import main
from gear_rl.records.record import read_record
from gear_rl.records.writer import RecordWriter


def record(path, method):
    with RecordWriter(path, {**HEADER, "method": method, "options": {}}) as writer:
        write(writer, 0)
    return path


@pytest.mark.parametrize(
    ("trained", "asked", "says"),
    [
        (
            "gear",
            "wrong_hint",
            "shown another problem's hint, and the record's (gear) was shown the problem's own hint",
        ),
        ("gear", "rlsd+wrong_hint", "shown another problem's hint"),
        ("gear", "rlsd+sibling_hint", "shown a rollout of the group"),
        (
            "wrong_hint",
            "gear",
            "shown the problem's own hint, and the record's (wrong_hint) was shown another problem's hint",
        ),
        ("wrong_hint", "wrong_hint", None),
        ("gear", "gear", None),
        ("gear", "rlsd", None),
        ("gear", "shuffled_outcomes", None),
        ("wrong_hint", "grpo", None),
        ("wrong_hint", "low_probability", None),
        ("a_method_of_theirs", "gear", None),
    ],
)
def test_signals_pass_for_no_other_hint(tmp_path, capsys, trained, asked, says):
    source, out = record(tmp_path / "record.jsonl", trained), tmp_path / "out.jsonl"
    code = main(["credit", str(source), "--credit", asked, "-o", str(out)])
    err = capsys.readouterr().err
    if says is None:
        assert code == 0 and read_record(out).header["method"] == asked, err
    else:
        assert code == 2 and says in err and err.count("\n") == 1 and not out.exists()


def test_the_hint_is_remembered_over_other_methods(tmp_path, capsys):
    source, plain = record(tmp_path / "record.jsonl", "gear"), tmp_path / "plain.jsonl"
    assert main(["credit", str(source), "--credit", "grpo", "-o", str(plain)]) == 0
    assert main(["credit", str(plain), "--credit", "wrong_hint", "-o", str(tmp_path / "out")]) == 2
    assert "(gear) was shown" in capsys.readouterr().err
