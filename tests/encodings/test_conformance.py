"""What every encoding must do. A new file in the registry inherits all of it, with its own `examples`."""

from __future__ import annotations

import inspect

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close

from tests.encodings.attend import CASES, HEAD_DIM, HEADS, MAX_LENGTH, STRUCTURE, attention, build, content, line
from whence.encodings import ENCODINGS
from whence.encodings.base import Encoding
from whence.registry import Choice, structural_parameters

CLOSE = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(params=CASES, ids=str)
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return build(request.param)


def queries(batch: int = 2, length: int = 8, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(batch, HEADS, length, HEAD_DIM, generator=torch.Generator().manual_seed(3)).to(dtype)


def test_declares_what_the_tables_show(encoding: Encoding) -> None:
    assert encoding.summary().endswith(".")
    assert len(encoding.summary()) <= 120
    assert encoding.extrapolation
    assert encoding.reference
    assert encoding.shift in ("invariant", "absolute", "ignored")
    assert encoding.hooks() or encoding.name == "none"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [(3,), (3, 1)], ids=["shared positions", "positions per row"])
def test_shapes_and_dtypes(encoding: Encoding, dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    positions = line(encoding, *rows)
    x, q, k = content().to(dtype), queries(dtype=dtype), queries(dtype=dtype)
    assert encoding.embed(x, positions).shape == x.shape
    assert encoding.embed(x, positions).dtype == dtype
    for rotated in encoding.rotate(q, k, positions):
        assert rotated.shape == q.shape
        assert rotated.dtype == dtype
    fewer = positions[:, -3:]
    if "bias" in encoding.hooks():
        bias = encoding.bias(fewer, positions)
        assert bias.shape == (len(rows), HEADS, 3, 8)
        assert bias.dtype == torch.float32
        assert_close(bias, encoding.bias(positions, positions)[:, :, -3:])
    logits, visible = (q @ k.mT)[:, :, -3:], torch.ones(8, 8, dtype=torch.bool).tril()[-3:]
    scored = encoding.score(logits, q[:, :, -3:], fewer, positions, visible)
    assert scored.shape == logits.shape
    assert scored.dtype == dtype


def test_half_precision_stays_near_full(encoding: Encoding) -> None:
    positions = line(encoding, 0, 5)
    full, half = (attention(encoding, positions, content().to(t)).float() for t in (torch.float32, torch.bfloat16))
    assert (full - half).abs().max() < 0.08


def test_under_autocast(encoding: Encoding) -> None:
    positions = line(encoding, 0, 5)
    full = attention(encoding, positions, content())
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attention(encoding, positions, content())
        assert "bias" not in encoding.hooks() or encoding.bias(positions, positions).dtype == torch.float32
    assert (full - mixed).abs().max() < 0.08


def test_a_module_cast_to_half_still_works(encoding: Encoding) -> None:
    weights = attention(encoding.to(torch.bfloat16), line(encoding, 0, 5), content().bfloat16())
    assert weights.isfinite().all()


def test_runs_on_another_device(encoding: Encoding, request: pytest.FixtureRequest) -> None:
    choice = request.node.callspec.params["encoding"]
    with torch.device("meta"):
        elsewhere = choice.build(**STRUCTURE)
    positions = line(encoding, 0, 5).to("meta")
    x, q = content().to("meta"), queries().to("meta")
    outputs = [elsewhere.embed(x, positions), *elsewhere.rotate(q, q, positions)]
    if "bias" in encoding.hooks():
        outputs.append(elsewhere.bias(positions, positions))
    visible = torch.ones(8, 8, dtype=torch.bool, device="meta")
    outputs.append(elsewhere.score(q @ q.mT, q, positions, positions, visible))
    assert all(output.is_meta for output in outputs)
    # Materialised there, it must come to life by reset_parameters alone: nothing may hide in a buffer.
    alive = elsewhere.to_empty(device="cpu")
    if hasattr(alive, "reset_parameters"):
        torch.manual_seed(0)
        alive.reset_parameters()
    assert attention(alive, line(encoding, 0, 5), content()).isfinite().all()


def test_gradients_reach_every_parameter(encoding: Encoding) -> None:
    x = content().requires_grad_()
    weights = attention(encoding, line(encoding, 0, 3), x)
    (weights * torch.randn(weights.shape, generator=torch.Generator().manual_seed(4))).sum().backward()
    for name, parameter in [("x", x), *encoding.named_parameters()]:
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_reset_parameters_draws_everything_again(encoding: Encoding, request: pytest.FixtureRequest) -> None:
    choice = request.node.callspec.params["encoding"]
    torch.manual_seed(7)
    fresh = choice.build(**STRUCTURE)
    assert not list(encoding.parameters()) or hasattr(encoding, "reset_parameters")
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.fill_(float("nan"))
    torch.manual_seed(7)
    if hasattr(encoding, "reset_parameters"):
        encoding.reset_parameters()
    assert_close(dict(encoding.state_dict()), dict(fresh.state_dict()), rtol=0, atol=0)
    assert set(fresh.state_dict()) == {name for name, _ in fresh.named_parameters()}


def test_a_row_does_not_see_its_batch(encoding: Encoding) -> None:
    positions, x = line(encoding, 0, 5, 30, length=7), content(3, 7)
    try:
        together = attention(encoding, positions, x)
    except ValueError:  # a table of 16 rows
        positions = positions.clamp(max=15)
        together = attention(encoding, positions, x)
    for row in range(3):
        alone = attention(encoding, positions[row : row + 1], x[row : row + 1])
        assert_close(together[row : row + 1], alone, **CLOSE)


def test_shared_positions_equal_repeated_ones(encoding: Encoding) -> None:
    shared, repeated = line(encoding, 2), line(encoding, 2, 2)
    assert_close(attention(encoding, shared, content()), attention(encoding, repeated, content()), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32, torch.float64])
