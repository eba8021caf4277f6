"""Files that a user names: regular ones, or links to them, of bounded size; nothing is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hostile import DEEP, not_files, refusal
from whence.errors import UserError
from whence.features.activations.text import documents
from whence.features.sae.saelens import imported
from whence.inputs import file_digest, open_input, read_document, read_input, read_text
from whence.leak.audit.artifact import input_checksums
from whence.leak.config import AuditConfig


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\r\n2\r3\xc3\xa9")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").symlink_to("../a")
    (tmp_path / "c").symlink_to("folder/b")
    assert read_input(tmp_path / "c", "text", 100) == b"1\r\n2\r3\xc3\xa9"
    assert read_text(tmp_path / "c") == (tmp_path / "a").read_text() == "1\n2\n3é"
    assert file_digest(tmp_path / "c", "text") == file_digest(tmp_path / "a", "text")


def test_what_is_no_file_is_refused_by_every_reader(tmp_path: Path) -> None:
    for name, make in not_files():
        path = tmp_path / name
        make(path)
        for read in (read_text, lambda path: file_digest(path, "text"), lambda path: documents(str(path))):
            assert name in refusal(lambda read=read, path=path: read(path), mebibytes=50)
        folder = tmp_path / f"in {name}"
        folder.mkdir()
        make(folder / "cfg.json")
        assert "cfg.json" in refusal(lambda folder=folder: imported(folder), mebibytes=50)
        config = AuditConfig(model="minilm", text=str(path))
        assert name in refusal(lambda config=config: input_checksums(config), mebibytes=50)


def test_a_file_that_is_too_large_or_grows(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(11))
    with pytest.raises(UserError, match=r"text: .*a' is too large. Expected at most 10 bytes"):
        open_input(path, "text", 10)
    with path.open("wb") as file:
        file.truncate(2**40)
    assert "is too large. Expected at most 256.0 MiB" in refusal(lambda: read_text(path), mebibytes=50)
    if os.path.exists("/proc/self/environ"):  # of 0 bytes, until it is read
        with pytest.raises(UserError, match="at most 10 bytes"):
            read_input("/proc/self/environ", "text", 10)


def test_documents_of_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for wrong in (DEEP, b"[]", b"1", b"{", b"", b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", b"\xff", b"9" * 5000):
        path.write_bytes(wrong)
        assert refusal(lambda: read_document(path, "model"), mebibytes=50).startswith("model: ")
    path.write_bytes(b'{"a":' + b"[" * 62 + b"]" * 62 + b"}")
    assert set(read_document(path, "model")) == {"a"}


def test_a_text_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a " * 2**22)
    assert "at most 4,194,304 characters, got a longer one" in refusal(lambda: documents(str(path)), mebibytes=100)
    path.write_bytes(b"\xff\xfe")
    assert "is not text in UTF-8" in refusal(lambda: documents(str(path)), mebibytes=50)
    path.write_bytes(b"")
    assert documents(str(path)) == []
