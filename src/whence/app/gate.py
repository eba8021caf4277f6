"""The gate of the app, which checks every request before Streamlit.

A server on 127.0.0.1 can be reached by every web page that a browser on this machine shows and by every user of this
machine. Other pages are recognized by the headers that browsers add to requests, other users by a missing token.
"""

from __future__ import annotations

import hmac
import html
import re
from collections.abc import Callable
from html.parser import HTMLParser

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whence.app.server import UPLOADS_MIB, cookie_name
from whence.report.shell import script_hash

# Any port, since that of a tunnel (ssh -L 9000:127.0.0.1:8501) is not that of the server. Other names are refused:
# somebody else may have given them this machine's address (DNS rebinding). A page from another local port is refused
# because its Origin has that port and Host has ours.
HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::(\d{1,5}))?")
TARGET = re.compile(r"/[!-~]*")
UPLOADS = "/_stcore/upload_file/"
POLICY = (
    "default-src 'none'; script-src 'self' blob:{scripts}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""docs/security.md lists the exceptions that Streamlit needs."""
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_STORED = {"Cache-Control": "no-store"}
PAGE = "<!doctype html><html lang=en><meta charset=utf-8><title>whence</title><h1>{}</h1><p>{}</p></html>"
HOW_TO_SIGN_IN = (
    "Copy the address that <code>whence app</code> printed, including its token, into the address bar of this browser. "
    "Every start of the app has a new token."
)


class Refusal(Exception):
    """The answer to a refused request."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.answer = HTMLResponse(PAGE.format(reason, HOW_TO_SIGN_IN), status, NOT_STORED)


class InlineScripts(HTMLParser):
    """The texts of the inline scripts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and "src" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts.append(data)


class Gate:
    """Passes requests of the app's own pages on, once their browser has presented the token.

    page: Streamlit's page, whose inline scripts are allowed. uploaded: returns the bytes of uploads in memory.
    """

    def __init__(self, app: ASGIApp, token: str, page: str, uploaded: Callable[[], int]) -> None:
        self._app, self._token, self._uploaded = app, token.encode(), uploaded
        scripts = "".join(f" {script_hash(text)}" for text in InlineScripts(page).texts)
        self._headers = {**HEADERS, "Content-Security-Policy": POLICY.format(scripts=scripts)}
        self._uploading = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        send = _with_headers(send, self._headers)
        length = 0
        try:
            host, port = _checked_host(headers)
            _check_source(scope, headers, host)
            answer = self._sign_in(scope, headers, host, cookie_name(port))
            length = self._upload_length(scope, headers)
        except Refusal as refusal:
            answer = refusal.answer
        if answer is None:
            self._uploading += length
            try:
                await self._app(scope, receive, send)
            finally:
                self._uploading -= length
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # the server answers with HTTP 403
        else:
            await answer(scope, receive, send)

    def _sign_in(self, scope: Scope, headers: Headers, host: str, cookie: str) -> Response | None:
        """None for a browser that is signed in. An address with the token is redirected to the address without it."""
        query: list[str] = scope["query_string"].decode("latin-1").split("&")
        tokens = [part.removeprefix("token=") for part in query if part.startswith("token=")]
        signed_in = self._is_token(cookie_parser(headers.get("cookie", "")).get(cookie, ""))
        token_link = bool(tokens) and scope["type"] == "http"
        if not signed_in and not (token_link and any(map(self._is_token, tokens))):
            raise Refusal(403, "Not signed in")
        if not token_link:
            return None
        rest = "&".join(part for part in query if not part.startswith("token="))
        target = scope["raw_path"].decode("latin-1") + f"?{rest}" * bool(rest)
        if not TARGET.fullmatch(target):
            raise Refusal(400, "Not an address of the app")
        # A redirect by status would be followed without the cookie where the link is on another site or in a file,
        # because the cookie is SameSite=Strict; one by a page of ours is not.
        there = f"http://{host}{target}"
        page = PAGE.format("Signed in", f'<a href="{html.escape(there)}">Continue</a>')
        answer = HTMLResponse(page, headers={"Refresh": f"0;url={there}", **NOT_STORED})
        answer.set_cookie(cookie, self._token.decode(), path="/", httponly=True, samesite="strict")
        return answer

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._token)

    def _upload_length(self, scope: Scope, headers: Headers) -> int:
        if scope["type"] != "http" or scope["method"] != "PUT":
            return 0
        length = headers.get("content-length", "")
        if not re.fullmatch(r"\d{1,15}", length):
            raise Refusal(411, "Expected an upload of stated length")
        if int(length) + self._uploading + self._uploaded() > UPLOADS_MIB * 2**20:
            raise Refusal(413, "Too many uploads in memory")
        return int(length)


def _checked_host(headers: Headers) -> tuple[str, str]:
    """Name and port as the browser knows them, and the port alone."""
    [host, *others] = headers.getlist("host") or [""]
    match = HOST.fullmatch(host)
    if not match or others:
        raise Refusal(421, "Not the address of the app")
    return host, match[1] or "80"


def _check_source(scope: Scope, headers: Headers, host: str) -> None:
    """Whether the request comes from a page of the app, or from nowhere: an address that was typed or followed."""
    origins = headers.getlist("origin")
    method = scope.get("method", "")  # none of a websocket
    reads = method in ("GET", "HEAD")
    if method and not reads and not (method in ("PUT", "DELETE") and scope["path"].startswith(UPLOADS)):
        raise Refusal(405, "Not a method of the app")
    own = origins == [f"http://{host}"] or (reads and not origins)
    foreign_site = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    link = reads and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    if not own or (foreign_site and not link):
        raise Refusal(403, "Requests from other origins are refused")


def _with_headers(send: Send, added: dict[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(added)
            for name in [name for name in headers if name.startswith("access-control-")]:
                del headers[name]
        await send(message)

    return send_with_headers
