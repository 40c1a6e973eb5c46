"""The report as a reader meets it, in a real browser: it shows what the record holds, and answers to pointer and keys."""

from __future__ import annotations

import json

import pytest
from report_browser import Keys, in_group, number
from report_samples import gear

NAMES = {
    "divergence": "reverse_kl",
    "entropy": "entropy",
    "log p, policy": "student_logprob",
    "log q, teacher": "teacher_logprob",
}
WORDS = {1.0: "right", -1.0: "wrong", 0.0: "none"}


# ---------------------------------------------------------------------------------------------------- the values
def test_every_token_shows_exactly_what_the_record_holds(browse, page, record):
    shown = browse(page)
    for step, group in [(0, 0), (15, 2)]:
        shown.open_group(step, group)
        shown.fill_all()
        lines = sorted(in_group(record, step, group), key=lambda line: -line.reward)
        cards = shown.js(
            """return [...document.querySelectorAll('.card')].map((card) => ({
                 reward: card.querySelector('.outcome b').textContent,
                 texts: [...card.querySelectorAll('.t')].map((t) => t.textContent),
                 ids: [...card.rollout.ids], mask: [...card.rollout.mask], turns: [...card.rollout.turns],
                 onsets: [...card.querySelectorAll('.t.onset')].map((t) => Number(t.dataset.i)),
                 segments: [...card.rollout.segments]}))"""
        )
        assert len(cards) == 6
        for card, line in zip(cards, lines, strict=True):
            assert card["reward"] == f"reward {line.reward:g}"
            assert card["texts"] == line.token_texts
            assert (card["ids"], card["mask"], card["turns"]) == (line.token_ids, line.action_mask, line.turns)
            assert card["segments"] == line.segments
            assert card["onsets"] == [i for i, onset in enumerate(line.onsets) if onset]
        values = shown.js(
            """const read = (card) => [...card.querySelectorAll('.t')].map((token) => {
                 token.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
                 return Object.fromEntries([...document.querySelectorAll('#inspector tr[data-name]')].map((row) =>
                   [row.dataset.name, row.querySelector('td').textContent]));
               });
               return [...document.querySelectorAll('.card')].map(read);"""
        )
        for tokens, line in zip(values, lines, strict=True):
            for i, shown_values in enumerate(tokens):
                if not line.action_mask[i]:
                    assert shown_values == {}
                    continue
                assert number(shown_values["advantage"]) == line.advantages[i]
                assert number(shown_values["weight"]) == line.weights[i]
                for name, signal in NAMES.items():
                    assert number(shown_values[name]) == line.signals[signal][i]
                assert shown_values["decision"] == WORDS[line.signals["decision"][i]]


def test_hovering_explains_a_token_and_leaving_ends_it(browse, page, record):
    shown = browse(page)
    token = next(t for t in shown.all(".card[data-filled] .t:not(.masked)") if t.is_displayed())
    shown.hover(token)
    panel = shown.one("#inspector")
    assert panel.is_displayed() and token.text in panel.text and "segment" in panel.text
    assert set(NAMES) < set(shown.inspected())
    shown.hover(shown.one("h1"))
    assert not panel.is_displayed()


def test_a_pressed_button_stays_readable_under_the_pointer(browse, page):
    shown = browse(page)
    button = shown.one('.choice button[aria-pressed="true"]')
    shown.hover(button)
    colour, background = shown.js(
        "const s = getComputedStyle(arguments[0]); return [s.color, s.backgroundColor]", button
    )
    assert shown.js("return arguments[0].matches(':hover')", button) and colour != background


