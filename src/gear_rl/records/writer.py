"""Writes the record of a run (`gear_rl.records.record`): it only grows, and a resumed run continues it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from gear_rl.assignment.credit import Credit
from gear_rl.assignment.rollouts import Rollouts
from gear_rl.errors import GearError
from gear_rl.files import Closing, LineFile
from gear_rl.records.record import SCHEMA, VERSION, read_header, read_lines
from gear_rl.records.recorded import RecordedRollout


class RecordWriter(Closing):
    """Appends to the record at `path`. A new one starts with `header`.

    An existing record is continued if its header is the same; a last line torn by a kill is dropped. `after`: so are all
    rollouts of later steps, and the record is as it stood when step `after` was done.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any], after: int | None = None) -> None:
        self.path = Path(path)
        self.file = LineFile(self.path)
        self._step, self._groups_of_step = -1, 0
        try:
            self._start_or_continue(_to_line({"schema": SCHEMA, "version": VERSION, **header}), after)
        except BaseException:
            self.file.close()
            raise

    def _start_or_continue(self, header: bytes, after: int | None) -> None:
        """Truncates nothing before the header has shown that the file is ours, and the lines up to `after` that they are
        whole. One truncation, so a kill leaves the file either as it was or as it should be."""
        with open(self.path, "rb") as file:
            first = file.readline(len(header))
            if header.startswith(first) and not first.endswith(b"\n"):  # new, or killed within the header
                self.file.truncate(0)
                self.file.append(header)
                return
            file.seek(0)
            found, wanted = read_header(self.path, file), json.loads(header)
            if found != wanted:
                differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
                raise GearError(f"{self.path} is the record of another run: its {', '.join(differing)} differ.")
            if after is not None:
                self.file.truncate(self._end_of_step(after, file))
                return
        self.file.drop_torn_line()

    def _end_of_step(self, step: int, file: BinaryIO) -> int:
        """Where rollouts of later steps, or a torn last line, begin. `file` stands after the header."""
        end = file.tell()
        for rollout in read_lines(self.path, file, tolerate_torn_end=True):
            if rollout["step"] > step:
                break
            if rollout["step"] != self._step:
                self._step, self._groups_of_step = rollout["step"], 0
            self._groups_of_step = max(self._groups_of_step, rollout["group"] + 1)
            end = file.tell()
        return end

    def write(
        self,
        *,
        step: int,
        rollouts: Rollouts,
        credit: Credit,
        prompts: Sequence[str],
        hinted_prompts: Sequence[str | None] | None,
        token_texts: Sequence[Sequence[str]],
        successes: Sequence[bool | None] | None = None,
        verdicts: Sequence[dict[str, Any] | None] | None = None,
        problems: Sequence[str | None] | None = None,
    ) -> None:
        """Append a batch of B rollouts. `token_texts[i]` has a text per token of completion i; what follows in the
        (B, T) tensors is padding. `verdicts`: see `RecordedRollout.verdict`. All of it is written, or none."""
        if step != self._step:
            self._step, self._groups_of_step = step, 0
        # An engine may sample several batches within one step, and number the groups of each from 0.
        groups = [group + self._groups_of_step for group in rollouts.group_ids.tolist()]
        if len(token_texts) != len(groups):
            raise GearError(f"{len(groups)} rollouts, but token texts of {len(token_texts)}.")
        lists = _as_lists(rollouts, credit)
        lines = []
        for i, texts in enumerate(token_texts):
            n = len(texts)
            mask = lists["action_mask"][i]
            if any(mask[n:]):
                raise GearError(f"rollout {i} has {n} token texts, but action tokens beyond position {n - 1}.")
            signals = {
                name: [_short(x) if sampled else None for x, sampled in zip(rows[i][:n], mask[:n], strict=True)]
                for name, rows in lists["signals"].items()
            }
            line = RecordedRollout(
                step=step,
                group=groups[i],
                reward=_short(float(rollouts.rewards[i])) if rollouts.scorable[i] else None,
                success=None if successes is None else successes[i],
                group_advantage=None if rollouts.advantages is None else _short(float(rollouts.advantages[i])),
                prompt=prompts[i],
                hinted_prompt=None if hinted_prompts is None else hinted_prompts[i],
                token_ids=lists["token_ids"][i][:n],
                token_texts=list(texts),
                action_mask=mask[:n],
                turns=lists["turns"][i][:n],
                signals=signals,
                segments=lists["segments"][i][:n],
                onsets=lists["onsets"][i][:n],
                weights=[_short(x) for x in lists["weights"][i][:n]],
                advantages=[_short(x) for x in lists["advantages"][i][:n]],
                trained=rollouts.trained is None or bool(rollouts.trained[i]),
                verdict=verdicts[i] if verdicts is not None else None,
                problem=None if problems is None else problems[i],
            )
            lines.append(_to_line({k: v for k, v in vars(line).items() if k != "verdict" or v is not None}))
        self.file.append(b"".join(lines))
        self._groups_of_step = max(groups) + 1

    def close(self) -> None:
        self.file.close()


def _as_lists(rollouts: Rollouts, credit: Credit) -> dict[str, Any]:
    """All (B, T) tensors as nested lists, one transfer each."""
    if rollouts.token_ids is None:
        raise GearError("a record needs the tokens themselves: Rollouts(token_ids=...).")
    return {
        "token_ids": rollouts.token_ids.tolist(),
        "action_mask": rollouts.action_mask.long().tolist(),
        "turns": rollouts.actions.unpack(rollouts.actions.turn_starts.cumsum(1)).tolist(),
        "signals": {name: signal.tolist() for name, signal in rollouts.signals.items()},
        "segments": credit.segments.tolist(),
        "onsets": credit.onsets.long().tolist(),
        "weights": credit.weights.tolist(),
        "advantages": credit.advantages.tolist(),
    }


def _short(x: float) -> float:
    """Six significant digits: float32 has little more, and the file is half as long."""
    return float(f"{x:.6g}")


def _to_line(content: Mapping[str, Any]) -> bytes:
    # ASCII escapes, because model output may have lone surrogates and Unicode line ends. NaN is not JSON and raises.
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
