"""What a model may write: everything. The report shows it, and nothing of it runs, hides, rearranges or reaches out."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from report_samples import HOSTILE, gear, write_transcripts

NASTY = "</script><script>window.hacked = 1</script><img src=http://example.org/x.png onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Hostile tokens, prompts, hints, header, and a signal with a hostile name."""
    folder = tmp_path_factory.mktemp("hostile")
    header = {"method": NASTY, "options": {NASTY: NASTY}, "task": f"\u202e{NASTY}", "model": NASTY}
    record = write_transcripts(
        folder / "hostile.jsonl",
        steps=1,
        groups=1,
        texts=HOSTILE,
        header=header,
        prompts=[NASTY] * 4,
        hinted_prompts=[NASTY + "\u202ehint\x00"] * 4,
        verdicts=[{"channels": {NASTY: 1.0}, "feedback": NASTY + "\u202e"}] * 4,
    )
    note = {"step": 0, "group": 0, "rollout": 1, "token": 0, "text": NASTY + "\u202e"}
    notes = {"schema": "gear_rl.notes", "version": 1, "notes": [note]}
    (folder / "hostile.notes.json").write_text(json.dumps(notes))
    record.write_text(record.read_text().replace('"entropy":', '"<svg onload=alert(1)>":'))
    gear("report", record, "-o", folder / "report.html")
    return folder / "report.html"


def test_hostile_output_is_shown_and_inert(browse, page):
    shown = browse(page)  # which also checks that nothing was fetched, and that the policy had nothing to refuse
    shown.fill_all()
    assert shown.js("return window.hacked === undefined")
    assert (
        shown.js(
            "return document.querySelectorAll('img, iframe, object, embed, form[action], a[href^=javascript]').length"
        )
        == 0
    )
    assert shown.js("return document.scripts.length") == 4  # index, early data, script, data
    texts = shown.js("return [...document.querySelector('.card').querySelectorAll('.t')].map((t) => t.textContent)")
    assert texts[:4] == HOSTILE[:4] and texts[11:13] == HOSTILE[11:13]
    assert NASTY[:80] in shown.text("h1") and NASTY in shown.text(".passage")
    for place in ("#page", "#inspector"):  # no bidi mark, no zero-width, no control character is left to act
        shown.hover(shown.all(".card[data-filled] .t")[4])
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00\x1b\u2028\ud800]", shown.text(place))
    assert texts[4] == "U+202EevilU+202C" and texts[6] == "␀" and texts[7].startswith("␛")
    assert texts[5] == "U+200BU+2066U+FEFF" and texts[8] == "U+D800" and texts[9] == "U+2028"


def test_what_opens_beside_hostile_output_is_inert_too(browse, page, tmp_path):
    """Siblings, tool calls, the verifier's words, notes, blamed steps, and what is exported."""
    shown = browse(page)
    shown.fill_all()
    shown.click("#siblings summary")
    shown.wait(lambda: "Both say the same" in shown.text("#siblings"))
    shown.click(".card .details summary")
    shown.wait(lambda: shown.all(".verdict"))
    assert shown.text(".verdict").count(NASTY) == 2
    assert NASTY in shown.text(".card-notes") and NASTY in shown.text("#reader-notes")
    picture = ET.fromstring(shown.saved("[data-save=svg]", tmp_path))  # well-formed, whatever was said
    assert not {node.tag.split("}")[1] for node in picture.iter()} & {"script", "img", "image", "foreignObject", "a"}
    text = shown.saved(".detail-body .actions button", tmp_path).decode("utf-8", "surrogatepass")
    outside = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", text)
    assert "<script" not in outside.replace("\\<", "") and "<img" not in outside.replace("\\<", "")
    assert shown.js("return window.hacked === undefined && document.scripts.length") == 4
    assert not shown.all("img, iframe, object, embed, a[href^=javascript], a[href^=http]")
    for place in ("#page", "#reader-notes", ".verdict"):
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\x00\x1b\u2028\ud800]", shown.text(place))


def test_a_token_of_100_kb_is_short_until_asked_for(browse, page):
    shown = browse(page)
    shown.fill_all()
    long = shown.all(".card .t")[13]
    assert len(long.text) < 120 and "100 000 characters" in long.text
    assert shown.js("return document.documentElement.scrollWidth") <= 1400
    shown.bring(long)
    long.click()
    shown.click("#inspector button")
    assert shown.text("dialog pre") == "x" * 100_000
    shown.click("dialog button")
    shown.wait(lambda: not shown.all("dialog"))  # removed on its `close`, which the browser sends a little later


def test_right_to_left_words_do_not_move_their_neighbours(browse, page):
    shown = browse(page)
    shown.fill_all()
    order = shown.js(
        """const last = [...document.querySelector('.card').querySelectorAll('.t')].slice(-2);
           const tokens = last.map((t) => t.getClientRects()[0]);
           return tokens[0].top < tokens[1].top || tokens[0].left < tokens[1].left"""
    )
    assert order


def test_the_policy_lets_nothing_in(browse, page):
    """The second line of defence: were a text ever to become markup, it still could not run or reach out."""
    text = page.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    shown = browse(page)
    refused = shown.js(
        """const tries = [() => { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); },
             () => { document.createElement('script').textContent = 'window.hacked = 1'; },
             () => { document.querySelector('h1').innerHTML = '<img src=x onerror=1>'; }];
           return tries.map((act) => { try { act(); return 'done'; } catch (error) { return error.name; } })"""
    )
    assert refused == ["TypeError"] * 3
    assert (
        shown.driver.execute_async_script(
            """const done = arguments[0];
           fetch('https://example.org/').then(() => done('fetched'), () => done('refused'))"""
        )
        == "refused"
    )
    shown.driver.get_log("browser")  # the refusals just provoked are not the page's own
