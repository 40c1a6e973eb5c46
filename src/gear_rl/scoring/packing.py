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
from itertools import accumulate
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
    context_runs: list[list[tuple[int, int]]]
    """per context: the first and the number of its tokens, piece by piece, among the keys"""
    kept_keys: int
    """tokens whose keys are in `kept`. Among the keys they come first, before those of the row; 0: all are in the row"""
    followers: int
    """place of the first token that has a context: all after it have one too"""
    prompt_ids: Tensor
    """(A,) ids of all nodes …"""
    prompt_runs: list[tuple[int, int]]
    """… and their places in the row: the first of each node, and its length"""
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
        lengths = list(contexts.values())
        in_kept = [[(end - length, length)] for end, length in zip(accumulate(lengths), lengths, strict=True)]
        return cls(
            segments=segments,
            contexts=lengths,
            context_runs=in_kept if read else [[runs[node] for node in tree.path(end)] for end in contexts],
            kept_keys=sum(lengths) if read else 0,
            followers=followers,
            prompt_ids=flat([] if read else tree.tokens),
            prompt_runs=[] if read else runs,
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

    @property
    def keys_seen(self) -> int:
        """Tokens that all segments see, each counted as often as it is seen by another one."""
        return sum(segment.position + segment.length for segment in self.segments if segment.length)

    def seen_places(self) -> Tensor:
        """Places of those tokens among the keys, segment by segment."""
        seen: list[tuple[int, int]] = []
        for segment in self.segments:
            if segment.length:
                seen += self.context_runs[segment.context] if segment.context >= 0 else []
                seen.append((self.kept_keys + segment.start, segment.length))
        return _runs(seen, self.device)

    def context_places(self, device: Any) -> Tensor:
        """Places of all contexts' tokens among the keys, one context after the other: (C,)"""
        return _runs([run for runs in self.context_runs for run in runs], device)

    # ------------------------------------------------------------------------------------------ in and out
    def inputs(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and positions of the row, each (1, N). `ids` (n, T) holds the answers: of reading i, row i modulo n."""
        row = torch.empty(self.tokens, dtype=torch.long, device=self.device)
        row[_runs(self.prompt_runs, self.device)] = self.prompt_ids.to(self.device)
        answers = [(i % len(ids) * ids.shape[1], count) for i, count in enumerate(self.counts)]
        places = list(zip(self.starts, self.counts, strict=True))
        row[_runs(places, self.device)] = ids.flatten()[_runs(answers, self.device)]
        positions = _runs([(segment.position, segment.length) for segment in self.segments], self.device)
        return row[None], positions[None]

    def places_before(self, reading: Tensor, token: Tensor) -> Tensor:
        """Where `before` finds the state before token `token[i]` of answer `reading[i]`: (M,) of both.

        Before the first token stands the end of the prompt, which all answers to it share.
        """
        ends, starts = torch.tensor([self.ends, self.starts]).to(self.device)
        return torch.where(token == 0, ends[reading], starts[reading] + (token - 1 + self.kept_ends))

    @property
    def kept_ends(self) -> int:
        """How many states of kept prompts stand before those of the row."""
        return 0 if not self.kept_keys or self.kept is None or self.kept.ends is None else len(self.kept.ends)

    def states(self, hidden: Tensor) -> Tensor:
        """`hidden` (1, N, D) of the row → what `places_before` points into."""
        states = hidden[0]
        if self.kept is None:
            return states
        if self.kept_keys:
            assert self.kept.ends is not None
            return torch.cat([self.kept.ends, states])
        self.kept.ends = states[[last for _, last in self.prompts]]
        return states


def _tree(prompts: Sequence[list[int]]) -> tuple[PromptTree, list[int]]:
    """The tree of the distinct prompts, and for each prompt the node it ends with."""
    distinct: dict[tuple[int, ...], int] = {}
    number: dict[int, int] = {}  # a group usually repeats one list object: its tokens are compared once
    for prompt in prompts:
        if id(prompt) not in number:
            number[id(prompt)] = distinct.setdefault(tuple(prompt), len(distinct))
    tree = PromptTree.of([list(prompt) for prompt in distinct])
    return tree, [tree.ends[number[id(prompt)]] for prompt in prompts]


def _runs(runs: Sequence[tuple[int, int]], device: Any) -> Tensor:
    """(first, length) of each run → first, first + 1, … of all of them, one after the other. (N,) on `device`

    A cumulative sum of steps: 1 inside a run, a jump where one begins. `repeat_interleave` would wake torch's whole thread
    pool on a CPU, which takes milliseconds where other processes hold some of the cores.
    """
    begins, jumps, total, last = [], [], 0, 0
    for first, length in runs:
        if length:
            begins.append(total)
            jumps.append(first - last)
            total, last = total + length, first + length - 1
    steps = torch.ones(total, dtype=torch.long, device=device)
    if total:
        where, jump = torch.tensor([begins, jumps]).to(device)
        steps[where] = jump
    return steps.cumsum(0)


def flat(rows: Ids) -> Tensor:
    """All tokens, one row after the other. (N,) Through an array: a tensor of a list takes five times as long."""
    tokens = array("q")
    for row in rows:
        tokens.extend(row)
    return torch.frombuffer(tokens, dtype=torch.long) if tokens else torch.empty(0, dtype=torch.long)
