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

from playwright.sync_api import Browser, ConsoleMessage, Download, Locator, Page, Playwright, TimeoutError, expect

from tests.app.wire import Wire
from whence.app.jobs import jobs
from whence.report.export import browser
from whence.store.runs import Store

PATIENCE_MS = 120_000
"""The machine may be busy with other tests, and some pages start by importing torch."""
expect.set_options(timeout=PATIENCE_MS)

SOON_MS = 10_000
"""What has not happened by then will not, unless it is tried again."""


def until(holds: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def launched(playwright: Playwright) -> Browser:
    """The browser of this machine."""
    return playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])


class App:
    """`whence app` on a store."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.environment = environment
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
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.environment}
        for name in ("WHENCE_STORE", "PYTHONUNBUFFERED"):  # as most terminals are
            environment.pop(name, None)
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
        self.token = told["address"].removeprefix(f"{self.address}/?token=")
        self.server: int = told["process"]

    def _gone(self) -> None:
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        """Without a word of warning. Its server ends with it; what it has started is in sessions of its own."""
        os.kill(self.process.pid, signal.SIGKILL)
        self._gone()
        until(lambda: not Path(f"/proc/{self.server}").exists())

    def end(self) -> None:
        """And what it has started, which a test that failed may have left running."""
        for job in jobs(self.store):
            job.stop()
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
        self.signed_in = ""
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wire = Wire(self.page)
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.context.on("request", lambda request: self._note(request.url))
        self.page.on("websocket", lambda socket: self._note(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._listen)

    def _note(self, url: str) -> None:
        if not re.match(rf"(https?|wss?)://127\.0\.0\.1:{self.app.port}/|data:|blob:|about:", url):
            self.outside.append(url)

    def _listen(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.errors.append(message.text)

    def open(self, path: str = "") -> None:
        self.wire.ask("page")
        if self.signed_in != self.app.token:  # as by the address that `whence app` prints
            path += f"{'&' if '?' in path else '?'}token={self.app.token}"
            self.signed_in = self.app.token
        self.page.goto(f"{self.app.address}/{path}")
        self.settled()

    def settled(self) -> None:
        """What was asked for last has been answered, and the page has been made to its end."""
        self.page.wait_for_timeout(50)  # a page tells its server a moment after a click
        until(lambda: self.wire.answered or self.page.wait_for_timeout(20), PATIENCE_MS / 1000)
        expect(self.page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]')).to_be_visible()
        expect(self.page.locator('[data-testid="stAppSkeleton"]')).to_have_count(0)

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        found = self.page.get_by_text(text).first
        expect(found).to_be_visible()
        return found

    def again(self, action: Callable[[], object]) -> None:
        """As a person does: what the page took away from under the cursor is tried again."""
        for last in (False, False, False, True):
            try:
                action()
                return
            except (TimeoutError, AssertionError):
                if last:
                    raise
                self.page.keyboard.press("Escape")  # an open list hides all else
                self.settled()

    def insist(self, action: Callable[[], object], answer: str | re.Pattern[str]) -> Locator:
        """What has no answer, because the page was just being made anew, is done again."""
        found = self.page.get_by_text(answer).first

        def attempt() -> None:
            action()
            expect(found).to_be_visible(timeout=SOON_MS)

        self.again(attempt)
        return found

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

    def choose(self, label: str, option: str | re.Pattern[str]) -> None:
        """In a box with a list."""

        def attempt() -> None:
            self.page.get_by_role("combobox", name=label, exact=True).first.click()
            exact = isinstance(option, str)
            self.page.get_by_role("option", name=option, exact=exact).first.click(timeout=SOON_MS)
            self.settled()

        self.again(attempt)

    def pick(self, label: str, *values: str) -> None:
        """In a box that holds several: what was there goes, these come, chosen or typed."""
        box = self.page.get_by_role("combobox", name=label, exact=True)
        group = self.page.get_by_role("group").filter(has=box).last
        there = group.get_by_role("button", name="Clear all")

        def attempt() -> None:
            expect(box).to_be_visible()
            if there.count():
                there.click(timeout=SOON_MS)
                self.settled()
            for value in values:
                self._type(box, value)
                expect(group.get_by_text(value, exact=True).first).to_be_visible(timeout=SOON_MS)
            expect(group.get_by_role("button", name=re.compile("^Remove "))).to_have_count(len(values), timeout=SOON_MS)

        self.again(attempt)

    def fill(self, label: str, text: str) -> None:
        """In a box with a list that takes other text as well."""
        self._type(self.page.get_by_role("combobox", name=label, exact=True), text)

    def _type(self, box: Locator, text: str) -> None:
        box.fill(text)
        box.press("Enter")
        box.press("Escape")  # the open list hides all else from those who cannot see
        self.settled()

    def write(self, label: str, text: str) -> None:
        """Into a field, leaving it afterwards."""
        field = self.page.get_by_label(label, exact=True).first
        field.fill(text)
        field.press("Enter")
        self.settled()

    def upload(self, name: str, data: bytes | Path) -> None:
        """A picture, or what calls itself one. A path, where it is so large that only the browser should carry it."""
        self.settled()
        file: Any = data
        if isinstance(data, bytes):
            file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
        self.page.locator('input[type="file"]').set_input_files(file)

    def tick(self, row: int) -> None:
        """A row of a table of many, at its left end. The table is drawn, not built: it is clicked at a place."""
        table = self.page.get_by_test_id("stDataFrame").first
        table.scroll_into_view_if_needed()
        table.click(position={"x": 16, "y": 35 + 35 * row + 17})

    def leave(self) -> None:
        self.context.close()
        assert not self.outside, f"requests left the machine: {self.outside}"
        assert not self.errors, f"scripts of the page failed: {self.errors}"
