"""What the keys of a config must be to one another."""

from ml_collections import ConfigDict

from training.errors import UsageError


def check_together(config: ConfigDict) -> None:
    """Checks the rules between the keys of a config whose values are right each for itself.

    Raises:
        UsageError: for the first rule that is broken.
    """
    for broken, message in _rules(config):
        if broken:
            raise UsageError(message)


def _rules(config):
    """Yields (whether it is broken, what to say then) of every rule."""
    yield (
        not config.dataset,
        "config.dataset: expected the name of a data set. Received: ''.",
    )
    yield (
        config.total_steps < 1 and config.epochs <= 0,
        "Expected config.total_steps or config.epochs to be positive. "
        f"Received: {config.total_steps} and {config.epochs}.",
    )
    yield (
        config.batch_size % config.accumulation_steps != 0,
        "config.batch_size must be a multiple of config.accumulation_steps. "
        f"Received: {config.batch_size} and {config.accumulation_steps}.",
    )
    for name, least in config.reduced_decoding.items():
        yield (
            0 < least < 1,
            f"config.reduced_decoding.{name}: expected 0, or 1 or more times the pixels wanted. "
            f"Received: {least:g}.",
        )
    yield (
        bool(config.cache and config.reduced_decoding.train),
        "config.cache: images are kept as large as they are. Leave config.reduced_decoding.train "
        f"out. Received: {config.reduced_decoding.train:g}.",
    )
    yield (
        bool(config.masked.target and config.eval_split),
        "Masked patch prediction has no accuracy to evaluate: leave config.eval_split empty. "
        f"Received: {config.eval_split!r}.",
    )
    yield (
        bool(
            config.early_stopping.patience and not (config.eval_split and config.eval_every_steps)
        ),
        "config.early_stopping.patience: expected evaluations to compare. Set config.eval_split "
        "and config.eval_every_steps. "
        f"Received: {config.eval_split!r} and {config.eval_every_steps}.",
    )
    yield from _rules_of_transfer(config)
    yield from _rules_of_processes(config)


def freezes(freeze: ConfigDict) -> bool:
    """Whether the keys `freeze.*` of a config freeze anything."""
    return bool(freeze.layers or freeze.blocks or freeze.head_only)


def _rules_of_transfer(config):
    freeze, rank = config.freeze, config.lora.rank
    frozen = freezes(freeze)
    yield (
        bool(freeze.until_step and not frozen),
        "config.freeze.until_step: expected config.freeze.layers, config.freeze.blocks or "
        f"config.freeze.head_only to say what is frozen. Received: {freeze.until_step} alone.",
    )
    yield (
        bool(rank and frozen),
        "config.lora.rank: LoRA freezes all weights but the head by itself. Leave config.freeze.* "
        f"out. Received: {rank} and {freeze.to_dict()}.",
    )
    yield (
        bool(config.lora.alpha and not rank),
        "config.lora.alpha: expected config.lora.rank beside it. "
        f"Received: {config.lora.alpha:g} alone.",
    )
    yield (
        bool((rank or freeze.head_only) and not config.checkpoint),
        "config.checkpoint: expected the weights that LoRA or config.freeze.head_only leaves as "
        "they are; an untrained model would stay one. Received: ''.",
    )
    changes = rank or frozen or config.optimizer.layer_decay != 1.0
    yield (
        bool(config.masked.target and (changes or config.label_smoothing or config.class_weights)),
        "Masked patch prediction trains the whole encoder, without labels: leave config.freeze.*, "
        "config.lora.*, config.optimizer.layer_decay, config.label_smoothing and "
        "config.class_weights as they are.",
    )


def _rules_of_processes(config):
    processes, mesh = config.processes, config.mesh
    several = processes.count > 1 or processes.index > 0
    received = f"Received: count={processes.count}, index={processes.index}"
    yield (
        config.strategy != "sharded" and (several or bool(processes.coordinator)),
        'config.processes: expected config.strategy="sharded" beside it, which KERAS_BACKEND=jax '
        f"runs; multiworker reads TF_CONFIG. {received}, coordinator={processes.coordinator!r} and "
        f"strategy={config.strategy!r}.",
    )
    yield (
        several and not processes.coordinator,
        'config.processes.coordinator: expected "host:port" of process 0 for each of several '
        'processes, or "auto". Without it each would train alone, in the same folder. '
        f"{received} and no coordinator.",
    )
    yield (
        config.strategy != "sharded" and (mesh.data > 1 or mesh.fsdp != 1),
        'config.mesh: expected config.strategy="sharded" beside it, which KERAS_BACKEND=jax runs. '
        f"Received: data={mesh.data}, fsdp={mesh.fsdp} and strategy={config.strategy!r}.",
    )
