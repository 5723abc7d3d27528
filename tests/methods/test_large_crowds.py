"""TAIDTM and TAIDTM-FT with factored heads: when they are used, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crowdwise
from crowdwise import Annotations, graph, simulate
from crowdwise.callbacks import FromObserver
from crowdwise.engine import Engine, Problem
from crowdwise.errors import ConfigError, CrowdwiseWarning
from crowdwise.methods.core import heads as sizes
from crowdwise.methods.core.heads import annotator_batches, choose_rank
from crowdwise.networks import FactoredHeads, GlobalHead, IndividualHeads, TransitionNetwork
from crowdwise.registry import METHODS
from engine_helpers import TAIDTM_QUICK, crowd, fit_and_interrupt
from tolerances import SINGLE

FT_QUICK = {key: value for key, value in TAIDTM_QUICK.items() if key != "k"}
CPU = torch.device("cpu")
few_examples = pytest.mark.filterwarnings("ignore:classes .* distilled examples:crowdwise.errors.CrowdwiseWarning")
pytestmark = few_examples


def test_full_heads_are_kept_up_to_two_gibibytes_on_any_machine():
    assert choose_rank("auto", 300, 64, 100, CPU) is None  # ImageNet-100: 0.78 GB
    with pytest.warns(
        CrowdwiseWarning,
        match=r"20.5 GB \(100,000 annotators x 513 x 10 x 10 numbers\), more than 2.15 GB: heads are factored, of rank 16",
    ):
        assert choose_rank("auto", 100_000, 512, 10, CPU) == 16
    assert choose_rank(5, 300, 64, 10, CPU) == 5
    assert choose_rank(None, 300, 64, 10, CPU) is None


def test_full_heads_that_do_not_fit_are_refused_with_the_numbers(monkeypatch):
    monkeypatch.setattr(sizes, "device_memory", lambda device: 139 * 10**9)
    message = (
        r"full heads do not fit: they have 20.5 GB \(100,000 annotators x 513 x 10 x 10 numbers\) and training needs about "
        r"8 times that, 164 GB, but cpu has 139 GB; use head_rank=16"
    )
    with pytest.raises(ConfigError, match=message):
        choose_rank(None, 100_000, 512, 10, CPU)


@pytest.mark.parametrize("method", ["taidtm", "taidtm-ft"])
def test_nothing_is_trained_before_full_heads_are_refused(method, monkeypatch):
    X, annotations, _ = crowd(60)
    monkeypatch.setattr(sizes, "device_memory", lambda device: 10**3)
    epochs = []
    with pytest.raises(ConfigError, match="full heads do not fit"):
        METHODS[method](verbose=0, head_rank=None).fit(
            X, annotations, callbacks=[FromObserver(lambda *a: epochs.append(a))]
        )
    assert epochs == []


@pytest.mark.parametrize(("value", "message"), [(0, "got 0"), ("many", "got 'many'")])
def test_impossible_ranks_are_named(value, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=f"head_rank must be an integer of 1 or more, 'auto' or None, {message}"):
        crowdwise.TAIDTM(**TAIDTM_QUICK, head_rank=value).fit(X, annotations)


def test_a_crowd_whose_full_heads_are_too_large_trains_with_factored_ones(monkeypatch):
    X, annotations, _ = crowd()
    monkeypatch.setattr(sizes, "FULL_LIMIT", 1000)
    with pytest.warns(CrowdwiseWarning, match="heads are factored, of rank 16"):
        model = METHODS["taidtm-ft"](**FT_QUICK).fit(X, annotations)
    assert isinstance(model.transition_.head, FactoredHeads)


def individual(rank: int | None, min_examples: int = 5):
    """Individual heads over fixed features after four epochs, and the head they started at."""
    X, annotations, _ = crowd(300)
    problem = Problem.make(X, annotations, device=CPU, seed=0, validation_fraction=0.0)
    engine = Engine(problem)
    model = crowdwise.TAIDTM(individual_epochs=4, min_examples=min_examples, bottleneck=4, individual_lr=0.1)
    torch.manual_seed(0)
    transition = TransitionNetwork("mlp", (6,), bottleneck=4)
    transition.head = head = GlobalHead(4, 3)
    distilled = problem.train.subset(torch.arange(200), target=torch.randint(3, (200,)))
    engine.run(model.fit_individuals(engine, transition, distilled, rank))
    counts = torch.bincount(distilled.annotator, minlength=8)
    return transition.head, head, counts


def test_with_enough_rank_the_individual_stage_is_that_of_full_heads():
    full, _, _ = individual(None)
    same, _, _ = individual(45)  # (4 + 1) x 3 x 3
    torch.testing.assert_close(same.heads(), full.theta, atol=1e-5, rtol=1e-4)


def test_a_few_directions_hold_most_of_what_sets_heads_apart():
    full, head, _ = individual(None)
    low, _, _ = individual(4)
    moved, caught = full.theta - head.theta, low.heads() - head.theta
    assert (moved - caught).norm() < 0.5 * moved.norm()
    assert torch.nn.functional.cosine_similarity(moved.flatten(1), caught.flatten(1)).min() > 0.8


def test_only_the_scores_are_trained_for_each_annotator():
    heads, head, counts = individual(4, min_examples=85)
    assert torch.equal(heads.residual, head.theta)
    kept = [torch.equal(heads.scores[j], torch.zeros(4)) for j in range(8)]
    assert kept == (counts < 85).tolist()
    assert any(kept)
    assert not all(kept)
    assert all(parameter.requires_grad for parameter in heads.parameters())  # again, for the last stage


def test_batches_that_are_too_large_are_cut_between_annotators():
    annotator = torch.tensor([0] * 5 + [2] * 3 + [3] + [4] * 4)
    whole = annotator_batches(annotator, 2, torch.Generator().manual_seed(0))
    cut = annotator_batches(annotator, 2, torch.Generator().manual_seed(0), limit=3)
    assert torch.equal(torch.cat(cut), torch.cat(whole))
    assert [annotator[batch].tolist() for batch in cut] == [[0, 0, 2, 2], [3, 4, 4], [0, 0, 2], [4, 4], [0]]


@pytest.mark.parametrize(
    "variant",
    [
        {"protocol": "reference"},
        {"similarity": "cosine"},
        {"similarity": "l1-normalised"},
        {"similarity": "jaccard"},
        {"gcn_layers": 1},
        {"gcn_layers": 1, "residual": True},
        {"mapping": "gat"},
        {"mapping": "deepwalk"},
        {"transfer": "individual"},
        {"transfer": "individual", "protocol": "reference"},
        {"transfer": "individual", "optimiser": "adam", "lr": 0.01},
        {"bottleneck": 0},
        {"individual_epochs": 0},
        {"min_examples": 10_000},
    ],
    ids=str,
)
def test_variants_train_and_are_saved_and_loaded(variant, tmp_path, first_stages):
    X, annotations, y = crowd()
    settings = TAIDTM_QUICK | {"epochs": 4, "head_rank": 3} | variant
    model = crowdwise.TAIDTM(**settings).fit(X, annotations, share=first_stages)
    assert model.score(X, y) > 0.85
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.heads_, model.heads_)
    np.testing.assert_allclose(loaded.transition(X[:5]), model.transition(X[:5]), atol=SINGLE)
    left, right = loaded.head_factors_
    np.testing.assert_allclose(np.einsum("jz,zdpq->jdpq", left, right), model.heads_, atol=1e-4)
    if "gcn_layers" in variant:
        assert right.shape[0] == 3 + ("residual" in variant)


def test_full_heads_have_no_factors():
    X, annotations, _ = crowd()
    model = METHODS["taidtm-ft"](**FT_QUICK).fit(X, annotations)
    assert isinstance(model.transition_.head, IndividualHeads)
    with pytest.raises(ConfigError, match="full heads have no factors"):
        model.head_factors_


@pytest.mark.parametrize("transfer", ["individual", "graph"])
@pytest.mark.parametrize("stage", ["individual heads", "correction"])
def test_a_resumed_run_equals_an_uninterrupted_one(stage, transfer, tmp_path):
    X, annotations, _ = crowd()
    parameters = TAIDTM_QUICK | {"individual_epochs": 3, "transfer": transfer, "head_rank": 3}
    whole = crowdwise.TAIDTM(**parameters).fit(X, annotations)
    middle = [record["stage"].startswith(stage) for record in whole.history_].index(True) + 2
    fit_and_interrupt(crowdwise.TAIDTM(**parameters), X, annotations, tmp_path / "run", middle)
    resumed = crowdwise.TAIDTM(**parameters).fit(X, annotations, resume=tmp_path / "run")
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(resumed.heads_, whole.heads_)
    assert [record["loss"] for record in resumed.history_] == [record["loss"] for record in whole.history_]


def test_methods_do_not_share_heads_of_another_rank(tmp_path):
    X, annotations, _ = crowd()
    for rank in (None, 2, 3):
        alone = crowdwise.TAIDTM(**TAIDTM_QUICK, head_rank=rank).fit(X, annotations)
        shared = crowdwise.TAIDTM(**TAIDTM_QUICK, head_rank=rank).fit(X, annotations, share=tmp_path)
        np.testing.assert_array_equal(shared.predict_proba(X), alone.predict_proba(X))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["taidtm", "taidtm-ft"])
def test_accuracy_is_that_of_full_heads(method):
    data = crowdwise.datasets.load("digits")
    made = simulate.aidn(
        data.X_train, data.y_train, n_annotators=60, n_groups=3, labels_per_instance=4, noise_rate=0.45
    )
    parameters = {
        "recipe": "paper",
        "classifier_start": "sharpened",  # random weights lose classes where there are few examples
        "epochs": 15,
        "warmup_epochs": 8,
        "transition_epochs": 10,
        "min_examples": 5,
        "lr": 0.05,
        "verbose": 0,
    }
    accuracy = {}
    for rank in (None, 16):
        model = METHODS[method](**parameters, k=5, head_rank=rank).fit(data.X_train, made.annotations)
        accuracy[rank] = model.score(data.X_test, data.y_test)
        if method == "taidtm":
            assert graph.edge_precision(model.annotator_graph_.before, made.groups).overall > 0.8
    assert accuracy[16] > max(0.9, accuracy[None] - 0.03)


def test_a_large_crowd_trains_without_full_heads():
    """They would be 5,000 x 65 x 9 numbers; annotators' parameters are 5,000 x 4."""
    n_annotators = 5_000
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=2000)
    X = (3 * np.eye(3, 6)[y] + rng.normal(size=(2000, 6))).astype(np.float32)
    instance = np.repeat(np.arange(2000), 10)
    label = np.where(rng.random(20_000) < 0.7, y[instance], rng.integers(3, size=20_000))
    annotator = rng.permutation(20_000) % n_annotators
    annotations = Annotations.from_triples(
        instance, annotator, label, n_instances=2000, n_annotators=n_annotators, n_classes=3
    )
    model = METHODS["taidtm-ft"](**(FT_QUICK | {"min_examples": 3, "epochs": 2, "head_rank": 4}))
    model.fit(X, annotations)
    assert model.score(X, y) > 0.9
    assert 0 < len(model.arrays_["skipped"]) < n_annotators
    assert max(parameter.numel() for parameter in model.transition_.parameters()) == 4 * n_annotators
