"""The model: shapes, places, and that everything the field knows comes through the position tokens."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from whence.encodings.position_tokens import Placement
from whence.fields.attention import Attended, Encoded
from whence.fields.baselines import cell, grid, resize
from whence.fields.config import FieldModelConfig
from whence.fields.decode import decode
from whence.fields.hyponets import HYPONETS
from whence.fields.model import FieldModel, _patches, scan_order
from whence.fields.render import enlarged
from whence.models.init import initialise


def made(size: tuple[int, ...] = (16, 16), channels: int = 3, **fields: Any) -> FieldModel:
    model = FieldModel(
        FieldModelConfig.read({"d_model": 16, "layers": 1, "lps": 9, "render_width": 4, **fields}), channels, size
    )
    initialise(model, 0)
    return model.eval()


def signal(size: tuple[int, ...] = (16, 16), rows: int = 3, channels: int = 3) -> Tensor:
    return torch.rand(rows, channels, *size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("serpentine", [True, False])
@pytest.mark.parametrize("size", [(7,), (3, 4), (2, 3, 4)])
def test_every_token_is_read_once_and_serpentine_steps_are_short(size: tuple[int, ...], serpentine: bool) -> None:
    order = scan_order(size, serpentine=serpentine)
    assert sorted(order.tolist()) == list(range(len(order)))
    index = torch.stack(torch.unravel_index(order, size), -1)
    steps = index.diff(dim=0).abs().sum(-1)
    assert bool((steps == 1).all()) == (serpentine or len(size) == 1)


@pytest.mark.parametrize("size", [(8,), (8, 4), (4, 8, 4)])
def test_patches_hold_what_lies_at_their_place(size: tuple[int, ...]) -> None:
    x = torch.arange(float(torch.tensor(size).prod())).view(1, 1, *size)
    patches = _patches(x, 2)
    blocks = x[0, 0]
    for axis, count in enumerate(size):
        blocks = blocks.unflatten(2 * axis, (count // 2, 2))
    outer = blocks.permute(*range(0, 2 * len(size), 2), *range(1, 2 * len(size), 2))
    assert torch.equal(patches[0], outer.reshape(len(patches[0]), -1))


def test_position_tokens_know_where_they_are() -> None:
    """As many as tokens: each in the middle of its patch."""
    model = made(lps=16)
    places = model.encode(signal()).locations[0]
    order = scan_order((4, 4), serpentine=True)
    assert torch.allclose(places, grid((4, 4))[order])


@pytest.mark.parametrize("hyponet", HYPONETS.names())
@pytest.mark.parametrize("size", [(16,), (16, 16), (8, 8, 8)])
def test_every_hyponet_in_every_dimension(hyponet: str, size: tuple[int, ...]) -> None:
    model = made(size, 2, hyponet=hyponet).train()
    x = signal(size, channels=2)
    encoded = model.encode(x)
    finer = tuple(2 * n for n in size)
    at, width = grid(finer)[::7][None], cell(finer)
    values = model.field(encoded, at, width)
    assert values.shape == (3, at.shape[1], 2)
    rendered = model.rendering(x, encoded)(at, width)
    assert rendered.shape == values.shape
    (values.square().sum() + (rendered * torch.arange(1.0, 3.0)).sum()).backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    expected = {"renderer"}  # its last layer starts at zero: what stands before it waits one step
    assert {name.split(".")[0] for name in silent} <= expected
    assert "renderer.leave" not in silent


@pytest.mark.parametrize("hyponet", HYPONETS.names())
def test_rows_may_have_coordinates_of_their_own(hyponet: str) -> None:
    model, x = made(hyponet=hyponet), signal()
    encoded = model.encode(x)
    points = torch.rand(3, 20, 2, generator=torch.Generator().manual_seed(2))
    together = model.field(encoded, points, cell((16, 16)))
    for row in range(3):
        alone = model.field(Encoded(encoded.lps[row : row + 1], encoded.locations), points[row][None], cell((16, 16)))
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=1e-4)
        shared = model.field(encoded, points[row][None], cell((16, 16)))
        torch.testing.assert_close(together[row], shared[row], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("placement", get_args(Placement))
@pytest.mark.parametrize("conditional", [False, True])
def test_every_placement(placement: str, conditional: bool) -> None:
    model = made(placement=placement, conditional=conditional)
    encoded = model.encode(signal())
    assert encoded.lps.shape == (3, 9, 16)
    assert encoded.locations.min() >= 0
    assert encoded.locations.max() <= 1


def test_random_places_differ_from_seed_to_seed() -> None:
    config = FieldModelConfig(placement="random", d_model=16, layers=1, lps=9)
    places = [FieldModel(config, 3, (16, 16), draw).encode(signal()).locations for draw in (0, 0, 1)]
    assert torch.equal(places[0], places[1])
    assert not torch.equal(places[0], places[2])


def test_places_do_not_lie_between_lines() -> None:
    """Read line by line, a token at a line's end has the place of a neighbour, not one in the middle of the picture."""
    model = made(lps=32, order="raster", patch=4)
    places = model.encode(signal()).locations[0]
    centres = grid((4, 4))
    assert float(torch.cdist(places, centres).min(1).values.max()) < 0.13
    assert model.encode(signal()).locations.shape == (1, 32, 2)


