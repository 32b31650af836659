import numpy as np

from keras_vit.layers import MAPHead


def test_probe_attends_to_the_tokens(to_numpy):
    rng = np.random.default_rng(0)
    head = MAPHead(num_heads=2, mlp_dim=8, gelu="erf")
    tokens = rng.standard_normal((3, 5, 4)).astype("float32")
    head.build(tokens.shape)
    for weight in head.weights:
        weight.assign(rng.standard_normal(weight.shape))

    def project(dense, x):
        return x @ to_numpy(dense.kernel) + to_numpy(dense.bias)

    query = project(head.query, to_numpy(head.probe)[0])
    key, value = project(head.key, tokens), project(head.value, tokens)
    pooled = []
    for h in range(2):
        part = slice(2 * h, 2 * h + 2)
        logits = np.einsum("qc,bkc->bk", query[:, part], key[..., part]) / np.sqrt(2)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        pooled.append(np.einsum("bk,bkc->bc", weights, value[..., part]))
    x = project(head.out, np.concatenate(pooled, -1))
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    normal = normal * to_numpy(head.norm.gamma) + to_numpy(head.norm.beta)
    expected = x + to_numpy(head.mlp(normal[:, None].astype("float32")))[:, 0]
    np.testing.assert_allclose(to_numpy(head(tokens)), expected, atol=2e-5)
