"""Two tasks of your own: one question and one answer, and one with a world that answers back.

gear eval --check examples.custom_task:Doubling
gear eval --check examples.custom_task:Guess
gear train --task examples.custom_task:Guess --model MODEL --set task.highest=30
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gear_rl.tasks import Row, SingleTurn, Task, Transcript, Verdict, choose


@dataclass
class Doubling(SingleTurn):
    """Options are dataclass fields: --set task.most=50."""

    most: int = 100

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        mine = [n for n in range(self.most) if (n % 5 == 0) == (split == "test")]  # a fifth is kept from training
        rows = [
            {"prompt": [{"role": "user", "content": f"What is {n} doubled?"}], "id": str(n), "hint": str(2 * n)}
            for n in mine
        ]
        return choose(rows, split, count, seed)

    def judge(self, row: Row, completion: str) -> Verdict:
        right = completion.strip() == row["hint"]
        return Verdict(reward=float(right), success=right)

    def reference(self, row: Row) -> str:
        return row["hint"]


class Game:
    """One rollout's world: it thinks of a number and says higher or lower."""

    def __init__(self, secret: int) -> None:
        self.secret, self.guesses = secret, list[int | None]()

    def reply(self, turn: str) -> str | None:
        guess = int(turn.strip()) if turn.strip().isdecimal() and len(turn) < 20 else None  # a model may write anything
        self.guesses.append(guess)
        if guess is None:
            return "that is no number"
        if guess == self.secret:
            return None  # the episode is over
        return "higher" if guess < self.secret else "lower"


@dataclass
class Guess(Task):
    """Find a number between 1 and `highest`; sooner is better."""

    name: ClassVar[str] = "guess"
    summary: ClassVar[str] = "find a number by asking"

    highest: int = 20
    max_turns: int = 8
    max_turn_tokens: int = 8

    def rows(self, split: str, count: int | None, seed: int = 0) -> list[Row]:
        ask = f"I think of a number between 1 and {self.highest}. Answer with your guess, a number and nothing else."
        secrets = [n for n in range(1, self.highest + 1) if (n % 4 == 0) == (split == "test")]
        rows = [{"prompt": [{"role": "user", "content": ask}], "id": str(n), "hint": f"It is {n}."} for n in secrets]
        return choose(rows, split, count, seed)

    def episode(self, row: Row) -> Game:
        return Game(int(row["id"]))

    def verdict(self, row: Row, transcript: Transcript) -> Verdict:
        game = transcript.episode
        assert isinstance(game, Game)
        found = game.secret in game.guesses
        reward = 1.0 - (len(game.guesses) - 1) / self.max_turns if found else 0.0
        return Verdict(reward, found, malformed=game.guesses.count(None), channels={"found": float(found)})

    def reference(self, row: Row) -> list[str]:
        """The policy's turns, played against a fresh world: halving the range until it is found."""
        low, high, game, turns = 1, self.highest, Game(int(row["id"])), list[str]()
        while True:
            turns.append(str((low + high) // 2))
            answer = game.reply(turns[-1])
            if answer is None:
                return turns
            low, high = (int(turns[-1]) + 1, high) if answer == "higher" else (low, int(turns[-1]) - 1)
