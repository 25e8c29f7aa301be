"""The browser fixture works: it sees errors, requests, colours and widths of a page."""

import struct
from pathlib import Path

import pytest

from tests.parts import requires
from tests.real.browser import Browser

pytestmark = requires("chromium")

PAGE = """<!doctype html><meta charset="utf-8"><title>Smoke</title>
<style>body { background: white } .wide { width: 900px; height: 1200px }
@media (prefers-color-scheme: dark) { body { background: black } }</style>
<div class="wide">hello</div><script>{script}</script>"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def page(tmp_path: Path):
    def write(script: str = "") -> Path:
        file = tmp_path / "page.html"
        file.write_text(PAGE.replace("{script}", script))
        return file

    return write


def test_a_quiet_page_logs_and_fetches_nothing_else(browser: Browser, page) -> None:
    file = page()
    browser.open(file)
    assert browser.console_errors() == []
    assert browser.requests() == [file.as_uri()]
    assert browser.evaluate("document.title") == "Smoke"


@pytest.mark.parametrize("script", ["console.error('it broke')", "throw new Error('it broke')"])
def test_a_console_error_is_reported_once(browser: Browser, page, script: str) -> None:
    browser.open(page(script))
    (message,) = browser.console_errors()
    assert "it broke" in message
    browser.open(page())
    assert browser.console_errors() == []


def test_a_request_to_elsewhere_is_seen(browser: Browser, page) -> None:
    browser.open(page("fetch('http://127.0.0.1:9/elsewhere').catch(() => 0)"))
    assert "http://127.0.0.1:9/elsewhere" in browser.requests()


def test_dark_and_light(browser: Browser, page) -> None:
    browser.open(page(), dark=True)
    assert browser.evaluate(BACKGROUND) == "rgb(0, 0, 0)"
    browser.open(page())
    assert browser.evaluate(BACKGROUND) == "rgb(255, 255, 255)"


def test_a_screenshot_has_the_width_that_was_asked_for(browser: Browser, page, tmp_path: Path) -> None:
    browser.open(page(), width=360)
    assert browser.evaluate("innerWidth") == 360
    assert browser.is_wider_than_view()
    width, height = struct.unpack(">II", browser.screenshot(tmp_path / "page.png").read_bytes()[16:24])
    assert width >= 360
    assert height > 1200
