"""Table 9: the tasks of VTAB."""

from training.data.vtab_tasks import TASKS

VTAB_GROUPS = {
    group.capitalize(): tuple(task.title for task in TASKS if task.group == group)
    for group in ("natural", "specialized", "structured")
}
VTAB_TASKS = tuple(task for tasks in VTAB_GROUPS.values() for task in tasks)

# {(model, pre-training data): {task: accuracy}}, and the means that the table prints.
TABLE_9 = {
    key: dict(zip(VTAB_TASKS, row, strict=True))
    for key, row in {
        ("ViT-H/14", "jft"): (
            *(95.3, 85.5, 75.2, 99.7, 97.2, 65.0, 88.9),
            *(83.3, 96.7, 91.4, 76.6),
            *(91.7, 63.8, 53.1, 79.4, 63.3, 84.5, 33.2, 51.2),
        ),
        ("ViT-L/16", "jft"): (
            *(95.4, 81.9, 74.3, 99.7, 96.7, 63.5, 87.4),
            *(83.6, 96.5, 89.7, 77.1),
            *(86.4, 63.1, 49.7, 74.5, 60.5, 82.2, 36.2, 51.1),
        ),
        ("ViT-L/16", "imagenet21k"): (
            *(90.8, 84.1, 74.1, 99.3, 92.7, 61.0, 80.9),
            *(82.5, 95.6, 85.2, 75.3),
            *(70.3, 56.1, 41.9, 74.7, 64.9, 79.9, 30.5, 41.7),
        ),
    }.items()
}
TABLE_9_MEANS = {
    ("ViT-H/14", "jft"): 77.6,
    ("ViT-L/16", "jft"): 76.3,
    ("ViT-L/16", "imagenet21k"): 72.7,
}
