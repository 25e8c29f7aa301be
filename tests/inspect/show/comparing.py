"""Expected text of views, and questions to a page in the browser."""

import os
from pathlib import Path
from typing import Any

from tests.real.browser import Browser

EXPECTED = Path(__file__).parent / "expected"


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


def points(browser: Browser) -> dict[str, int]:
    found: dict[str, Any] = browser.evaluate(
        "Object.fromEntries([...document.querySelectorAll('figure')].map(f => [f.dataset.chart, +f.dataset.points]))"
    )
    return found


def compare(name: str, text: str) -> None:
    file = EXPECTED / f"{name}.txt"
    if os.environ.get("VMSONAR_EXPECT") == "write":
        EXPECTED.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
