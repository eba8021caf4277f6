"""Who is let in, and that nobody is asked outside of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.app.browse import App

ACCEPTED, TURNED_AWAY = b"HTTP/1.1 101", b"HTTP/1.1 403"


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


def knock(app: App, host: str, origin: str) -> bytes:
    """As a page of that origin does that has found this address under that name."""
    lines = [
        "GET /_stcore/stream HTTP/1.1",
        f"Host: {host}",
        f"Origin: {origin}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ]
    with socket.create_connection(("127.0.0.1", app.port), timeout=30) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode())
        return line.recv(64)


def test_its_own_pages_are_let_in(app: App) -> None:
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{app.port}"
        assert knock(app, host, f"http://{host}").startswith(ACCEPTED)


def test_a_site_that_gives_itself_this_machines_address_is_turned_away(app: App) -> None:
    host = f"evil.example:{app.port}"
    assert knock(app, host, f"http://{host}").startswith(TURNED_AWAY)


def test_pages_of_other_sites_are_turned_away_and_nobody_is_asked_about_them(app: App, outside: socket.socket) -> None:
    assert knock(app, f"127.0.0.1:{app.port}", "http://evil.example").startswith(TURNED_AWAY)
    with pytest.raises(TimeoutError):
        outside.accept()
