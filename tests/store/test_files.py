"""Every byte counts: sealed, chained and addressed files notice any change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from whence.store import files
from whence.store.disk import CorruptFileError, write_atomically
from whence.store.files import (
    FORMAT,
    ChainWriter,
    FormatError,
    addressed_name,
    check_addressed,
    read_chained,
    read_sealed,
    write_sealed,
)
from whence.store.tensors import tensor_bytes


def flipped(data: bytes, at: int) -> list[bytes]:
    """The data with one byte changed, in several ways: one bit, to a newline, to a blank."""
    return [data[:at] + bytes([new]) + data[at + 1 :] for new in {data[at] ^ 1, 10, 13, 32} - {data[at]}]


def test_sealed_round_trip_keeps_floats_exactly(tmp_path: Path) -> None:
    body = {"a": 0.1 + 0.2, "b": [1, None, "é"], "c": {"d": 5e-324}}
    write_sealed(tmp_path / "f.json", body)
    assert read_sealed(tmp_path / "f.json") == body


def test_sealed_notices_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write_sealed(path, {"a": 1.5, "text": "two words"})
    data = path.read_bytes()
    for at in range(len(data)):
        for damaged in flipped(data, at):
            path.write_bytes(damaged)
            with pytest.raises(CorruptFileError):
                read_sealed(path)
    for damaged in (b"", data[:-1], data + b"\n", data[1:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            read_sealed(path)


def test_chain_notices_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    writer = ChainWriter(path)
    for step in range(4):
        writer.append({"step": step, "loss": 1 / (step + 1)})
    writer.sync()
    writer.close()
    data = path.read_bytes()
    assert read_chained(path)[0][3] == {"step": 3, "loss": 0.25}
    for at in range(len(data)):
        for damaged in flipped(data, at):
            path.write_bytes(damaged)
            try:
                records, _, torn = read_chained(path)
            except CorruptFileError:
                continue
            assert torn  # only the very last newline can be mistaken for a killed writer
            assert at == len(data) - 1
            assert len(records) == 3


def test_chain_notices_lines_that_moved(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    writer = ChainWriter(path)
    for step in range(3):
        writer.append({"step": step})
    writer.sync()
    writer.close()
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for damaged in (second + first + third, first + third, second + third, first + first + second):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            read_chained(path)


def test_chain_goes_on_from_a_mark(tmp_path: Path) -> None:
    path, straight = tmp_path / "run" / "f.jsonl", tmp_path / "straight" / "run" / "f.jsonl"
    for each in (path, straight):
        each.parent.mkdir(parents=True)
    writer = ChainWriter(path)
    writer.append({"step": 0})
    mark = writer.sync()
    writer.append({"step": 99})
    writer.sync()
    writer.close()
    with path.open("ab") as file:
        file.write(b'{"torn')
    assert read_chained(path)[2]
    again = ChainWriter(path, mark)
    again.append({"step": 1})
    again.sync()
    again.close()
    expected = ChainWriter(straight)
    expected.append({"step": 0})
    expected.append({"step": 1})
    expected.sync()
    expected.close()
    assert path.read_bytes() == straight.read_bytes()


def test_addressed_files_are_named_by_their_content(tmp_path: Path) -> None:
    data = tensor_bytes({"weight": torch.ones(1)}, "a run")
    path = tmp_path / addressed_name("checkpoint-000000001", data, ".safetensors")
    write_atomically(path, data)
    check_addressed(path)
    for at in range(len(data)):
        path.write_bytes(flipped(data, at)[0])
        with pytest.raises(CorruptFileError):
            check_addressed(path)


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    write_sealed(path, {"version": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_sealed(path, {"version": 2})
    assert read_sealed(path) == {"version": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["f.json"]


def test_another_format_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "status.json"
    monkeypatch.setattr(files, "FORMAT", FORMAT - 1)
    write_sealed(path, {"version": 1})
    monkeypatch.undo()
    message = f"{path}: stored in format {FORMAT - 1}; this version of whence reads format {FORMAT}"
    with pytest.raises(FormatError, match=f"^{re.escape(message)}$"):
        read_sealed(path)
    path.write_text('{"body":{},"sha256":"0"}\n')
    with pytest.raises(FormatError, match="stored in format none"):
        read_sealed(path)
