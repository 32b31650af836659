"""LiteRT's quantizer: the package litert-quantizer, called ai-edge-quantizer up to 0.10."""

import importlib
import importlib.util
from types import ModuleType

QUANTIZER = next(
    (name for name in ("litert_quantizer", "ai_edge_quantizer") if importlib.util.find_spec(name)),
    "litert_quantizer",
)


def quantizer_module(name: str) -> ModuleType:
    """Returns a module of the quantizer by its name inside of the package."""
    return importlib.import_module(f"{QUANTIZER}.{name}")
