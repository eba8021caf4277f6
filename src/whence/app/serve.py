"""The process of the server: Streamlit, kept from asking the network which addresses this machine has."""

from __future__ import annotations

from streamlit import net_util
from streamlit.web.cli import main


def _unknown() -> None:
    """Streamlit asks for them when a page from elsewhere knocks. It is turned away either way."""


net_util.get_external_ip = net_util.get_internal_ip = _unknown

if __name__ == "__main__":
    main(prog_name="streamlit")
