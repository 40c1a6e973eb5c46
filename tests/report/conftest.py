"""A real run, its records under other methods, and a real browser to look at the reports of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from report_browser import Page
from report_samples import gear

from gear_rl.records.record import RecordedRollout, read_record

SHORT = ["train.steps=17", "train.prompts=3", "train.generations=6", "train.record_every=5", "train.eval_rows=20"]


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """Trained for this session: curves, guards, evaluation, and 4 steps × 3 groups × 6 rollouts."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    gear("train", "--out", folder, *[word for setting in SHORT for word in ("--set", setting)])
    return folder


@pytest.fixture(scope="session")
def other_credit(run, tmp_path_factory) -> list[Path]:
    """The same rollouts under two other methods, by `gear credit`."""
    paths = [tmp_path_factory.mktemp(name) / f"{name}.jsonl" for name in ("grpo", "oracle")]
    for path in paths:
        gear("credit", run, "--credit", path.stem, "-o", path)
    return paths


@pytest.fixture(scope="session")
def page(run, tmp_path_factory) -> Path:
    """The report of the run."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    gear("report", run, "-o", out)
    return out


@pytest.fixture(scope="session")
def several(run, other_credit, tmp_path_factory) -> Path:
    """The report of the run and of its rollouts under the other methods."""
    out = tmp_path_factory.mktemp("reports") / "report.html"
    gear("report", run, *other_credit, "-o", out)
    return out


@pytest.fixture(scope="session")
def record(run) -> list[RecordedRollout]:
    """What the page must show."""
    return read_record(run / "rollouts.jsonl").rollouts


@pytest.fixture
def alarmed(run, tmp_path) -> Path:
    """The run, with an entropy that has collapsed from step 12 on, logged as the guards would."""
    folder = tmp_path / "alarmed"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints", "model"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["step"] >= 12:
            line |= {"guards/entropy": 0.001, "guards/alarm": 1.0}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


# ---------------------------------------------------------------------------------------------------- the browser
def _programs() -> tuple[str, str] | str:
    """Browser and driver, or what is missing."""
    browser = (
        os.environ.get("CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        return "no Chromium with chromedriver (Debian: apt install chromium chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium (pip install 'gear-rl[dev]')"
    return browser, driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    found = _programs()
    if isinstance(found, str):
        if os.environ.get("CI"):
            pytest.fail(f"the report must be opened in a browser here: {found}")
        pytest.skip(found)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for flag in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(found[1]))
    chrome.set_script_timeout(20)
    yield chrome
    chrome.quit()


@pytest.fixture
def browse(driver):
    """Open a page at a size and in a theme, wait for its first view, and check afterwards that all stayed quiet."""
    pages: list[Page] = []

    def open_page(page: Path | str, **how) -> Page:
        pages.append(Page(driver, page, **how))
        return pages[-1]

    yield open_page
    for page in pages[-1:]:
        page.check_quiet()
