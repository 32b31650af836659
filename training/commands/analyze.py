"""`python -m training analyze SOURCE`: what a trained Vision Transformer looks at (section 4.5).

Draws the paper's pictures of a model, and writes the numbers behind each as CSV:

  rollout              what the output attends to in each image             Figures 6 and 13
  attention_distance   how far each head looks, over depth                  Figures 7 and 10
  filters              principal components of the embedding's filters      Figure 7
  position_similarity  cosine similarity of the position embeddings         Figures 7 and 9
  reconstruction       predicted patches, of a model trained by masked patch prediction

  python -m training analyze runs/birds --output=analysis
  python -m training analyze runs/finetune --images photos/ --output=analysis
  python -m training analyze runs/finetune --dataset=cifar10 --data_dir=DIR --output=analysis
  python -m training analyze ViT-B_16.npz --model=ViT-B/16 --images cat.jpg --output=analysis
"""

import itertools
import sys

from training.command_options import CommandParser, own_data
from training.exit_status import command_main
from training.io.paths import any_path
from training.io.quiet_start import import_tensorflow


def _parser():
    parser = CommandParser("python -m training analyze", __doc__)
    parser.add_source()
    parser.add_argument("--images", nargs="+", default=[], help="image files, or folders of them")
    parser.add_dataset(several=False)
    parser.add_argument("--split", help="default test, or what the run held out")
    parser.add_argument("--count", type=int, default=128, help="images to take; default 128")
    parser.add_argument("--shown", type=int, default=16, help="images in the picture of rollouts")
    parser.add_argument("--blur", type=float, default=0.0, help="radius that smooths rollouts")
    parser.add_path("--output", "for pictures and tables", required=True)
    return parser


def _analyze(options):
    if options.count < 1 or options.shown < 1:
        raise ValueError(
            "Expected --count and --shown to be at least 1. "
            f"Received: {options.count} and {options.shown}"
        )

    import_tensorflow()
    from training.evaluators.model_source import load_model, resizing
    from training.reporting.analysis_files import write_analysis

    source = load_model(options.source, name=options.model, image_size=options.image_size)
    images = _images(options, options.preprocess or resizing(source.image_size))
    written, left_out = write_analysis(
        source.model, images, options.output, shown=options.shown, blur=options.blur
    )
    print(f"Written to {options.output}: {', '.join(written)}")
    for name, reason in left_out.items():
        print(f"Without {name}: {reason}")


def _images(options, preprocess):
    """Returns (images, height, width, 3) of --dataset, --images or the run's data, or None."""
    from training import data

    if options.dataset:
        return _images_of(
            data.open(options.dataset, options.split or "test", options.data_dir),
            preprocess,
            options,
        )
    if options.images:
        from training.io.image_files import list_images, read_images

        return read_images(list_images(options.images)[: options.count], preprocess)
    if (any_path(options.source) / "config.json").is_file():
        dataset, config = own_data(options.source, options.data_dir)
        split = options.split or config["eval_split"] or config["train_split"]
        return _images_of(dataset.split(split), preprocess, options)
    return None


def _images_of(split, preprocess, options):
    import numpy as np

    from training.data.pipeline import plain_dataset

    examples = plain_dataset(split, split.preprocess(preprocess))
    images = itertools.islice(examples.as_numpy_iterator(), options.count)
    return np.stack([example["image"] for example in images])


main = command_main(_parser, _analyze)

if __name__ == "__main__":
    sys.exit(main())