def test_coarse_tokens_reach_farther() -> None:
    model = made(lps=20, placement="hierarchical")
    middle = torch.full((1, 1, 2), 0.5)
    away = torch.full((1, 20, 2), 0.5) + torch.tensor([0.2, 0.0])
    assert isinstance(model.hyponet, Attended)
    attention = model.hyponet.nearness(Encoded(torch.zeros(1, 20, 16), away), middle)[0].mean(0)[0].detach()
    assert float(attention[:4].min()) > float(attention[4:].max())


def test_two_axes_of_position() -> None:
    model = made(mixer="attention", encoding="rope:layout=axial", d_model=32)
    assert decode(model, signal(), (16, 16), "field").isfinite().all()
    with pytest.raises(ValueError, match="has 2 axes of position"):
        made((16,), mixer="attention", encoding="rope:layout=axial", d_model=32)


def test_the_field_knows_nothing_but_the_position_tokens() -> None:
    model, x = made(), signal()
    encoded = model.encode(x)
    other = decode(model, torch.rand_like(x), (20, 24), "field", encoded)
    assert torch.equal(decode(model, x, (20, 24), "field", encoded), other)
    swapped = decode(model, x, (20, 24), "field", encoded.swapped())
    torch.testing.assert_close(swapped, decode(model, x.roll(1, 0), (20, 24), "field"), atol=1e-5, rtol=1e-4)


def test_the_render_starts_as_the_enlarged_input() -> None:
    model, x = made(), signal()
    assert torch.allclose(decode(model, x, (16, 16), "render"), x, atol=1e-5)


@pytest.mark.parametrize("size", [(16,), (12, 16), (8, 8, 8)])
def test_a_fainter_picture_gets_a_fainter_correction(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x, by, up = made(size), signal(size), 0.25, 0.3
    assert model.renderer is not None
    torch.nn.init.normal_(model.renderer.leave)
    torch.nn.init.normal_(model.renderer.linear.weight)
    field = torch.rand(3, x[0, 0].numel(), 3, generator=torch.Generator().manual_seed(5))
    whole, faint = (
        model.renderer._nonlinear_features(x, field),
        model.renderer._nonlinear_features(by * x + up, by * field + up),
    )
    torch.testing.assert_close(faint, by * whole, atol=2e-3 * float(whole.detach().abs().max()), rtol=0.01)
    linear = model.renderer._linear_features(x), model.renderer._linear_features(by * x)
    torch.testing.assert_close(linear[1], by * linear[0])


def test_the_linear_correction_learns_as_if_it_were_alone() -> None:
    model, x = made(), signal()
    renderer, size = model.renderer, (32, 32)
    assert renderer is not None
    at, width, field = grid(size)[None], cell(size), torch.rand(3, 256, 3)
    truth = torch.rand(3, 1024, 3)

    def learnt() -> tuple[float, Tensor]:
        renderer.zero_grad()
        loss = renderer.loss(x, field, at, width, truth)
        loss.backward()
        assert renderer.linear.weight.grad is not None
        return float(loss.detach()), renderer.linear.weight.grad.clone()

    at_first, before = learnt()
    assert at_first == pytest.approx(2, abs=1e-3), "both leave the whole error of interpolation"
    torch.nn.init.normal_(renderer.leave)
    worse, after = learnt()
    assert worse > at_first
    torch.testing.assert_close(before, after)


@pytest.mark.parametrize("size", [(16,), (12, 16), (6, 8, 4)])
def test_enlarged_at_its_own_pixels_is_itself(size: tuple[int, ...]) -> None:
    x = signal(size)
    assert torch.allclose(enlarged(x, grid(size)[None]), x.flatten(2).mT, atol=1e-5)
    constant = torch.full_like(x, 0.3)
    assert torch.allclose(enlarged(constant, torch.rand(1, 50, len(size))), torch.tensor(0.3), atol=1e-5)


def test_a_coarse_look_is_the_average_of_a_fine_one() -> None:
    """One token, no MLP: the cosines are averaged over cells exactly."""
    model = made(lps=1, hyponet="cross_attention:hidden=0,heads=1")
    x = signal()
    fine, coarse = (decode(model, x, (n, n), "field") for n in (512, 8))
    torch.testing.assert_close(resize(fine, (8, 8), "area"), coarse, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"patch": 5}, "does not divide"),
        ({"encoding": "rope"}, "rope enters through rotate"),
        ({"mixer": "attention", "heads": 3}, "heads: 3"),
    ],
)
def test_what_cannot_be_built_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**fields)


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "rope", "none"])
def test_transformers_with_encodings(encoding: str) -> None:
    model = made(mixer="attention", encoding=encoding)
    assert decode(model, signal(), (16, 16), "field").isfinite().all()
