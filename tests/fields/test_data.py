"""What fields are learnt of: every kind can be drawn, trained on, and is pinned to its bytes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fields.test_run import TINY, folder_of
from tests.hostile import refusal
from whence.errors import UserError
from whence.execution.execute import execute
from whence.execution.options import ExecutionOptions
from whence.fields.data import DATA, EMOJI_FONTS, emoji_files, family
from whence.fields.images import write
from whence.fields.run import FieldsRun
from whence.fields.signals import SPLITS, sixths
from whence.random import generator
from whence.store.runs import Store

needs_font = pytest.mark.skipif(not any(map(Path.is_file, map(Path, EMOJI_FONTS))), reason="no font of emoji")


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 12, 13])
def test_splits_share_nothing_and_leave_nothing_out(count: int) -> None:
    parts = [sixths(range(count), split) for split in SPLITS]
    assert sorted(itertools.chain(*parts)) == list(range(count))
    assert all(parts)
    assert len(parts[0]) >= max(1, count // 2)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param("emoji", (3, 128, 128), marks=needs_font),
        ("outlines", (1, 256)),
        ("outlines:size=32,factor=2", (1, 64)),
        ("digits", (1, 8, 8)),
        ("volume", (1, 32, 32, 32)),
    ],
)
def test_draws(name: str, shape: tuple[int, ...]) -> None:
    data = DATA.choose(name).build()
    data.check()
    drawn = {split: data.draw(generator(0), 4, split) for split in SPLITS}
    for split, signals in drawn.items():
        assert signals.shape == (4, *shape)
        assert 0 <= float(signals.min()) < float(signals.max()) <= 1
        assert torch.equal(signals, data.draw(generator(0), 4, split))
    assert (data.channels, *data.true) == shape
    assert len(data.inputs) == data.axes == len(shape) - 1
    if name.startswith(("outlines", "digits", "emoji")):  # nothing of one split is in another
        many = {
            split: {tuple(one.flatten()[:64].tolist()) for one in data.draw(generator(0), 60, split)}
            for split in SPLITS
        }
        assert len(many["train"] & many["test"]) <= (1 if name == "emoji" else 0)


def test_hostile_fonts_are_refused(tmp_path: Path) -> None:
    font = tmp_path / "a.ttf"
    starts = (b"", b"wOFF", b"wOF2", b"ttcf", b"\0\1\0\0", b"OTTO\xff\xff", b"\0\1\0\0\0\1" + bytes(6) + b"CBDT")
    for start in starts:
        for rest in (b"", bytes(500), b"\xff" * 500, bytes(range(256)) * 2):
            font.write_bytes(start + rest)
            assert refusal(lambda: emoji_files(font), mebibytes=100).startswith("data: ")
    assert family("a", {"a": "b", "b": "c", "c": "b"}) in ("b", "c")


@needs_font
def test_a_font_with_changed_bytes_is_read_or_refused(tmp_path: Path) -> None:
    whole = next(path for path in map(Path, EMOJI_FONTS) if path.is_file()).read_bytes()
    luck = np.random.default_rng(0)
    for number in range(4):
        data = bytearray(whole)
        for place in luck.integers(0, 2000 if number % 2 else len(data), 10):
            data[place] ^= 1 << luck.integers(8)
        font = tmp_path / f"{number}.ttf"
        font.write_bytes(data)
        refusal(lambda font=font: emoji_files(font), mebibytes=300)


@needs_font
def test_an_emoji_is_drawn_over_white_as_pillow_draws_it() -> None:
    from PIL import Image, ImageDraw, ImageFont

    from whence.fields.data import emoji_files, emoji_image

    font = next(path for path in EMOJI_FONTS if Path(path).is_file())
    canvas = Image.new("RGBA", (136, 128), "white")
    ImageDraw.Draw(canvas).text((0, 0), "🎈", font=ImageFont.truetype(font, 109), embedded_color=True, anchor="lt")
    drawn = torch.from_numpy(np.asarray(canvas.convert("RGB")).copy()).permute(2, 0, 1)[:, :, 4:132] / 255
    known = emoji_files(Path(font))
    assert not set(known["train"]) & (set(known["test"]) | set(known["validation"]))
    pictures = torch.stack([emoji_image(file) for split in SPLITS for file in known[split]]) / 255
    assert len(pictures) > 3000
    assert float((pictures - drawn).square().mean((1, 2, 3)).min()) < 1e-3, "the balloon is among them"


@pytest.mark.parametrize(
    ("axes", "channels", "shape"),
    [(1, 0, (9, 70)), (1, 5, (9, 70, 5)), (2, 0, (9, 40, 50)), (3, 2, (6, 16, 20, 17, 2))],
)
def test_arrays_of_ones_own(tmp_path: Path, axes: int, channels: int, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(3, 7, shape)
    np.save(tmp_path / "mine.npy", values)
    run = FieldsRun.read({**TINY, "data": f"{tmp_path / 'mine.npy'}:axes={axes},channels={channels},size=8,factor=2"})
    run.check()
    data = run.data.build()
    drawn = data.draw(generator(0), 3, "test")
    assert drawn.shape == (3, channels or 1, *(16,) * axes)
    # a piece of a held-out signal: undo the scaling, and look for a number of it there
    first = values[..., 0] if channels else values
    known = first[[i for i in range(len(first)) if i % 6 not in (1, 2)]]
    inside = drawn[0, 0][(drawn[0, 0] > 0) & (drawn[0, 0] < 1)]
    there = (float(inside.flatten()[0]) - 0.05) / 0.9 * (known.max() - known.min()) + known.min()
    assert np.isclose(first[2::6], there, atol=1e-4).any()
    train = data.draw(generator(0), 50, "train")
    assert float(train.min()) >= 0.05 - 1e-6
    assert float(train.max()) <= 0.95 + 1e-6
    store = Store(tmp_path)
    store.prepare()
    assert execute(run, store, ExecutionOptions(threads=1, device="cpu")).state == "finished"


def test_numbers_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "mine.npy"

    def refuse(values: np.ndarray, words: str, options: str = "") -> None:
        np.save(path, values)
        with pytest.raises(UserError, match=words):
            FieldsRun.read({"data": f"{path}:size=8,factor=2{options}"}).check()

    fine = np.random.default_rng(0).random((9, 40))
    broken = fine.copy()
    broken[3, 3] = np.nan
    refuse(broken, "finite")
    refuse(np.full((9, 40), np.inf), "finite")
    refuse(fine[:2], "3 or more")
    refuse(fine[:, :12], "16 pixels per axis")
    refuse(np.ones((9, 40)), "vary")
    refuse(fine, "shape", ",axes=2")
    refuse(np.stack([fine] * 3, -1), "last axis", ",channels=4")
    refuse(np.array([["a"] * 40] * 9), "numbers")
    path.write_bytes(b"\x93NUMPY broken")
    with pytest.raises(UserError, match="cannot be read"):
        FieldsRun.read({"data": str(path)})
    with pytest.raises(UserError, match="is not an existing"):
        FieldsRun.read({"data": str(tmp_path / "missing.npy")})


def test_changed_files_are_other_data(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", 6)
    asked = {**TINY, "data": f"folder:path={folder},size=16,factor=2"}
    before = FieldsRun.read(asked)
    assert FieldsRun.read(asked).id == before.id
    write(folder / "p0.png", torch.rand(3, 44, 40))
    after = FieldsRun.read(asked)
    assert after.id != before.id
    with pytest.raises(UserError, match="changed"):
        before.check()
    after.check()


@needs_font
def test_skin_tones_stay_together() -> None:
    """A hand in six colours is in one split, and nothing is in two."""
    from whence.fields.data import _opened_font

    font = next(Path(path) for path in EMOJI_FONTS if Path(path).is_file())
    glyphs, parents = _opened_font(font)
    hand = [name for name in glyphs if family(name, parents) == "u1F44B"]
    assert len(hand) == 6, "waving, without and with five tones"
    known = emoji_files(font)
    assert sum(bool({glyphs[name] for name in hand} & set(known[split])) for split in SPLITS) == 1
    assert sum(map(len, known.values())) == len(set(glyphs.values()))


def test_a_long_picture_has_at_least_one_size(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", 3)
    write(folder / "p0.png", torch.rand(3, 33, 1700))
    run = FieldsRun.read({**TINY, "data": f"folder:path={folder},size=16,factor=2"})
    run.check()
    assert run.data.build().draw(generator(0), 2, "train").shape == (2, 3, 32, 32)


def test_one_spelling_of_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.random.default_rng(0).random((9, 40)))
    spelled = [FieldsRun.read({"data": f"{name}:size=8,factor=2"}) for name in ("a.npy", "./a.npy")]
    assert spelled[0].id == spelled[1].id
    with pytest.raises(UserError, match="not a directory"):
        FieldsRun.read({"data": "folder"})


def test_a_picture_that_is_too_small_is_refused_before_any_work(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine", 6)
    write(folder / "p1.png", torch.rand(3, 40, 20))
    with pytest.raises(UserError, match=r"p1.png is 20×40"):
        FieldsRun.read({**TINY, "data": f"folder:path={folder},size=16,factor=2"}).check()
    (folder / "p1.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"p1.png"):
        FieldsRun.read({**TINY, "data": f"folder:path={folder},size=16,factor=2"}).check()


def test_a_trained_model_outlives_its_folder(tmp_path: Path) -> None:
    import shutil

    from whence.fields.run import load_model

    folder = folder_of(tmp_path / "mine", 6)
    run = FieldsRun.read({**TINY, "data": f"folder:path={folder},size=16,factor=2"})
    store = Store(tmp_path / "store")
    store.prepare()
    assert execute(run, store, ExecutionOptions(threads=1, device="cpu")).state == "finished"
    shutil.rmtree(folder)
    model, again = load_model(store, run.id)
    assert again == run
    assert model.size == (16, 16)
