"""A taskset of verifiers: one sum, one answer, two rewards."""

from collections.abc import Iterator

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumConfig(vf.TasksetConfig):
    largest: int = 5


class SumTask(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.split()[-1:] == [self.data.answer])

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 20)


class Sums(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> Iterator[SumTask]:
        for a in range(1, self.config.largest + 1):
            for b in range(1, self.config.largest + 1):
                yield SumTask(SumData(prompt=f"{a} + {b} =", system_prompt="Add.", answer=str(a + b)), self.config.task)


__all__ = ["Sums"]
