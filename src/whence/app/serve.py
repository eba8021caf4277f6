"""The process of the server: Streamlit, kept from asking the network which addresses this machine has."""

from __future__ import annotations

import os
import threading
import time

from streamlit import net_util
from streamlit.web.cli import main


def _unknown() -> None:
    """Streamlit asks for them when a page from elsewhere knocks. It is turned away either way."""


net_util.get_external_ip = net_util.get_internal_ip = _unknown


def _end_with(parent: int) -> None:
    """`whence app` may be killed without a chance to end its server."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    main(prog_name="streamlit")
