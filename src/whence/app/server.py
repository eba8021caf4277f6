"""The server: Streamlit on 127.0.0.1. Its process is `python -m whence.app.server`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from whence.errors import UserError
from whence.store.runs import Store

ADDRESS = "127.0.0.1"
PORT = 8501
PATIENCE_SECONDS = 60
UPLOAD_MIB = 32
"""Largest upload"""
UPLOADS_MIB = 8 * UPLOAD_MIB
"""All uploads in memory, of all tabs"""
STORE = "WHENCE_APP_STORE"
"""Environment variable with the store. Not $WHENCE_STORE, which determines the --store flag of commands to copy."""
TOKEN = "WHENCE_APP_TOKEN"
"""In the environment, because all users of a machine can see the arguments of a process."""

OPTIONS = {
    "server.address": ADDRESS,
    "server.headless": True,  # whence opens the browser when the server is ready
    "server.fileWatcherType": "none",
    "server.maxUploadSize": UPLOAD_MIB,
    "server.enableXsrfProtection": True,
    "server.enableCORS": True,
    "server.enableAgentApi": False,
    "server.enableStaticServing": False,
    "server.showEmailPrompt": False,
    "browser.gatherUsageStats": False,
    "browser.serverAddress": ADDRESS,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "client.showErrorLinks": False,
    "logger.level": "warning",
    "theme.light.primaryColor": "#0072B2",
    "theme.light.linkColor": "#005A8D",
    "theme.dark.primaryColor": "#2880BD",
    "theme.dark.linkColor": "#7CC5EF",
    "theme.font": "system-ui, sans-serif",
    "theme.headingFont": "system-ui, sans-serif",
    "theme.codeFont": "ui-monospace, monospace",
}


def free_port(wanted: int | None) -> int:
    """`wanted`, which must be free, or else the first free port from 8501 on."""
    for port in range(PORT, PORT + 100) if wanted is None else (wanted,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((ADDRESS, port))
                return port
    if wanted is not None:
        raise UserError(f"port: {wanted} is in use. Name a free port, or omit --port.")
    raise UserError(f"port: none of {PORT} to {PORT + 99} is free. Name a free port with --port.")


def cookie_name(port: int | str) -> str:
    """The name contains the port, because browsers send cookies to all ports and two apps need two names."""
    return f"whence-{port}"


def with_token(port: int, token: str) -> str:
    """The address that signs a browser in."""
    return f"http://{ADDRESS}:{port}/?token={token}"


def start(store: Store, port: int, token: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, STORE: str(store.root.absolute()), TOKEN: token}
    command = [sys.executable, "-P", "-m", "whence.app.server", str(port)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def wait_until_there(process: subprocess.Popen[bytes], port: int, token: str) -> None:
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of this machine
    cookie = {"Cookie": f"{cookie_name(port)}={token}"}
    health = urllib.request.Request(f"http://{ADDRESS}:{port}/_stcore/health", headers=cookie)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UserError(f"app: the server ended with code {process.returncode} during its start.")
        with suppress(OSError), straight.open(health, timeout=1):
            return
        time.sleep(0.05)
    raise UserError(f"app: the server did not answer within {PATIENCE_SECONDS} s.")


def serve(port: int, token: str) -> None:
    """Run Streamlit until the parent process ends: `whence app` may be killed without a chance to end its server."""

    def end_with(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()

    import streamlit
    from starlette.formparsers import MultiPartParser
    from starlette.types import Receive, Scope, Send
    from streamlit import runtime
    from streamlit.runtime.stats import CacheStat
    from streamlit.starlette import App

    from whence.app.gate import Gate

    class GuardedApp(App):
        """Streamlit behind the gate. Not as its middleware, which does not see the answer to an error."""

        def __init__(self) -> None:
            super().__init__(Path(__file__).with_name("main.py"))
            page = Path(streamlit.__file__).with_name("static") / "index.html"
            self._gate = Gate(super().__call__, token, page.read_text(), uploaded)

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._gate(scope, receive, send)

    def uploaded() -> int:
        stats = runtime.get_instance().uploaded_file_mgr.get_stats()
        return sum(stat.byte_length for family in stats.values() for stat in family if isinstance(stat, CacheStat))

    MultiPartParser.spool_max_size = UPLOADS_MIB * 2**20  # uploads stay in memory: beyond this, they are put on disk
    GuardedApp().run(config={**OPTIONS, "server.port": port})


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C reaches it, too
        serve(int(sys.argv[1]), os.environ.pop(TOKEN))  # what the app starts does not inherit the token
