"""Packaging of keras-vit-16x16: `keras-vit` on the package index is another person's package."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "keras_vit" / "version.py").read_text()).group(
    1
)
LINKED = ("training", "export")
TENSORFLOW = "2.19,<2.22"
JAX = ["jax>=0.10"]
ONNX = ["onnx", "onnxruntime", "tf2onnx"]
HUB = [
    "tensorflow-hub>=0.16.1",
    f"tf_keras>={TENSORFLOW}",
    "setuptools<81",  # tensorflow-hub imports pkg_resources
]
TFLITE = ["flatbuffers", "litert-quantizer>=0.11,<1"]

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
    # Built from the folders at the top: a checkout may lack `keras_vit/training` and
    # `keras_vit/export`, which are links to them.
    packages=[
        *find_packages(include=["keras_vit*"], exclude=[f"keras_vit.{top}*" for top in LINKED]),
        *(f"keras_vit.{name}" for top in LINKED for name in find_packages(include=[f"{top}*"])),
    ],
    package_dir={f"keras_vit.{top}": top for top in LINKED},
    package_data={"": ["py.typed", "imagenet_classes.txt", "page/*"]},
    entry_points={"console_scripts": ["keras-vit = keras_vit.__main__:script"]},
    install_requires=[
        "absl-py",
        "ai-edge-litert>=2.0,<3",
        "etils[epath]",
        "importlib_resources",  # imported by tensorflow-datasets, which does not declare it
        "keras>=3.12",  # safe_mode of earlier ones can be bypassed
        "matplotlib",
        "ml_collections",
        "numpy",
        "pillow>=11.3",  # AVIF
        "protobuf",
        "psutil",
        "pyarrow",
        "rich",
        "safetensors",
        "scikit-learn",
        "scipy",  # imported by tensorflow-datasets to prepare Flowers and SVHN
        "shtab",
        f"tensorflow>={TENSORFLOW}",
        "tensorflow-datasets>=4.9.8",
    ],
    extras_require={
        "export": [*HUB, *TFLITE],
        "hub": HUB,
        "test": [
            "hypothesis",
            "import-linter",
            "mypy",
            "pycocotools",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "ruff",
        ],
        "gpu": [f"tensorflow[and-cuda]>={TENSORFLOW}"],
        "heic": ["pillow-heif"],
        "huggingface": ["huggingface_hub"],
        "jax": JAX,
        "jax-cuda": [*JAX, "jax[cuda13]"],
        "jax-tpu": [*JAX, "jax[tpu]"],
        "browser": ["playwright"],
        "coco": ["pycocotools"],
        "onnx": ONNX,
        "openvino": ["openvino"],
        "mediapipe": ["mediapipe"],
        "bench": [
            *("keras-hub", "timm", "torch", "jax", "flax", "optax", "nncf", "openvino"),
            *ONNX,
            *TFLITE,
        ],
        "ray": ["ray[data]>=2.55"],
        "similar": ["faiss-cpu"],
        "vtab": ["h5py", "opencv-python-headless"],
    },
)
