"""Compiles the JAX engine's step as it is, and with a layout that clashes, for eight devices.

Below each log, prints how many weights are divided, and how many collectives there are by kind.
"""

import json
from unittest import mock

import jax
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.tpu_compile import collectives
from benchmarks.train_steps_for_tpu_compile import lower
from keras_vit.training.engine import jax as engine
from keras_vit.training.engine.jax_mesh import ActivationLayout, create_mesh, state_sharding
from keras_vit.training.recipes.optimizer import build_optimizer
from tests.tiny_vit import tiny_vit

MESH = 2, 4


class ClashingLayout(ActivationLayout):
    """Lays one layer's output out across the batch's layout."""

    def get_tensor_layout(self, path):
        layout = super().get_tensor_layout(path)
        across = NamedSharding(layout.mesh, PartitionSpec(None, "fsdp", "data"))
        return across if path == "tokens/output" else layout


def main():
    grid = create_mesh(*MESH)
    for other in ({}, {"ActivationLayout": ClashingLayout}):
        model = tiny_vit(num_layers=1, hidden_size=64, mlp_dim=128, num_heads=8, dropout_rate=0.2)
        optimizer = build_optimizer({"total_steps": 10, "warmup_steps": 1, "clip_norm": 1.0})
        shapes = [variable.shape for variable in model.trainable_variables]
        divided = sum(not state_sharding(grid, shape).is_fully_replicated for shape in shapes)
        with mock.patch.dict(vars(engine), other):
            program = lower(model, optimizer, jax.devices(), MESH, images=2).compile()
        found = {"divided": divided, "collectives": collectives(program.as_text())}
        print(json.dumps(found), flush=True)
