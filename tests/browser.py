"""A real browser for the tests of the report: headless Chromium, offline, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ABSENT = "no Chromium on this machine: install it, or point CALIBRANT_CHROMIUM at one"
READY = "html[data-ready]"
SCREEN = (1280, 720)


def chromium() -> str | None:
    """Where Chromium is, or None."""
    found = (os.environ.get("CALIBRANT_CHROMIUM"), *map(shutil.which, NAMES))
    return next((path for path in found if path), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser, closed at the end of the block."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    assert path is not None, ABSENT
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A report open in the browser, with its console messages and requests."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _listeners: list[tuple[Any, Any]] = field(default_factory=list)

    def listen(self, event: Any, listener: Any) -> None:
        """Listen to an event of the page while this report is open."""
        self.page.on(event, listener)
        self._listeners.append((event, listener))

    def leave(self) -> None:
        """Leave the page as it was found."""
        for event, listener in self._listeners:
            self.page.remove_listener(event, listener)
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")

    def shown(self, metric: str, model: int = 0) -> str:
        """What the readout shows of a metric."""
        return self.page.inner_text(f'output[data-model="{model}"][data-metric="{metric}"]')

    def set_temperature(self, value: float) -> None:
        """Drag the slider there and wait until the page is drawn."""
        self.page.evaluate(
            """value => { const slider = document.getElementById("temperature");
            slider.value = value; slider.dispatchEvent(new Event("input")); }""",
            value,
        )
        self.settle()

    def wait_until(self, expression: str) -> None:
        """Poll an expression until it is true; the page's policy forbids Playwright's own wait."""
        for _ in range(200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}")

    def settle(self) -> None:
        """Wait for the next two frames, in which the page draws."""
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )


def _page(browser: Browser) -> Page:
    """The browser's only page: a new one takes three times as long to show a report."""
    if browser.contexts:
        return browser.contexts[0].pages[0]
    page = browser.new_context(offline=True).new_page()
    page.set_default_timeout(120_000)  # a busy machine is not the report's fault
    return page


@contextmanager
def opened(
    browser: Browser,
    path: Path,
    *,
    size: tuple[int, int] = SCREEN,
    scheme: Literal["light", "dark"] = "light",
) -> Iterator[Opened]:
    """A report opened offline from its file, ready for use."""
    found = Opened(_page(browser))
    found.page.set_viewport_size({"width": size[0], "height": size[1]})
    found.page.emulate_media(media="null", color_scheme=scheme)
    found.listen("console", lambda message: found.complaints.append(message.text))
    found.listen("pageerror", lambda error: found.complaints.append(str(error)))
    found.listen("request", lambda request: found.requests.append(request.url))
    try:
        found.page.goto(path.resolve().as_uri())
        found.page.wait_for_selector(READY, state="attached")
        yield found
    finally:
        found.leave()
