"""A running app and a person in front of it: real server, real Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Download, Locator, Page, Playwright, TimeoutError, expect

from whence.report.export import browser
from whence.runs.store import Store

PATIENCE_MS = 120_000
"""The machine may be busy with other tests, and some pages start by importing torch."""


def until(holds: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def launched(playwright: Playwright) -> Browser:
    """The browser of this machine."""
    return playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])


class App:
    """`whence app` on a store."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root.absolute())
        self.store.prepare()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("WHENCE_STORE", None)
        options = ["--no-browser", "--json", "--port", str(self.port), "--store", str(self.store.root)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "whence", "app", *options],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.store.root.parent,  # whatever it might write where it stands would be seen
            start_new_session=True,
        )
        assert self.process.stdout is not None
        lines = ""
        while True:  # one JSON document, over several lines
            line = self.process.stdout.readline()
            assert line, "the app ended before it was there"
            lines += line
            if line.rstrip() == "}":
                break
        told = json.loads(lines)
        assert told["address"] == self.address
        self.server: int = told["process"]

    def _gone(self) -> None:
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        """Everything of the app, without a word of warning. What it has started is in sessions of its own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._gone()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self._gone()


class Visitor:
    """One tab. Remembers every request that would have left the machine, and every error of the page's own scripts."""

    def __init__(self, browser: Browser, app: App, width: int = 1280, scheme: Any = "light") -> None:
        self.app = app
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", lambda request: self._note(request.url))
        self.page.on("websocket", lambda socket: self._note(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note(self, url: str) -> None:
        if not re.match(rf"(https?|wss?)://127\.0\.0\.1:{self.app.port}/|data:|blob:|about:", url):
            self.outside.append(url)

    def open(self, path: str = "") -> None:
        self.page.goto(f"{self.app.address}/{path}")
        self.settled()

    def settled(self) -> None:
        """The page has been made to its end."""
        expect(self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')).to_be_visible(
            timeout=PATIENCE_MS
        )
        expect(self.page.locator('[data-testid="stAppSkeleton"]')).to_have_count(0, timeout=PATIENCE_MS)

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        found = self.page.get_by_text(text).first
        expect(found).to_be_visible(timeout=PATIENCE_MS)
        return found

    def insist(self, action: Callable[[], object], answer: str | re.Pattern[str]) -> Locator:
        """As a person does: what has no answer, because the page was just being made anew, is done again."""
        found = self.page.get_by_text(answer).first
        for _ in range(5):
            action()
            try:
                expect(found).to_be_visible(timeout=15_000)
                return found
            except AssertionError:
                continue
        return self.sees(answer)

    def download(self, name: str) -> Download:
        """By a button; pressed again, where it was pressed in the moment in which a page was made anew."""
        for _ in range(3):
            with suppress(TimeoutError), self.page.expect_download(timeout=30_000) as started:
                self.page.get_by_role("button", name=name, exact=True).click()
                return started.value
        raise AssertionError(f"nothing was downloaded by {name!r}")

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).first.click()
        self.settled()

    def choose(self, label: str, option: str) -> None:
        """In a box with a list."""
        box = self.page.get_by_role("combobox", name=label).first
        box.click()
        self.page.get_by_role("option", name=option, exact=True).first.click()
        self.settled()

    def pick(self, label: str, *values: str) -> None:
        """In a box that holds several: what was there goes, these come, chosen or typed."""
        box = self.page.get_by_role("combobox", name=label, exact=True)
        group = self.page.get_by_role("group").filter(has=box).last
        there = group.get_by_role("button", name="Clear all")
        while there.count():
            there.click()
            self.settled()
        for value in values:
            box.fill(value)
            box.press("Enter")
            box.press("Escape")  # the open list hides all else from those who cannot see
            self.settled()
            expect(group.get_by_text(value, exact=True).first).to_be_visible()

    def write(self, label: str, text: str) -> None:
        """Into a field, leaving it afterwards."""
        field = self.page.get_by_label(label, exact=True).first
        field.fill(text)
        field.press("Enter")
        self.settled()

    def tick(self, row: int) -> None:
        """A row of a table of many, at its left end. The table is drawn, not built: it is clicked at a place."""
        table = self.page.get_by_test_id("stDataFrame").first
        table.scroll_into_view_if_needed()
        table.click(position={"x": 16, "y": 35 + 35 * row + 17})

    def leave(self) -> None:
        self.context.close()
        assert not self.outside, f"requests left the machine: {self.outside}"
        assert not self.errors, f"scripts of the page failed: {self.errors}"
