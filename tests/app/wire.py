"""What a page and its server tell each other: whether everything that the page asked for has been answered."""

from __future__ import annotations

from playwright.sync_api import Page, WebSocket
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

ENDED_FOR_A_NEWER_ONE = ForwardMsg.FINISHED_EARLY_FOR_RERUN
PART_OF_THE_PAGE = ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY


class Wire:
    """A page shows that it is being made only after its server has said so: until then, it looks as if at rest."""

    def __init__(self, page: Page) -> None:
        self.asked = ""
        """What a visitor asked for last and was not answered yet: the page, a part of it, or nothing."""
        self.begun = False
        page.on("websocket", self._listen)

    @property
    def answered(self) -> bool:
        return not self.asked

    def ask(self, what: str) -> None:
        self.asked, self.begun = what, False

    def _listen(self, socket: WebSocket) -> None:
        self.ask("page")
        socket.on("framesent", self._sent)
        socket.on("framereceived", self._received)

    def _sent(self, frame: bytes | str) -> None:
        if isinstance(frame, str):
            return
        told = BackMsg.FromString(frame)
        if told.WhichOneof("type") == "rerun_script" and not told.rerun_script.is_auto_rerun:
            self.ask("part" if told.rerun_script.fragment_id else "page")

    def _received(self, frame: bytes | str) -> None:
        if isinstance(frame, str):
            return
        told = ForwardMsg.FromString(frame)
        if told.WhichOneof("type") == "new_session":
            self.begun = True
        elif told.WhichOneof("type") == "script_finished" and self.begun:
            if told.script_finished == ENDED_FOR_A_NEWER_ONE:
                self.begun = False
            elif told.script_finished != PART_OF_THE_PAGE or self.asked == "part":
                self.asked = ""
