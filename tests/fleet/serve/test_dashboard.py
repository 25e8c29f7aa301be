"""The dashboard in Chromium: a new machine appears, down to a job and back by address, roles, colours, keyboard."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.serve.place import HIS, Site, file_machine, make_fleet, site_of
from tests.making.machines import Load, Machine
from tests.parts import axe_script, requires
from tests.real.browser import Browser

pytestmark = requires("chromium")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    folder = tmp_path_factory.mktemp("live")
    fleet, hosts = make_fleet(folder)
    for site in site_of(fleet, folder / "state"):
        site.catch_up()
        yield site, hosts


def show(browser: Browser, site: Site, who: str, path: str, **settings: Any) -> None:
    address = f"http://x:{site.tokens[who]}@{site.client.base_url.host}:{site.client.base_url.port}"
    browser.open(address + path, **settings)
    assert until(browser, "document.documentElement.dataset.ready === 'true'")


def until(browser: Browser, holds: str, seconds: float = 15) -> bool:
    pause = threading.Event()
    return any(browser.evaluate(holds) or pause.wait(0.2) for _ in range(int(seconds * 5)))


def text(browser: Browser) -> str:
    return str(browser.evaluate("document.body.innerText"))


def test_a_new_machine_appears(browser: Browser, live: tuple[Site, dict[str, str]], tmp_path: Path) -> None:
    site, _ = live
    show(browser, site, "admin", "/")
    assert "3 machines" in text(browser)
    assert "gone without a word" in text(browser).lower()
    file_machine(
        site.fleet,
        Machine(hostname="vm-new", machine_id=f"{9:032x}", loads=[Load(100, "./new", begin=0)]),
        tmp_path,
    )
    site.catch_up()
    assert until(browser, "document.body?.innerText.includes('4 machines')", 40)
    assert "vm-new" in text(browser)
    assert browser.console_errors() == []


def test_down_to_a_job_and_back_by_address(browser: Browser, live: tuple[Site, dict[str, str]]) -> None:
    site, hosts = live
    show(browser, site, "admin", "/?last=30d")
    browser.evaluate(
        "[...document.querySelectorAll('#machines a')].find(a => a.textContent === 'vm-shared').click()"
    )
    assert until(browser, f"location.pathname === '/machines/{hosts['vm-shared']}'")
    assert until(browser, "document.documentElement.dataset.ready === 'true'")
    assert browser.evaluate("location.search") == "?last=30d"
    browser.evaluate("[...document.querySelectorAll('#jobs a')].find(a => a.textContent === '200').click()")
    assert until(browser, "document.getElementById('one').innerText.includes('Busy cores')")
    assert browser.evaluate("location.hash").startswith("#job=")
    browser.evaluate("location.reload()")
    assert until(browser, "document.getElementById('one')?.innerText.includes('secret-work')")
    browser.evaluate("history.back()")
    assert until(browser, "document.getElementById('one').hidden")
    browser.evaluate("history.back()")
    assert until(browser, "location.pathname === '/'")


def test_nothing_of_his_in_her_browser(
    browser: Browser, live: tuple[Site, dict[str, str]], tmp_path: Path
) -> None:
    site, hosts = live
    for path in ("/", f"/machines/{hosts['vm-shared']}"):
        show(browser, site, "anna", path)
        assert not [word for word in HIS if word in text(browser)]
        assert "solve" in text(browser)
        browser.screenshot(tmp_path / f"anna{len(path)}.png")
    origin = f"http://{site.client.base_url.host}:{site.client.base_url.port}/"
    asked = [url for url in browser.requests() if not url.startswith(("data:", "about:"))]
    assert asked
    assert all(
        url.split("@")[-1].startswith(origin.removeprefix("http://")) or url.startswith(origin)
        for url in asked
    )


@requires("axe")
@pytest.mark.parametrize("dark", [False, True])
def test_nobody_is_kept_out(browser: Browser, live: tuple[Site, dict[str, str]], dark: bool) -> None:
    site, hosts = live
    for path in ("/", f"/machines/{hosts['vm-shared']}"):
        show(browser, site, "admin", path, dark=dark)
        browser.evaluate(axe_script().read_text())
        found = browser.evaluate("""axe.run({resultTypes: ['violations']}).then(found => found.violations.map(each =>
            [each.id, each.impact, each.nodes.slice(0, 3).map(node => node.html.slice(0, 160))]))""")
        assert [each for each in found if each[1] in ("serious", "critical")] == []
        assert not browser.is_wider_than_view()
        colour = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert colour == ("rgb(18, 22, 28)" if dark else "rgb(246, 247, 249)")


def test_by_keyboard_to_a_machine(browser: Browser, live: tuple[Site, dict[str, str]]) -> None:
    site, _ = live
    show(browser, site, "admin", "/")
    for _ in range(120):
        browser.press("Tab")
        if browser.evaluate("document.activeElement.closest('#machines td a') !== null"):
            break
    browser.press("Enter")
    assert until(browser, "location.pathname.startsWith('/machines/')")
