"""The app: addresses of every page, forms of jobs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import guard, mutation, samples
from tests.fuzz.guard import Case, Run, Unacceptable
from tests.fuzz.targets import target
from tests.fuzz.targets.documents import sealed
from tests.fuzz.targets.words import STORED, in_folder
from whence.store.files import canonical, digest
from whence.store.runs import Store


@target(cases=9_000)
def jobs(prepared: Path) -> Run:
    """Requests of jobs, as the app makes them and as a store from elsewhere may hold them; up to the first step."""
    from pydantic import TypeAdapter, ValidationError

    from whence.app import job
    from whence.app.jobs import Job, JobRequest, check_request, submit

    store = samples.small_store(prepared / STORED)
    comparison, run = samples.COMPARISON, store.ids()[0]
    audit: dict[str, Any] = {"run": run, "ratios": [0.5]}
    requests: list[Any] = [
        {"kind": "compare", "instrument": "arena", "config": comparison},
        {"kind": "compare", "instrument": "leak", "config": {"seeds": 1, "data": "synthetic:steps=48,channels=2"}},
        {"kind": "train", "instrument": "arena", "config": {"task": "copy"}, "checkpoint_interval": 5},
        *({"kind": "train", "instrument": one["kind"], "config": _without_kind(one)} for one in samples.OTHER_RUNS),
        {"kind": "action", "instrument": "leak", "verb": "audit", "config": audit},
        {"kind": "action", "instrument": "fields", "verb": "analyze", "config": {"run": run}},
        {
            "kind": "action",
            "instrument": "features",
            "verb": "collect",
            "config": {"model": f"run:{run}", "tokens": 50},
        },
        {"kind": "action", "instrument": "fields", "verb": "render", "config": {"run": run, "out": "x.png"}},
        {"kind": "resume", "runs": [run]},
    ]
    reader: TypeAdapter[Any] = TypeAdapter(JobRequest)

    def run_case(case: Case) -> str:
        random = case.random
        request = mutation.spoil_document(random, random.choice(requests), requests)
        case.note(repr(request)[:3000])
        shutil.copytree(store.root, case.folder / STORED)
        own = Store(case.folder / STORED)
        if random.random() < 0.5:
            try:
                read = reader.validate_python(request)
            except ValidationError:
                return "refused"
            end = guard.read(lambda: check_request(read))
            if end == "accepted":
                submit(read, own, title="title")
            return end
        body = {"request": request, "title": "a title", "link": {}, "exclusive": random.random() < 0.5}
        body = mutation.spoil_document(random, body) if random.random() < 0.3 else body
        text = mutation.dumps(random, body)
        name = _id(request)
        folder = own.root / "jobs" / name
        folder.mkdir(exist_ok=True)
        (folder / "job.json").write_bytes(sealed(text, f"{name}/job.json"))
        with guard.captured():
            end = job._run(Job(folder))
        if end.failure is not None:
            guard.check_message(end.failure.message)
            if end.state == "failed" and not end.failure.message.startswith(("Of ", "NotRunError")):
                _documented(end.failure.message)
        return "accepted" if end.state in ("finished", "stopped") else "refused"

    return lambda case: in_folder(case, lambda: run_case(case))


def _without_kind(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "kind"}


def _id(request: Any) -> str:
    try:
        return digest(canonical(request))[:12]
    except (ValueError, RecursionError, TypeError):
        return "0" * 12


def _documented(message: str) -> None:
    """The process of a job turns any exception into a message. Which have been foreseen begin with a path."""
    name = message.partition(":")[0]
    if name.isidentifier() and name.endswith(("Error", "Exception", "Warning")):
        raise Unacceptable(f"the job failed with {message[:2000]}")


PAGES = {
    "home": {},
    "arena": {"comparison": ["{comparison}", ""]},
    "leak": {"model": ["minilm", "{run}"], "audit": ["{audit}", ""], "comparison": [""]},
    "features": {
        "run": ["{run}"],
        "collection": ["collected", ""],
        "comparison": [""],
        "feature": ["0", "3", "999999"],
    },
    "fields": {
        "view": ["Render", "Train", "Compare"],
        "part": ["New", "Results"],
        "run": ["{run}"],
        "size": ["64", "256"],
    },
    "runs": {"run": ["{run}"]},
}
"""By page, parameters of its address and values that fit"""
MORE = (
    "output",
    "shrink",
    "image",
    "side",
    "compare",
    "x",
    "embed",
    "run",
    "view",
    "part",
    "comparison",
    "audit",
    "model",
)


def address(random: Random, page: str, names: dict[str, list[str]]) -> dict[str, list[str]]:
    """Parameters that the page knows and others, each with one or several values."""
    known = PAGES[page]
    query: dict[str, list[str]] = {}
    for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
        name = random.choice((*known, *known, *MORE, random.choice(mutation.TEXTS[:8]) or "empty"))
        values = [
            value
            for fitting in known.get(name, ["", "0", "{run}", "{comparison}"])
            for value in (names.get(fitting.strip("{}"), [fitting]))
        ]
        value = random.choice(values) if random.random() < 0.5 else random.choice(mutation.TEXTS)
        query[name] = [value.encode(errors="replace").decode()] * random.choice((1, 1, 1, 2))
    return query


@target(cases=800)
def addresses(prepared: Path) -> Run:
    """Addresses of all pages of the app: parameters with any values, on a store of all instruments."""
    from streamlit.testing.v1 import AppTest

    from whence.app import server, views

    store = samples.full_store(prepared / STORED)
    os.environ[server.STORE] = str(store.root)
    names = {
        "run": store.ids(),
        "comparison": [path.stem for path in store.reports.glob("arena-*.json")],
        "audit": [path.stem.rpartition("-")[2] for path in store.artifacts.glob("audit-*")],
    }
    assert views
    for page in PAGES:
        (prepared / f"{page}.py").write_text(SCRIPT.format(page=page))
    tracebacks: list[str] = []
    log = logging.getLogger("whence.app.components")
    log.addHandler(_Collecting(tracebacks))
    log.propagate = False

    def run(case: Case) -> str:
        page = case.random.choice(list(PAGES))
        query = address(case.random, page, names)
        case.note(f"{page}?{json.dumps(query)}")
        test = AppTest.from_file(str(prepared / f"{page}.py"), default_timeout=60)
        for name, values in query.items():
            test.query_params[name] = values if len(values) > 1 else values[0]
        test.run()
        if test.exception or tracebacks:
            text = "\n".join([*tracebacks, *(str(each.message) for each in test.exception)])
            tracebacks.clear()
            raise Unacceptable(text[-4000:])
        return "refused" if test.error else "accepted"

    return run


class _Collecting(logging.Handler):
    """Tracebacks of parts of a page that could not be made."""

    def __init__(self, tracebacks: list[str]) -> None:
        super().__init__()
        self.tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        self.tracebacks.append(logging.Formatter().format(record))


SCRIPT = """
import importlib
from whence.app.components import guarded
guarded(importlib.import_module("whence.app.views.{page}").show)()
"""


TOKEN, PORT = "t0ken" * 8, 8501
VALID_HEADERS: dict[bytes, tuple[bytes, ...]] = {
    b"host": (
        b"127.0.0.1:8501",
        b"localhost:8501",
        b"127.0.0.1",
        b"evil.example",
        b"127.0.0.1:8501.evil.example",
        b"[::1]:8501",
    ),
    b"origin": (b"http://127.0.0.1:8501", b"http://evil.example", b"null", b"http://127.0.0.1:9999", b"file://"),
    b"cookie": (f"whence-{PORT}={TOKEN}".encode(), b"whence-8501=", b"a=b; c", f"whence-80={TOKEN}".encode(), b";=;"),
    b"sec-fetch-site": (b"none", b"same-origin", b"cross-site", b"same-site"),
    b"sec-fetch-mode": (b"navigate", b"cors", b"websocket"),
    b"sec-fetch-dest": (b"document", b"iframe", b"empty"),
    b"content-length": (b"0", b"10", b"-1", b"1e3", b"99999999999999999999", b"\xb2"),
    b"upgrade": (b"websocket",),
    b"transfer-encoding": (b"chunked",),
}
PATHS = ("/", "/runs", "/_stcore/upload_file/a/b", "/_stcore/stream", "//evil.example/", "/%00", "/..", "/\n", "")


@target(cases=12_000)
def requests(prepared: Path) -> Run:
    """HTTP requests and websockets at the gate of the app: methods, addresses, headers."""
    from whence.app.gate import Gate

    reached: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    page = "<html><head><script>1</script></head></html>"

    def run(case: Case) -> str:
        scope = _scope(case.random)
        case.note(scope)
        reached.clear()
        messages: list[Any] = []

        async def send(message: Any) -> None:
            messages.append(message)

        asyncio.run(Gate(app, TOKEN, page, lambda: 0)(scope, receive, send))
        values = {name: [value for key, value in scope["headers"] if key == name] for name in VALID_HEADERS}
        if reached:
            cookies = b";".join(values[b"cookie"])
            origins = {f"http://{host.decode('latin-1')}" for host in values[b"host"]}
            foreign = [each for each in values[b"origin"] if each.decode("latin-1") not in origins]
            if TOKEN.encode() not in cookies or foreign or b"evil" in b"".join(values[b"host"]):
                raise Unacceptable("the request reaches the app")
            return "accepted"
        if not messages:
            raise Unacceptable("there is no answer")
        starts = [message for message in messages if message["type"] == "http.response.start"]
        names = {name for message in starts for name, _ in message["headers"]}
        if starts and not {b"x-frame-options", b"content-security-policy"} <= names:
            raise Unacceptable(f"the answer has the headers {names}")
        if any(b"\n" in value or b"\r" in value for message in starts for _, value in message["headers"]):
            raise Unacceptable("a header of the answer has two lines")
        return "refused"

    return run


def _scope(random: Random) -> dict[str, Any]:
    headers = []
    for name, values in VALID_HEADERS.items():
        likely = 0.9 if name in (b"host", b"cookie") else 0.3
        for _ in range(random.choice((1, 1, 1, 1, 2)) if random.random() < likely else 0):
            value = values[0] if random.random() < 0.5 else random.choice(values)
            value = mutation.spoil(random, value) if random.random() < 0.2 else value
            headers.append((name, value))
    random.shuffle(headers)
    path = random.choice(PATHS)
    raw = mutation.spoil(random, path.encode()) if random.random() < 0.3 else path.encode()
    tokens = (
        b"",
        b"",
        b"token=" + TOKEN.encode(),
        b"token=",
        b"token=x&a=b",
        b"a=%00&token=%FF",
        b"\xff=\xe9",
        b"a=\r\nb: c",
    )
    query = b"&".join(random.choice(tokens) for _ in range(random.choice((1, 1, 2))))
    scope = {"headers": headers, "path": raw.decode("latin-1"), "raw_path": raw, "query_string": query}
    if random.random() < 0.25:
        return {"type": "websocket", "subprotocols": [], **scope}
    return {"type": "http", "method": random.choice(("GET", "GET", "HEAD", "PUT", "DELETE", "POST", "", "\0")), **scope}
