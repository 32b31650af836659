"""Table 8: position embeddings."""

# ImageNet 5-shot linear accuracy of ViT-B/16 as a fraction: {(embedding, placement): accuracy}.
TABLE_8 = {
    ("none", "stem"): 0.61382,
    ("learned_1d", "stem"): 0.64206,
    ("learned_1d", "every"): 0.63964,
    ("learned_1d", "shared"): 0.64292,
    ("learned_2d", "stem"): 0.64001,
    ("learned_2d", "every"): 0.64046,
    ("learned_2d", "shared"): 0.64022,
    ("relative", "stem"): 0.64032,
}
