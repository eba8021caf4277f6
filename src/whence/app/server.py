"""The server: Streamlit on this machine's own address. Its process is `python -m whence.app.server`."""

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
UPLOAD_MIB = 32
PATIENCE_SECONDS = 60
STORE = "WHENCE_APP_STORE"
"""Tells the server which. Not $WHENCE_STORE: by that one, commands to copy know what a terminal would take."""

OPTIONS = (
    f"--server.address={ADDRESS}",
    f"--server.allowedHosts={ADDRESS}",  # else any web site could give itself this machine's address
    "--server.allowedHosts=localhost",
    "--server.headless=true",  # the browser is opened by whence, when the page is there
    "--server.fileWatcherType=none",
    f"--server.maxUploadSize={UPLOAD_MIB}",
    "--server.enableXsrfProtection=true",
    "--server.enableCORS=true",
    "--server.showEmailPrompt=false",
    "--browser.gatherUsageStats=false",
    f"--browser.serverAddress={ADDRESS}",
    "--client.toolbarMode=minimal",
    "--client.showErrorDetails=none",
    "--client.showErrorLinks=false",
    "--global.showWarningOnDirectExecution=false",
    "--logger.level=warning",
    "--theme.light.primaryColor=#0072B2",
    "--theme.light.linkColor=#005A8D",
    "--theme.dark.primaryColor=#2880BD",
    "--theme.dark.linkColor=#7CC5EF",
    "--theme.font=system-ui, sans-serif",
    "--theme.headingFont=system-ui, sans-serif",
    "--theme.codeFont=ui-monospace, monospace",
)


def free_port(wanted: int | None) -> int:
    """The wanted one, which must be free; else the usual one, or the next that is."""
    for port in range(PORT, PORT + 100) if wanted is None else (wanted,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind((ADDRESS, port))
                return port
    if wanted is not None:
        raise UserError(f"port: {wanted} is in use. Allowed: a free one, or none named.")
    raise UserError(f"port: none of {PORT} to {PORT + 99} is free. Allowed: another (--port).")


def start(store: Store, port: int) -> subprocess.Popen[bytes]:
    main = str(Path(__file__).with_name("main.py"))
    environment = {**os.environ, STORE: str(store.root.absolute())}
    command = [sys.executable, "-P", "-m", "whence.app.server", "run", *OPTIONS, f"--server.port={port}", main]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def wait_until_there(process: subprocess.Popen[bytes], port: int) -> None:
    straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy knows nothing of this machine
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise UserError(f"app: the server ended with code {process.returncode} before it was there.")
        with suppress(OSError), straight.open(f"http://{ADDRESS}:{port}/_stcore/health", timeout=1):
            return
        time.sleep(0.05)
    raise UserError(f"app: the server did not answer within {PATIENCE_SECONDS} s.")


def serve() -> None:
    """Run Streamlit. Ends when its parent does: `whence app` may be killed without a chance to end its server."""
    from streamlit import net_util
    from streamlit.web.cli import main

    def end_with(parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(0)

    # Streamlit would ask the network for them when a page of another site connects, which is refused anyway
    net_util.get_external_ip = net_util.get_internal_ip = lambda: None
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    main(prog_name="streamlit")


if __name__ == "__main__":
    serve()
