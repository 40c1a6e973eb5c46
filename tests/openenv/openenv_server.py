"""OpenEnv's own server in a thread, and the workshop as an environment for it: every session has a gauge of its own, every
right call is rewarded."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

from gear_rl.tasks.workshop.environment import WorkshopEpisode, tool_call
from gear_rl.tasks.workshop.world import Order


class Call(Action):
    tool: str
    part: str


class Gauge(Observation):
    text: str


class WorkshopServer(Environment[Call, Gauge, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, order="", **kwargs) -> Gauge:
        self.order = Order.parse(order)
        self.episode, self.done = WorkshopEpisode(self.order), 0
        return Gauge(text=order.partition(" ")[2])

    def step(self, action: Call, timeout_s=None, **kwargs) -> Gauge:
        jobs = list(zip(self.order.jobs, self.order.reference_tools, strict=True))
        right = self.done < len(jobs) and (action.tool, action.part) == (jobs[self.done][1], jobs[self.done][0][0])
        self.done += 1
        said = f"{action.tool} {action.part}"
        text = self.episode.reply(said) if tool_call(said.split()) else "no"
        return Gauge(text=text, reward=float(right) / len(jobs))

    @property
    def state(self) -> State:
        return State(step_count=self.done)


def workshop_app():
    return create_fastapi_app(WorkshopServer, Call, Gauge, max_concurrent_envs=64)


@contextmanager
def serving(app):
    """The address of `app`, served in a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
