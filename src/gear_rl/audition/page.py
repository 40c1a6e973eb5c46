"""An audition as one self-contained HTML page: the four questions, drawn. No script, no network."""

from __future__ import annotations

from html import escape
from typing import Any

from gear_rl.audition.text import rounded

STYLE = """
:root { color-scheme: light dark; --paper: #fcfbf9; --sheet: #fff; --ink: #22252a; --soft: #6a6f78; --hair: #e3e0da;
  --plus: #1f6cb0; --minus: #c2560a; --more: #6a4fa5 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --sheet: #1d2024; --ink: #e7e4de; --soft: #989da6; --hair: #33373d; --plus: #6db2f2;
    --minus: #f39a50; --more: #b8a0f3 }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 1.6rem 1.4rem 3rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Inter, Roboto, Arial, sans-serif;
  font-variant-numeric: tabular-nums }
h1 { font-size: 26px; line-height: 1.2; letter-spacing: -.015em; font-weight: 600; margin: 0 }
h2 { font-size: 17px; font-weight: 600; margin: 2rem 0 .6rem; padding-top: 1.3rem; border-top: 1px solid var(--hair) }
p { margin: .3rem 0; max-width: 75ch } .soft, small, dt { color: var(--soft) } small { font-size: 12.5px }
ol.advice { padding-left: 1.3rem; margin: 1rem 0 0; max-width: 75ch } ol.advice li { margin: .35rem 0 }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: .9rem 1.6rem; margin: 0 }
dl div { min-width: 0 } dt { font-size: 13px } dd { margin: 0; font-size: 21px; font-weight: 600; line-height: 1.3 }
dd small { display: block; font-weight: 400; line-height: 1.35 }
.rows { display: grid; grid-template-columns: max-content minmax(8rem, 1fr) max-content; gap: 0 1.1rem; align-items: center }
.row { display: contents } .row > * { padding: .28rem 0; min-width: 0 } .head { color: var(--soft); font-size: 12.5px }
.name { overflow-wrap: anywhere } .number { text-align: right; white-space: nowrap }
.number small { margin-left: .4rem } svg { width: 100%; height: 1.5rem; display: block; overflow: visible }
.cost { grid-template-columns: max-content minmax(6rem, 1fr) repeat(3, max-content) }
.cost.two { grid-template-columns: max-content minmax(6rem, 1fr) repeat(2, max-content) }
.scale { display: flex; justify-content: space-between; font-size: 12px; color: var(--soft) }
.left { margin-top: .8rem }
@media (max-width: 620px) {
  body { padding: 1rem .9rem 2rem } dl { grid-template-columns: 1fr 1fr }
  .rows:not(.cost) { display: block }
  .rows:not(.cost) .row { display: grid; grid-template-columns: minmax(0, 1fr) max-content; padding: .3rem 0 }
  .rows:not(.cost) .row > * { padding: 0 } .rows:not(.cost) .plot { grid-column: 1 / -1; grid-row: 2 }
  .cost { grid-template-columns: minmax(0, 1fr) repeat(3, max-content) } .cost .plot { display: none }
  .cost.two { grid-template-columns: minmax(0, 1fr) repeat(2, max-content) }
}
"""
WIDTH, MIDDLE = 1000, 12
"""Of a drawing, in its own units; its width on the page is what there is."""


