"""What a part of a model costs."""

from typing import NamedTuple


class Cost(NamedTuple):
    """Size and work of a part of a model; work is for one image and one forward pass.

    Attributes:
        parameters: numbers that are learned.
        macs: multiply-accumulates of matrix products and convolutions by the
            paper's convention: every token passes through every block, and a
            convolution does not read its zero padding.
        executed_macs: multiply-accumulates that the model's graph performs. A
            model that classifies from the class token computes the last block
            for that token alone; padding is multiplied like any number.
    """

    parameters: int = 0
    macs: int = 0
    executed_macs: int = 0

    def __add__(self, other):
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def __mul__(self, count):
        return Cost(*(count * a for a in self))

    @classmethod
    def of_product(
        cls,
        inputs: int,
        outputs: int,
        rows: int = 1,
        executed_rows: int | None = None,
        bias: bool = True,
    ) -> "Cost":
        """Counts a dense layer.

        Args:
            inputs, outputs: its width before and after.
            rows: the vectors of an image that it is applied to.
            executed_rows: how many of them the graph computes; all by default.
            bias: whether it adds one.
        """
        macs = inputs * outputs
        executed_rows = rows if executed_rows is None else executed_rows
        return cls(macs + (outputs if bias else 0), rows * macs, executed_rows * macs)
