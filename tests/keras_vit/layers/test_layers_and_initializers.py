import functools
import math

import keras
import numpy as np
import pytest

from keras_vit import initializers, layers
from keras_vit.backends.gelu import GELU_FLAVORS, TRAINED_GELU_FLAVORS
from keras_vit.models.masked_patch_prediction import PatchCorruption
from tests.keras_vit.small import of_tensorflow, randomized, to_numpy

TWICE_PHI = {
    "tanh": lambda x: 1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "erf": lambda x: 1 + np.vectorize(math.erf)(x / math.sqrt(2)),
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_half_precision_reaches_every_layer_within_but_not_the_softmax():
    tokens = normal(4, 5, 6).astype("float16")
    block = layers.EncoderBlock(num_heads=2, mlp_dim=8, dtype="mixed_float16")
    block.build(tokens.shape)
    inner = list(block._flatten_layers(include_self=False))
    assert len(inner) >= 12 and {layer.compute_dtype for layer in inner} == {"float16"}
    assert {keras.backend.standardize_dtype(w.dtype) for w in block.weights} == {"float32"}
    probabilities = to_numpy(block.attention.probabilities(tokens))
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("make", [layers.LayerNormalization, layers.GroupNormalization])
def test_statistics_are_float32_in_half_precision(make):
    """Values whose squares overflow float16 are normalized nevertheless."""
    x = (1000 * normal(2, 3, 4, 64)).astype("float16")
    result = to_numpy(make(dtype="mixed_float16")(x))
    assert result.dtype == np.float16
    expected = to_numpy(make(dtype="float32")(x.astype("float32")))
    np.testing.assert_allclose(result, expected, atol=4e-3)


def test_axial_block_attends_in_rows_then_in_columns():
    tokens = normal(4, 6, 4)
    block = randomized(layers.AxialEncoderBlock((2, 3), num_heads=2, mlp_dim=8), tokens.shape)
    grid = tokens.reshape(4, 2, 3, 4)
    rows = np.stack([to_numpy(block.row(grid[:, r])) for r in range(2)], 1)
    columns = np.stack([to_numpy(block.column(rows[:, :, c])) for c in range(3)], 2)
    np.testing.assert_allclose(to_numpy(block(tokens)), columns.reshape(4, 6, 4), atol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_patches_are_projected_row_by_row(training):
    """Rows and columns that do not fill a patch are cropped, and a warning says so."""
    images = normal(2, 8, 10, 3)
    with pytest.warns(UserWarning, match=r"patch_size=3\. Received: 8 x 10\. The rows"):
        layer = randomized(layers.PatchEmbedding(hidden_size=5, patch_size=3), images.shape)
    tokens = to_numpy(layers.FlattenGrid()(layer(images, training=training)))
    kernel, bias = (to_numpy(weight) for weight in layer.weights)
    patches = images[:, :6, :9].reshape(2, 2, 3, 3, 3, 3).transpose(0, 1, 3, 2, 4, 5)
    expected = patches.reshape(2, 6, 27) @ kernel.reshape(27, 5) + bias
    np.testing.assert_allclose(tokens, expected, atol=1e-4)


def test_two_dimensional_table():
    layer = layers.LearnedPosition2D((2, 3))
    layer.build((None, 7, 4))
    columns, rows, first = normal(3, 2), normal(2, 2, seed=1), normal(1, 1, 4, seed=2)
    layer.set_weights([columns, rows, first])
    grid = [np.concatenate([column, row]) for row in rows for column in columns]
    np.testing.assert_array_equal(to_numpy(layer.table())[0], [first[0, 0], *grid])


@of_tensorflow
@pytest.mark.parametrize("grid", [(2, 3), (5, 2)])
def test_sines_of_a_grid_that_only_the_graph_knows(grid):
    import tensorflow as tf

    layer = layers.SinCosPosition2D((4, 4))
    layer.build((None, 17, 8))
    sizes = [tf.TensorSpec((), "int32")] * 2
    found = tf.function(layer.resized_table, sizes)(*map(tf.constant, grid))
    (y, x), scale = np.mgrid[: grid[0], : grid[1]].reshape(2, -1, 1), [1, 1e-4]
    waves = [np.sin(x * scale), np.cos(x * scale), np.sin(y * scale), np.cos(y * scale)]
    expected = np.pad(np.concatenate(waves, axis=-1), ((1, 0), (0, 0)))[None]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(layer.resized_table(*grid), expected, atol=1e-6)


@pytest.mark.parametrize("tokens", [1, 5])
def test_relative_logits_are_those_of_the_distance(tokens):
    query = normal(3, 2, tokens, 4)
    layer = randomized(layers.RelativeSelfAttention(2), (None, tokens, 8))
    table = to_numpy(layer.relative_embedding)
    assert table.shape == (2 * tokens - 1, 4)
    distances = np.arange(tokens)[:, None] - np.arange(tokens) + tokens - 1
    expected = np.einsum("bhqc,qkc->bhqk", query, table[distances])
    for part in (query, query[:, :, :1]):
        found = to_numpy(layer.relative_logits(part))
        np.testing.assert_allclose(found, expected[:, :, : part.shape[2]], atol=1e-6)


@pytest.mark.rows(("hybrid", 0.41049758, 1.23149273), ("bit", 0.4454354, 1.33630621))
def test_rules_of_standardization(rule, low, high):
    conv = layers.StandardizedConv2D(1, 2, standardization=rule)
    kernel = (np.array([1, 2, 3, 4]) * 1e-4).reshape(2, 2, 1, 1).astype("float32")
    found = to_numpy(conv.standardize(kernel)).ravel()
    np.testing.assert_allclose(found, [-high, -low, low, high], rtol=2e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_kernels_are_standardized_before_they_are_rounded(dtype):
    """Of values that 16 bits cannot tell from each other, too."""
    conv = layers.StandardizedConv2D(1, 2, padding="valid", dtype=dtype)
    conv.build((None, 2, 2, 1))
    conv.kernel.assign(10 + np.array([1, 2, 3, 4], "float32").reshape(2, 2, 1, 1) * 1e-3)
    images = np.eye(4, dtype="float32").reshape(4, 2, 2, 1)
    expected = np.array([-3, -1, 1, 3]) / (np.sqrt(5) + 2e-2)  # 1e-5 in units of 5e-4
    np.testing.assert_allclose(to_numpy(conv(images)).ravel(), expected, atol=1e-2)


@pytest.mark.parametrize(("padding", "outside"), [("edge", -np.inf), ("zero", 0.0)])
@pytest.mark.parametrize("size", [(6, 8), (7, 5)])
def test_maxima_of_the_root(padding, outside, size):
    inputs = normal(2, *size, 3) - 1
    padded = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    layer = layers.RootPooling(padding)
    result = to_numpy(layer(inputs))
    assert result.shape == layer.compute_output_shape(inputs.shape)
    np.testing.assert_array_equal(result, windows[:, ::2, ::2].max((-1, -2)))


@pytest.mark.parametrize("flavor", TWICE_PHI)
@pytest.mark.parametrize("flavors", [GELU_FLAVORS, TRAINED_GELU_FLAVORS])
def test_gelu_and_its_derivative(flavor, flavors):
    def gelu(x):
        return 0.5 * x * TWICE_PHI[flavor](x)

    def weighted(x):
        return keras.ops.sum(flavors[flavor](x) * keras.ops.convert_to_tensor(upstream))

    points = np.linspace(-8, 8, 1601)
    single, upstream = points.astype("float32"), np.cos(points, dtype="float32")
    x = keras.ops.convert_to_tensor(single)
    np.testing.assert_allclose(to_numpy(flavors[flavor](x)), gelu(points), atol=1e-6)
    if keras.backend.backend() == "jax":
        import jax

        found = jax.grad(weighted)(single)
    elif keras.backend.backend() == "torch":
        weighted(x.requires_grad_()).backward()
        found = x.grad
    else:
        import tensorflow as tf

        x = tf.Variable(single)
        with tf.GradientTape() as tape:
            value = weighted(x)
        found = tape.gradient(value, x)
    expected = (gelu(points + 1e-5) - gelu(points - 1e-5)) / 2e-5
    np.testing.assert_allclose(to_numpy(found), upstream * expected, atol=3e-6)


def normalized(norm, x):
    mean, variance = to_numpy(norm.moving_mean), to_numpy(norm.moving_variance)
    return (x - mean) / np.sqrt(variance + 1e-5) * to_numpy(norm.gamma) + to_numpy(norm.beta)


def reference(layer, line):
    length, channels = line.shape
    groups, size = layer.num_groups, channels // layer.num_groups
    projected = normalized(layer.projection_norm, line @ to_numpy(layer.projection.kernel))
    query, key, value = np.split(projected.reshape(length, groups, -1), [size // 2, size], axis=-1)
    distances = np.arange(length)[:, None] - np.arange(length) + length - 1
    of_query, of_key, of_value = np.split(to_numpy(layer.relative), [size // 2, size], axis=-1)
    logits = np.zeros((length, length, groups))
    for i, j in np.ndindex(length, length):
        parts = query[i] * key[j], query[i] * of_query[distances[i, j]]
        parts = np.sum([*parts, key[j] * of_key[distances[j, i]]], axis=-1).ravel()
        logits[i, j] = normalized(layer.similarity_norm, parts).reshape(3, groups).sum(0)
    weights = np.exp(logits)
    weights /= weights.sum(1, keepdims=True)
    values = np.einsum("ijg,jgc->igc", weights, value)
    values = values, np.einsum("ijg,ijc->igc", weights, of_value[distances])
    gathered = normalized(layer.output_norm, np.stack(values, axis=1).reshape(length, -1))
    return gathered.reshape(length, 2, channels).sum(1)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_lines_attend_to_themselves(axis):
    inputs = normal(2, 3, 5, 8)
    layer = randomized(layers.AxialAttention(axis, num_groups=2), inputs.shape)
    lines, found = inputs, to_numpy(layer(inputs))
    if axis == "height":
        lines, found = lines.swapaxes(1, 2), found.swapaxes(1, 2)
    expected = [[reference(layer, line) for line in example] for example in lines]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_training_normalizes_with_the_batch():
    inputs = normal(4, 3, 5, 8)
    layer = layers.AxialAttention("width", num_groups=2)
    layer.build(inputs.shape)
    # Two normalized summands of unit variance and zero mean.
    np.testing.assert_allclose(to_numpy(layer(inputs, training=True)).mean((0, 1, 2)), 0, atol=1e-5)
    projected = to_numpy(layer.projection(inputs)).reshape(-1, 16)
    norm = layer.projection_norm
    np.testing.assert_allclose(to_numpy(norm.moving_mean), 0.1 * projected.mean(0), atol=1e-5)
    variance = 0.9 + 0.1 * projected.var(0)
    np.testing.assert_allclose(to_numpy(norm.moving_variance), variance, rtol=1e-4)


BOUND = np.sqrt(3)  # of a uniform distribution, in standard deviations
CUT = 2 / 0.87962566  # of LeCun's normal, cut at two deviations and widened to make up for it
# Layer, input shape, part of the weight's path, standard deviation, bound in deviations.
INITIAL = [
    (lambda: layers.MultiHeadSelfAttention(4), (None, 5, 128), "kernel", 1 / np.sqrt(128), BOUND),
    (lambda: layers.MultiHeadSelfAttention(4), (None, 5, 128), "bias", 0, BOUND),
    (lambda: layers.MLP(400), (None, 4, 200), "kernel", np.sqrt(2 / 600), BOUND),
    (lambda: layers.MLP(2000), (None, 4, 2000), "bias", 1e-6, 6),
    (lambda: layers.PatchEmbedding(256, 8), (None, 32, 32, 3), "kernel", 1 / np.sqrt(192), CUT),
    (lambda: layers.PositionEmbedding((14, 14)), (None, 197, 64), "embedding", 0.02, 6),
    (lambda: layers.LearnedPosition2D((40, 40), False), (None, 1600, 128), "s", 0.02, 6),
    (lambda: layers.RelativeSelfAttention(4), (None, 197, 64), "relative", 0.02, 6),
    (lambda: layers.LearnedTokens(8, 1), (None, 197, 512), "learned", 1e-6, 6),
    (lambda: layers.AxialAttention("width"), (None, 8, 56, 128), "kernel", 1 / np.sqrt(128), 6),
    (lambda: layers.AxialAttention("width"), (None, 8, 56, 128), "relative", 1 / 4, 6),
    (lambda: PatchCorruption(), (None, 14, 14, 2048), "mask", 0.02, 6),
]


@pytest.mark.parametrize(("make", "shape", "name", "deviation", "bound"), INITIAL)
def test_initial_weights(make, shape, name, deviation, bound):
    layer = make()
    layer.build(shape)
    found = [to_numpy(weight) for weight in layer.weights if name in weight.name]
    assert found
    for weight in found:
        assert abs(weight.std() - deviation) <= 0.08 * deviation
        assert np.abs(weight).max() <= bound * deviation * (1 + 1e-5)


def test_units_of_a_hybrid_begin_as_their_shortcut():
    x, unit = normal(2, 4, 4, 128), layers.HybridUnit(32)
    np.testing.assert_array_equal(to_numpy(unit(x)), np.maximum(x, 0))
    assert {float(to_numpy(norm.gamma).std()) for norm in (unit.gn1, unit.gn2, unit.gn3)} == {0.0}
    assert to_numpy(unit.gn1.gamma)[0] == 1 and to_numpy(layers.BiTUnit(32)(x)).shape == x.shape


def test_a_row_is_a_token():
    layer = randomized(layers.MLP(7), (None, 5, 4))
    rows = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    batched = to_numpy(layer(rows[None]))[0]
    np.testing.assert_allclose(to_numpy(layer(rows)), batched, rtol=1e-5, atol=1e-6)


@pytest.mark.rows(
    (lambda: layers.MultiHeadSelfAttention(4).build((None, 5, 6)), "multiple of `num_heads`"),
    (lambda: layers.AxialAttention("depth"), "`axis`"),
    (lambda: layers.AxialAttention("width").build((None, 4, 4, 24)), "twice `num_groups`"),
    *((functools.partial(layers.Dropout, rate), "`rate` must lie in") for rate in (-0.1, 1.0)),
    (lambda: layers.MLP(4, gelu="exact"), "`gelu` must be one of"),
    (lambda: layers.SinCosPosition2D((2, 2)).build((None, 5, 6)), "multiple of 4"),
    (lambda: layers.SinCosPosition2D((2, 2)).build((None, 5, 4)), "multiple of 4"),
    (lambda: layers.LearnedPosition2D((2, 3)).build((None, 7, 5)), "even number of channels"),
    (lambda: layers.RelativeSelfAttention(2).build((None, None, 4)), "fixed number of tokens"),
    (lambda: layers.RootPooling("valid"), "`padding` must be one of"),
    (lambda: layers.StandardizedConv2D(1, 1, standardization="batch"), "`standardization`"),
)
def test_refused(refused, message):
    with pytest.raises(ValueError, match=message):
        refused()


FAN_OUT = keras.initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")
PAIRS = {
    "normal": (initializers.RandomNormal(0.5, 0.02), keras.initializers.RandomNormal(0.5, 0.02)),
    "lecun_normal": (initializers.VarianceScaling(), keras.initializers.LecunNormal()),
    "glorot_uniform": (initializers.glorot_uniform(), keras.initializers.GlorotUniform()),
    "he_uniform": (initializers.he_uniform(), keras.initializers.HeUniform()),
    "he_normal_fan_out": (initializers.he_normal_fan_out(), FAN_OUT),
}


@pytest.mark.parametrize("shape", [(300, 200), (3, 3, 50, 100), (1, 1, 50_000), (50_000,)], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_distribution(name, shape):
    ours, expected = (np.ravel(to_numpy(each(shape))) for each in PAIRS[name])
    for statistic in (np.mean, np.std, lambda x: np.quantile(x, np.linspace(0.05, 0.95, 9))):
        found, value = statistic(ours), statistic(expected)
        np.testing.assert_allclose(found, value, atol=0.06 * expected.std())
    if name.endswith("uniform") or name == "lecun_normal":
        np.testing.assert_allclose(np.abs(ours).max(), np.abs(expected).max(), rtol=1e-3)


@pytest.mark.parametrize("name", PAIRS)
def test_a_seed_gives_the_same_in_any_dtype_and_a_copy_its_own(name):
    initializer = PAIRS[name][0].clone()
    weights = initializer((4, 3))
    assert keras.ops.all(weights == initializer((4, 3)))
    half = initializer((4, 3), "bfloat16")
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    assert keras.ops.all(half == keras.ops.cast(weights, "bfloat16"))
    assert not keras.ops.all(weights == initializer.clone()((4, 3)))
    config = keras.initializers.serialize(initializer)
    assert keras.initializers.deserialize(config).get_config() == initializer.get_config()
    assert config["registered_name"].startswith("keras_vit>")
