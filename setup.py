"""Packaging of keras-vit-16x16: `keras-vit` on the package index is another person's package."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "keras_vit" / "version.py").read_text()).group(
    1
)
JAX = ["jax>=0.10", "orbax-checkpoint>=0.12.8"]
ONNX = ["onnx", "onnxruntime", "tf2onnx"]
PACKAGES = ("keras_vit", "training", "export", "benchmarks")

setup(
    name="keras-vit-16x16",
    version=VERSION,
    description="The Vision Transformer for Keras 3: train, transfer, analyze and export it.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords="vision transformer, ViT, Keras, TensorFlow, JAX, TF-Hub, TFLite",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    project_urls={
        "Paper": "https://arxiv.org/abs/2010.11929",
        "Original implementation": "https://github.com/google-research/vision_transformer",
    },
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=[f"{name}*" for name in PACKAGES]),
    package_data={name: ["py.typed", "imagenet_classes.txt", "web/page/*"] for name in PACKAGES},
    entry_points={"console_scripts": ["keras-vit = export.console_script:script"]},
    install_requires=[
        "absl-py",
        "ai-edge-litert>=2.0",
        "flatbuffers",
        "importlib_resources",  # imported by tensorflow-datasets, which does not declare it
        "keras>=3.10",
        "litert-quantizer>=0.11",
        "matplotlib",
        "ml_collections",
        "numpy",
        "pillow",
        "pyarrow",
        "rich",
        "safetensors",
        "scikit-learn",
        "scipy",  # imported by tensorflow-datasets to prepare Flowers and SVHN
        "setuptools<81",  # tensorflow-hub imports pkg_resources
        "tensorflow>=2.19,<2.22",
        "tensorflow-datasets>=4.9.8",
        "tensorflow-hub>=0.16.1",
        "tf_keras>=2.19",
    ],
    extras_require={
        "test": ["hypothesis", "mypy", "pytest", "pytest-timeout", "pytest-xdist", "ruff"],
        "gpu": ["tensorflow[and-cuda]>=2.19,<2.22"],
        "jax": JAX,
        "jax-cuda": [*JAX, "jax[cuda13]"],
        "jax-tpu": [*JAX, "jax[tpu]"],
        "browser": ["playwright"],
        "onnx": ONNX,
        "bench": ["keras-hub", "timm", "torch", "jax", "flax", "optax", *ONNX],
        "ray": ["ray[data]>=2.55"],
        "vtab": ["h5py", "opencv-python-headless"],
    },
)
