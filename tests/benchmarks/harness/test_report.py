"""The line on the machine above every table."""

from benchmarks.harness import report


def test_gpus_are_named(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H100\necho NVIDIA H100\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert " 2 of " in report.machine(2) and " cores, 2 × NVIDIA H100, load" in report.machine(2)
    program.write_text("#!/bin/sh\nexit 9\n")
    assert " cores, load average" in report.machine(2)
