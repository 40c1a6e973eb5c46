"""A report in a real browser: what a reader can do with it, and what a test can read off it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Keys:
    """As WebDriver names them. selenium has them too, but where it is missing these tests should skip, not break."""

    ARROW_LEFT, ARROW_UP, ARROW_RIGHT, ARROW_DOWN = "\ue012", "\ue013", "\ue014", "\ue015"
    CONTROL, DELETE, END, ESCAPE = "\ue009", "\ue017", "\ue010", "\ue00c"


class Page:
    def __init__(self, driver: Any, page: Path | str, *, width=1400, height=900, dark=False, hash="") -> None:
        """`page`: a file, or the address of a page that `gear report --watch` shows."""
        self.driver, self.url = driver, page if isinstance(page, str) else page.as_uri()
        driver.get("about:blank")
        driver.get_log("performance"), driver.get_log("browser")  # what came before is not ours
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get(f"{self.url}{hash}")
        self.wait(lambda: self.js("return document.documentElement.dataset.readyAfter"))

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def wait(self, ready: Callable[[], Any], seconds: float = 15) -> Any:
        """The first true value of `ready`."""
        end = time.monotonic() + seconds
        while not (value := ready()):
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.02)
        return value

    def all(self, selector: str, within: Any = None) -> list[Any]:
        return (within or self.driver).find_elements("css selector", selector)

    def one(self, selector: str, within: Any = None) -> Any:
        found = self.all(selector, within)
        assert found, f"nothing matches {selector}"
        return found[0]

    def text(self, selector: str) -> str:
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    # ------------------------------------------------------------------------------------ what a reader does
    def bring(self, element: Any) -> None:
        """Into sight; back when the events of that scrolling are over, which end a hover."""
        self.driver.execute_async_script(
            """const [element, done] = arguments;
               element.scrollIntoView({block: 'center', behavior: 'instant'});
               requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));""",
            element,
        )

    def click(self, selector: str) -> None:
        """The page may still be scrolling to what was opened before: then it is brought into sight again. What the page has
        drawn again meanwhile is looked for again."""
        from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException

        for attempt in range(20):
            try:
                self.bring(self.one(selector))
                return self.one(selector).click()
            except (ElementClickInterceptedException, StaleElementReferenceException):
                if attempt == 19:
                    raise
                time.sleep(0.1)

    def hover(self, element: Any) -> None:
        self.bring(element)
        self._actions().move_to_element(element).perform()

    def click_where_it_points(self) -> None:
        self._actions().click().perform()

    def _actions(self) -> Any:
        from selenium.webdriver.common.action_chains import ActionChains

        return ActionChains(self.driver)

    def press(self, *keys: str) -> None:
        self._actions().send_keys(*keys).perform()

    def type_into(self, selector: str, text: str) -> None:
        self.one(selector).send_keys(Keys.CONTROL, "a")
        self.one(selector).send_keys(text or Keys.DELETE)

    def choose(self, selector: str, value: str) -> None:
        """An option of a select."""
        self.js(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))",
            self.one(selector),
            value,
        )

    def open_group(self, step: int, group: int) -> None:
        """By the list, as a reader would, wherever in it the row lies."""
        numbers = [(g["step"], g["group"]) for g in self.index["groups"]]
        place = numbers.index((step, group))
        self.js("document.querySelector('.list').scrollTop = arguments[0]", 58 * place)
        self.wait(lambda: self.all(f"#row-{place}"))
        self.click(f"#row-{place}")
        self.wait(lambda: self.js("return document.querySelector('#pane').dataset.group") == str(place))
        self.wait(lambda: self.all(".card[data-filled]"))

    def fill_all(self) -> None:
        """Every card of the open group, in sight or not."""
        self.js("document.querySelectorAll('.card').forEach((card) => card.fill?.())")
        self.wait(
            lambda: self.js("return [...document.querySelectorAll('.card')].every((c) => !c.fill || c.dataset.filled)")
        )

    def saved(self, selector: str, folder: Path) -> bytes:
        """What a click on `selector` downloads."""
        there = set(folder.iterdir())
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
        self.click(selector)
        done = lambda: [f for f in set(folder.iterdir()) - there if f.suffix in (".json", ".md", ".svg", ".png")]  # noqa: E731
        return self.wait(done)[0].read_bytes()

    # ------------------------------------------------------------------------------------ what a test reads
    @property
    def index(self) -> dict[str, Any]:
        return json.loads(self.js("return document.getElementById('index').textContent"))

    def listed(self) -> str:
        return self.text(".found")

    def inspected(self) -> dict[str, list[str]]:
        """The values of the token being looked at, per run."""
        return self.js(
            "return Object.fromEntries([...document.querySelectorAll('#inspector tr[data-name]')].map((row) => "
            "[row.dataset.name, [...row.querySelectorAll('td')].map((cell) => cell.textContent)]))"
        )

    def check_quiet(self) -> None:
        """Nothing fetched but from the page's own server, nothing refused by the policy, no error."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        requests = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        assert requests, "the browser's network log is missing"
        outside = [url for url in requests if not url.startswith((self.url, "data:", "about:", "blob:"))]
        assert not outside
        if self.url.startswith("file:"):
            assert len([url for url in requests if url.startswith("file:")]) == 1
        problems = [
            entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]
        assert not problems, problems[:3]


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def in_group(record: list[Any], step: int, group: int) -> list[Any]:
    """The lines of `record` that the page shows as one group."""
    return [line for line in record if (line.step, line.group) == (step, group)]
