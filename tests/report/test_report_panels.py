"""What opens beside the rollouts, in a real browser: siblings, blamed steps, tool calls, verifier, notes, links, exports."""

from __future__ import annotations

import json
import struct
import xml.etree.ElementTree as ET

import pytest
from report_browser import Keys, number
from report_samples import gear, write_agents, write_transcripts

from gear_rl.records.record import read_record
from gear_rl.report import collect, open_source, summary


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return write_agents(tmp_path_factory.mktemp("agents") / "rollouts.jsonl", steps=2, groups=2)


@pytest.fixture(scope="module")
def page(record):
    gear("report", record)
    return record.with_suffix(".html")


@pytest.fixture(scope="module")
def lines(record):
    return read_record(record).rollouts


# ---------------------------------------------------------------------------------------------------- siblings
def test_two_siblings_are_shown_where_they_first_part(browse, page, lines):
    shown = browse(page)
    shown.open_group(1, 1)
    shown.click("#siblings summary")
    shown.wait(lambda: len(shown.all(".departure")) == 2)
    group = lines[12:16]

    def common(a, b):
        pairs = zip(group[a].token_ids, group[b].token_ids, strict=False)
        return next((i for i, (x, y) in enumerate(pairs) if x != y), 0)

    # The winner and the loser with the longest common beginning: rollouts 1 and 4, which differ in the item only.
    at = common(0, 3)
    assert at > common(0, 1) and shown.js("return document.querySelector('#siblings > div:last-child').dataset.at") == str(at)
    assert f"The first {at} tokens are the same. They first differ in turn 2." in shown.text("#siblings")
    for node, line in zip(shown.all(".departure"), (group[0], group[3]), strict=True):
        assert shown.one(".t", node).text == line.token_texts[at]
        assert number(shown.one("td", node).text) == line.advantages[at]
        assert f"reward {line.reward:g}" in node.text and "<tool_response>ok" in node.text
    shown.choose("#siblings [aria-label='The other sibling']", "1")
    shown.wait(lambda: shown.all(".departure .t") and shown.all(".departure")[1].text.startswith("rollout 2"))
    assert shown.one(".departure:last-child .t").text == group[1].token_texts[common(0, 1)] == "cancel"
    shown.choose("#siblings [aria-label='The other sibling']", "2")
    shown.wait(lambda: "Both say the same to the end." in shown.text("#siblings"))


# ---------------------------------------------------------------------------------------------------- blamed steps
def test_blamed_steps_are_named_counted_and_lead_to_an_example(browse, page, lines):
    shown = browse(page)
    rows = [row.text for row in shown.all("#clusters tr")]
    assert len(rows) == 2
    named = "wrong tool: cancel_order in turn 2 where winners called exchange_item"
    tool = next(i for i, row in enumerate(rows) if row.startswith(named))
    item = 1 - tool
    assert rows[item].startswith("argument item of exchange_item in turn 2")
    assert all("4 rollouts" in row and "4 of 4 truly wrong" in row for row in rows)
    assert "8 rollouts without blame" in shown.text("#clusters")
    shown.click(f"[data-cluster='0:{item}'] a")
    shown.wait(lambda: shown.one("#inspector").is_displayed())
    assert shown.text("#inspector .said-text") == "777"
    shown.click(f"[data-cluster='0:{tool}'] button")
    shown.wait(lambda: shown.listed() == "4 rollouts in 4 groups")
    shown.wait(lambda: [card.get_attribute("data-rollout") for card in shown.all(".card")] == ["1"])


def test_blame_that_is_even_names_no_step(tmp_path):
    record = write_transcripts(tmp_path / "r.jsonl", steps=1, groups=1, signals=False)
    clusters = summary(collect([open_source(record)]))["runs"][0]["clusters"]
    lost = sum(line.reward < 0.5 for line in read_record(record).rollouts)
    assert clusters["rows"] == [] and (clusters["even"], clusters["unblamed"]) == (lost, 4 - lost) and lost


def test_the_clusters_of_a_real_run_are_the_most_blamed_steps(run, other_credit):
    shown = summary(collect([open_source(run)]))
    clusters = shown["runs"][0]["clusters"]
    lines = read_record(run / "rollouts.jsonl").rollouts
    assert all(line.verdict["channels"].keys() == {"answer", "calls", "format"} for line in lines)
    assert all(line.verdict["feedback"] for line in lines)  # what the workshop's judge says, in training and after gear credit
    assert [line.verdict for line in read_record(other_credit[0]).rollouts] == [line.verdict for line in lines]
    blamed = [line for line in lines if min(line.advantages) < 0]
    counted = sum(row["rollouts"] for row in clusters["rows"]) + clusters["smaller"]["rollouts"] + clusters["even"]
    assert counted == len(blamed) and clusters["unblamed"] == len(lines) - len(blamed)
    for row in clusters["rows"]:
        where = row["example"]
        group = shown["groups"][where["group"]]
        line = [x for x in lines if (x.step, x.group) == (group["step"], group["group"])][where["rollout"]]
        assert line.advantages[where["token"]] == min(line.advantages) and line.turns[where["token"]] == row["turn"]
        assert row["what"] != "text" or line.token_texts[where["token"]] in row["text"]


