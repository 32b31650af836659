"""`keras-vit similar SOURCE FOLDER`: photos that look alike, by a model's representations.

The nearest of a folder's photos to each of them, by the cosine of what the model's head is put on,
or would be. SOURCE is what `predict` takes, with or without a head.

  keras-vit similar runs/birds photos/ --output=similar
  keras-vit similar runs/birds photos/ --query=crow.jpg --output=similar
  keras-vit similar imagenet21k/ViT-B_16 photos/ --model=ViT-B/16 --output=similar

--output gets neighbors.parquet (photo, neighbor, similarity), a page of them, similar.html,
near_duplicates.csv, and the representations, by which the same command goes on where it stopped.
"""

import argparse
import importlib.util
import io
import logging
from typing import Any

from ..command_line.options import CommandParser, above_0, at_least_1
from ..errors import UsageError
from ..io.atomic import atomic_file, write_text
from ..io.image_listing import list_images, spread
from ..io.paths import any_path
from ..io.printed_table import Table
from ..io.progress_bar import track
from ..io.quiet_start import import_tensorflow

logger = logging.getLogger("keras_vit")


def add_options(parser: CommandParser) -> None:
    parser.add_source()
    parser.add_argument("folder", metavar="FOLDER", type=any_path, store="keep", help="of photos")
    text = "find the neighbors of this photo alone; may be given again, or be a folder"
    parser.add_argument("--query", metavar="PHOTO", type=any_path, action="append", help=text)
    text = "neighbors of each photo; default 10"
    parser.add_argument("--count", metavar="N", type=at_least_1, default=10, help=text)
    text = "similarity from which photos are near-duplicates; default 0.98"
    parser.add_argument("--near", metavar="COSINE", type=above_0, default=0.98, help=text)
    text = "compare all pairs, where an index would find nearly all of the neighbors sooner"
    parser.add_argument("--exact", action="store_true", help=text)
    text = "photos on the page; default 24"
    parser.add_argument("--shown", metavar="N", type=at_least_1, default=24, help=text)
    parser.add_path("--output", "for representations, neighbors and the page", required=True)


def run(options: argparse.Namespace) -> None:
    photos = [str(file) for file in list_images([options.folder])]
    queries = [str(file) for file in list_images(options.query or ())]
    import_tensorflow()
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    from ..evaluators.nearest_neighbors import INDEXED, directions, nearest, nearest_by_index
    from ..prediction.predictor import Predictor
    from ..reporting.html_pages import neighbors_html

    checkpoint: dict[str, Any] = {"name": options.model, "image_size": options.image_size}
    settings: dict[str, Any] = {"checkpoint": checkpoint, "representation": True, "answers": False}
    predictor = Predictor(options.source, photos, **settings)
    names, among = _stored(predictor, options.output / "representations")
    places = [place for place, name in enumerate(names) if name]
    ids, among = [names[place] for place in places], directions(among)
    files = [photos[place] for place in places]
    asked, asked_files, asked_ids = among, files, ids
    if queries:
        found = list(Predictor(options.source, queries, **settings).predict(range(len(queries))))
        if wrong := next((each for each in found if each.error), None):
            raise UsageError(f"{wrong.id} cannot be read as an image: {wrong.error}")
        asked = directions(np.stack([np.asarray(each.representation) for each in found]))
        asked_files, asked_ids = queries, [each.id for each in found]
    # A photo that is asked for is not its own neighbor.
    rows_of = {file: row for row, file in enumerate(files)}
    own = [rows_of.get(each, -1) for each in asked_files]
    if len(ids) < 1 + (not queries):
        raise UsageError(
            f"Expected photos to compare in {options.folder}. Received: {len(ids)} that can be "
            "read."
        )
    search = nearest
    if min(len(asked), len(ids)) >= INDEXED and not options.exact:
        if importlib.util.find_spec("faiss"):
            search = nearest_by_index
        else:
            logger.info("An index is quicker here: pip install 'keras-vit-16x16[similar]'")
    schema = pa.schema({"photo": pa.string(), "neighbor": pa.string(), "similarity": pa.float32()})
    rows, near, start = {}, {}, 0
    shown = set(spread(range(len(asked)), options.shown))
    with (
        atomic_file(options.output / "neighbors.parquet") as temporary,
        pa.parquet.ParquetWriter(temporary, schema) as writer,
    ):
        text = f"comparing {len(asked)} with {len(ids)} photos"
        blocks = search(asked, among, options.count, own)
        for numbers, cosines in track(blocks, text):
            those = range(start, start + len(numbers))
            columns = (np.repeat(those, numbers.shape[1]), numbers.ravel(), cosines.ravel())
            table: list[Any] = [
                [asked_ids[i] for i in columns[0]],
                [ids[i] for i in columns[1]],
                columns[2],
            ]
            writer.write_table(pa.table(dict(zip(schema.names, table, strict=True)), schema))
            for k in np.flatnonzero(cosines.ravel() >= options.near):
                pair = table[0][k], table[1][k]
                near[pair if queries else tuple(sorted(pair))] = f"{table[2][k]:.4f}"
            for i in sorted(shown.intersection(those)):
                each = zip(numbers[i - start], cosines[i - start], strict=True)
                rows[asked_files[i]] = [(files[j], float(cosine)) for j, cosine in each]
            start = those.stop
    duplicates = Table(schema.names, [(*pair, cosine) for pair, cosine in sorted(near.items())])
    write_text(options.output / "near_duplicates.csv", duplicates.csv())
    write_text(options.output / "similar.html", neighbors_html(predictor.name, rows))
    print(
        f"{len(asked)} photos and their neighbors among {len(ids)}: {options.output}/similar.html"
    )
    pairs = "1 pair" if len(near) == 1 else f"{len(near)} pairs"
    print(f"near-duplicates: {pairs} of a similarity of {options.near:g} or more")


def _stored(predictor, folder):
    """Writes the missing shards; returns the id of each photo, "" without one, and the features."""
    import numpy as np
    import pyarrow.parquet

    from ..prediction.shards import missing_shards, write_shard

    with missing_shards(predictor, str(folder)) as shards:
        done = (write_shard(predictor, str(folder), shard) for shard in shards)
        for _ in track(done, f"looking at {predictor.count} photos", len(shards)):
            pass
    names, features = [], []
    for shard in predictor.shards:
        table = pyarrow.parquet.read_table(io.BytesIO((folder / shard).read_bytes()))
        for row in table.select(["id", "error"]).to_pylist():
            names.append("" if row["error"] else row["id"])
            if row["error"]:
                logger.warning("Left out: %s cannot be read: %s", row["id"], row["error"])
        # Flattened, rows of photos that cannot be read are gone.
        values = table["representation"].combine_chunks().flatten().to_numpy()
        if readable := len(table) - names[-len(table) :].count(""):
            features.append(values.reshape(readable, -1))
    return names, np.concatenate(features) if features else np.zeros((0, 1), np.float32)
