"""Evaluate an arithmetic expression modulo a base."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from whence.tasks import Answer, Batch, Task, line


class ModularArithmetic(Task):
    """The value of an expression modulo a base. Multiplication goes before addition and subtraction.

    base 5:  3 + 4 × 2 = → 1        2 − 4 = → 3

    The length is the number of operands, each followed by an operator. The value depends on which operator belongs to
    which operand, so counts of either are weak evidence. Evaluation strictly from left to right and sums without
    operators are correct for short expressions only: these are shortcuts. So is a product cut after two or three
    factors.
    """

    skill = "Evaluate an expression: every operand with its own operator, products first."
    per = "sequence"
    shortest = 2
    train_length = 16
    examples = (
        ("", [3, 5, 4, 7, 2, 8], [1]),
        ("", [2, 6, 4, 8], [3]),
        ("base=10,operators=+-", [9, 11, 4, 10, 7, 12], [2]),
    )

    def __init__(
        self,
        *,
        base: Annotated[int, Field(ge=2, le=2**16, description="modulus; operands and values are smaller")] = 5,
        operators: Annotated[Literal["+-", "+-*"], Field(description="allowed operators")] = "+-*",
    ) -> None:
        self.base = self.outputs = base
        self.operators = operators
        self.equals = base + len(operators)
        self.symbols = self.equals + 1

    @property
    def minus(self) -> int:
        return self.base + 1

    @property
    def times(self) -> int:
        return self.base + 2  # the equals sign, if there is no multiplication, but that never stands before an operand

    def tokens(self, length: int) -> int:
        return 2 * length

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        operands = torch.randint(self.base, (length, batch), generator=generator)  # time first: rows are read whole
        signs = torch.randint(self.base, self.equals, (length, batch), generator=generator)  # each before its operand
        signs[0] = self.base
        multiplied = signs == self.times
        signed = torch.where(signs == self.minus, -operands, operands)
        begun, factors = signed.masked_fill(multiplied, 0), operands.masked_fill(~multiplied, 0)
        products = [begun[0]]
        for begin, factor in zip(begun[1:].unbind(), factors[1:].unbind(), strict=True):
            products.append(torch.addcmul(begin, products[-1], factor).remainder_(self.base))
        ended = torch.ones_like(multiplied)
        torch.logical_not(multiplied[1:], out=ended[:-1])  # a product ends where no multiplication follows
        value = (torch.stack(products) * ended).sum(0) % self.base
        after = torch.cat([signs[1:], torch.full((1, batch), self.equals)])
        inputs = torch.stack([operands, after], 1).flatten(0, 1).T.contiguous()
        return Batch(inputs, line(2 * length), value, torch.ones(batch, dtype=torch.bool))

    def solve(self, inputs: list[int]) -> list[Answer]:
        terms: list[int] = []
        sign = self.base
        for operand, following in zip(inputs[::2], inputs[1::2], strict=True):
            if sign == self.times:
                terms[-1] *= operand
            else:
                terms.append(-operand if sign == self.minus else operand)
            sign = following
        return [sum(terms) % self.base]

    def shortcuts(self, batch: Batch) -> dict[str, Tensor]:
        operands, signs = batch.inputs[:, ::2], batch.inputs[:, 1:-1:2]
        running = operands[:, 0]
        for sign, operand in zip(signs.unbind(1), operands[:, 1:].unbind(1), strict=True):
            added = torch.where(sign == self.minus, running - operand, running + operand)
            running = torch.where(sign == self.times, running * operand, added) % self.base
        signed = torch.where(signs == self.minus, -operands[:, 1:], operands[:, 1:])
        names = {
            "the last operand": operands[:, -1],
            "the last operand and its sign": signs[:, -1] * self.base + operands[:, -1],
            "the number of zeros": (operands == 0).sum(1),
            "the sum of all operands": operands.sum(1) % self.base,
            "the sum and the number of minuses": operands.sum(1) % self.base + self.base * (signs == self.minus).sum(1),
        }
        if "*" not in self.operators:
            return names
        return names | {
            "multiplication taken for addition": (operands[:, 0] + signed.sum(1)) % self.base,
            "strictly from left to right": running,
            "products cut after two factors": self._cut_products(operands, signs, 2),
            "products cut after three factors": self._cut_products(operands, signs, 3),
        }

    def _cut_products(self, operands: Tensor, signs: Tensor, most: int) -> Tensor:
        """The value if all factors of a product after the first `most` were not there."""
        value, product, sign = (torch.zeros_like(operands[:, 0]) for _ in range(3))
        factors = torch.zeros_like(value)
        for before, operand in zip([None, *signs.unbind(1)], operands.unbind(1), strict=True):
            joins = torch.zeros_like(value, dtype=torch.bool) if before is None else before == self.times
            value = torch.where(joins, value, value + sign * product)
            minus = torch.zeros_like(joins) if before is None else before == self.minus
            sign = torch.where(joins, sign, torch.where(minus, -1, 1))
            product = torch.where(joins, torch.where(factors < most, product * operand, product), operand) % self.base
            factors = torch.where(joins, factors + 1, 1)
        return (value + sign * product) % self.base
