"""Traces of verifiers (PrimeIntellect): read, and written again with advantages. Plain JSON; the package is not needed.

A line of `traces.jsonl` is an episode with its `traces`, or one trace. A trace is a graph of messages, its `nodes`, each with
the tokens that it adds:

    parent                node before it; none: a root
    token_ids, mask       its tokens, and which of them the model sampled
    logprobs, advantages  one number per sampled token
    message               role, content, tool calls

A path from a root to a leaf is a branch: what one training sample is made of. Tested with verifiers 0.4 (trace version 1).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from gear_rl.errors import GearError
from gear_rl.files import kind_of, parse_json
from gear_rl.records.json_splice import Spliced
from gear_rl.records.recorded import are_counts

VERSION = 1
LONGEST_LINE = 256 * 2**20
MOST_TOKENS = 2**24
"""Of all branches of one trace: branches share nodes, and a hostile file could make few nodes into many tokens."""


@dataclass(frozen=True)
class VerifiersBranch:
    """A path of messages."""

    nodes: list[int]
    """Its messages as positions in the trace's nodes, from the root."""
    messages: list[dict[str, Any]]
    """As they are in the file. Untrusted."""
    masks: list[list[int]]
    """Per message, per token of it: 1 where the model sampled it."""
    token_ids: list[int]
    """Of all messages, one after the other."""
    advantages: list[float] | None
    """Per token: 0 where nothing was sampled. None: no message of the branch has any."""
    trainable: bool
    """False: an attempt at compaction that the harness did not go on from."""

    @cached_property
    def action_mask(self) -> list[int]:
        """Per token: 1 where the model sampled it."""
        return [x for mask in self.masks for x in mask]

    @property
    def first_sampled(self) -> int:
        """The first message with a sampled token; their number, where there is none."""
        return next((i for i, mask in enumerate(self.masks) if 1 in mask), len(self.masks))

    @property
    def prompt_length(self) -> int:
        """Tokens before the first sampled one; all, where none was."""
        mask = self.action_mask
        return mask.index(1) if 1 in mask else len(mask)


@dataclass(frozen=True)
class VerifiersTrace:
    line: str
    """File and line, for messages to the user."""
    offset: int
    """Of its line, in bytes."""
    index: int
    """Its place in the line's traces."""
    id: str
    group: str
    """Traces of one group are attempts at the same task by the same agent."""
    trainable: bool
    """Whether its agent is the policy in training. A judge's is not."""
    ok: bool
    reward: float | None
    """The weighted sum of `channels`. None: not scored."""
    channels: dict[str, float]
    """The parts of the reward by name, weighted, so that they add up."""
    data: dict[str, Any]
    """The task's row: prompt, answer and whatever else it has."""
    tools: list[dict[str, Any]]
    branches: list[VerifiersBranch]

    @property
    def where(self) -> str:
        return f"{self.line}, trace {self.index}"


