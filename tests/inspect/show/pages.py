"""Pages in the browser: written, opened when they are ready, and asked."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

from tests.making.machines import Machine
from tests.real.browser import Browser
from vmsonar.cli import run

#: A host name may hold no slash and no control; whoever forges one is refused before anything is shown.
HOSTILE_HOST = "<img src=x onerror=alert(1)> &amp; \"'`"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\x1b[31m &amp; \"'`"
# Text that is wider than the box that shows it, where the box neither scrolls nor says so by an ellipsis.
OVERFLOW = """(() => {
  const spills = [];
  for (const element of document.querySelectorAll('main *')) {
    if (element.closest('.scroll') && !element.matches('.scroll')) continue;
    const style = getComputedStyle(element);
    if (['auto', 'scroll'].includes(style.overflowX) || style.textOverflow === 'ellipsis') continue;
    if (style.display === 'inline' || !element.clientWidth) continue;
    if (element.scrollWidth > element.clientWidth + 1)
      spills.push(element.tagName + '.' + element.className + ': ' + element.textContent.slice(0, 60));
  }
  return spills;
})()"""
#: All charts are in view, and drawn, in a window as high as this.
TALL = 7000

_READY = """new Promise((done) => {
  const isDrawn = (chart) => chart.visible === false || (chart.visible && !chart.stale);
  const waits = ({chart}) => chart.figure.offsetParent && !isDrawn(chart);
  const look = () => {
    const busy = !document.documentElement.dataset.ready || [...document.querySelectorAll('figure')].some(waits);
    if (busy) setTimeout(look, 5); else requestAnimationFrame(() => requestAnimationFrame(done));
  };
  look();
})"""


def write(machine: Machine, folder: Path, seconds: float, *arguments: str) -> Path:
    root = machine.record(folder / "archive", seconds)
    page = folder / "page.html"
    assert run(["inspect", str(root), "--html", str(page), *arguments]) == 0
    return page


def show(browser: Browser, page: Path, fragment: str = "", **size: Any) -> None:
    """Opens a page and waits until its script has drawn it."""
    browser.open(f"{page.resolve().as_uri()}{fragment}", **size)
    settle(browser)


def settle(browser: Browser) -> None:
    browser.evaluate(_READY)


def data_of(page: Path) -> dict[str, Any]:
    """The data that the page's script draws."""
    packed = re.search(r'id="data">([^<]*)<', page.read_text())
    assert packed is not None
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return found


def points(browser: Browser, of: str = "points") -> dict[str, int]:
    """How many points, labels or marks each chart drew."""
    found: dict[str, Any] = browser.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('figure')].map(f => [f.dataset.chart, +f.dataset.{of}]))"
    )
    return found


def rows(browser: Browser, table: str, columns: int = 1) -> list[Any]:
    """The first cells of the rows that are in the document."""
    cells = browser.evaluate(
        f"[...document.querySelectorAll('#{table} tbody:not([aria-hidden]) tr')]"
        f".map(row => [...row.cells].slice(0, {columns}).map(cell => cell.textContent))"
    )
    return [row[0] for row in cells] if columns == 1 else list(cells)


def fragment(browser: Browser) -> str:
    """What the address says, after the time in which the page writes it."""
    return str(browser.evaluate("new Promise(done => setTimeout(() => done(location.hash), 400))"))


def click(browser: Browser, selector: str) -> None:
    browser.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
    settle(browser)


def ask(browser: Browser, selector: str, value: str, event: str = "input") -> None:
    browser.evaluate(
        f"(() => {{ const box = document.querySelector('{selector}'); box.value = '{value}';"
        f" box.dispatchEvent(new Event('{event}', {{bubbles: true}})); }})()"
    )
    settle(browser)
