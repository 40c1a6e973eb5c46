"""`--set` pairs and config files: types, nesting, and errors that say where."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gear_rl.cli.main import main
from gear_rl.cli.settings import load_config, merge, options_by_method, parse_assignments, parse_settings, parse_value
from gear_rl.errors import GearError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("+3", 3),
        ("1_000", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("yesno", "yesno"),
        ("runs/a=b", "runs/a=b"),
        ("", ""),
        ("nan", "nan"),
        ("1.2.3", "1.2.3"),
        ("{x}", "{x}"),
    ],
)
def test_values_get_the_type_they_look_like(text, value):
    assert parse_value(text) == value and type(parse_value(text)) is type(value)


@given(st.booleans() | st.none() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False))
def test_every_json_scalar_comes_back(value):
    assert parse_value(json.dumps(value)) == value


@given(st.text(max_size=50))
def test_any_text_is_a_value_or_a_clear_error(text):
    try:
        parse_value(text)
    except GearError as error:
        assert "value" in str(error)


@pytest.mark.parametrize("text", ['"open', "[1, 2", "[" * 5000, "9" * 5000])
def test_broken_values_are_refused(text):
    with pytest.raises(GearError, match="the value"):
        parse_value(text)


def test_dots_nest_and_the_last_of_two_counts():
    assert parse_assignments(["alpha=4", "task.steps=8", "task.answer=exact", "alpha=2"]) == {
        "alpha": 2,
        "task": {"steps": 8, "answer": "exact"},
    }


@pytest.mark.parametrize("pair", ["alpha", "=4", "a..b=4", ".a=4", "a b=4", ""])
def test_a_pair_that_is_none_is_refused(pair):
    with pytest.raises(GearError, match="key=value"):
        parse_assignments([pair])


def test_a_key_cannot_be_a_value_and_a_table():
    with pytest.raises(GearError, match="has a value already"):
        parse_assignments(["task=workshop", "task.steps=8"])
    with pytest.raises(GearError, match="cannot be a value"):
        parse_assignments(["task.steps=8", "task=workshop"])


def test_sections_and_keys_of_a_command():
    pairs = ["task.steps=8", "credit.rlsd+wrong_hint.mix=0.5", "seed=3"]
    assert parse_settings("gear x", pairs, ("task", "credit"), keys=("seed",)) == {
        "task": {"steps": 8},
        "credit": {"rlsd+wrong_hint": {"mix": 0.5}},
        "seed": 3,
    }


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("tsak.steps=8", "--set tsak: unknown. Did you mean 'task'? gear x takes task.NAME and chat.NAME."),
        ("train.steps=8", "gear x takes task.NAME and chat.NAME."),
        ("steps=8", "--set steps: unknown."),
        ("task=workshop", "--set task='workshop': write task.NAME=VALUE."),
    ],
)
def test_a_section_that_a_command_does_not_take_is_named(pair, says):
    with pytest.raises(GearError) as caught:
        parse_settings("gear x", [pair], ("task", "chat"))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --set steps=20", "--set steps: unknown. Did you mean train.steps or task.steps? gear train takes train.NAME,"),
        ("train --set generations=4", "Did you mean train.generations?"),
        ("train --set alpha=4", "Did you mean credit.alpha?"),
        ("train --set epsilon_high=0.28", "Did you mean trl.epsilon_high?"),
        ("train --set steps=20 --task gsm8k --settings", "Did you mean train.steps?"),  # of the workshop alone it is a setting
        ("train --set beta=0.5 --credit opsd", "Did you mean credit.beta?"),
        ("train --set beta=0.5 --config FILE", "Did you mean credit.beta?"),  # the file names the method
        ("train --set steps=20 --task gsn8k", "Did you mean train.steps?"),  # one error at a time
        ("compare --set decay=0.9 --credit grpo,grpo_lambda", "Did you mean credit.grpo_lambda.decay?"),
        ("compare --set alpha=4 --credit gear,token", "Did you mean credit.METHOD.alpha?"),
        ("audition --set hint_errors=0.3", "Did you mean task.hint_errors? gear audition takes task.NAME."),
        ("warmstart --task workshop --model M --out O --set epochs=3", "Did you mean warm.epochs?"),
    ],
)
def test_a_name_without_its_section_is_completed(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('credit = "opsd"\n')
    assert main(words.replace("FILE", "run.toml").split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err and [p.name for p in tmp_path.iterdir()] == ["run.toml"]


@pytest.mark.parametrize("pair", ["num_generations=4", "top_k=5", "hub_token=x", "alpha.x=4", "gold=3"])
def test_nothing_is_proposed_that_would_be_refused(pair, capsys):
    """Fields of TRL that `gear train` sets itself, and names that no section has."""
    assert main(["train", "--credit", "grpo", "--set", pair]) == 2
    said, name = capsys.readouterr().err, pair.partition("=")[0].split(".")[0]
    assert "unknown" in said and f".{name}" not in said


def test_a_name_alone_is_short_for_the_section_it_belongs_to():
    pairs = ["alpha=8", "chat.enable_thinking=false", "credit.mix=0.5"]
    expected = {"chat": {"enable_thinking": False}, "credit": {"alpha": 8, "mix": 0.5}}
    assert parse_settings("gear x", pairs, ("credit", "chat"), short="credit") == expected
    with pytest.raises(GearError, match=r"takes credit\.NAME and chat\.NAME"):
        parse_settings("gear x", ["train.steps=3"], ("credit", "chat"), short="credit")


def test_options_by_method():
    assert options_by_method({"alpha": 4}, ["gear"]) == {"gear": {"alpha": 4}}
    assert options_by_method({"gear": {"alpha": 4}}, ["gear", "grpo"]) == {"gear": {"alpha": 4}, "grpo": {}}
    assert options_by_method({"alpha": 4, "gear": {"alpha": 8, "mix": 1}}, ["gear"]) == {"gear": {"alpha": 8, "mix": 1}}
    with pytest.raises(GearError, match=r"say whose: credit\.METHOD\.alpha"):
        options_by_method({"alpha": 4}, ["gear", "grpo"])
    with pytest.raises(GearError, match=r"token is not among the methods named \(gear\)"):
        options_by_method({"token": {"alpha": 4}}, ["gear"])


def test_command_line_goes_over_the_file():
    file = {"seed": 1, "task": {"name": "workshop", "steps": 4}, "credit": "grpo"}
    assert merge(file, {"task": {"steps": 8}, "credit": {"alpha": 1}}) == {
        "seed": 1,
        "task": {"name": "workshop", "steps": 8},
        "credit": {"alpha": 1},
    }
    assert file["task"] == {"name": "workshop", "steps": 4}, "merging must not change its inputs"


def test_toml_and_json_say_the_same(tmp_path):
    (tmp_path / "a.toml").write_text('seed = 3\n[task]\nsteps = 8\nanswer = "exact"\n')
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"seed": 3, "task": {"steps": 8, "answer": "exact"}}')  # with a BOM
    assert (
        load_config(tmp_path / "a.toml")
        == load_config(tmp_path / "a.json")
        == {
            "seed": 3,
            "task": {"steps": 8, "answer": "exact"},
        }
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.toml", b"seed = 1\nalpha = = 2\n", "line 2"),
        ("a.json", b'{"seed": 1,\n "alpha": }', "line 2"),
        ("a.json", b'{"seed": 1, "seed": 2}', "'seed' is given twice"),
        ("a.json", b'{"alpha": NaN}', "NaN"),
        ("a.json", b"[1]", "outermost"),
        ("a.json", b"", "not JSON: Expecting value"),
        ("a.json", b'{"a":' * 100_000, "nested too deeply"),
        ("a.toml", b"a = 1\nb = '\xff'\n", "line 2: not UTF-8"),
        ("a.yaml", b"seed: 1", r"\.toml or \.json"),
        ("a.json", b" " * (2**20 + 1), "no file of settings"),
    ],
)
def test_a_broken_config_names_file_and_place(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GearError, match=says) as caught:
        load_config(tmp_path / name)
    assert name in str(caught.value)


def test_a_missing_config_is_named(tmp_path):
    with pytest.raises(GearError, match=r"no config file .*gone\.toml"):
        load_config(tmp_path / "gone.toml")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(GearError, match="no config file"):
        load_config(tmp_path / "folder.json")
