"""A taskset of verifiers with tools and a state: open drawers until the key is found, then say where it was."""

from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field

DRAWERS = ("top", "middle", "bottom")


class DrawerState(vf.State):
    opened: list[str] = Field(default_factory=list)


class DrawerData(vf.TaskData):
    answer: str


class Drawers(vf.Toolset[vf.ToolsetConfig, DrawerState]):
    async def setup_task(self, task: DrawerData) -> None:
        self.key = task.answer

    @vf.tool
    async def open(self, drawer: str) -> str:
        """Open a drawer.

        Args:
            drawer: top, middle or bottom
        """
        if drawer not in DRAWERS:
            raise ValueError(f"there is no drawer {drawer}")
        self.state.opened.append(drawer)
        return "the key" if drawer == self.key else f"nothing ({len(self.state.opened)} opened)"


class DrawerTask(vf.Task[DrawerData, DrawerState]):
    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset]:
        return [Drawers(vf.ToolsetConfig())]

    @vf.stop
    async def all_opened(self, trace: vf.Trace) -> bool:
        return len(trace.state.opened) >= len(DRAWERS)

    @vf.reward
    async def found(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=-0.1)
    async def opened(self, trace: vf.Trace) -> float:
        return float(len(trace.state.opened))


class DrawerTaskset(vf.Taskset[DrawerTask, vf.TasksetConfig]):
    def load(self) -> Iterator[DrawerTask]:
        for drawer in DRAWERS:
            yield DrawerTask(DrawerData(prompt=f"Find the key {drawer[0]}.", answer=drawer), self.config.task)


__all__ = ["DrawerTaskset"]
