"""The page of a run that goes on, in a real Chromium: it renews itself, and what its reader does stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aiperf.commands.serve import LivePage, address
from aiperf.journal.run_files import RunFiles
from tests.aiperf.commands.test_serving import TOKEN, served
from tests.analysis.pages.shown import Shown
from tests.analysis.pages.test_pages import SCREENSHOTS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


@dataclass
class Growing:
    """A run of which more and more lines are written."""

    files: RunFiles
    lines: list[bytes]

    def until(self, word: bytes) -> None:
        """All lines up to the first with this word, which is the last one."""
        ends = next(i for i, line in enumerate(self.lines) if word in line)
        self.write(ends + 1)

    def write(self, count: int) -> None:
        self.files.journal.write_bytes(b"".join(self.lines[:count]))


@pytest.fixture
def growing(run: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    monkeypatch.setattr("aiperf.commands.serve.LEAST_SECONDS", 0.3)
    monkeypatch.setattr("aiperf.commands.serve.SHARE_OF_TIME", 1.0)
    files = RunFiles(tmp_path / "growing")
    files.directory.mkdir()
    return Growing(files, run.journal.read_bytes().splitlines(keepends=True))


@pytest.fixture
def opened(growing: Growing, show: Callable[..., Shown]) -> Iterator[Callable[..., Shown]]:
    """Opens the page of that run; in the end nothing but the page may have been asked for."""
    with served(LivePage(growing.files)) as server:
        url = address(server, TOKEN)
        shown: list[Shown] = []

        def page(**context: Any) -> Shown:
            shown.append(show(url, **context))
            return shown[-1]

        yield page
        for one in shown:
            one.page.goto("about:blank")  # before the server goes
            assert set(one.requests) <= {url, "about:blank"}
            one.requests.clear()


def refreshed(page: Any) -> None:
    """Waits until the page has dealt with two answers that it asked for from now on."""
    for _ in range(2):
        with page.expect_response(lambda _: True, timeout=20_000) as answer:
            pass
        answer.value.finished()
    page.wait_for_timeout(100)


def test_a_served_run_refreshes_itself(growing: Growing, opened: Callable[..., Shown]) -> None:
    growing.write(len(growing.lines) // 2)
    shown = opened()
    page = shown.page
    assert page.locator(".badge").inner_text() == "running"
    before = page.locator(".key dd.value").first.inner_text()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "live.png", full_page=True)
    page.locator("th button", has_text="host").click()
    page.locator("#curve summary").click()
    page.locator("#curve summary").focus()
    growing.write(len(growing.lines))
    page.locator(".badge", has_text="ended: deadline").wait_for(timeout=20_000)
    assert page.locator(".badge").nth(1).inner_text() == "VALID"
    assert page.locator(".key dd.value").first.inner_text() != before
    assert page.title().endswith(": VALID")
    assert page.locator("th", has_text="host").get_attribute("aria-sort") == "ascending"
    assert page.locator("#curve details").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert page.locator("#stale").is_hidden()
    away = growing.files.directory / "away"
    growing.files.journal.rename(away)
    page.locator("#stale", has_text="no journal at").wait_for(timeout=20_000)
    assert "The page below is from" in page.locator("#stale").inner_text()
    away.rename(growing.files.journal)
    page.locator("#stale").wait_for(state="hidden", timeout=20_000)
    shown.complaints.clear()  # the browser names the answer 500
    page.locator("#curve .plot").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#curve .tip").inner_text()


@pytest.mark.parametrize("what", ["#curve summary", "#groups th >> nth=1"])
def test_a_press_outlasts_a_refresh(what: str, growing: Growing, opened: Callable[..., Shown]) -> None:
    """On a busy machine, or by a slow finger, the page is renewed between press and release."""
    growing.write(len(growing.lines) // 2)
    page = opened().page
    pressed = page.locator(what).locator("button") if "th" in what else page.locator(what)
    pressed.hover()
    page.mouse.down()
    refreshed(page)
    page.mouse.up()
    assert page.locator("#curve details[open], #groups th[aria-sort]").count() == 1
    refreshed(page)
    assert page.locator("#curve details[open], #groups th[aria-sort]").count() == 1


def test_a_key_outlasts_a_refresh(growing: Growing, opened: Callable[..., Shown]) -> None:
    growing.write(len(growing.lines) // 2)
    page = opened().page
    page.locator("#curve summary").focus()
    page.keyboard.down("Space")
    refreshed(page)
    page.keyboard.up("Space")
    assert page.locator("#curve details[open]").count() == 1


def test_what_a_reader_does_stays_where_a_part_of_the_page_is_new(
    growing: Growing, opened: Callable[..., Shown]
) -> None:
    growing.until(b'"Released"')
    page = opened(width=400).page
    assert page.locator("#curve .plot").count() == 0
    host = page.locator("#groups th", has_text="host")
    host.locator("button").click()
    host.locator("button").focus()
    scroller = "document.querySelector('#groups .scroll')"  # looked for and used in one breath
    page.evaluate(f"{scroller}.scrollLeft = 60")
    growing.write(len(growing.lines) // 2)
    page.locator("#curve .plot").wait_for(timeout=20_000)
    assert host.get_attribute("aria-sort") == "ascending"
    assert page.locator("#curve th[aria-sort]").count() == 0
    assert page.evaluate("document.activeElement.closest('th').textContent") == "host"
    assert page.evaluate(f"{scroller}.scrollLeft") == 60
