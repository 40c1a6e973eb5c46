"""Options: declared once, then checked, described and listed from that."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, ClassVar, Optional

import pytest

from gear_rl.errors import GearError
from gear_rl.methods import METHODS
from gear_rl.options import argument, check_options, describe, descriptions, listing, option
from gear_rl.tasks import all_tasks
from gear_rl.training.config import TrainConfig, TrainOptions, settings
from gear_rl.training.warm_start import WarmStartOptions

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Base:
    kept: ClassVar[int] = 3
    steps: int = option(4, at_least=1)
    """Written in
    two lines."""
    share: float = option(0.5, above=0, at_most=1)
    rate: float = option(0.1, at_least=0, below=1, note="a rate")
    """Of the base class."""


@dataclass
class Options(Base):
    kind: str | None = option(None, choices=("live", "ema"))
    """What it is."""
    plain: int = 7
    old: Optional[int] = None  # noqa: UP045  the older spelling reads the same
    names: list[str] = field(default_factory=lambda: ["a"])
    table: dict[str, int | None] = field(default_factory=dict)
    flag: bool = False
    exact: Decimal | None = None
    """Its type is not known here, so its values are not checked."""
    hidden: int = field(default=1, init=False)
    rate: float = option(0.2, at_least=0, below=1)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("steps", 0, "x.steps=0: must be a whole number, at least 1."),
        ("steps", 1.0, "x.steps=1.0: must be a whole number"),
        ("steps", True, "x.steps=True: must be a whole number"),
        ("steps", None, "x.steps=None: must be a whole number"),
        ("share", 0, "x.share=0: must be a number, above 0 and at most 1."),
        ("share", float("nan"), "x.share=nan: must be a number"),
        ("share", "half", "x.share='half': must be a number"),
        ("rate", 1, "x.rate=1: must be a number, at least 0 and below 1."),
        ("kind", "emma", "x.kind='emma': must be one of 'live', 'ema', or None. Did you mean 'ema'?"),
        ("kind", 3, "x.kind=3: must be one of"),
        ("plain", "7", "x.plain='7': must be a whole number."),
        ("old", "7", "x.old='7': must be a whole number, or None."),
        ("names", "a", "x.names='a': must be a list."),
        ("table", [], "x.table=[]: must be a table."),
        ("flag", 1, "x.flag=1: must be True or False."),
        ("stpes", 1, "unknown x option 'stpes'. Did you mean 'steps'?"),
        ("hidden", 1, "unknown x option 'hidden'"),
        ("kept", 1, "unknown x option 'kept'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_range(name, value, says):
    with pytest.raises(GearError) as caught:
        check_options(Options, {name: value}, "x")
    assert says in str(caught.value)


def test_what_fits_passes():
    check_options(Options, {"steps": 1, "share": 1, "rate": 0, "kind": None, "old": 3, "names": ["b"], "exact": "any"})
    check_options(Options, {"kind": "ema", "table": {"a": None}, "flag": True, "share": 0.25})


def test_a_required_option_is_asked_for():
    @dataclass
    class Needs:
        data: str = option()
        """Where it is."""

    with pytest.raises(GearError, match=r"thing needs the option data: --set task\.data=VALUE \(text\)\."):
        check_options(Needs, {}, "thing", "task")
    (entry,) = listing(Needs)
    assert entry == {"name": "data", "default": None, "required": True, "range": "text", "description": "Where it is."}


def test_a_class_without_options_says_so():
    class Nothing:
        pass

    check_options(Nothing, {}, "nothing")
    with pytest.raises(GearError, match="nothing takes no options, got 'a'"):
        check_options(Nothing, {"a": 1}, "nothing")


def test_listing_is_plain_data_with_inherited_descriptions():
    listed = {entry["name"]: entry for entry in listing(Options, "x.")}
    assert list(listed)[:3] == ["x.steps", "x.share", "x.rate"] and "x.hidden" not in listed
    assert listed["x.steps"]["description"] == "Written in two lines." and listed["x.share"]["description"] == ""
    assert listed["x.rate"]["default"] == 0.2 and listed["x.rate"]["description"] == "Of the base class."
    assert listed["x.names"]["default"] == ["a"] and listed["x.exact"]["range"] == "any value"
    assert describe(Base, fields(Base)[2]) == "a number, at least 0 and below 1 (a rate)"


def test_without_source_there_are_no_descriptions():
    made = make_dataclass("Made", [("a", "int", 1)])
    assert listing(made) == [
        {"name": "a", "default": 1, "required": False, "range": "a whole number", "description": ""}
    ]
    assert not descriptions(made)


@pytest.mark.parametrize(
    "cls",
    [TrainOptions, WarmStartOptions, *(m.Options for m in METHODS.values())],
    ids=lambda cls: cls.__qualname__,
)
def test_every_option_of_ours_is_described(cls):
    assert all(entry["description"] for entry in listing(cls)), [
        e["name"] for e in listing(cls) if not e["description"]
    ]


def test_every_option_has_a_range_and_a_default_that_fits():
    for cls in (TrainOptions, WarmStartOptions, *(m.Options for m in METHODS.values()), *all_tasks().values()):
        entries = listing(cls)
        assert all(entry["range"] for entry in entries)
        given = {entry["name"]: entry["default"] for entry in entries if not entry["required"]}
        needed = {entry["name"]: "x" for entry in entries if entry["required"]}
        check_options(cls, given | needed, cls.__name__)


def test_the_settings_of_a_run_are_those_of_its_parts():
    names = [entry["name"] for entry in settings("gsm8k", "rlsd")]
    assert len(names) == len(set(names)) and {"model", "seed", "train.steps", "credit.clip", "task.data"} <= set(names)
    assert not any(name in names for name in ("task.steps", "credit.alpha"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"seed": True}, "seed=True: must be a whole number, at least 0 and at most 4294967295."),
        ({"model": 3}, "model=3: must be text, or None."),
        ({"task": {"name": 3}}, "task=3: must be text."),
        ({"train": {"rollouts_per_pass": 5}}, "train.rollouts_per_pass=5: must be a divisor of prompts × generations, here 32"),
        ({"train": 3}, "train=3: must be a table of options"),
    ],
)  # fmt: skip
def test_a_configuration_is_checked_as_a_whole(values, says):
    with pytest.raises(GearError) as caught:
        TrainConfig.from_dict(values)
    assert says in str(caught.value)


def test_arguments_have_ranges_too():
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--rows", type=argument(int, at_least=1))
    assert parser.parse_args(["--rows", "3"]).rows == 3
    for text in ("0", "1.5", "many"):
        with pytest.raises(argparse.ArgumentError, match=f"--rows: '{text}' must be a whole number, at least 1"):
            parser.parse_args(["--rows", text])