# ---------------------------------------------------------------------------------------------------- details, notes, links
def test_tool_calls_and_the_verifier_are_read_off_the_record(browse, page, lines):
    shown = browse(page)
    shown.open_group(0, 0)
    shown.click(".columns section:last-child .details summary")
    shown.wait(lambda: shown.all(".calls"))
    calls = shown.all(".calls tr")[1:]
    assert [shown.one("b", row).text for row in calls] == ["get_order", "cancel_order"]
    assert shown.js("return [...document.querySelectorAll('.calls tr:last-child dl > *')].map((n) => n.textContent)") == [
        "order_id", "W2378156", "item", "592811"]  # fmt: skip
    assert '"status": "delivered"' in calls[0].text and "<tool_response>ok</tool_response>" in calls[1].text
    line = lines[1]
    credit = sum(a for a, turn in zip(line.advantages, line.turns, strict=True) if turn == 2)
    assert number(shown.all("td", calls[1])[-1].text) == float(f"{credit:.3g}")
    verdict = shown.text(".verdict")
    assert "right tool0" in verdict and "format1" in verdict and "The wrong order was changed." in verdict


def test_a_link_leads_to_a_token_and_notes_can_be_saved(browse, page, record, tmp_path):
    shown = browse(page, hash="#group=1/0&rollout=4&token=150", width=390, height=800)  # on a phone, far down the page
    shown.wait(lambda: shown.one("#inspector").is_displayed())
    assert shown.text("#group-title") == "Step 1, group 0" and "token 150" in shown.text("#inspector")
    card = shown.js("return document.querySelector('.t.here').closest('.card').dataset.rollout")
    seen = "const r = document.querySelector('.t.here').getBoundingClientRect(); return r.top > 0 && r.bottom < 800"
    assert card == "3" and shown.js(seen)
    assert "␣" in shown.text("[data-question=text]"), "a token that is a space can be seen where it stands alone"
    assert shown.js("return document.documentElement.scrollWidth") <= 390
    shown.js("location.hash = '#group=0/1&rollout=2&token=3'")
    shown.wait(lambda: shown.text("#group-title") == "Step 0, group 1" and "token 3 " in shown.text("#inspector"))
    assert shown.js("return location.hash") == "#group=0/1&colour=advantage&rollout=2&token=3"

    shown.click("#inspector summary")
    shown.one("#inspector textarea").send_keys("Why not <b>ask</b>?")
    shown.click("#inspector .note-editor button")
    shown.wait(lambda: shown.all(".t.noted"))
    assert "token 3 Why not <b>ask</b>?" in shown.text(".card[data-rollout='1'] .card-notes")
    shown.one("#inspector textarea").send_keys(Keys.ESCAPE)
    saved = shown.saved("#reader-notes button", tmp_path)
    note = {"step": 0, "group": 1, "rollout": 2, "token": 3, "text": "Why not <b>ask</b>?"}
    assert json.loads(saved)["notes"] == [note]

    beside = record.with_suffix(".notes.json")
    beside.write_bytes(saved)
    gear("report", record, "-o", tmp_path / "noted.html")
    beside.unlink()
    shown = browse(tmp_path / "noted.html")
    assert "step 0, group 1, rollout 2, token 3 Why not <b>ask</b>?" in shown.text("#reader-notes")
    shown.click("#reader-notes li a")
    shown.wait(lambda: shown.one("#inspector").is_displayed() and "token 3 " in shown.text("#inspector"))
    assert shown.all("#inspector .note-editor[open]")


# ---------------------------------------------------------------------------------------------------- exports
def test_a_rollout_and_a_figure_leave_the_page_as_files(browse, page, lines, tmp_path):
    shown = browse(page, dark=True)
    shown.open_group(0, 0)
    picture = ET.fromstring(shown.saved("[data-save=svg]", tmp_path))
    texts = "".join(node.text for node in picture.iter("{http://www.w3.org/2000/svg}text"))
    assert "cancel" in texts and "step 0, group 0" in texts and "✗ no success" in texts
    hatched = [n for n in picture.iter("{http://www.w3.org/2000/svg}rect") if n.get("fill") == "url(#hatch---minus)"]
    blamed = sum(a < 0 for line in (lines[1], lines[3]) for a in line.advantages)
    assert len(hatched) >= blamed  # a rectangle for each blamed token of the two losers
    data = shown.saved("[data-save=png]", tmp_path)
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and width == 2464 and height > 1000

    shown.click(".columns section:last-child .details summary")
    shown.wait(lambda: shown.all(".calls"))
    text = shown.saved(".detail-body .actions button", tmp_path).decode()
    assert text.startswith("# Step 0, group 0, rollout 2\n") and '{"name": "cancel_order"' in text
    assert "Reward 0" in text and "## Turn 3" in text and "### Reply (not sampled)" in text and "| cancel" not in text
    strongest = max(range(len(lines[1].advantages)), key=lambda i: abs(lines[1].advantages[i]))
    assert f"| {strongest} | 2 | " in text


def test_svg_by_the_command(driver, record, tmp_path):
    gear("report", record, "--format", "svg", "-o", tmp_path / "f.svg", "--group", "1/0")
    picture = ET.parse(tmp_path / "f.svg").getroot()
    assert picture.get("width") == "1232" and "step 1, group 0" in "".join(picture.itertext())
