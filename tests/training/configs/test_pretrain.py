import pytest

from keras_vit.training import paper_tables
from keras_vit.training.config import schema
from keras_vit.training.configs import pretrain
from keras_vit.training.data.preprocessing.operation_language import parse
from keras_vit.training.errors import UsageError


@pytest.mark.parametrize(
    "model, dataset, examples, steps",
    [
        ("ViT-B/16", "jft", 303_000_000, 517_822),
        ("ViT-L/16", "jft", 303_000_000, 1_035_645),
        ("ViT-B/16", "imagenet2012", 1_281_167, 93_835),
    ],
)
def test_batch_and_steps_follow_from_the_table(model, dataset, examples, steps):
    data = ",data=tfds:mine:1.0.0" if dataset == "jft" else ""
    config = schema.complete(pretrain.get_config(f"{model},{dataset}{data}"))
    schema.derive_steps(config, examples)
    assert config.batch_size == 4096
    assert config.total_steps == config.optimizer.total_steps == steps


@pytest.mark.parametrize(
    "model, dataset",
    [(model, row.dataset) for row in paper_tables.TABLE_3 for model in row.models],
)
def test_every_row_is_a_config(model, dataset):
    config = pretrain.get_config(f"{model},{dataset},data=tfds:mine:1.0.0")
    row, epochs = paper_tables.row_of_table_3(model, dataset)
    assert config.epochs == epochs
    assert config.optimizer.base_lr == row.base_lr
    assert config.optimizer.schedule == row.schedule
    assert config.optimizer.weight_decay == row.weight_decay
    assert config.optimizer.clip_norm == row.clip_norm
    assert config.model.get("dropout_rate", row.dropout) == row.dropout
    assert config.dataset == "tfds:mine:1.0.0"
    assert parse(config.train_preprocess) and parse(config.eval_preprocess)


def test_a_row_by_its_values_and_a_hidden_layer_as_wide_as_the_model():
    row, epochs = paper_tables.row_of_table_3("ViT-L/16", "jft")
    assert (row.base_lr, row.schedule, row.weight_decay, epochs) == (4e-4, "linear", 0.1, 14)
    assert paper_tables.row_of_table_3("ViT-L/16", "jft", 7)[1] == 7
    assert pretrain.get_config("ViT-L/16,imagenet21k").model.representation_size == 1024
    assert "representation_size" not in pretrain.get_config("BiT-R50x1,jft,data=x").model


def test_augreg():
    config = pretrain.get_config("ViT-S/16,imagenet2012,strength=default")
    assert 'augreg("medium2")' in config.train_preprocess
    assert config.train_split == "train[:99%]"
    assert config.optimizer.weight_decay * config.optimizer.base_lr == pytest.approx(1e-4)
    assert config.optimizer.first_moment_dtype == "bfloat16"
    schema.derive_steps(config, 1_281_167 * 99 // 100)
    assert config.total_steps == 92_897
    config = pretrain.get_config("ViT-B/16,imagenet21k,strength=strong2")
    assert 'augreg("strong2")' in config.train_preprocess


@pytest.mark.parametrize(
    "arg, message",
    [
        ("ViT-B/16", "DATASET one of imagenet2012, imagenet21k, jft"),
        ("ViT-B/16,jft", "JFT-300M is not public"),
        ("ViT-S/16,imagenet21k", "no row for ViT-S/16 on imagenet21k"),
        ("ViT-B/16,jft,epochs=14,data=tfds:mine", "for 7 epochs. Received: 14"),
        ("ViT-B/16,imagenet2012,strength=huge", "strength: expected default or one of none"),
    ],
)
def test_errors(arg, message):
    with pytest.raises((UsageError, ValueError), match=message):
        pretrain.get_config(arg)