def test_the_keyboard_walks_tokens_and_segments(browse, page):
    shown = browse(page)
    shown.js("document.querySelector('.card[data-filled] .t').focus()")
    at = lambda: int(shown.js("return document.activeElement.dataset.i"))  # noqa: E731
    assert at() == 0
    shown.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert at() == 2 and "token 2" in shown.text("#inspector")
    shown.press(Keys.ARROW_LEFT)
    assert at() == 1
    firsts = shown.js(
        "return [...document.querySelector('.tokens').querySelectorAll('.t.first')].map((t) => Number(t.dataset.i))"
    )
    shown.press(Keys.ARROW_DOWN)
    assert at() == min(i for i in firsts if i > 1)
    shown.press(Keys.END)
    assert at() == shown.js("return document.querySelector('.card').rollout.n") - 1
    shown.press(Keys.ESCAPE)
    assert not shown.one("#inspector").is_displayed()
    before = shown.text("#group-title")
    shown.press("j")
    shown.wait(lambda: shown.text("#group-title") != before)
    shown.press("k")
    shown.wait(lambda: shown.text("#group-title") == before)
    shown.press("2")
    assert shown.one(".choice [data-key=weight]").get_attribute("aria-pressed") == "true"
    shown.press("/")
    assert shown.js("return document.activeElement.id") == "filter-text"


# ---------------------------------------------------------------------------------------------------- colouring
def test_colouring_switches_and_follows_the_values(browse, page):
    shown = browse(page)
    top = shown.index["scales"]
    expected = {
        "advantage": ("advantages", top["advantage"][0]),
        "reverse_kl": ("reverse_kl", top["signal reverse_kl"][0]),
        "entropy": ("entropy", top["signal entropy"][0]),
    }
    read = """const card = document.querySelector('.card[data-filled]'), r = card.rollout;
              const values = r[arguments[0]] ?? r.signals[arguments[0]];
              return [...card.querySelectorAll('.t:not(.masked)')].map((t) => [values[t.dataset.i],
                Number(t.style.getPropertyValue('--v')), t.className, getComputedStyle(t).backgroundSize]);"""
    for key, (name, scale) in expected.items():
        shown.click(f".choice [data-key={key}]")
        tokens = shown.js(read, name)
        assert tokens and any(size > 0.05 for _, size, *_ in tokens)
        for value, size, tones, drawn in tokens:
            assert size == pytest.approx(min(1, abs(value) / scale), abs=6e-4)
            tone = "more" if key != "advantage" else "minus" if value < 0 else "plus"
            assert tone in tones.split()
            assert f"{10 * size:.4g}"[:3] in drawn  # the height says it without any colour
        assert shown.one(f".choice [data-key={key}]").get_attribute("aria-pressed") == "true"
    assert "how undecided" in shown.text("#legend")
    shown.click(".choice [data-key=decision]")
    tones = shown.js(read, "decision")
    assert {(value, size > 0) for value, size, *_ in tones} <= {(1, True), (-1, True), (0, False)}
    assert all("minus" in classes.split() for value, _, classes, _ in tones if value < 0)


def test_praise_and_blame_differ_without_colour(browse, page):
    shown = browse(page)
    pictures = shown.js(
        """const picture = (tone) => getComputedStyle(document.querySelector(`.card .t.${tone}`)).backgroundImage;
           return [picture('plus'), picture('minus')]"""
    )
    assert "repeating-linear-gradient" not in pictures[0] and "repeating-linear-gradient" in pictures[1]


# ---------------------------------------------------------------------------------------------------- groups
def test_winners_stand_beside_losers(browse, page, record):
    shown = browse(page)
    for group in {(line.step, line.group) for line in record}:
        lines = in_group(record, *group)
        mean = sum(line.reward for line in lines) / len(lines)
        won, lost = sum(line.reward > mean for line in lines), sum(line.reward < mean for line in lines)
        if won and lost:
            break
    shown.open_group(*group)
    left, right = shown.all(".columns > section")
    assert len(shown.all(".card", left)) == won and len(shown.all(".card", right)) == lost
    assert left.rect["x"] + left.rect["width"] <= right.rect["x"] and left.rect["y"] == right.rect["y"]
    assert shown.one("h4", left).text == f"{won} winner{'s' * (won != 1)}"