def is_verifiers_traces(path: Path) -> bool:
    """Whether the first line of `path` is an episode or a trace."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        first = file.readline(LONGEST_LINE)
    try:
        row = parse_json(first, str(path))
    except GearError:
        return False
    return isinstance(row, dict) and (isinstance(row.get("traces"), list) or _is_trace(row))


def read_verifiers_traces(path: str | Path) -> Iterator[VerifiersTrace]:
    """The traces of `path`, a line at a time, every field checked."""
    with _opened(Path(path)) as file:
        for line, where, offset in raw_lines(file, path):
            if line.strip():
                yield from traces_of(line, where, offset)


def raw_lines(file: BinaryIO, path: str | Path) -> Iterator[tuple[bytes, str, int]]:
    """(line, where it stands for messages, its offset in bytes) of a file."""
    for number in count(1):
        offset, where = file.tell(), f"{path}, line {number}"
        line = file.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise GearError(f"{where}: longer than {LONGEST_LINE >> 20} MiB.")
        if not line:
            return
        yield line, where, offset


def traces_of(line: bytes, where: str, offset: int) -> list[VerifiersTrace]:
    """The traces of one line."""
    row = parse_json(line, where)
    if not isinstance(row, dict) or not (isinstance(row.get("traces"), list) or _is_trace(row)):
        raise GearError(f"{where}: neither an episode of verifiers with traces, nor a trace with nodes.")
    if _is_trace(row):
        return [_trace(row, {}, where, offset, 0)]
    return [_trace(trace, row, where, offset, i) for i, trace in enumerate(row["traces"])]


Fills = Mapping[tuple[int, int], Sequence[float]]
"""(trace, node) of a line → a number per sampled token."""


def filled(line: bytes, fills: Fills) -> bytes:
    """`line` with advantages in some of its nodes, and otherwise byte for byte as it was."""
    text = Spliced(line.decode())

    def nodes(trace: int, at: int) -> int:
        def node(number: int, start: int) -> int:
            members, end = text.members(start, {})
            if (trace, number) in fills:
                text.put(members, "advantages", list(fills[trace, number]), after="logprobs")
            return end

        return text.elements(at, node)

    def of_trace(trace: int, start: int) -> int:
        return text.members(start, {"nodes": lambda at: nodes(trace, at)})[1]

    inside = {"traces": lambda at: text.elements(at, of_trace), "nodes": lambda at: nodes(0, at)}
    text.members(text.text.index("{"), inside)
    return text.result().encode()


# ---------------------------------------------------------------------------------------------------- checks
def _opened(path: Path) -> BinaryIO:
    if not path.is_file():
        raise GearError(f"there is no file {path}.")
    return open(path, "rb")


def _is_trace(row: dict[str, Any]) -> bool:
    return isinstance(row.get("nodes"), list) and isinstance(row.get("task"), dict)


def _trace(row: Any, episode: dict[str, Any], line: str, offset: int, index: int) -> VerifiersTrace:
    where = f"{line}, trace {index}"
    if not isinstance(row, dict) or not _is_trace(row):
        raise GearError(f"{where}: a trace must have a task and nodes.")
    if (version := row.get("version", VERSION)) != VERSION:
        raise GearError(f"{where}: trace version {str(version)[:20]}; this gear_rl reads version {VERSION}.")
    data, agent = row["task"].get("data"), _part(row, "agent")
    if not isinstance(data, dict):
        raise GearError(f"{where}: its task has no data.")
    channels = _channels(row.get("rewards") or {}, where)
    return VerifiersTrace(
        line=line,
        offset=offset,
        index=index,
        id=str(row.get("id", "")),
        group=_group(row["task"], episode, str(agent.get("name", ""))),
        trainable=agent.get("trainable", True) is not False,
        ok=row.get("ok") is True,
        reward=sum(channels.values()) if channels else None,
        channels=channels,
        data=data,
        tools=[tool for tool in row.get("tools") or [] if isinstance(tool, dict)],
        branches=_branches(row["nodes"], where),
    )


def _part(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return part if isinstance(part := row.get(name), dict) else {}


def _group(task: dict[str, Any], episode: dict[str, Any], agent: str) -> str:
    """What the consumer called the group; else the task itself, in the training step that it was played in."""
    given = _part(episode, "group").get("id")
    work = _part(_part(episode, "run"), "work")
    key = given or task.get("key") or task.get("hash")
    if not isinstance(key, str):
        key = hashlib.sha256(json.dumps(task["data"], sort_keys=True).encode()).hexdigest()
    return json.dumps([key, None if given else work.get("step"), agent])


def _channels(rewards: Any, where: str) -> dict[str, float]:
    if not isinstance(rewards, dict):
        raise GearError(f"{where}: rewards must be an object, not {kind_of(rewards)}.")
    channels = {}
    for name, reward in rewards.items():
        if reward is None:  # scoring did not get there
            continue
        score, weight = (reward.get("score"), reward.get("weight", 1.0)) if isinstance(reward, dict) else (None, None)
        value = score * weight if type(score) in (int, float) and type(weight) in (int, float) else math.nan  # type: ignore[operator]
        if not math.isfinite(value):
            raise GearError(f"{where}: reward {name[:40]!r} must have a score and a weight, both finite numbers.")
        channels[name] = float(value)
    return channels


def _branches(nodes: list[Any], where: str) -> list[VerifiersBranch]:
    for i, node in enumerate(nodes):
        _check_node(node, i, f"{where}, node {i}")
    links = [[link for link in node.get("semantic_parents") or [] if isinstance(link, dict)] for node in nodes]
    resumed = {link.get("node") for of in links for link in of if link.get("type") == "compaction"}
    parents = {node.get("parent") for node in nodes}
    branches, left = [], MOST_TOKENS
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path = [leaf]
        while (parent := nodes[path[-1]].get("parent")) is not None:
            path.append(parent)
            left -= 1
        path.reverse()
        left -= sum(len(nodes[i].get("token_ids") or ()) for i in path)
        if left < 0:
            raise GearError(f"{where}: its branches hold more than {MOST_TOKENS} tokens.")
        attempted = any(link.get("type") == "compaction_attempt" for link in links[leaf])
        branches.append(_branch(nodes, path, not attempted or leaf in resumed))
    return branches


def _branch(nodes: list[Any], path: list[int], trainable: bool) -> VerifiersBranch:
    ids: list[int] = []
    masks: list[list[int]] = []
    credit: list[float] = []
    for i in path:
        masks.append([int(x) for x in nodes[i].get("mask") or ()])
        values = iter(nodes[i].get("advantages") or ())
        ids += nodes[i].get("token_ids") or ()
        credit += [next(values, 0.0) if sampled else 0.0 for sampled in masks[-1]]
    assigned = any(nodes[i].get("advantages") is not None for i in path)
    messages = [nodes[i]["message"] for i in path]
    return VerifiersBranch(path, messages, masks, ids, credit if assigned else None, trainable)


def _check_node(node: Any, i: int, where: str) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("message"), dict):
        raise GearError(f"{where}: must be an object with a message.")
    parent = node.get("parent")
    if parent is not None and not (type(parent) is int and 0 <= parent < i):
        raise GearError(f"{where}: its parent must be a node before it, not {str(parent)[:20]}.")
    ids, mask = node.get("token_ids") or [], node.get("mask") or []
    if not isinstance(ids, list) or not are_counts(ids):
        raise GearError(f"{where}: token_ids must be whole numbers from 0.")
    if not isinstance(mask, list) or len(mask) != len(ids) or not all(isinstance(x, bool) for x in mask):
        raise GearError(f"{where}: mask must have true or false for each of its {len(ids)} token_ids.")
    for name in ("logprobs", "advantages"):
        values = node.get(name) or []
        numbers = isinstance(values, list) and all(type(x) in (int, float) and math.isfinite(x) for x in values)
        if not numbers or len(values) not in (0, sum(mask)):
            raise GearError(f"{where}: {name} must be a finite number for each of its {sum(mask)} sampled tokens.")
