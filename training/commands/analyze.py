"""`keras-vit analyze SOURCE`: what a trained Vision Transformer looks at (section 4.5).

Draws the paper's pictures of a model, and writes the numbers behind each as CSV:

  rollout              what the output attends to in each image             Figures 6 and 13
  attention_distance   how far each head looks, over depth                  Figures 7 and 10
  filters              principal components of the embedding's filters      Figure 7
  position_similarity  cosine similarity of the position embeddings         Figures 7 and 9
  reconstruction       predicted patches, of a model trained by masked patch prediction

  keras-vit analyze runs/birds --output=analysis
  keras-vit analyze runs/finetune --images photos/ --output=analysis
  keras-vit analyze runs/finetune --dataset=cifar10 --data_dir=DIR --output=analysis
  keras-vit analyze ViT-B_16.npz --model=ViT-B/16 --images cat.jpg --output=analysis
"""

import argparse

from keras_vit.checkpoints.model_source import model_source

from .. import data
from ..command_line.data_of_run import own_split
from ..command_line.options import CommandParser, at_least_0, at_least_1
from ..errors import UsageError
from ..io.image_listing import list_images, spread
from ..io.paths import any_path
from ..io.quiet_start import import_tensorflow


def add_options(parser: CommandParser) -> None:
    parser.add_source(exported=False)
    parser.add_argument("--images", nargs="+", default=[], help="image files, or folders of them")
    parser.add_dataset(several=False)
    parser.add_argument("--split", help="default test, or what the run held out")
    parser.add_argument("--count", type=at_least_1, default=128, help="images; default 128")
    parser.add_argument("--shown", type=at_least_1, default=16, help="images in the pictures")
    parser.add_argument("--blur", type=at_least_0, default=0.0, help="radius that smooths rollouts")
    parser.add_path("--output", "for pictures and tables", required=True)


def run(options: argparse.Namespace) -> None:
    import_tensorflow()
    from ..inference.open_model import load_model, require_ours
    from ..reporting.matplotlib_figures import write_analysis

    source = load_model(options.source, name=options.model, image_size=options.image_size)
    require_ours(source)
    images = _images(options, options.preprocess or source.interface.preprocessing)
    written, left_out = write_analysis(
        source.model, images, options.output, shown=options.shown, blur=options.blur
    )
    print(f"Written to {options.output}: {', '.join(written)}")
    for name, reason in left_out.items():
        print(f"Without {name}: {reason}")


def _images(options, preprocess):
    """Returns (images, height, width, 3) of --dataset, --images or the run's data, or None."""
    from ..data.tf_data_batches import plain_dataset

    if options.images and (options.dataset or options.split):
        raise UsageError("Expected either --images=PHOTO…, or --dataset=NAME and --split.")
    if options.dataset:
        split = data.open(options.dataset, options.split or "test", options.data_dir)
    elif options.images:
        split = data.open_files([*map(str, spread(list_images(options.images), options.count))])
    elif model_source(any_path(options.source)).run_config:
        split = own_split(options)
    else:
        return None
    operations = split.preprocess(preprocess).require_range("the preprocessing", split)
    batches = plain_dataset(
        split, operations, batch_size=options.count, skip_counter=split.left_out
    )
    for batch in batches.as_numpy_iterator():
        return batch["image"]
    raise UsageError(f"Expected images in {split.text}. Received: none that can be read.")
