"""Take the picture of the report for the README: the top of it, in a real browser."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.examples import load_example
from calibrant.report import write_report

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the tests' browser
from tests import browser as web  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZE = (1000, 1620)


def take_picture(browser: "Browser", path: Path, *, replicates: int = 1000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        models = {"digits, cross-entropy": load_example("cross_entropy")}
        write_report(models, report, replicates=replicates)
        with web.opened(browser, report, size=SIZE) as view:
            view.wait_until("document.getElementById('curve').data?.length")
            view.page.screenshot(path=path)


if __name__ == "__main__":
    with web.launched() as found:
        take_picture(found, ROOT / "docs" / "report.png")