def test_tool_output_is_set_apart_and_has_no_credit(browse, page):
    shown = browse(page)
    apart = shown.js("return [...document.querySelectorAll('.card .t.masked')].every((t) => t.closest('.tool'))")
    mixed = shown.all(".tool .t:not(.masked)")
    assert apart and not mixed and shown.all(".card .t.masked")
    shown.hover(shown.one(".card[data-filled] .t.masked"))
    assert "not sampled" in shown.text("#inspector")


def test_what_the_teacher_saw_is_marked(browse, page, record):
    shown = browse(page)
    shown.open_group(0, 1)
    line = in_group(record, 0, 1)[0]
    assert shown.text(".prompts section .passage") == line.prompt
    assert shown.text(".teacher .passage") == line.hinted_prompt
    hint = shown.text(".teacher mark").strip()
    assert hint.startswith("hint ") and hint not in line.prompt and hint in line.hinted_prompt


# ---------------------------------------------------------------------------------------------------- search, filter
def test_filters_list_what_the_record_says(browse, page, record):
    shown = browse(page)
    shown.click("#filter-fold summary")
    total = f"{len(record)} rollouts in 12 groups"
    assert shown.listed() == total

    def found(keep):
        kept = [line for line in record if keep(line)]
        groups = {(line.step, line.group) for line in kept}
        count = lambda n, what: f"{n} {what}{'s' * (n != 1)}"  # noqa: E731
        return f"{count(len(kept), 'rollout')} in {count(len(groups), 'group')}" if kept else "nothing matches"

    def settles(text):
        shown.wait(lambda: shown.listed() == text)

    shown.type_into("#filter-low", "0.5")
    settles(found(lambda line: line.reward >= 0.5))
    cards = shown.wait(lambda: shown.all(".card .outcome b"))
    assert {card.text for card in cards} == {"reward 1"}
    shown.choose("#filter-success", "yes")
    settles(found(lambda line: line.reward >= 0.5 and line.success))
    shown.type_into("#filter-from", "10")
    settles(found(lambda line: line.reward >= 0.5 and line.success and line.step >= 10))
    shown.click(".filters [type=reset]")
    settles(total)
    mean = {key: sum(x.reward for x in in_group(record, *key)) / 6 for key in {(x.step, x.group) for x in record}}
    shown.choose("#filter-reward", "losers")
    settles(found(lambda line: line.reward < mean[line.step, line.group] - 1e-9))
    shown.choose("#filter-reward", "any")
    shown.choose("#filter-success", "lucky")
    settles(found(lambda line: line.reward > mean[line.step, line.group] + 1e-9 and not line.success))
    shown.click(".filters [type=reset]")
    settles(total)
    words = record[40].token_texts[0:3]
    shown.type_into("#filter-text", " ".join(words).upper())
    settles(found(lambda line: " ".join(words) in line.prompt + "\n" + " ".join(line.token_texts)))
    shown.type_into("#filter-text", "no such words anywhere")
    settles("nothing matches")


def test_the_order_can_be_chosen(browse, page, record):
    shown = browse(page)
    shown.click("#filter-fold summary")
    shown.choose("#order", "divergence")
    first = shown.js("return [...document.querySelectorAll('.row')].find((r) => r.style.top === '0px').dataset.group")
    largest = max(record, key=lambda line: max(x for x in line.signals["reverse_kl"] if x is not None))
    group = shown.index["groups"][int(first)]
    assert (group["step"], group["group"]) == (largest.step, largest.group)


# ---------------------------------------------------------------------------------------------------- the rest
def test_shares_add_up_as_in_the_record(browse, page, record):
    shown = browse(page)
    wrong = {"praise": 0.0, "blame": 0.0, "tokens": 0.0}
    total = dict(wrong)
    for line in record:
        for i, sampled in enumerate(line.action_mask):
            if sampled:
                amount = {"praise": max(0, line.advantages[i]), "blame": max(0, -line.advantages[i]), "tokens": 1}
                for kind in total:
                    total[kind] += amount[kind]
                    wrong[kind] += amount[kind] * (line.signals["decision"][i] < 0)
    row = shown.js(
        """const names = [...document.querySelectorAll('[data-question=decision] .share-name')];
           const cell = names.find((n) => n.textContent === 'wrong decision').nextElementSibling;
           return Object.fromEntries([...cell.querySelectorAll('[data-kind]')].map((n) => [n.dataset.kind, n.textContent]))"""
    )
    for kind in total:
        share = 100 * wrong[kind] / total[kind]
        assert row[kind] == f"{share:.1f} %" if share < 9.95 else f"{share:.0f} %"
    turns = shown.js(
        "return [...document.querySelectorAll('[data-question=turn] .share-name')].map((n) => n.textContent)"
    )
    assert turns == [f"turn {n}" for n in range(1, 8)]


