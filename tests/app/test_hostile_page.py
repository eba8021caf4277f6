"""A page of a stranger in the browser that has the app open: what it tries against the app is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.app.browse import App, Visitor, until
from whence.app.jobs import jobs
from whence.cli.app import OPENING

ATTACKS = """
const app = '%s', socket = app.replace('http', 'ws'), outcomes = {}, pending = [];
const attempt = (name, act) => pending.push(new Promise(resolve => {
  const done = outcome => { outcomes[name] = outcome; resolve(); };
  setTimeout(() => done('refused: no answer'), 8000);
  act(() => done('LET IN'), () => done('refused'), done);
}));
const load = (tag, attributes) => (good, bad) =>
  document.body.append(Object.assign(document.createElement(tag), attributes, { onload: good, onerror: bad }));
const read = (path, options) => (good, bad) => fetch(app + path, options).then(good, bad);
const blind = (path, options) => (good, bad, done) =>
  fetch(app + path, { mode: 'no-cors', credentials: 'include', ...options }).then(() => done('sent'), bad);

attempt('websocket', (good, bad) => Object.assign(new WebSocket(socket + '/_stcore/stream', ['streamlit']),
  { onopen: good, onerror: bad }));
attempt('read', read('/_stcore/health', { credentials: 'include' }));
attempt('read without credentials', read('/_stcore/host-config'));
attempt('upload', read('/_stcore/upload_file/session/file',
  { method: 'PUT', credentials: 'include', body: new FormData() }));
attempt('delete', read('/_stcore/upload_file/session/file', { method: 'DELETE', credentials: 'include' }));
attempt('blind read', blind('/_stcore/metrics'));
attempt('blind upload', blind('/_stcore/upload_file/session/file', { method: 'POST', body: new FormData() }));
attempt('blind agent', blind('/_stcore/agent/interact', { method: 'POST', body: '{}' }));
attempt('picture', load('img', { src: app + '/favicon.png' }));
attempt('script', load('script', { src: app + '%s' }));
attempt('module', load('script', { type: 'module', src: app + '%s' }));
attempt('style', load('link', { rel: 'stylesheet', href: app + '/static/css/none.css' }));
attempt('event source', (good, bad) => Object.assign(new EventSource(app + '/_stcore/stream'),
  { onopen: good, onerror: bad }));
attempt('beacon', (good, bad, done) => done(navigator.sendBeacon(app + '/_stcore/agent/interact', '{}') && 'sent'));
attempt('worker', (good, bad) => {
  try { new Worker(app + '%s').onerror = bad; } catch { bad(); }
});
for (const tag of ['iframe', 'object', 'embed'])
  document.body.append(Object.assign(document.createElement(tag), { src: app + '/runs', data: app + '/runs' }));
document.body.insertAdjacentHTML('beforeend', `<iframe name=sink></iframe>
  <form id=form method=post enctype=multipart/form-data target=sink action="${app}/_stcore/upload_file/session/file">
  <input name=x value=y></form>`);
document.getElementById('form').submit();
window.result = Promise.all(pending).then(() => outcomes);
"""


@pytest.fixture(scope="module")
def stranger() -> Iterator[ThreadingHTTPServer]:
    """Serves one empty page. Its Content-Type lets scripts be put into it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>stranger</title><body>")

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def signed_in(browser: Browser, app: App) -> Iterator[BrowserContext]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{app.address}/?token={app.token}")
    page.get_by_text("Instruments").first.wait_for()
    yield context
    context.close()


def script_of(page: Page) -> str:
    return page.evaluate("new URL(document.querySelector('script[src]').src).pathname")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])  # of the same site as the app, and of another
