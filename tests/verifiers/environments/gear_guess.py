"""An environment of verifiers that leads the exchange itself: guess a number, be told higher or lower."""

from collections.abc import Iterator

import verifiers.v1 as vf


class GuessData(vf.TaskData):
    answer: str


class GuessTask(vf.Task[GuessData]):
    pass


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task: GuessTask, agents: vf.Agents) -> None:
        secret, guesses, right = int(task.data.answer), 0, False
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn("guess a number from 1 to 8")
            while not segment.terminated and not right:
                guesses += 1
                said = segment.last_reply.split()[-1:]
                guess = int(said[0]) if said and said[0].isdecimal() else 0
                right = guess == secret
                if not right:
                    segment = await interaction.turn("higher" if guess < secret else "lower")
        interaction.trace.record_reward("right", float(right))
        interaction.trace.record_reward("quick", 1 / guesses if guesses else 0.0, 0.1)


class Guesses(vf.Taskset[GuessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self) -> Iterator[GuessTask]:
        number = 0
        while True:
            yield GuessTask(GuessData(prompt=None, system_prompt=f"Game {number}.", answer=str(number % 8 + 1)))
            number += 1


__all__ = ["GuessEnv", "Guesses"]
