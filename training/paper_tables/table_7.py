"""Table 7: ResNets pre-trained with SGD and with Adam."""

# Pre-trained on JFT: {(model, optimizer): {data set: accuracy}}.
_COLUMNS = (
    "imagenet2012",
    "cifar10",
    "cifar100",
    "oxford_iiit_pet",
    "oxford_flowers102",
)
TABLE_7 = {
    key: dict(zip(_COLUMNS, row, strict=True))
    for key, row in {
        ("BiT-R50x1", "adam"): (77.54, 97.67, 86.07, 91.11, 94.26),
        ("BiT-R50x1", "sgd"): (78.24, 97.46, 85.17, 91.00, 92.06),
        ("BiT-R152x2", "adam"): (84.97, 99.06, 92.05, 95.37, 98.62),
        ("BiT-R152x2", "sgd"): (84.37, 99.07, 91.06, 94.79, 99.32),
    }.items()
}
