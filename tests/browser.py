"""A real browser for the tests of the report: headless Chromium, offline, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ABSENT = "no Chromium on this machine: install it, or point CALIBRANT_CHROMIUM at one"
READY = "html[data-ready]"


def chromium() -> str | None:
    """Where Chromium is, or None."""
    found = (os.environ.get("CALIBRANT_CHROMIUM"), *map(shutil.which, NAMES))
    return next((path for path in found if path), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser that ends with the block."""
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
    """A report in the browser, and what it did that it must not do."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

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
        """Wait until something is true; the page's policy forbids Playwright's own way."""
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


@contextmanager
def opened(browser: Browser, path: Path, **options: Any) -> Iterator[Opened]:
    """A report opened offline from its file, ready for use."""
    context = browser.new_context(offline=True, **options)
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.set_default_timeout(120_000)  # a busy machine is no fault of the page
    found.page.goto(path.resolve().as_uri())
    found.page.wait_for_selector(READY, state="attached")
    try:
        yield found
    finally:
        context.close()
