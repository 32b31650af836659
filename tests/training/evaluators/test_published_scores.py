import pytest

from keras_vit.training.errors import UsageError
from keras_vit.training.evaluators.published_augreg_scores import architecture_of, published_scores

PRETRAINED = "Ti_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0"
LARGER = "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
TRANSFERRED = f"{LARGER}--cifar100-steps_10k-lr_0.01-res_384"
INDEX = f"""name,ds,filename,final_test,adapt_ds,adapt_filename,adapt_final_test
Ti/16,i1k,{PRETRAINED},0.625,cifar100,{PRETRAINED}--cifar100-steps_0k,0.5
B/32,i21k,{LARGER},0.25,cifar100,{TRANSFERRED},0.921875
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    return tmp_path


def test_scores_of_the_table_of_names_and_of_the_paper():
    cases = [("augreg/B_16-imagenet2012", 85.49), ("augreg/R+ViT-Ti_16-imagenet2012", 75.4)]
    cases += [("timm/deit3_base_patch16_384.fb_in1k", 85.0), ("sam/ViT-B_16", 80.246)]
    cases += [("imagenet21k+imagenet2012/ViT-L_16-224", 82.7)]
    for name, score in cases:
        assert published_scores(name).by_dataset == {"imagenet2012": score}
    for name in ("augreg/B_16", "sam/ViT-S_16"):
        assert not published_scores(name).by_dataset
    published = published_scores("imagenet21k+imagenet2012/ViT-B_16")
    assert published.by_dataset == {"imagenet2012": 83.97, "imagenet2012_real": 88.35}
    assert published.source == "Table 5 of the paper"
    with pytest.raises(UsageError, match=r"84\.5 %, is linear: its file has no classifier"):
        published_scores("timm/vit_base_patch14_dinov2.lvd142m")


@pytest.mark.parametrize("beside", [True, False])
def test_the_index_knows_every_checkpoint(home, beside):
    index = home / "keras_vit" / "augreg" / "index.csv" if beside else home / "mine.csv"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(INDEX)
    given = None if beside else index
    assert published_scores(f"augreg/{TRANSFERRED}", given) == ({"cifar100": 92.1875}, str(index))
    assert published_scores(f"augreg/{PRETRAINED}", given).by_dataset == {"imagenet2012": 62.5}
    # What the index lacks, the table of names has.
    assert published_scores("augreg/B_16-imagenet2012", given).by_dataset == {"imagenet2012": 85.49}
    for content in ("name,score\nB/16,1\n", "x" * 2**18):  # Another file is none.
        index.write_text(content)
        with pytest.raises(ValueError, match=r"index .*\.csv cannot be read.*It is published as"):
            published_scores("augreg/B_16", index)


def test_names_say_the_model_and_its_image_size():
    for name, model, size in (
        ("augreg/B_16-imagenet2012", "ViT-B/16", 384),
        ("augreg/R+ViT-Ti_16-imagenet2012", "R+ViT-Ti/16", 384),
        (f"augreg/{PRETRAINED}", "ViT-Ti/16", 224),
        ("imagenet21k+imagenet2012/ViT-B_16-224", "ViT-B/16", 224),
        ("imagenet21k/R50+ViT-B_16", "R50+ViT-B/16", 224),
        ("timm/deit_base_patch16_384.fb_in1k", "ViT-B/16", 384),
    ):
        found = architecture_of(name)
        assert (found.model, found.image_size) == (model, size)
        assert found.arguments == ({"gelu": "erf"} if name.startswith("timm/") else {})
        with pytest.raises(ValueError, match="expected --model and --image_size"):
            architecture_of("bit/vtab/BiT-M-R50x1-run0-dtd")
