"""The page: one file with style, script and data inside, that fetches nothing and runs nothing but its own script.

Model output is hostile until shown otherwise. It enters as JSON and base64 in script elements that no browser executes,
with every "<" escaped, and leaves as text nodes. A content security policy is the second barrier: the one script and the
one style by their hashes, nothing from anywhere else, and no string that could become markup (Trusted Types).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from gear_rl import __version__
from gear_rl.report.collect import Collection, Entry, describe_run
from gear_rl.report.comparable import Key
from gear_rl.report.notes import Note
from gear_rl.report.packing import Blobs
from gear_rl.report.shares import most_credited

SCRIPTS = tuple(
    "dom decode text channels state filters list minimap measured card group siblings details export inspect plot "
    "training clusters shares summary notes live main".split()
)
_TO_OWN_SERVER = "connect-src 'self'; "
STYLES = ("base", "layout", "tokens", "plots", "panels")


def html_page(
    collection: Collection,
    *,
    group: Key | None = None,
    colour: str = "advantage",
    notes: Sequence[Note] = (),
    live: int = 0,
) -> str:
    """The whole file. `group`: (step, group) to open with, else the most telling one; `colour`: a colouring. `live`: the number
    of a page of `gear report --watch`, which may ask its own server for news, and for nothing else; 0: a page from disk."""
    blobs = Blobs()
    opening = group or most_telling(collection)
    for run in collection.runs:
        for entry in run.groups.get(opening, []):
            _facts(entry, [entry], blobs)  # first of all, so that they stand before the script
    early = blobs.offsets[-1]
    index = _index(collection, blobs)
    index["open"] = {"group": opening, "colour": colour}
    index["offsets"] = blobs.offsets
    index["notes"], index["live"] = [asdict(note) for note in notes], live
    style, script = _bundle(STYLES, "css"), _bundle(SCRIPTS, "js")
    names = ", ".join(run.source.name for run in collection.runs)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"{_TO_OWN_SERVER if live else ''}"
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{names} on {collection.runs[0].source.task} · gear report"),
        "style": style,
        "index": _as_inert_json(index),
        "early": blobs.text()[:early],
        "script": script,
        "blobs": blobs.text()[early:],
    }
    page = (files("gear_rl.report") / "web" / "page.html").read_text("utf-8")
    pieces = page.split("%%")  # text, name, text, name, …: so that no data can look like a place to fill
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def waiting_page(message: str) -> str:
    """What `gear report --watch` shows before there are rollouts. It loads itself again by a script: a refresh by
    the head would stay where it is if the address names a token."""
    style, script = _bundle(STYLES, "css"), "setTimeout(() => location.reload(), 1000)"
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>gear report</title><style>{style}</style></head><body><main class="still">'
        f'<h1>Waiting for rollouts</h1><p class="facts">{html.escape(message)}</p></main><script>{script}</script>'
        "</body></html>"
    )


def summary(collection: Collection) -> dict[str, Any]:
    """The aggregated data for scripts: all of the page but the tokens."""
    return {"schema": "gear_rl.report", "version": 1, **_index(collection, None)}


def most_telling(collection: Collection) -> Key:
    """The group a reader should see first: measured turns where there are some, winners and losers in equal parts, onsets, and
    a strong credit somewhere."""
    top = collection.scales["advantage"].top()

    def score(key: Key) -> float:
        entries = collection.runs[0].groups[key]
        sides = [_facts(entry, entries, None)["side"] for entry in entries]
        balance = min(sides.count(1), sides.count(-1)) / len(entries)
        onsets = sum(entry.facts["onsets"] > 0 for entry in entries) / len(entries)
        measured = any("measured" in entry.facts for entry in entries)
        return 4 * measured + 4 * balance + onsets + min(1.0, max(entry.facts["peak"] for entry in entries) / top)

    return max(collection.keys, key=score)


def _index(collection: Collection, blobs: Blobs | None) -> dict[str, Any]:
    runs = collection.runs
    texts = most_credited([run.shares for run in runs])
    alarm = {step for run in runs for step in _alarm_steps(run.source.metrics)}
    return {
        "made_by": f"gear-rl {__version__}",
        "runs": [describe_run(run, texts, collection.keys) for run in runs],
        "scales": {name: [s.top(), s.negative] for name, s in collection.scales.items()},
        "groups": [
            {
                "step": key[0],
                "group": key[1],
                "prompt": runs[0].groups[key][0].prompt,
                "prompts": len({entry.which_prompt for entry in runs[0].groups[key]}),
                "alarm": key[0] + 1 in alarm,  # sampled before the optimizer step that logged it
                "rollouts": _aligned([run.groups.get(key, []) for run in runs], blobs),
            }
            for key in collection.keys
        ],
    }


def _aligned(entries_of_run: list[list[Entry]], blobs: Blobs | None) -> list[list[dict[str, Any] | None]]:
    """Rollout → run → facts, or None where that run has fewer rollouts of this group."""
    longest = max(map(len, entries_of_run))
    return [
        [_facts(entries[i], entries, blobs) if i < len(entries) else None for entries in entries_of_run]
        for i in range(longest)
    ]


def _facts(entry: Entry, group: list[Entry], blobs: Blobs | None) -> dict[str, Any]:
    """What the page knows of a rollout. Its side: +1 a winner, −1 a loser, 0 neither, against the group's mean reward."""
    scored = [e.facts["reward"] for e in group if e.facts["reward"] is not None]
    mean = sum(scored) / max(1, len(scored))
    margin = 0.0 if entry.facts["reward"] is None else entry.facts["reward"] - mean
    side = 0 if abs(margin) <= 1e-6 * max(1.0, abs(mean)) else 1 if margin > 0 else -1
    facts = {**entry.facts, "side": side}
    if entry.blamed is not None:
        facts |= {"blamed": entry.blamed.token, "cluster": entry.blamed.cluster}
    if blobs is not None:
        if entry.verdict is not None:
            facts["verdict"] = blobs.add(entry.verdict)
        parts = (entry.prompts, entry.texts, entry.tokens, entry.signals, entry.credit)
        facts["blobs"] = [blobs.add(part) for part in parts]
    return facts


def _alarm_steps(metrics: list[dict[str, float]]) -> set[int]:
    return {int(row["step"]) for row in metrics if row.get("guards/alarm", 0) > 0}


# ---------------------------------------------------------------------------------------------------- assembling
@cache
def _bundle(names: tuple[str, ...], kind: str) -> str:
    folder = files("gear_rl.report") / "web"
    parts = [(folder / f"{name}.{kind}").read_text("utf-8") for name in names]
    # One scope for all files of the script, and none of it global.
    return "\n" + "\n".join(parts) if kind == "css" else '\n"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _hash(text: str) -> str:
    """As a browser computes it over the element's text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_inert_json(value: Any) -> str:
    """ASCII, and no "<": neither "</script" nor "<!--" can come about, whatever the strings inside say."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
