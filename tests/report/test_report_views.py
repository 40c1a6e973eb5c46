"""The report of several runs, in light and dark, on a phone, and by a link: in a real browser."""

from __future__ import annotations

import pytest
from report_browser import in_group, number
from report_samples import gear, transcript, write_transcripts

from gear_rl.records.record import read_record


# ---------------------------------------------------------------------------------------------------- several runs
def test_the_same_rollout_under_several_methods_is_aligned(browse, several, run, other_credit):
    shown = browse(several)
    records = [read_record(path).rollouts for path in (run / "rollouts.jsonl", *other_credit)]
    shown.open_group(5, 1)
    shown.fill_all()
    cards = shown.all(".card")
    assert len(cards) == 18  # six rollouts, three methods
    places = shown.js(
        """return [...document.querySelectorAll('.card')].slice(0, 3).map((card) =>
             [...card.querySelectorAll('.t')].map((t) => {
               const a = t.getBoundingClientRect(), b = card.getBoundingClientRect();
               return [Math.round(a.top - b.top), Math.round(a.left - b.left)]; }))"""
    )
    assert places[0] == places[1] == places[2]
    token = shown.one(".card[data-filled] .t:not(.masked)")
    shown.hover(token)
    assert len(shown.all(".t.echo")) == 2
    best = max(range(6), key=lambda i: (in_group(records[0], 5, 1)[i].reward, -i))
    values = shown.inspected()
    assert [number(v) for v in values["advantage"]] == [in_group(r, 5, 1)[best].advantages[0] for r in records]
    assert [number(v) for v in values["weight"]] == [in_group(r, 5, 1)[best].weights[0] for r in records]
    names = shown.js("return [...document.querySelectorAll('#inspector th[scope=col]')].map((n) => n.textContent)")
    assert names == ["gear", "grpo", "oracle"]


def test_runs_can_be_hidden(browse, several):
    shown = browse(several)
    shown.click("[data-toggle='1']")
    shown.wait(lambda: len(shown.all(".matrix > h4")) == 2)
    shown.click("[data-toggle='0']")
    shown.wait(lambda: len(shown.all(".matrix > h4")) == 1)
    shown.click("[data-toggle='2']")  # the last one stays
    assert shown.one("[data-toggle='2']").is_selected() and len(shown.all(".matrix > h4")) == 1


def test_runs_that_sampled_for_themselves_are_not_called_aligned(browse, tmp_path):
    texts, mask = transcript()
    a = write_transcripts(tmp_path / "a.jsonl", steps=1, groups=1)
    b = write_transcripts(tmp_path / "b.jsonl", steps=1, groups=1, texts=[*texts[:-1], "!"], mask=mask, seed=1)
    gear("report", a, b, "-o", tmp_path / "r.html")
    shown = browse(tmp_path / "r.html")
    shown.fill_all()
    assert shown.text("#pane").count("not aligned") == 4
    shown.hover(shown.one(".card[data-filled] .t:not(.masked)"))
    assert not shown.all(".t.echo")


# ---------------------------------------------------------------------------------------------------- everywhere
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_keep_text_readable(browse, page, dark):
    shown = browse(page, dark=dark)
    contrast = """
        const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                                  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const linear = (x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
        const light = (c) => { const [r, g, b] = rgb(c).map(linear);
                               return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        return ['h1', '.facts', '.t', '.turn-number', '.share-numbers'].map((s) => {
          const ink = light(getComputedStyle(document.querySelector(s)).color);
          return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05); });"""
    assert min(shown.js(contrast)) >= 4.5
    bright = shown.js("return getComputedStyle(document.body).backgroundColor")
    shown.click(f"#theme [data-key={'light' if dark else 'dark'}]")
    assert shown.js("return getComputedStyle(document.body).backgroundColor") != bright
    assert min(shown.js(contrast)) >= 4.5


@pytest.mark.parametrize("which", ["page", "several"])
def test_a_phone_needs_no_sideways_scrolling(browse, which, request):
    shown = browse(request.getfixturevalue(which), width=390, height=800)
    shown.fill_all()
    assert shown.js("return document.documentElement.scrollWidth") <= 390
    columns = {card.rect["x"] for card in shown.all(".card")}
    assert len(columns) == 1
    token = shown.one(".card .t:not(.masked)")
    shown.bring(token)
    token.click()
    panel = shown.one("#inspector").rect
    assert panel["x"] == 0 and panel["width"] == 390


def test_a_link_opens_the_same_view(browse, page):
    shown = browse(page, hash="#group=10/2&colour=entropy")
    assert shown.text("#group-title") == "Step 10, group 2"
    assert shown.one(".choice [data-key=entropy]").get_attribute("aria-pressed") == "true"