def test_curves_show_the_log_and_open_a_step(browse, page, run):
    shown = browse(page)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    plot = shown.one(".plot[data-metric=reward]")
    assert number(shown.one(".now", plot).text) == float(f"{lines[-1]['reward']:.3g}")
    frame = shown.one(".frame", plot)
    shown.hover(frame)  # the middle of steps 1 to 17
    now = [number(shown.one(".now", p).text) for p in (plot, shown.one(".plot[data-metric='guards/entropy']"))]
    middle = lines[8]
    assert now == [float(f"{middle['reward']:.3g}"), float(f"{middle['guards/entropy']:.3g}")]
    shown.click_where_it_points()  # WebDriver's own click would scroll first, from under the pointer
    shown.wait(
        lambda: shown.text("#group-title").startswith("Step 10,")
    )  # recorded at 0, 5, 10, 15: line 9 is nearest 11
    shown.click(".further summary")
    shown.wait(lambda: shown.all(".plot[data-metric='completions/mean_length']"))
    assert "no guard raised an alarm" in shown.text(".alarms")


def test_alarms_are_named_marked_and_can_be_filtered(browse, alarmed):
    gear("report", alarmed)
    shown = browse(alarmed / "report.html")
    assert shown.text(".alarms") == "▲ entropy: entropy has collapsed, 6 steps, first 12, last 17"
    (band,) = shown.all(".plot[data-metric='guards/entropy'] .alarm-band")
    assert (band.get_attribute("data-from"), band.get_attribute("data-to")) == ("12", "17")
    assert not shown.all(".plot[data-metric='guards/leak'] .alarm-band")
    shown.click("#filter-fold summary")
    shown.click("#filter-alarm")
    shown.wait(lambda: shown.listed() == "18 rollouts in 3 groups")  # step 15, logged as 16
    assert "a guard raised an alarm" in shown.text("#group-title")


def test_before_and_after_are_the_evaluation(browse, page, run):
    shown = browse(page)
    scores = json.loads((run / "evaluation.json").read_text())
    for measure in ("success", "reward"):
        for way in ("sampled", "greedy"):
            old, new = (scores[when][way][measure] for when in ("before", "after"))
            text = shown.text(f"[data-score='{measure} {way}'] .score-numbers")
            assert text.startswith(f"{100 * old:.1f} → {100 * new:.1f}")
    low, high = scores["after"]["greedy"]["success_interval"]
    assert shown.text("[data-score='success greedy'] small") == f"{100 * low:.1f}–{100 * high:.1f}"


def test_what_is_gone_to_stays_in_sight_while_cards_above_it_fill(browse, page):
    shown = browse(page, hash="#group=5/1&rollout=6&token=20", width=390, height=800)
    shown.wait(lambda: shown.all(".t.here") and not shown.js(FILLING))
    top = "return document.querySelector(%r).getBoundingClientRect().top"
    shown.wait(lambda: 0 < shown.js(top % ".t.here") < 440)  # above the values
    assert "rollout 6" in shown.js("return document.querySelector('.t.here').closest('.card').innerText")
    shown = browse(page, width=390, height=800)
    shown.click("nav a[href='#clusters']")
    shown.wait(lambda: not shown.js(FILLING) and abs(shown.js(top % "#clusters")) < 20)


FILLING = """return [...document.querySelectorAll('.card:not([data-filled])')]
    .some((c) => c.getBoundingClientRect().top < innerHeight + 400 && c.getBoundingClientRect().bottom > -400)"""
