"""`python -m benchmarks COMMAND …`: measures this package, and other libraries beside it."""

from keras_vit.training.command_line.exit_status import exit_process
from keras_vit.training.command_line.run_command import Commands

BENCHMARKS = Commands(
    "python -m benchmarks",
    "benchmarks",
    {
        "compare_libraries": "inference or a training step, against other libraries",
        "compare_pipelines": "reading, decoding and augmenting, against other pipelines",
        "compare_runtimes": "exports on a CPU, in ours and other runtimes",
        "imagenet_sized_run": "a run of ImageNet's size, killed, resumed and evaluated",
        "errors_in_runtimes": "how exact every family of models is in every runtime",
        "figure_11_throughput": "Figure 11: images per second, largest batch",
        "gpu": "training and inference on one GPU, against other libraries",
        "startup": "the time until a run begins",
        "table_6_exaflops": "Table 6: the compute of the paper's runs beside ours",
        "tpu_compile": "the training step, compiled ahead of time for TPUs",
        "web_page": "loading and answers of exported pages in a browser",
    },
    """\
usage: python -m benchmarks COMMAND [options]

{table}

Each command answers --help.
""",
)
main = BENCHMARKS.main

if __name__ == "__main__":
    exit_process(main)
