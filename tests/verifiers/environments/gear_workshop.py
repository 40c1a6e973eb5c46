"""The workshop as an environment of verifiers: it leads the exchange, and answers each tool of the policy with the gauge."""

from collections.abc import Iterator

import verifiers.v1 as vf

from gear_rl.tasks import make_task, replay

WORKSHOP = make_task("workshop", steps=4)


class OrderData(vf.TaskData):
    row: dict
    answer: str


class OrderTask(vf.Task[OrderData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        said = [message.content for message in trace.assistant_messages]
        return replay(WORKSHOP, self.data.row, said).reward

    @vf.reward(weight=0.0)
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class WorkshopConfig(vf.EnvConfig):
    mechanic: vf.AgentConfig = vf.AgentConfig()


class WorkshopEnv(vf.Env[WorkshopConfig]):
    async def run(self, task: OrderTask, agents: vf.Agents) -> None:
        world = WORKSHOP.episode(task.data.row)
        async with agents.mechanic.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated and (reply := world.reply(segment.last_reply)) is not None:
                segment = await interaction.turn([{"role": "tool", "tool_call_id": "0", "content": reply}])


class Orders(vf.Taskset[OrderTask, vf.TasksetConfig]):
    def load(self) -> Iterator[OrderTask]:
        for row in WORKSHOP.rows("train", 40):
            yield OrderTask(OrderData(prompt=row["order"], row=row, answer=row["hint"]), self.config.task)


__all__ = ["Orders", "WorkshopEnv"]