def test_the_number_format_of_positions_does_not_matter(encoding: Encoding, dtype: torch.dtype) -> None:
    positions, causal = line(encoding, 0, 5), encoding.causal_only
    expected = attention(encoding, positions, content(), causal)
    assert_close(attention(encoding, positions.to(dtype), content(), causal), expected, **CLOSE)


def test_fractional_positions(encoding: Encoding) -> None:
    positions = line(encoding, 0, 5).double()
    whole, half, near = (attention(encoding, positions + step, content()) for step in (0, 0.5 * (positions % 2), 1e-4))
    assert half.isfinite().all()
    changed = (whole - half).abs().max() > 1e-4
    assert changed == (encoding.shift != "ignored")
    jumbled = positions + 1e-5 * torch.randn(positions.shape, generator=torch.Generator().manual_seed(5)).abs()
    for nearby in (near, attention(encoding, jumbled, content())):
        assert (whole - nearby).abs().max() < 1e-2, "a tiny move must not jump"


@pytest.mark.parametrize("far", [MAX_LENGTH, 5_000, 10**7])
def test_far_past_training(encoding: Encoding, far: int) -> None:
    consecutive = line(encoding, far, far)
    with_a_gap = torch.cat([line(encoding, 0, 0, length=4), line(encoding, far, far, length=4)], dim=1)
    for positions in (consecutive, with_a_gap):
        refusal = ""
        try:
            weights = attention(encoding, positions, content())
        except ValueError as error:
            refusal = str(error)
        if refusal:
            assert "error" in encoding.extrapolation
            assert "position" in refusal
            assert encoding.name in refusal
        else:
            assert weights.isfinite().all()
            assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_neighbours_stay_neighbours_far_out(encoding: Encoding) -> None:
    """Float32 could not tell 2³⁰ from 2³⁰ + 1; relative encodings must."""
    if encoding.shift == "invariant":
        near = attention(encoding, line(encoding, 0), content())
        for dtype in (torch.long, torch.float64):
            far = attention(encoding, line(encoding, 2**30, dtype=dtype), content())
            assert_close(near, far, rtol=1e-3, atol=1e-4)


def test_shift(encoding: Encoding) -> None:
    positions, x = line(encoding, 0, 3), content()
    here = attention(encoding, positions, x)
    if encoding.shift == "invariant":
        move = torch.tensor(1000) if encoding.axes == 1 else torch.tensor([1000, 77])
        assert_close(attention(encoding, positions + move, x), here, **CLOSE)
        stretched = attention(encoding, positions * 2, x)
        assert (stretched - here).abs().max() > 1e-3, "relative, but distances must matter"
    elif encoding.shift == "ignored":
        anywhere = torch.randint(10**6, positions.shape, generator=torch.Generator().manual_seed(6))
        assert torch.equal(attention(encoding, anywhere, x), here)
    else:
        assert max(change_when_moved(encoding, positions, by) for by in (4, 40)) > 1e-3


