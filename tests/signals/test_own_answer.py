"""Where a rollout's own answer stands: boxes found in text, mapped to tokens of byte-level pieces."""

from __future__ import annotations

import pytest
import torch

from gear_rl.signals.own_answer import OwnAnswer, answer_box, boxed, first_box, token_texts


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so \boxed{42}.", "42"), (r"\boxed{\frac{1}{2}} or \boxed{3}", r"\frac{1}{2}"),
        (r"\boxed{a\}b}", r"a\}b"), (r"\boxed{open and \boxed{7}", "7"), (r"\boxed{x \boxed{1}}", r"x \boxed{1}"),
        (r"} {} \boxed{5}", "5"), (r"\boxed{", None), (r"\boxed{}", None), ("boxed{3}", None), ("", None),
    ],
)  # fmt: skip
def test_the_first_complete_box(text, box):
    found = first_box(text)
    assert (found and text[found[1] : found[2]]) == box
    assert found is None or text[found[0] :].startswith("\\boxed{")


class Pieces:
    """A tokenizer of UTF-8 pieces, incomplete characters shown as the replacement character: as byte-level ones do."""

    def __init__(self, *pieces):
        self.pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
        self.ids = list(range(len(pieces)))

    def decode(self, ids):
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")


def test_tokens_of_the_box():
    euro = "€".encode()
    t = Pieces("is ", euro[:1], euro[1:], " \\box", "ed{4", "2", "}$", " done")
    assert token_texts(t, t.ids) == ["is ", "", "€", " \\box", "ed{4", "2", "}$", " done"]
    found = boxed(t, t.ids, torch.ones(8, dtype=torch.bool))
    assert found == OwnAnswer(first=3, stop=7, inner_first=4, inner_stop=6)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[:, 8:] = False
    assert answer_box([found, None], mask).tolist() == [[0, 0, 0, 2, 1, 1, 2, 2, 0, 0], [0] * 10]


def test_what_the_environment_says_is_no_answer():
    t = Pieces("look ", "\\boxed{1}", "so ", "\\boxed{", "2", "}")
    actions = torch.tensor([1, 0, 1, 1, 1, 1, 0]).bool()
    assert boxed(t, t.ids, actions) == OwnAnswer(3, 6, 4, 5)
    assert boxed(t, t.ids, torch.tensor([1, 0, 1, 1, 0, 1]).bool()) is None, "a box across turns is none"
