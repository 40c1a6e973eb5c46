"""Prompts as a tree, cut where they part: what several begin with is in it once.

The prompts of a batch begin alike more often than not: a hinted prompt is the prompt itself up to the hint, and an agent's
prompts share their instructions and tool schemas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gear_rl.scoring.body import Ids

LEAST_SHARED = 16
"""Prompts that begin alike for fewer tokens are not cut: a short segment costs the attention as much as a longer one."""


@dataclass
class PromptTree:
    """Distinct prompts. A node comes after its parent, and holds what its parent does not."""

    tokens: Ids = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    """−1 for a root"""
    ends: list[int] = field(default_factory=list)
    """per prompt: the node it ends with"""

    @classmethod
    def of(cls, prompts: Ids) -> PromptTree:
        tree = cls(ends=[-1] * len(prompts))
        if prompts:
            tree._grow(prompts, sorted(range(len(prompts)), key=prompts.__getitem__), -1, 0)
        return tree

    def _grow(self, prompts: Ids, among: list[int], parent: int, begin: int) -> None:
        """Hang the prompts `among`, in order and alike up to `begin`, below `parent`, which holds all up to there."""
        common = _alike(prompts[among[0]], prompts[among[-1]])  # in order: those between are alike as far, too
        if len(among) == 1 or common - begin >= LEAST_SHARED:
            self.tokens.append(prompts[among[0]][begin:common])
            self.parent.append(parent)
            parent, begin = len(self.tokens) - 1, common
            if len(prompts[among[0]]) == common:  # distinct and in order: only the first can end here
                self.ends[among[0]] = parent
                among = among[1:]
        while among:
            together = 1
            if len(prompts[among[0]]) > common:
                token = prompts[among[0]][common]
                together = sum(prompts[i][common] == token for i in among)
            self._grow(prompts, among[:together], parent, begin)
            among = among[together:]

    def path(self, node: int) -> list[int]:
        """From the root to `node`."""
        nodes: list[int] = []
        while node >= 0:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]


def _alike(one: list[int], other: list[int]) -> int:
    """How many tokens two prompts begin with alike."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
