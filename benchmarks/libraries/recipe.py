"""The update that every contestant trains with: SGD with momentum."""

LEARNING_RATE = 1e-3
MOMENTUM = 0.9