def test_a_page_of_a_stranger_reaches_nothing(
    signed_in: BrowserContext, app: App, stranger: ThreadingHTTPServer, name: str
) -> None:
    [own] = signed_in.pages
    script = script_of(own)
    tried: list[str] = []
    answers: list[tuple[str, int]] = []
    page = signed_in.new_page()
    page.on("request", lambda request: tried.append(request.url))
    page.on("response", lambda answer: answers.append((answer.url, answer.status)))
    page.goto(f"http://{name}:{stranger.server_port}/")
    page.evaluate(ATTACKS % (app.address, script, script, script))
    outcomes = page.evaluate("window.result")
    assert len(outcomes) == 15
    for attack, outcome in outcomes.items():
        assert outcome.startswith("refused") or (attack == "beacon" and outcome == "sent"), (attack, outcome)
    assert len([url for url in tried if url.startswith(app.address)]) >= 15
    frame, form = f"{app.address}/runs", f"{app.address}/_stcore/upload_file/session/file"
    until(lambda: {frame, form} <= set(dict(answers)) or page.wait_for_timeout(20), 30)
    seen = [(url, status) for url, status in answers if url.startswith(app.address)]
    assert all(status in (403, 405) for _, status in seen), seen
    assert jobs(app.store) == []
    assert own.evaluate("fetch('/_stcore/health').then(answer => answer.status)") == 200, "its own pages go on"


def test_a_link_of_a_stranger_may_lead_to_the_app_and_gets_no_hold_on_it(
    signed_in: BrowserContext, app: App, stranger: ThreadingHTTPServer
) -> None:
    page = signed_in.new_page()
    page.goto(f"http://127.0.0.1:{stranger.server_port}/")
    with signed_in.expect_page() as opened:
        page.evaluate(f"window.hold = window.open('{app.address}/runs')")
    opened.value.get_by_role("heading", name="Runs").first.wait_for()
    assert opened.value.evaluate("window.opener") is None
    assert page.evaluate("window.hold.closed")


def test_a_link_with_the_token_signs_in_from_anywhere(
    browser: Browser, app: App, stranger: ThreadingHTTPServer, tmp_path: Path
) -> None:
    """Such as from a mail to oneself, or from the file that `whence app` opens."""
    context = browser.new_context()
    page = context.new_page()
    address = f"{app.address}/runs?token={app.token}"
    file = tmp_path / "open.html"
    file.write_text(OPENING.format(address))
    for start in (
        f"http://localhost:{stranger.server_port}/",
        f"http://127.0.0.1:{stranger.server_port}/",
        file.as_uri(),
    ):
        context.clear_cookies()
        page.goto(start)
        if start.startswith("http"):
            page.evaluate(f"location = '{address}'")
        page.get_by_role("heading", name="Runs").first.wait_for()
        assert page.url == f"{app.address}/runs"
        assert page.evaluate("document.referrer").find("token") < 0
        assert app.token not in page.evaluate("document.cookie")
    context.close()


def test_a_browser_without_the_token_learns_how_to_get_in(browser: Browser, app: App) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{app.address}/runs")
    page.get_by_text("Copy the address that whence app printed").wait_for()
    context.close()


def test_scripts_that_get_into_a_page_do_not_run(visitor: Visitor, app: App) -> None:
    visitor.open()
    visitor.page.evaluate(
        """() => {
        document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror="document.title = `taken`">');
        document.body.append(Object.assign(document.createElement('script'), { text: 'document.title = "taken"' }));
        document.body.append(Object.assign(document.createElement('iframe'), { src: 'https://example.org' }));
        document.body.append(Object.assign(new Image(), { src: 'http://127.0.0.1:1/x.png' }));
        return fetch('http://127.0.0.1:1/').catch(() => 0);
        }"""
    )
    kinds = "inline event handler", "inline script", "Framing", "127.0.0.1:1/x.png", "Connecting to"
    until(lambda: all(kind in str(visitor.errors) for kind in kinds) or visitor.page.wait_for_timeout(20), 10)
    visitor.errors.clear()
    visitor.outside.clear()
    assert visitor.page.title() == "whence"
