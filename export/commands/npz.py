"""`keras-vit export npz SOURCE`: a checkpoint in the official layout.

Writes a model's weights as the .npz file that the original code reads.

  keras-vit export npz runs/quickstart --output=digits.npz
"""

from keras_vit.export.command_line import Export, export_command


@export_command(output="file to write")
def main(export: Export) -> int:
    """Runs the command and returns its exit status."""
    import keras_vit

    model, file = export.source.model, export.options.output
    file.parent.mkdir(parents=True, exist_ok=True)
    keras_vit.save_checkpoint(model, file)
    return export.verify_written(file)
