"""`benchmarks/engine.py`: what it compares is the same step, and it runs where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from scripts import load_script

benchmark = load_script("engine")


def test_a_table_and_a_record_for_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "--limit 512 --backbone cnn --epochs 1 --dense-steps 1 --batch-size 64 --peak 0.1 --out"
    benchmark.main([*words.split(), str(tmp_path / "engine.jsonl")])
    shown = capsys.readouterr().out.splitlines()
    records = [json.loads(line) for line in (tmp_path / "engine.jsonl").read_text().splitlines()]
    stages = ["warm-up", "global transition", "mapped heads (GCN)", "joint", "joint, dense and eager"]
    assert [record["stage"] for record in records] == stages
    assert [line.startswith(stage) for line, stage in zip(shown[1:], stages, strict=True)] == [True] * 5
    assert [record["steps"] for record in records] == [8, 3, 3, 8, 8]
    warm_up, _, gcn, joint, dense = records
    assert joint["gflop_per_step"] == pytest.approx(2 * warm_up["gflop_per_step"], abs=2e-3)
    assert joint["gflop_per_step"] == dense["gflop_per_step"]
    assert gcn["share_of_peak"] is None
    assert 0 < joint["share_of_peak"] < 1


def test_the_dense_reference_computes_the_loss_of_the_joint_stage() -> None:
    problem = benchmark.random_problem(64, (8, 8), torch.device("cpu"))
    stages = benchmark.Stages(problem, "cnn", 1, 64)
    classifier, transition = stages.networks()
    stage = stages.model.correction(stages.engine, "joint", classifier, transition)
    x, labels = benchmark.dense_batch(problem.train, torch.arange(64), problem.prepare)
    dense = benchmark.dense_loss(classifier.eval(), transition.eval(), x, labels)
    from crowdwise.engine.step import batch_of
    from crowdwise.engine.tensors import make_plan

    batch = batch_of(problem.train, make_plan(problem.train, [torch.arange(64)]), 0, x)
    assert dense.item() == pytest.approx(stage.loss(batch).item(), rel=1e-5)


def test_operations_of_a_network_that_can_be_counted_by_hand() -> None:
    """A linear layer of 64 x 128: 2 x 64 x 128 forward, as many for the weights' gradient, none for that of the inputs."""
    model = benchmark.TAIDTM(backbone="mlp")
    assert benchmark.training_flops(model, (64,), 10) == 10 * 2 * 2 * 64 * 128
