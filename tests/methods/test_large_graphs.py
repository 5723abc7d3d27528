"""TAIDTM with the graph of a very large crowd, from the warm-up to a saved model: nothing of size R x R is held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")
FIT = """
import json, pathlib, sys, tempfile
import numpy as np
import crowdwise
from crowdwise import Annotations, TAIDTM, graph

def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

size, n, labels = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
y = rng.integers(3, size=n)
X = (4 * np.eye(3, 6)[y] + rng.normal(size=(n, 6))).astype(np.float32)
instance = np.repeat(np.arange(n), labels)
annotator = rng.permutation(n * labels) % size
kind = np.arange(size) % 2
wrong = (y[instance] + 1 + kind[annotator]) % 3
label = np.where(rng.random(n * labels) < 0.7, y[instance], wrong)
crowd = Annotations.from_triples(instance, annotator, label, n_instances=n, n_annotators=size, n_classes=3)
small = TAIDTM(epochs=1, warmup_epochs=1, max_retries=1, verbose=0)
small.fit(X[:50], Annotations.coerce(rng.integers(3, size=(50, 4))))  # what every fit takes is no matter here
before = peak()
model = TAIDTM(epochs=2, warmup_epochs=4, transition_epochs=2, gcn_epochs=1, gcn_hidden=8, batch_size=512, lr=0.05,
               warmup_lr=0.05, individual_lr=0.1, min_examples=3, k=20, head_rank=8, verbose=0)
model.fit(X, crowd)
with tempfile.TemporaryDirectory() as folder:
    loaded = crowdwise.load(model.save(folder + "/model"))
growth = peak() - before
found = model.annotator_graph_
print(json.dumps({
    "growth": growth,
    "accuracy": model.score(X, y),
    "same": bool((loaded.predict_proba(X[:100]) == model.predict_proba(X[:100])).all()),
    "precision": graph.edge_precision(found.before, kind).overall,
    "skipped": len(found.skipped),
    "edges": found.after.nnz,
    "skill": bool(np.isfinite(model.skill_).all()),
}))
"""
pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="the peak of memory is read from /proc")


def fit(n_annotators: int, n_instances: int, labels: int) -> dict[str, float]:
    """What a process of its own finds, with its growth in bytes."""
    words = [sys.executable, "-W", "ignore", "-c", FIT, str(n_annotators), str(n_instances), str(labels)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict[str, float], n_annotators: int) -> None:
    assert found["accuracy"] > 0.9
    assert found["same"]
    assert found["skill"]
    assert found["precision"] > 0.6  # a few labels each say a little; by chance it would be 0.5
    assert found["skipped"] < n_annotators / 2
    assert found["edges"] <= 8_000_000 + 260 * n_annotators


@pytest.mark.slow
def test_the_graph_of_ten_thousand_annotators_takes_less_than_one_dense_matrix():
    found = fit(10_000, 10_000, 6)
    check(found, 10_000)
    assert found["growth"] < 8 * 10_000**2  # bytes of R x R similarities


@pytest.mark.slow
def test_a_hundred_thousand_annotators_train_with_their_graph():
    found = fit(100_000, 80_000, 8)
    check(found, 100_000)
    assert found["growth"] < 2e9  # a dense matrix of that size would take 40 to 80 GB
