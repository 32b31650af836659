"""The paper's tables as data: recipes (Tables 3 and 4) and results (Tables 2 and 5 to 9).

Accuracies are in percent unless said otherwise. What a table does not give (its "-" and "—") is
absent. Data sets go by the names of `training.data.registry`, VTAB's tasks by the paper's.
Table 1 is `keras_vit.variants`.
"""

from training.paper_tables.table_2 import TABLE_2
from training.paper_tables.table_3 import (
    TABLE_3,
    TABLE_3_BATCH_SIZE,
    TABLE_3_IMAGE_SIZE,
    TABLE_3_WARMUP_STEPS,
    PreTraining,
)
from training.paper_tables.table_4 import (
    TABLE_4,
    TABLE_4_BATCH_SIZE,
    TABLE_4_CLIP_NORM,
    TABLE_4_IMAGE_SIZE,
    TABLE_4_MOMENTUM,
    FineTuning,
)
from training.paper_tables.table_5 import TABLE_5
from training.paper_tables.table_6 import TABLE_6, TABLE_6_EXAFLOPS, TABLE_6_MISPRINTS
from training.paper_tables.table_7 import TABLE_7
from training.paper_tables.table_8 import TABLE_8
from training.paper_tables.table_9 import TABLE_9, TABLE_9_MEANS, VTAB_GROUPS, VTAB_TASKS
from training.paper_tables.upstream import UPSTREAM, UPSTREAM_IMAGES

__all__ = [
    "TABLE_2",
    "TABLE_3",
    "TABLE_3_BATCH_SIZE",
    "TABLE_3_IMAGE_SIZE",
    "TABLE_3_WARMUP_STEPS",
    "TABLE_4",
    "TABLE_4_BATCH_SIZE",
    "TABLE_4_CLIP_NORM",
    "TABLE_4_IMAGE_SIZE",
    "TABLE_4_MOMENTUM",
    "TABLE_5",
    "TABLE_6",
    "TABLE_6_EXAFLOPS",
    "TABLE_6_MISPRINTS",
    "TABLE_7",
    "TABLE_8",
    "TABLE_9",
    "TABLE_9_MEANS",
    "UPSTREAM",
    "UPSTREAM_IMAGES",
    "VTAB_GROUPS",
    "VTAB_TASKS",
    "FineTuning",
    "PreTraining",
]
