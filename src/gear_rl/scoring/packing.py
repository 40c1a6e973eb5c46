"""Many readings in one row of tokens, with every prompt in it once.

A *reading* is a prompt and what follows it, the answer. G rollouts of one prompt are G readings; so is each of them once
more behind the hinted prompt. The nodes of the prompts' tree and the answers are laid out for one forward pass of the
model's body, without padding:

    roots │ what follows root A │ what follows root B │ what follows node C │ …          (1, N)

Each segment sees its *context*, the nodes above it, and itself (`packed_attention`), at the positions it would have
alone. So a token is read once, whatever the number of rollouts that begin with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gear_rl.scoring.body import Ids
from gear_rl.scoring.prompt_tree import PromptTree


@dataclass
class KeptPrompts:
    """Prompts that were read before: the keys and values of each, one after the other, and the state at its end."""

    keys_values: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """layer → keys and values, each (tokens, heads, width)"""
    ends: Tensor | None = None
    """(prompts, D)"""


class Segment(NamedTuple):
    start: int
    """place of its first token in the row"""
    length: int
    context: int
    """number of its context, −1 where nothing stands before it"""
    position: int
    """of its first token: the length of its context"""


@dataclass(frozen=True)
class Packed:
    """Readings laid out in one row."""

    segments: list[Segment]
    contexts: list[int]
    """length of each context; segments with the same one are neighbours, and come in this order"""
    context_places: Tensor | None
    """(C,) places in the row of all contexts' tokens, one after the other; None where they are in `kept`"""
    followers: int
    """place of the first token that has a context: all after it have one too"""
    prompt_ids: Tensor
    """(A,) ids of all nodes …"""
    prompt_places: Tensor
    """(A,) … and their places in the row"""
    ends: list[int]
    """per reading: place of the last token of its prompt, or the number of its prompt in `kept`"""
    starts: list[int]
    """per reading: place of its answer's first token"""
    counts: list[int]
    """per reading: length of its answer"""
    prompts: list[tuple[int, int]]
    """per distinct prompt: its number among the contexts, and the place of its last token"""
    device: Any
    kept: KeptPrompts | None
    scratch: dict[Any, Any] = field(default_factory=dict)
    """what attention works out once for all layers"""

    @classmethod
    def of(
        cls, prompts: Sequence[list[int]], counts: list[int], device: Any, kept: KeptPrompts | None = None
    ) -> Packed:
        """Reading i is `prompts[i]` and an answer of `counts[i]` tokens. `kept` is filled, or used if it is full."""
        tree, node_of = _tree(prompts)
        read = kept is not None and kept.ends is not None
        children: dict[int, list[tuple[bool, int]]] = {}  # node → (is an answer, number)
        for node, parent in enumerate(() if read else tree.parent):
            children.setdefault(parent, []).append((False, node))
        for reading, node in enumerate(node_of):
            children.setdefault(node, []).append((True, reading))

        starts, node_starts = [0] * len(prompts), [0] * len(tree.tokens)
        segments: list[Segment] = []
        contexts: dict[int, int] = {}  # node → length of the path to it
        place = followers = 0
        for parent in sorted(children):
            position = sum(len(tree.tokens[node]) for node in tree.path(parent))
            number = len(contexts) if parent >= 0 else -1
            if parent >= 0:
                contexts[parent] = position
            for is_answer, i in children[parent]:
                length = counts[i] if is_answer else len(tree.tokens[i])
                (starts if is_answer else node_starts)[i] = place
                segments.append(Segment(place, length, number, position))
                place += length
            if parent < 0:
                followers = place
        numbers = {node: number for number, node in enumerate(contexts)}
        lasts = [start + len(tokens) - 1 for start, tokens in zip(node_starts, tree.tokens, strict=True)]
        runs = [(start, len(tokens)) for start, tokens in zip(node_starts, tree.tokens, strict=True)]
        return cls(
            segments=segments,
            contexts=list(contexts.values()),
            context_places=None if read else _runs([runs[node] for end in contexts for node in tree.path(end)]),
            followers=followers,
            prompt_ids=flat([] if read else tree.tokens),
            prompt_places=_runs([] if read else runs),
            ends=[numbers[node] if read else lasts[node] for node in node_of],
            starts=starts,
            counts=counts,
            prompts=[(numbers[node], lasts[node]) for node in sorted(set(node_of))],
            device=device,
            kept=kept,
        )

    @property
    def tokens(self) -> int:
        return sum(segment.length for segment in self.segments)

    @property
    def longest(self) -> int:
        """The longest reading, prompt and answer."""
        return max(segment.position + segment.length for segment in self.segments)

    # ------------------------------------------------------------------------------------------ in and out
    def inputs(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and positions of the row, each (1, N). `ids` (n, T) holds the answers: of reading i, row i modulo n."""
        row = torch.empty(self.tokens, dtype=torch.long, device=self.device)
        row[self.prompt_places.to(self.device)] = self.prompt_ids.to(self.device)
        answers = _runs([(i % len(ids) * ids.shape[1], count) for i, count in enumerate(self.counts)])
        places = _runs(list(zip(self.starts, self.counts, strict=True)))
        row[places.to(self.device)] = ids.flatten()[answers.to(self.device)]
        positions = _runs([(segment.position, segment.length) for segment in self.segments])
        return row[None], positions.to(self.device)[None]

    def before(self, hidden: Tensor, reading: Tensor, token: Tensor) -> Tensor:
        """`hidden` (1, N, D) of the row → the states *before* token `token[i]` of answer `reading[i]`: (M, D).

        Before the first token stands the end of the prompt, which all answers to it share.
        """
        states, offset = hidden[0], 0
        if self.kept is not None and self.context_places is None:
            assert self.kept.ends is not None
            states, offset = torch.cat([self.kept.ends, states]), len(self.kept.ends)
        elif self.kept is not None:
            self.kept.ends = states[[last for _, last in self.prompts]]
        ends, starts = torch.tensor(self.ends), torch.tensor(self.starts) + offset
        places = torch.where(token == 0, ends[reading], starts[reading] + token - 1)
        return states[places.to(self.device)]


def _tree(prompts: Sequence[list[int]]) -> tuple[PromptTree, list[int]]:
    """The tree of the distinct prompts, and for each prompt the node it ends with."""
    distinct: dict[tuple[int, ...], int] = {}
    number: dict[int, int] = {}  # a group usually repeats one list object: its tokens are compared once
    for prompt in prompts:
        if id(prompt) not in number:
            number[id(prompt)] = distinct.setdefault(tuple(prompt), len(distinct))
    tree = PromptTree.of([list(prompt) for prompt in distinct])
    return tree, [tree.ends[number[id(prompt)]] for prompt in prompts]


def _runs(runs: Sequence[tuple[int, int]]) -> Tensor:
    """(first, length) of each run → first, first + 1, … of all of them, one after the other. (N,)"""
    if not runs:
        return torch.empty(0, dtype=torch.long)
    first, length = torch.tensor(runs).unbind(1)
    before = length.cumsum(0) - length
    return torch.arange(int(length.sum())) + (first - before).repeat_interleave(length)


def flat(rows: Ids) -> Tensor:
    """All tokens, one row after the other. (N,) Through an array: a tensor of a list takes five times as long."""
    tokens = array("q")
    for row in rows:
        tokens.extend(row)
    return torch.frombuffer(tokens, dtype=torch.long) if tokens else torch.empty(0, dtype=torch.long)
