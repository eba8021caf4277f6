"""Who is let in, and that nobody is asked outside of this machine. Requests are made by hand, not by a browser."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import streamlit
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tests.app.browse import App, until
from whence.app.gate import Gate
from whence.app.server import UPLOAD_MIB, cookie_name

SCRIPT = next(Path(streamlit.__file__).parent.glob("static/static/js/index.*.js")).name
ROUTES = (
    "/",
    "/runs?run=beef",
    "/nowhere",
    "/favicon.png",
    f"/static/js/{SCRIPT}",
    "/_stcore/health",
    "/_stcore/host-config",
    "/_stcore/metrics",
    "/_stcore/script-health-check",
    "/_stcore/agent/openapi.json",
    "/_stcore/bidi-components/whence_divider/x.js",
    "/_stcore/upload_file/session/file",
    "/component/x/index.html",
    "/media/x.png",
    "/app/static/x",
    "//evil.example/",
    "/../../etc/passwd",
    "/%00",
)
PROTECTION = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: str


@pytest.fixture(scope="module")
def outside() -> Iterator[socket.socket]:
    """All that would leave this machine by way of the web comes here."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.1)
        yield proxy


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, outside: socket.socket) -> Iterator[App]:
    proxy = f"http://127.0.0.1:{outside.getsockname()[1]}"
    app = App(tmp_path_factory.mktemp("app") / "store", HTTP_PROXY=proxy, HTTPS_PROXY=proxy, ALL_PROXY=proxy)
    yield app
    app.end()


def host(app: App) -> str:
    return f"127.0.0.1:{app.port}"


def cookie(app: App, port: int | None = None) -> tuple[str, str]:
    return "Cookie", f"{cookie_name(port or app.port)}={app.token}"


def ask(app: App, path: str, *headers: tuple[str, str], method: str = "GET", body: bytes = b"") -> Answer:
    """As a program does: nothing is sent but the given headers. Host is that of the app unless another is given."""
    line = http.client.HTTPConnection("127.0.0.1", app.port, timeout=30)
    line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers if "Host" in dict(headers) else (("Host", host(app)), *headers):
        line.putheader(name, value)
    line.endheaders(body or None)
    response = line.getresponse()
    answer = Answer(response.status, response.headers, response.read().decode(errors="replace"))
    line.close()
    return answer


WEBSOCKET = (
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
)


