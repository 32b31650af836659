import numpy as np

import keras_vit


def test_counters_of_names_are_ignored_and_kept(make_resnet, to_numpy, tmp_path):
    model = make_resnet()
    keras_vit.save_checkpoint(model, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file.items())
    counted = {
        name.replace("standardized_conv2d/", f"standardized_conv2d_{i}/"): array
        for i, (name, array) in enumerate(arrays.items())
    }
    assert set(counted) != set(arrays)
    np.savez(tmp_path / "b.npz", **counted)
    other = make_resnet(seed=1)
    keras_vit.load_checkpoint(other, tmp_path / "b.npz")
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two), err_msg=one.path)
    keras_vit.save_checkpoint(other, tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as file:
        assert set(file.files) == set(counted)


def test_another_head(make_resnet, to_numpy, tmp_path):
    keras_vit.save_checkpoint(make_resnet(num_classes=9), tmp_path / "a.npz")
    model = make_resnet(seed=1)
    before = to_numpy(model.get_layer("head").kernel)
    keras_vit.load_checkpoint(model, tmp_path / "a.npz", skip=("head",))
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), before)
    headless = make_resnet(num_classes=None)
    keras_vit.load_checkpoint(headless, tmp_path / "a.npz", skip=("head",))
