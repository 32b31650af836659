"""What one contestant is asked to run."""

import dataclasses
import json

MODES = ("infer", "train")
PRECISIONS = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Case:
    """One contestant's task, complete in itself so that it can travel to a process.

    Args:
        contestant: the name of a module of `benchmarks.libraries`.
        arguments: the Vision Transformer, in `keras_vit.VisionTransformer`'s arguments.
        mode: "infer", images to logits, or "train", one step of SGD with momentum.
        batch: int, images per step.
        precision: "float32" or "bfloat16". Inference in bfloat16 keeps the weights in
            bfloat16; training keeps them in float32 and computes in bfloat16.
        compiled: bool, whether XLA (PyTorch: `torch.compile`) compiles the step.
        threads: int, the processor cores that the contestant may use.
    """

    contestant: str
    arguments: dict
    mode: str = "infer"
    batch: int = 8
    precision: str = "float32"
    compiled: bool = False
    threads: int = 2

    @property
    def image_shape(self):
        """(batch, height, width, 3)."""
        size = self.arguments["image_size"]
        height, width = (size, size) if isinstance(size, int) else size
        return self.batch, height, width, 3

    def to_json(self):
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text):
        return cls(**json.loads(text))
