"""Headless Chromium, driven by chromedriver: what a page shows, logs and fetches."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts import need

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

SECONDS = 60
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-sync",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--no-first-run",
)


class Browser:
    """One window; each `open` begins with an empty log, light colours and a width of 1280."""

    def __init__(self, driver: "Chrome") -> None:
        self._driver = driver

    def open(self, page: Path | str, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Loads a file or a URL, and returns when it has loaded."""
        self._driver.get("about:blank")
        self._drop_logs()
        self.resize(width, height)
        self.use_dark(dark)
        self._driver.get(page.resolve().as_uri() if isinstance(page, Path) else page)

    def resize(self, width: int, height: int = 800) -> None:
        """The size of the page's view, in CSS pixels (narrower than a window can be)."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                   mobile=False)  # fmt: skip

    def use_dark(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:500])
        return answer["result"].get("value")

    def press(self, key: str, shift: bool = False) -> None:
        """A key of the keyboard, where the focus is: a letter, or a name such as `Tab` or `ArrowRight`."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "End": 35}
        more = {
            "key": key,
            "modifiers": 8 if shift else 0,
            "windowsVirtualKeyCode": codes.get(key, ord(key[0])),
        }
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", **more)

    def drag(self, begin: tuple[float, float], end: tuple[float, float], steps: int = 10) -> None:
        """Presses the mouse at one place of the view, moves it and lets go at another."""
        self._mouse("mousePressed", *begin)
        for step in range(1, steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in zip(begin, end, strict=True))
            self._mouse("mouseMoved", x, y)
        self._mouse("mouseReleased", *end)

    def point(self, x: float, y: float) -> None:
        self._mouse("mouseMoved", x, y, held=False)

    def _mouse(self, kind: str, x: float, y: float, held: bool = True) -> None:
        button = "left" if held else "none"
        self._call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(held), clickCount=1
        )

    def print_pdf(self) -> bytes:
        return base64.b64decode(self._call("Page.printToPDF")["data"])

    def console_errors(self) -> list[str]:
        """What the page logged as errors since the last call: exceptions, console.error, failed loads."""
        return [entry["message"] for entry in self._driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """URLs that were asked for since the last call, the page's own first."""
        events = (json.loads(entry["message"])["message"] for entry in self._driver.get_log("performance"))
        asked = (event for event in events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in asked]

    def screenshot(self, file: Path, whole_page: bool = True) -> Path:
        """Writes a PNG of the page at its current width."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole_page)
        file.write_bytes(base64.b64decode(answer["data"]))
        return file

    def is_wider_than_view(self) -> bool:
        """Must a reader scroll sideways?"""
        root = "document.documentElement"
        return bool(self.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def _call(self, method: str, **parameters: object) -> dict[str, Any]:
        return dict(self._driver.execute_cdp_cmd(method, parameters))

    def _drop_logs(self) -> None:
        for kind in ("browser", "performance"):
            self._driver.get_log(kind)


def start_driver(folder: Path) -> "Chrome":
    """Starts Debian's Chromium with an empty profile."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in (*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService("/usr/bin/chromedriver", log_output=str(folder / "chromedriver.log"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(SECONDS)
    return driver


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the whole session."""
    need("chromium")
    driver = start_driver(tmp_path_factory.mktemp("chromium"))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