def change_when_moved(encoding: Encoding, positions: torch.Tensor, by: int) -> float:
    try:
        moved = attention(encoding, positions + by, content())
    except ValueError:
        return 0.0
    return (moved - attention(encoding, positions, content())).abs().max().item()


def test_position_is_data_not_order(encoding: Encoding) -> None:
    """Tokens that carry their positions along may stand in any order. A hidden `arange` would show here."""
    if not encoding.causal_only and "interleave" not in encoding.hooks():  # what stands between others goes by order
        order = torch.randperm(8, generator=torch.Generator().manual_seed(8))
        positions, x = line(encoding, 0, 5), content()
        straight = attention(encoding, positions, x, causal=False)
        shuffled = attention(encoding, positions[:, order], x[:, order], causal=False)
        assert_close(shuffled, straight[:, :, order][:, :, :, order], **CLOSE)


def test_keys_ahead_are_told_apart_unless_causal_only(encoding: Encoding) -> None:
    if not encoding.causal_only and encoding.shift != "ignored":
        same_content = content()[:, :1].expand(-1, 8, -1)
        ahead = attention(encoding, line(encoding, 0, 0), same_content, causal=False)[:, :, 0, 1:]
        assert (ahead.amax(-1) - ahead.amin(-1)).max() > 1e-4


def test_no_look_ahead(encoding: Encoding) -> None:
    x = content()
    changed = torch.cat([x[:, :-1], x[:, -1:] + 3], dim=1)
    before, after = (attention(encoding, line(encoding, 0, 5), each) for each in (x, changed))
    assert_close(before[:, :, :-1], after[:, :, :-1])
    assert (before[:, :, -1] - after[:, :, -1]).abs().max() > 1e-3


def test_refuses_positions_with_the_wrong_axes(encoding: Encoding) -> None:
    if encoding.shift != "ignored":
        wrong = line(encoding, 0, 5)[..., None].expand(-1, -1, 4) if encoding.axes == 1 else torch.zeros(2, 8)
        with pytest.raises(ValueError, match="positions have shape"):
            attention(encoding, wrong, content())


def test_compiles_without_breaks(encoding: Encoding) -> None:
    def hooks(positions: torch.Tensor, x: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rotated = encoding.rotate(q, q, positions)
        logits = rotated[0] @ rotated[1].mT
        visible = torch.ones_like(logits[0, 0], dtype=torch.bool).tril()
        scored = encoding.score(logits, q, positions, positions, visible)
        bias = (encoding.bias(positions, positions),) if "bias" in encoding.hooks() else ()
        return encoding.embed(x, positions), *rotated, scored, *bias

    torch.compiler.reset()
    arguments = line(encoding, 0, 5), content(), queries()
    compiled = torch.compile(hooks, backend="aot_eager", fullgraph=True)
    assert_close(compiled(*arguments), hooks(*arguments), **CLOSE)


@pytest.mark.parametrize("choice", CASES, ids=str)
def test_text_round_trip(choice: Choice[Encoding]) -> None:
    assert ENCODINGS.choose(str(choice)) == choice
    assert ENCODINGS.choose(choice.model_dump()) == choice
    for field in choice.options():
        if isinstance(getattr(choice, field), float):
            awkward = type(choice)(**{**choice.options(), field: getattr(choice, field) + 1 / 3})
            assert ENCODINGS.choose(str(awkward)) == awkward


@pytest.mark.parametrize("name", ENCODINGS.names())
def test_bad_arguments_are_named(name: str) -> None:
    variant = ENCODINGS[name]
    structure = {key: STRUCTURE[key] for key in structural_parameters(variant)}
    assert set(structure) <= set(STRUCTURE), "a model supplies only these"
    options = [p.name for p in inspect.signature(variant).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for argument in [*structure, *options]:
        with pytest.raises(ValidationError) as caught:
            variant(**{**structure, argument: "certainly not"})
        assert argument in [part for error in caught.value.errors() for part in error["loc"]]
    for size in structure.keys() - {"causal"}:
        with pytest.raises(ValidationError, match=size):
            variant(**{**structure, size: 0})
    with pytest.raises(ValidationError, match="certainly_not"):
        variant(**structure, certainly_not=1)
    for field in ENCODINGS.choices[name].model_fields.values():
        assert field.default_factory is None
        assert not field.is_required()


@pytest.mark.parametrize("name", ENCODINGS.names())
def test_options_describe_themselves(name: str) -> None:
    for option, field in ENCODINGS.choices[name].model_fields.items():
        assert option == "name" or field.description, f"{option}: the form and the help need a description"
