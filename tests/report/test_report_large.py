"""A thousand rollouts of two thousand tokens: a file one can mail, and a page that opens at once."""

from __future__ import annotations

import time

import pytest
from report_samples import gear, write_large


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    record = write_large(folder / "large.jsonl", rollouts=1000, tokens=2000)
    gear("report", record)
    record.unlink()
    return folder / "large.html"


@pytest.mark.slow
def test_1000_rollouts_of_2000_tokens(browse, page):
    assert page.stat().st_size < 50e6
    for _ in range(5):  # other processes may be at work; what the page itself takes is the least of some
        shown = browse(page)
        if (after := int(shown.js("return document.documentElement.dataset.readyAfter"))) < 1000:
            break
    assert after < 1000
    assert shown.listed() == "1 000 rollouts in 100 groups"
    assert len(shown.all(".row")) < 40  # only what is in sight exists
    filled = len(shown.all(".card[data-filled]"))
    assert 0 < filled < 10
    assert shown.js("return document.querySelectorAll('.card .t').length") == 2000 * filled

    start = time.monotonic()
    shown.open_group(99, 0)  # far down the file
    assert time.monotonic() - start < 2

    start = time.monotonic()
    shown.click(".choice [data-key=reverse_kl]")
    assert time.monotonic() - start < 2

    start = time.monotonic()
    shown.type_into("#filter-text", "problem 31")
    shown.wait(lambda: shown.listed() == "10 rollouts in 1 group")
    assert time.monotonic() - start < 8  # a search through all the text, the first time
