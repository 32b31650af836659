"""Models by where they are: a run directory, a .keras file or a published checkpoint."""

import dataclasses
import json
import pathlib
import zipfile

from export.errors import ExportError


@dataclasses.dataclass(frozen=True)
class Source:
    """A model and what is known of the data that it was trained on.

    Attributes:
        name: of the source, for tables.
        model: as `export.portable_model.portable` takes it.
        config: dict, the config.json of a run, or empty.
    """

    name: str
    model: object
    config: dict

    @property
    def activation(self):
        """The function from logits to probabilities that belongs to the loss of training."""
        return self.config.get("loss", "softmax")

    @property
    def labels(self):
        """The class names of the run's data set, or None."""
        if not self.config.get("dataset"):
            return None
        from training.data import dataset_lookup

        names = dataset_lookup.get(self.config["dataset"], self.config.get("data_dir")).class_names
        return (
            list(names) if names and len(names) == self.model.arguments.get("num_classes") else None
        )


def load_source(path, *, model_name=None, image_size=224, num_classes=None, **overrides):
    """Loads what an export starts from. Nothing in the file is executed.

    Args:
        path: a run directory with model.keras, a .keras file, or, with `model_name`, a
            checkpoint: the path or published name of a .npz or .safetensors file.
        model_name: name of the checkpoint's architecture, "ViT-B/16".
        image_size: int or (height, width), of a model made for a checkpoint.
        num_classes: int, the size of a checkpoint's head; None leaves the head out.
        **overrides: further constructor arguments of a model made for a checkpoint.

    Raises:
        FileNotFoundError: if there is no such file.
        ExportError: if it is damaged, or not a model of this package.
    """
    if model_name is not None:
        return _from_checkpoint(path, model_name, image_size, num_classes, overrides)
    path = pathlib.Path(path)
    file = path / "model.keras" if path.is_dir() else path
    if not file.exists():
        raise FileNotFoundError(
            f"Expected a run directory with model.keras, which a run writes when it ends, or a "
            f".keras file. Received: {path}. For a checkpoint, name its architecture with "
            "--model=ViT-B/16."
        )
    if file.suffix != ".keras":
        raise ExportError(
            f"Expected a .keras file or a run directory. Received: {path}. For a checkpoint, "
            "name its architecture with --model=ViT-B/16."
        )
    config = path / "config.json" if path.is_dir() else None
    return Source(
        name=str(path),
        model=_load_keras(file),
        config=json.loads(config.read_text()) if config and config.exists() else {},
    )


def _load_keras(file):
    import keras

    from export import portable_model as portable

    if not zipfile.is_zipfile(file):
        raise ExportError(
            f"Expected a .keras file, which is a zip archive. {file} is damaged or of another "
            "kind. Save the model again, with model.save()."
        )
    try:
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    except Exception as error:
        # A damaged archive fails in many ways, depending on which byte it is.
        raise ExportError(
            f"{file} cannot be loaded as a Keras model: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:500]}. It is damaged, needs classes of another "
            "package, or holds code, which is not run."
        ) from error
    if not isinstance(model, portable.MODELS):
        raise ExportError(
            f"Expected a model of keras_vit. Received: {file}, a {type(model).__name__}."
        )
    return model


def _from_checkpoint(path, model_name, image_size, num_classes, overrides):
    import keras_vit

    model = keras_vit.create_model(
        model_name, num_classes=num_classes, image_size=image_size, **overrides
    )
    skip = () if num_classes is not None else ("head", "pre_logits")
    keras_vit.load_checkpoint(model, path, skip=skip)
    return Source(name=str(path), model=model, config={})
