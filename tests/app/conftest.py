"""A browser for all tests of the app, an app and a store per file, a tab per test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import sync_playwright

from tests.app.browse import App, Visitor, launched
from whence.report.export import browser as found


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if found() is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium was found: install one, the app must be used in a browser before it is shipped")
        pytest.skip("no Chromium was found; the app is not tested in a browser")
    with sync_playwright() as playwright:
        browser = launched(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """On an empty store, which tests of this file fill."""
    app = App(tmp_path_factory.mktemp("app") / "store")
    yield app
    app.end()


@pytest.fixture
def visitor(browser: object, app: App) -> Iterator[Visitor]:
    visitor = Visitor(browser, app)  # type: ignore[arg-type]
    yield visitor
    visitor.leave()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Of a test that failed, the last thing its visitor saw."""
    report = (yield).get_result()
    visitor = getattr(item, "funcargs", {}).get("visitor")
    if report.when == "call" and report.failed and visitor is not None:
        seen = f"{item.name}.png"
        visitor.page.screenshot(path=visitor.app.store.root.parent / seen)
        report.sections.append(("what the visitor saw", str(visitor.app.store.root.parent / seen)))
