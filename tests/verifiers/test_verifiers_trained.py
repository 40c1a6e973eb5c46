"""PrimeIntellect's own environments: a phrase to repeat and a counter (from verifiers' source distribution), and Hangman
(TextArena's, in verifiers' wheel)."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from others_trained import trained
from words_model import save_words_model

from gear_rl.tasks import make_task, replay

THEIR_TESTS = Path(sys.prefix) / "source" / "tests" / "v1" / "fixtures"
"""`make verifiers` unpacks verifiers' source distribution there; its wheel holds no tasks of one turn."""


@pytest.fixture
def from_their_source(monkeypatch):
    assert (THEIR_TESTS / "echo_v1.py").exists(), f"{THEIR_TESTS} is not there: make verifiers"
    monkeypatch.syspath_prepend(THEIR_TESTS)


def test_training_on_a_phrase_to_repeat(tmp_path, from_their_source):
    phrases = ["hello world", "ping", "verifiers"]  # as one token each, a model of random weights says one now and then
    rollouts = trained(
        tmp_path, "verifiers:echo_v1", save_words_model(tmp_path / "model", more=phrases), max_turn_tokens=48
    )
    assert {line.reward for line in rollouts} == {0.0, 1.0}
    for line in rollouts:  # its judge compares letters and digits only
        (phrase,) = [each for each in phrases if f"this exact phrase: {each}" in line.prompt]
        assert phrase in line.hinted_prompt.partition("Reference (for you only")[2]
        said = "".join(text for text, mine in zip(line.token_texts, line.action_mask, strict=True) if mine)
        assert line.reward == float(phrase.replace(" ", "") in "".join(c for c in said.casefold() if c.isalnum()))


def test_a_counter_that_only_its_tool_turns(from_their_source):
    task = make_task("verifiers:counter_tool_v1")
    (row,) = task.rows("train", None)
    call = '<tool_call>{"name": "counter_bump", "arguments": {}}</tool_call>'
    assert task.episode(row).reply(call)[0]["content"] == "count=1"
    assert replay(task, row, [call, call, "done"]).channels == {"counted": 1.0}
    assert replay(task, row, [call, "count=2"]).channels == {"counted": 0.0}


def test_training_on_hangman(tmp_path, monkeypatch):
    """NLTK's list of words is on no package index. In its place: the words of four letters in TextArena's own dictionary."""
    dictionary = Path(find_spec("textarena").submodule_search_locations[0]) / "envs" / "utils" / "data" / "en_US.dic"
    words = [line.partition("/")[0] for line in dictionary.read_text().splitlines()[1:]]
    lists = tmp_path / "nltk" / "corpora" / "words"
    lists.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (lists / name).write_text("\n".join(word for word in words if len(word) == 4 and word.isascii() and word.isalpha()))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    moves = [f"[{letter}]" for letter in "AEILNORST"]
    model = save_words_model(tmp_path / "model", more=moves, says=moves)
    # The hint is the game's number: TextArena's data holds no answer.
    options = {"config.game": "Hangman-v0", "problems": 20, "hint_field": "info", "max_turns": 12, "max_turn_tokens": 4}
    rollouts = trained(tmp_path, "verifiers:textarena", model, **options)
    assert len({line.reward for line in rollouts}) > 2 and max(max(line.turns) for line in rollouts) > 4
    found = []
    for line in rollouts:  # the reward is the share of letters found; the last move's are not shown any more
        boards = re.findall(r"C00(?: C\d\d)*\n([^<]+)<", "".join(line.token_texts))
        cells = boards[-1].split() if boards else ["_"]
        found.append(sum(cell != "_" for cell in cells) / len(cells))
    assert max(found) > 0 and all(share <= line.reward for share, line in zip(found, rollouts, strict=True))
