"""A real Chromium, for the tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.pages.shown import Shown


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.fail("no Chromium on PATH; Debian has it as the package chromium")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Shown]]:
    """Opens a file or an address; at the end nothing may have been fetched or complained of."""
    opened: list[Shown] = []

    def shown(target: Path | str, width: int = 1280, **context: Any) -> Shown:
        page = chromium.new_context(viewport={"width": width, "height": 900}, **context).new_page()
        found = Shown(page)
        page.on("console", lambda message: found.complaints.append(message.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url))
        url = target if isinstance(target, str) else target.as_uri()
        page.goto(url)
        opened.append(found)
        return found

    yield shown
    for found in opened:
        own = found.page.url.split("#")[0]
        found.page.context.close()
        assert found.complaints == []
        assert [url for url in found.requests if not url.startswith(("data:", own))] == []
