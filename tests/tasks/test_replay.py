"""Worlds can be played again: the same turns, given to a fresh episode, get the same replies and the same verdict.

Rewinding (`sampling.rewind`) rests on it. Where a benchmark's data is not beside the checkout, it is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gear_rl.tasks import make_task
from gear_rl.tasks.base import Transcript

SHARED = Path(__file__).parents[3] / "shared" / "data"
WORLDS = {
    "workshop_words": (None, {}),
    "bfcl": ("bfcl_v3", {"category": "multi_turn_base"}),
    "tau_retail": ("tau_bench", {}),
    "tau_airline": ("tau_bench", {}),
    "tau2_telecom": ("tau2_bench", {}),
    "acebench": ("acebench_en", {"category": "agent_multi_step"}),
}
ROWS = 12


def play(task, row, turns: list[str]) -> tuple[list, float]:
    """The replies to `turns` in a fresh world, and the reward."""
    episode, replies, said = task.episode(row), [], []
    for turn in turns:
        said.append(turn)
        replies.append(episode.reply(turn))
        if replies[-1] is None:
            break
    return replies, task.verdict(row, Transcript("\n".join(said), said, episode)).reward


@pytest.mark.parametrize("name", WORLDS)
def test_the_same_turns_get_the_same_replies(name):
    folder, options = WORLDS[name]
    if folder is not None:
        if not (SHARED / folder).is_dir():
            pytest.skip("the benchmark's data is not beside the checkout")
        options = {**options, "data": str(SHARED / folder)}
    task = make_task(name, **options)
    several = 0
    for row in task.rows("test", ROWS):
        turns = task.reference(row)
        turns = turns if isinstance(turns, list) else [turns]
        replies, reward = play(task, row, turns)
        play(task, row, task.empty(row) if isinstance(task.empty(row), list) else [task.empty(row)])  # another in between
        assert play(task, row, turns) == (replies, reward)
        half, _ = play(task, row, turns[: len(turns) // 2])
        assert half == replies[: len(half)]
        several += len(replies) > 1
    assert several > ROWS // 2, "worlds of one turn prove nothing"
