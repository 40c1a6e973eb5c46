"""verifiers' own reader and writer against ours."""

from __future__ import annotations

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import WireEpisode
from verifiers.v1.state import State
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import Trace
from verifiers.v1.utils.trace_store import read_episodes, write_episode
from verifiers_samples import played_traces

from gear_rl.cli.main import main
from gear_rl.records.verifiers_traces import read_verifiers_traces
from gear_rl.tasks import make_task

ANY_TRACE = Trace[WireTaskData, State, WireAgentConfig]


def test_what_verifiers_writes_is_read_and_what_we_fill_verifiers_reads(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    for episode in played_traces()[3]:
        write_episode(folder, WireEpisode.model_validate(episode))
    before = (folder / "traces.jsonl").read_bytes()
    task = make_task("workshop", steps=4)
    template = ["--hint-template", task.hint_template]
    assert main(["credit", str(folder), "--credit", "gear", "--model", task.default_model(), *template]) == 0
    (folder / "traces.gear.jsonl").rename(folder / "traces.jsonl")
    episodes = read_episodes(folder, ANY_TRACE)
    for theirs, ours in zip(episodes, read_verifiers_traces(folder / "traces.jsonl"), strict=True):
        (branch,) = theirs.traces[0].branches
        assert branch.advantages == ours.branches[0].advantages and branch.token_ids == ours.branches[0].token_ids
        assert theirs.traces[0].reward == ours.reward
        for node in theirs.traces[0].nodes:
            assert (node.advantages is not None) == node.sampled
            node.advantages = None
    again = tmp_path / "again"
    again.mkdir()
    for episode in episodes:
        write_episode(again, episode)
    assert (again / "traces.jsonl").read_bytes() == before
