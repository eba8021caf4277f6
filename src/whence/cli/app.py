"""`whence app`."""

from __future__ import annotations

import html
import importlib.util
import secrets
import signal
import subprocess
import tempfile
import webbrowser
from pathlib import Path

from pydantic import Field

from whence.cli.options import Invocation, StoreOptions, Verb
from whence.cli.output import FAILED, print_json, print_note, print_text
from whence.errors import UserError

DESCRIPTION = """Open the app in a browser: start comparisons, watch runs and read results

  whence app                                    # opens the default browser; Ctrl-C ends the app
  whence app --port 8600 --no-browser           # prints the address only, for example for an SSH tunnel
  whence app --store ~/lab                      # shows another store

The app has a page for each instrument and one for all runs of the store. Jobs run in processes of their own: they
continue when the tab or the app is closed, and the app shows them again after a restart.

The server listens on 127.0.0.1 only and makes no requests to the network. The printed address contains a token, which
is new for every start; requests without it are refused."""

OPENING = "<!doctype html><meta charset=utf-8><title>whence</title><meta http-equiv=refresh content='0;url={}'>"


class AppOptions(StoreOptions):
    port: int | None = Field(default=None, ge=1, le=65535, description="port; none: the first free one from 8501 on")
    no_browser: bool = Field(default=False, description="print the address and open no browser")


def _app(invocation: Invocation) -> int:
    options = invocation.options(AppOptions)
    if importlib.util.find_spec("streamlit") is None:
        raise UserError("app: the app requires Streamlit. Install it with: pip install 'whence[app]'")
    from whence.app.server import free_port, start, wait_until_there, with_token
    from whence.store.runs import Store

    store = Store(options.store)
    store.prepare()
    port = free_port(options.port)
    token = secrets.token_urlsafe(24)
    address = with_token(port, token)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    process = start(store, port, token)
    page = None
    try:
        wait_until_there(process, port, token)
        if options.json_:
            print_json({"address": address, "store": str(store.root), "process": process.pid})
        else:
            ends = "(Ctrl-C ends the app; its jobs continue)"
            print_text(f"whence app: {address}   store {store.root}   {ends}")
        if not options.no_browser:
            page = _open_in_browser(address, store.root)
        if code := process.wait():
            print_note(f"whence: the server of the app ended with code {code}")
        return FAILED if code else 0
    except KeyboardInterrupt:
        return 0
    finally:
        if page:
            page.unlink(missing_ok=True)
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()


def _open_in_browser(address: str, folder: Path) -> Path:
    """Open the address by a file that only this user can read, because all users can see the arguments of a browser.

    The file is in the store, because browsers in a sandbox (snap, flatpak) cannot read temporary directories.
    """
    with tempfile.NamedTemporaryFile("w", dir=folder.absolute(), prefix="open-", suffix=".html", delete=False) as file:
        file.write(OPENING.format(html.escape(address)))
    webbrowser.open(Path(file.name).as_uri())
    return Path(file.name)


VERBS = {"app": Verb(DESCRIPTION, _app)}