def html(found: dict[str, Any]) -> str:
    task, outcome = escape(found["task"]), found["outcome"]
    many = f"{found['prompts']} prompts, {found['group']} rollouts each, {found['continuations']} continuations"
    advice = "".join(f"<li>{escape(said)}</li>" for said in found["advice"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        f'<link rel="icon" href="data:,"><title>{task} · gear audition</title><style>{STYLE}</style></head><body>'
        f'<h1>Before training on {task}</h1><p class="soft">{many}. Intervals are of 95 %.</p>'
        f'<ol class="advice">{advice}</ol>'
        f"<h2>Is there anything to gain?</h2>{_gains(found, outcome)}"
        f"<h2>Is the hint any good?</h2>{_hints(found)}"
        f"<h2>Whose credit agrees with what each {found['points'][:-1]} did to the outcome?</h2>{_agreement(found)}"
        f"<h2>What is its credit made of?</h2>{_contents(found)}"
        f"<h2>What would it cost?</h2>{_cost(found)}</body></html>\n"
    )


def _gains(found: dict[str, Any], outcome: dict[str, Any]) -> str:
    lucky, (low, high) = found["lucky_wins"], outcome["reward_interval"]
    labels = lucky.get("labels")
    known = f"; the task knows of {labels['lucky']}" if labels else ""
    figures = [
        ("reward", f"{outcome['reward']:.3f}", f"{low:.3f} to {high:.3f}; success {_percent(outcome['success'])}"),
        ("mixed groups", _percent(outcome["mixed_groups"]), "have different rewards; the others teach nothing"),
        (
            f"decisive {found['points']}",
            f"{outcome['clear_turns']} of {outcome['measured_turns']}",
            f"clearly moved the outcome; the top tenth made {_percent(outcome['top_tenth'])} of all that was moved",
        ),
        (
            "lucky wins",
            f"{lucky['lucky']} of {lucky['won']}",
            f"wins whose measured value had collapsed on the way{known}",
        ),
        *_known(found),
        ("a rollout has", f"{outcome['turns']:.1f} turns", f"{outcome['action_tokens']:.0f} tokens of the policy"),
    ]
    return _figures(figures)


def _known(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    if (known := found["wrong_turns"]) is None:
        return []
    both = f"{known['wrong']} wrong ones, which the task knows, told from {known['right']} right ones"
    said = f"{_between(known['interval'], 2)}: {both}"
    return [(f"AUC of measured {found['points']}", f"{known['auc']:.2f}", said)]


def _hints(found: dict[str, Any]) -> str:
    if found["hint"] is None:
        return '<p class="soft">There is none.</p>'
    several = [found["hint"], *found["other_hints"]]
    plain = found["outcome"]["reward"]
    top = max(1e-9, plain, *(hint["reward_interval"][1] for hint in several))
    bottom = min(0.0, plain, *(hint["reward_interval"][0] for hint in several))
    reach = max(0.05, *(abs(end) for hint in several for end in hint["trust_interval"]))
    rows = "".join(
        _row(
            _form(hint),
            _interval(hint["reward"], hint["reward_interval"], bottom, top, mark=plain),
            _signed(hint["reward"], 3),
            _between(hint["reward_interval"], 3),
        )
        for hint in several
    )
    copied = "; ".join(
        f"{_form(hint)} {_percent(hint['copied_with_it'])} with it, {_percent(hint['copied'])} without" for hint in several
    )
    trust = "".join(
        _row(
            _form(hint),
            _interval(hint["trust"], hint["trust_interval"], -reach, reach, mark=0.0),
            _signed(hint["trust"], 3),
            _between(hint["trust_interval"], 3),
        )
        for hint in several
    )
    return (
        f'<p>Reward with the hint, against {plain:.3f} without it (the thin line).</p><div class="rows">{rows}</div>'
        f'<p style="margin-top:1rem">Trust: does following the hinted self go with winning, within groups? 0 is no '
        f'relation.</p><div class="rows">{trust}</div>'
        f'<p class="soft">Tokens that are copied from it: {escape(copied)}.</p>'
    )


def _form(hint: dict[str, Any]) -> str:
    return "hint" if hint["form"] is None else f"form {hint['form']}"


def _agreement(found: dict[str, Any]) -> str:
    rows = found["methods"]
    ends = [end for row in rows for end in row["interval"]]
    low, high = min(-0.1, *ends), max(0.1, *ends)
    drawn = "".join(
        _row(row["method"], _interval(row["agreement"], row["interval"], low, high, mark=0.0),
             _signed(row["agreement"]), _between(row["interval"], 2))
        for row in rows
    )  # fmt: skip
    left = ""
    for why in dict.fromkeys(found["left_out"].values()):
        names = ", ".join(name for name, given in found["left_out"].items() if given == why)
        left += f'<p class="soft left">Left out: {escape(names)}: {escape(why)}</p>'
    return (
        "<p>Correlation of the method's credit with the measured advantage, each less its mean over the rollout. GRPO has 0: "
        f'it gives all {found["points"]} the same.</p><div class="rows">{drawn}'
        f'<div class="row"><span class="name"></span><span class="scale plot"><span>{_signed(low)}</span>'
        f'<span>{_signed(high)}</span></span><span class="number"></span></div></div>{left}'
    )


def _contents(found: dict[str, Any]) -> str:
    drawn = "".join(
        f'<div class="row"><span class="name">{escape(row["method"])}</span>'
        f'<span class="plot">{_bar(row["finds"] or 0.0)}</span>'
        + "".join(f'<span class="number">{figure}</span>' for figure in _figures_of(row))
        + "</div>"
        for row in found["methods"]
    )
    return (
        f"<p>Finds: of lost rollouts whose first wrong decision the task knows, those in which its {found['points'][:-1]} is "
        "blamed most (the bar). Style: the share of the redistribution that another problem's hint gives as well. Tokens: the "
        'effective number that share a rollout\'s credit.</p><div class="rows cost"><div class="row">'
        '<span class="head">method</span><span class="head plot"></span><span class="head number">finds</span>'
        '<span class="head number">style</span>'
        f'<span class="head number">tokens</span></div>{drawn}</div>'
    )


def _figures_of(row: dict[str, Any]) -> list[str]:
    shares = ("–" if row[key] is None else _percent(row[key]) for key in ("finds", "style"))
    return [*shares, f"{row['tokens']:.1f}"]


def _cost(found: dict[str, Any]) -> str:
    rows = sorted(found["methods"], key=lambda row: row["seconds"])
    slowest = max(1e-9, *(row["seconds"] for row in rows))
    drawn = "".join(
        f'<div class="row"><span class="name">{escape(row["method"])}</span><span class="plot">'
        f'{_bar(row["seconds"] / slowest)}</span><span class="number">{row["seconds"]:.1f}</span>'
        f'<span class="number">{row["passes"]}</span></div>'
        for row in rows
    )
    seconds, playing = found["seconds"], found["seconds"]["playing"]
    figures = [
        ("this audition", f"{seconds['playing'] + seconds['measuring']:.0f} s", f"{playing:.0f} s of it playing"),
        ("tokens sampled for it", f"{found['sampled_tokens']:,}".replace(",", " "), "rollouts and continuations"),
    ]
    if (step := found.get("step")) is not None:
        of = f"of {step['rollouts']} such rollouts on one {step['gpu']}, by gear plan; GRPO to the most expensive method here"
        for name, key, unit in (("memory of a training step", "gib", "GiB"), ("seconds of a training step", "seconds", "s")):
            most = max(one[key] for one in step["methods"].values())
            ends = [rounded(value) for value in (step["methods"]["grpo"][key], most)]
            figures.append((name, f"{' to '.join(dict.fromkeys(ends))} {unit}", of))
    return (
        f'{_figures(figures)}<p style="margin-top:1rem">Seconds to read the signals and assign the credit of all '
        f"{found['rollouts']} rollouts on this machine; forwards + backwards that a training step takes beyond GRPO's."
        '</p><div class="rows cost two"><div class="row">'
        '<span class="head">method</span><span class="head plot"></span><span class="head number">seconds</span>'
        f'<span class="head number">passes</span></div>{drawn}</div>'
    )


# ---------------------------------------------------------------------------------------------------- parts
def _figures(figures: list[tuple[str, str, str]]) -> str:
    cells = (f"<div><dt>{escape(a)}</dt><dd>{escape(b)}<small>{escape(c)}</small></dd></div>" for a, b, c in figures)
    return f"<dl>{''.join(cells)}</dl>"


def _row(name: str, drawing: str, number: str, small: str) -> str:
    return (
        f'<div class="row"><span class="name">{escape(name)}</span><span class="plot">{drawing}</span>'
        f'<span class="number">{escape(number)}<small>{escape(small)}</small></span></div>'
    )


def _interval(value: float, interval: tuple[float, float], low: float, high: float, mark: float) -> str:
    """The interval as a thick line, the value as a dot; `mark` as a thin upright line. Position alone carries the meaning."""

    def x(v: float) -> str:
        return f"{WIDTH * (min(high, max(low, v)) - low) / max(high - low, 1e-12):.1f}"

    tone = "var(--plus)" if interval[0] > mark else "var(--minus)" if interval[1] < mark else "var(--soft)"
    said = f"{value:.3f}, interval {interval[0]:.3f} to {interval[1]:.3f}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {2 * MIDDLE}" preserveAspectRatio="none" role="img" aria-label="{said}">'
        f'<line x1="0" x2="{WIDTH}" y1="{MIDDLE}" y2="{MIDDLE}" stroke="var(--hair)" vector-effect="non-scaling-stroke"/>'
        f'<line x1="{x(mark)}" x2="{x(mark)}" y1="2" y2="22" stroke="var(--soft)" vector-effect="non-scaling-stroke"/>'
        f'<line x1="{x(interval[0])}" x2="{x(interval[1])}" y1="{MIDDLE}" y2="{MIDDLE}" stroke="{tone}" stroke-width="3" '
        'vector-effect="non-scaling-stroke"/>'
        f'<line x1="{x(value)}" x2="{x(value)}" y1="{MIDDLE}" y2="{MIDDLE}" stroke="{tone}" stroke-width="11" '
        'stroke-linecap="round" vector-effect="non-scaling-stroke"/></svg>'
    )


def _bar(share: float) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {2 * MIDDLE}" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect x="0" y="8" width="{WIDTH * share:.1f}" height="8" fill="var(--more)"/></svg>'
    )


def _between(interval: tuple[float, float], digits: int) -> str:
    return f"{_signed(interval[0], digits)} to {_signed(interval[1], digits)}"


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