def knock(app: App, *headers: tuple[str, str]) -> int:
    """Status of the answer to a websocket."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (*headers, *WEBSOCKET))
    with socket.create_connection(("127.0.0.1", app.port), timeout=30) as line:
        line.sendall(f"GET /_stcore/stream HTTP/1.1\r\n{lines}\r\n".encode())
        return int(line.recv(64).split()[1])


def test_nothing_is_answered_without_the_token(app: App) -> None:
    for path in ROUTES:
        for headers in ((), (("Cookie", f"{cookie_name(app.port)}=x"),), (("Cookie", f"whence={app.token}"),)):
            answer = ask(app, path, *headers)
            assert answer.status == 403, path
            assert "whence app" in answer.body
            assert len(answer.body) < 500
    own = ("Host", host(app)), ("Origin", app.address)
    assert knock(app, *own) == 403
    assert knock(app, *own, ("Cookie", f"{cookie_name(app.port)}={app.token[:-1]}")) == 403
    assert knock(app, *own, cookie(app)) == 101


def test_the_address_with_the_token_signs_a_browser_in(app: App) -> None:
    for path in ("/?token=", "/?token=x", f"/?token={app.token}x", f"/?Token={app.token}", f"/?x={app.token}"):
        assert ask(app, path).status == 403, path
    answer = ask(app, f"/runs?run=beef&token={app.token}&x=%2F")
    assert (answer.status, answer.headers["refresh"]) == (200, f"0;url={app.address}/runs?run=beef&x=%2F")
    assert app.token not in answer.body
    assert answer.headers["cache-control"] == "no-store"
    given = answer.headers["set-cookie"].split("; ")
    assert given[0] == "=".join((cookie_name(app.port), app.token))
    assert {part.lower() for part in given[1:]} == {"httponly", "path=/", "samesite=strict"}
    assert ask(app, "/", ("Cookie", given[0])).status == 200
    for path in ("//evil.example/", "/\\evil.example", "/<script>"):  # leads to the app, or nowhere
        answer = ask(app, f"{path}?token={app.token}")
        assert answer.headers.get("refresh", f"0;url={app.address}/").startswith(f"0;url={app.address}/"), path
        assert "<script>" not in answer.body


def test_every_answer_is_protected(app: App) -> None:
    for headers in ((), (cookie(app),), (cookie(app), ("Host", "evil.example"))):
        for path in (*ROUTES, f"/?token={app.token}"):
            answer = ask(app, path, *headers)
            assert {name: answer.headers[name] for name in PROTECTION} == PROTECTION, path
            policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
            assert re.fullmatch(r"'self' blob:( 'sha256-[\w+/=]{44}')+", policy["script-src"])
            assert policy["connect-src"] == "'self'"
            assert not {"frame-src", "object-src"} & set(policy), "no exceptions from default-src"


def test_only_the_names_of_this_machine_are_answered(app: App) -> None:
    names = ("evil.example", f"evil.example:{app.port}", "127.0.0.1.evil.example", "localhost.evil.example", "127.1")
    more = ("0.0.0.0", "[::1]", f"x@127.0.0.1:{app.port}", f"127.0.0.1:{app.port}/x", "127.0.0.1:", "", "localhost.")
    for name in (*names, *more):
        for path in ("/", f"/?token={app.token}", "/_stcore/health"):
            assert ask(app, path, ("Host", name), cookie(app)).status in (400, 421), (name, path)
        assert knock(app, ("Host", name), ("Origin", f"http://{name}"), cookie(app)) in (400, 403), name
    twice = ("Host", host(app)), ("Host", "evil.example"), cookie(app)
    assert ask(app, "/", *twice).status in (400, 421)
    assert ask(app, "/", *reversed(twice)).status in (400, 421)


def test_its_own_pages_are_let_in_also_through_a_tunnel(app: App) -> None:
    for name, port in (("127.0.0.1", app.port), ("localhost", app.port), ("localhost", 9000), ("127.0.0.1", 9000)):
        own = ("Host", f"{name}:{port}"), ("Origin", f"http://{name}:{port}"), cookie(app, port)
        assert ask(app, "/_stcore/health", *own).status == 200
        assert knock(app, *own) == 101


def test_pages_of_other_origins_are_refused_on_every_route_and_nobody_is_asked_about_them(
    app: App, outside: socket.socket
) -> None:
    other = app.port + 1 if app.port < 65535 else app.port - 1
    origins = ["http://evil.example", f"http://127.0.0.1:{other}", f"https://{host(app)}", "null", "", "file://"]
    for origin in (*origins, f"http://localhost:{app.port}", "http://127.0.0.1"):
        assert knock(app, ("Host", host(app)), ("Origin", origin), cookie(app)) == 403, origin
        for path in ROUTES:
            assert ask(app, path, ("Origin", origin), cookie(app)).status == 403, (origin, path)
        upload = ask(app, ROUTES[11], ("Origin", origin), cookie(app), ("Content-Length", "0"), method="PUT")
        assert upload.status == 403, origin
    assert knock(app, ("Host", host(app)), cookie(app)) == 403, "no Origin: no browser"
    twice = ("Host", host(app)), ("Origin", app.address), ("Origin", "http://evil.example"), cookie(app)
    assert knock(app, *twice) in (400, 403)
    with pytest.raises(TimeoutError):
        outside.accept()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # a page of another local port is of the same site
def test_other_sites_may_lead_to_the_app_and_not_load_anything_of_it(app: App, site: str) -> None:
    for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("navigate", "object")):
        sent = ("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)
        for path in (*ROUTES, f"/?token={app.token}"):
            assert ask(app, path, *sent, cookie(app)).status == 403, (mode, dest, path)
    link = ("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")
    assert ask(app, "/runs", *link, cookie(app)).status == 200
    assert ask(app, f"/?token={app.token}", *link).status == 200
    assert ask(app, "/runs", *link).status == 403


def test_only_methods_that_the_app_uses_are_answered(app: App) -> None:
    for method in ("POST", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PUT", "DELETE", "PROPFIND"):
        for path in ("/", "/_stcore/stream", "/_stcore/agent/interact", "/_stcore/health"):
            answer = ask(app, path, ("Origin", app.address), cookie(app), method=method)
            assert answer.status in (400, 405), (method, path)
    for method in ("POST", "OPTIONS"):
        assert ask(app, ROUTES[11], ("Origin", app.address), cookie(app), method=method).status == 405


@pytest.mark.parametrize(
    ("length", "status"),
    [(None, 411), ("x", 400), ("-1", 400), ("1" * 30, 400), (str(2**40), 413), (str(257 * 2**20), 413)],
)
def test_uploads_are_bounded_before_they_are_read(app: App, length: str | None, status: int) -> None:
    stated = (("Transfer-Encoding", "chunked"),) if length is None else (("Content-Length", length),)
    answer = ask(app, ROUTES[11], ("Origin", app.address), cookie(app), *stated, method="PUT")
    assert answer.status == status


def test_uploads_are_bounded_together(app: App) -> None:
    """Those in memory, those that are under way, and the next one."""
    arrived: list[str] = []

    async def streamlit(scope: Scope, receive: Receive, send: Send) -> None:
        arrived.append(scope["path"])
        await asyncio.sleep(0.05)
        await PlainTextResponse("")(scope, receive, send)

    async def upload(gate: Gate) -> int:
        statuses: list[int] = []

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        given = ("Host", host(app)), ("Origin", app.address), cookie(app), ("Content-Length", str(UPLOAD_MIB * 2**20))
        headers = [(name.lower().encode(), value.encode()) for name, value in given]
        scope = {"type": "http", "method": "PUT", "path": ROUTES[11], "query_string": b"", "headers": headers}
        await gate(scope, _nothing, send)
        return statuses[0]

    async def uploads() -> list[int]:
        gate = Gate(streamlit, app.token, "", uploaded=lambda: 5 * UPLOAD_MIB * 2**20)
        together = await asyncio.gather(*(upload(gate) for _ in range(5)))
        return [*together, await upload(gate)]

    with ThreadPoolExecutor() as beside_playwright:  # whose loop runs in this thread
        assert beside_playwright.submit(asyncio.run, uploads()).result() == [200, 200, 200, 413, 413, 200]
    assert len(arrived) == 4


async def _nothing() -> Message:
    return {"type": "http.request"}


def test_other_users_of_the_machine_do_not_see_the_token(tmp_path: Path) -> None:
    """They see the arguments of all processes."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}.tmp; mv {seen}.tmp {seen}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "whence", "app", "--port", "0", "--store", str(tmp_path / "store")]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        command[5] = str(probe.getsockname()[1])
    environment = {**os.environ, "BROWSER": f"{browser} %s"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)
    assert process.stdout is not None
    try:
        [token] = re.findall(r"\?token=([\w-]{32})\s", process.stdout.readline())
        until(seen.exists)
        [argument] = seen.read_text().splitlines()
        page = Path(argument.removeprefix("file://"))
        assert f"?token={token}" in page.read_text()
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        visible = [path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert any("whence.app.server" in line for line in visible)
        assert token not in "".join(visible) + argument
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
    assert not page.exists()
    assert list(tmp_path.joinpath("store").rglob("open-*")) == []


def test_every_start_has_a_new_token(app: App) -> None:
    before = app.token
    assert ask(app, "/", cookie(app)).status == 200
    app.kill()
    app.start()
    assert app.token != before
    assert ask(app, "/", ("Cookie", f"{cookie_name(app.port)}={before}")).status == 403


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_server_that_is_ended_ends_the_app(number: signal.Signals, tmp_path: Path, capfd: Any) -> None:
    app = App(tmp_path / "store")
    os.kill(app.server, number)
    assert app.process.wait(20) in (0, 1)
    app.end()
    assert "Traceback" not in capfd.readouterr().err
