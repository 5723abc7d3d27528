"""Fixtures and invariants of TAIDTM's stages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import crowdwise
from crowdwise import graph, simulate
from crowdwise.callbacks import FromObserver
from crowdwise.engine import Engine, Problem, StageResult
from crowdwise.engine.checkpoint import clone_state
from crowdwise.engine.recipe import FEATURES, PAPER, PICTURES
from crowdwise.errors import ConfigError, CrowdwiseWarning, TrainingError
from crowdwise.methods.bltm import class_prior_penalty, distil, sharpening, top_up
from crowdwise.methods.taidtm import annotator_batches, annotator_mean, confusion_matrices, whole_annotators
from crowdwise.networks import GlobalHead, IndividualHeads, TransitionNetwork
from crowdwise.registry import METHODS
from engine_helpers import TAIDTM_QUICK, crowd, fit_and_interrupt, quick
from tolerances import SINGLE

pytestmark = pytest.mark.filterwarnings("ignore::crowdwise.errors.CrowdwiseWarning")


def test_penalty_is_zero_only_for_the_prior_itself():
    uniform = torch.full((3,), 1 / 3)
    assert class_prior_penalty(uniform, uniform).item() == pytest.approx(0, abs=SINGLE)
    assert class_prior_penalty(torch.tensor([0.5, 0.3, 0.2]), uniform).item() == pytest.approx(0.0702403, abs=SINGLE)
    assert torch.isfinite(class_prior_penalty(torch.tensor([1.0, 0.0, 0.0]), uniform))


def test_distillation_is_strict_and_grows_as_the_bound_falls():
    posterior = torch.tensor([[0.56, 0.44], [0.55, 0.45], [0.1, 0.9]], dtype=torch.float64)
    at, label = distil(posterior, 0.1)
    assert at.tolist() == [0, 2]
    assert label.tolist() == [0, 1]
    random = torch.softmax(torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), 1)
    sizes = [len(distil(random, rho)[0]) for rho in (0.5, 0.2, 0.1, 0.0)]
    assert sizes == sorted(sizes)


def test_topping_up_takes_the_most_confident_examples_of_a_missing_class():
    posterior = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.45, 0.55], [0.49, 0.51]])
    at, label = distil(posterior, 0.5)
    at, label = top_up(posterior, at, label, torch.tensor([1]), 2)
    assert at.tolist() == [0, 1, 2]
    assert label.tolist() == [0, 1, 1]


def test_sharpening_reaches_the_confidence_and_never_flattens():
    logits = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    factor = sharpening(logits, 0.9)
    assert torch.softmax(factor * logits, 1).amax(1).mean().item() == pytest.approx(0.9, abs=1e-3)
    assert sharpening(50 * logits, 0.9) == pytest.approx(1.0)


def test_batches_of_annotators_hold_every_example_once_in_mini_batches():
    annotator = torch.tensor([0] * 5 + [2] * 3 + [3])
    batches = annotator_batches(annotator, 2, torch.Generator().manual_seed(0))
    assert sorted(torch.cat(batches).tolist()) == list(range(9))
    sizes = [torch.bincount(annotator[batch], minlength=4).tolist() for batch in batches]
    assert sizes == [[2, 0, 2, 1], [2, 0, 1, 0], [1, 0, 0, 0]]
    assert [annotator[b].unique().tolist() for b in whole_annotators(annotator)] == [[0], [2], [3]]


def test_every_annotator_follows_its_own_mean():
    losses = torch.tensor([1.0, 3.0, 10.0], requires_grad=True)
    shown = annotator_mean(losses, torch.ones(3), torch.tensor([0, 0, 2]), 3)
    assert shown.item() == pytest.approx((2 + 10) / 2)
    shown.backward()
    torch.testing.assert_close(losses.grad, torch.tensor([0.5, 0.5, 1.0]))


def fitted_heads(epochs: int, min_examples: int = 5):
    """Individual heads over fixed features, and what they were trained on."""
    X, annotations, _ = crowd(300)
    problem = Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.0)
    engine = Engine(problem)
    model = crowdwise.TAIDTM(individual_epochs=epochs, min_examples=min_examples, bottleneck=4, batch_size=10_000)
    torch.manual_seed(0)
    transition = TransitionNetwork("mlp", (6,), bottleneck=4)
    transition.head = head = GlobalHead(4, 3)
    distilled = problem.train.subset(torch.arange(200), target=torch.randint(3, (200,)))
    engine.run(model.fit_individuals(engine, transition, distilled))
    return transition, head, distilled, engine


def test_heads_stacked_equal_heads_alone():
    epochs = 4
    transition, head, distilled, engine = fitted_heads(epochs)
    features = engine.evaluate(transition, distilled, transition.features)
    examples = distilled.with_inputs(features).by_annotation()
    for j in range(3):
        mine = examples.annotator == j
        theta = head.theta.detach().clone().requires_grad_()
        optimiser = torch.optim.SGD([theta], lr=0.01, momentum=0.9)
        for _ in range(epochs):
            optimiser.zero_grad()
            rows = theta[:, examples.target[mine]].permute(1, 0, 2)  # (m, d+1, C)
            logits = torch.einsum("md,mdq->mq", examples.inputs.data[examples.instance[mine]], rows)
            F.cross_entropy(logits, examples.label[mine]).backward()
            optimiser.step()
        torch.testing.assert_close(transition.head.theta[j], theta, atol=SINGLE, rtol=1e-5)


@pytest.mark.parametrize(("examples", "epochs"), [(47_000, 5), (640, 40), (100, 200), (0, 200)])
def test_few_distilled_examples_are_passed_through_more_often(examples, epochs):
    assert PAPER.enough_epochs(None, usual=5, steps=200, examples=examples) == epochs
    assert PAPER.enough_epochs(3, usual=5, steps=200, examples=examples) == 3


@pytest.mark.parametrize(("annotators", "k"), [(2, 1), (12, 2), (60, 10), (300, 50), (100_000, 50)])
def test_neighbours_are_a_sixth_of_the_crowd(annotators, k):
    assert crowdwise.TAIDTM().neighbours(annotators) == k
    assert crowdwise.TAIDTM(k=7).neighbours(annotators) == 7
    assert crowdwise.TAIDTM().neighbours(annotators, features=True) == min(max(annotators // 60, 1), 50)


@pytest.mark.parametrize(
    ("counts", "least"), [([100, 300], 30), ([20, 20, 0], 10), ([4, 8], 3), ([1, 1, 1], 3), ([0, 0], 30)]
)
def test_a_head_takes_half_of_the_usual_examples_and_never_more_than_thirty(counts, least):
    assert crowdwise.TAIDTM().least_examples(torch.tensor(counts)) == least
    assert crowdwise.TAIDTM(min_examples=5).least_examples(torch.tensor(counts)) == 5


def test_the_learning_rate_of_the_last_stage_follows_the_input():
    X, annotations, _ = crowd(40)
    features, images = (
        Problem.make(data, annotations, device=torch.device("cpu"), seed=0) for data in (X, np.zeros((40, 8, 8)))
    )
    paper = {"recipe": "paper"}
    as_printed = (
        crowdwise.TAIDTM(**paper),
        crowdwise.TAIDTM(**paper, protocol="reference"),
        crowdwise.BLTM(**paper),
        crowdwise.BLTM(**paper, variant="original"),
        crowdwise.CE(**paper),
    )
    for model in as_printed:
        assert [model.training(each).lr for each in (features, images)] == [0.01] * 2
    assert [crowdwise.TAIDTM(**paper, lr=0.2).training(each).lr for each in (features, images)] == [0.2, 0.2]
    assert [crowdwise.TAIDTM().training(each).lr for each in (features, images)] == [2 * FEATURES.lr, PICTURES.lr]


def test_annotators_of_a_small_crowd_have_matrices_of_their_own():
    """With the paper's 50 neighbours, all annotators of a smaller crowd would have the same."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1500)
    X = rng.normal(size=(1500, 6)) + 3 * np.eye(3, 6)[y]
    kinds = np.array(
        [[[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]]
    )
    told = simulate.confusion_matrices(y, kinds[[0] * 6 + [1] * 6], labels_per_instance=3, random_state=0)
    model = crowdwise.TAIDTM(epochs=5, verbose=0).fit(X, told.annotations)
    matrices = model.transition(X[y == 0][:100], model.annotators_).mean(axis=0)  # (12, 3, 3)
    assert matrices[:6, 0, 1].min() > matrices[6:, 0, 1].max() + 0.1


@pytest.mark.parametrize("better", [True, False])
def test_a_correction_that_loses_classes_is_run_again_more_slowly_and_the_better_counts(better, monkeypatch):
    X, annotations, _ = crowd(300)
    engine = Engine(Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.2))
    model = crowdwise.TAIDTM(lr=0.05, epochs=1)
    classifier = model.new_classifier(engine, "classifier")
    transition = TransitionNetwork("mlp", (6,), bottleneck=4)
    transition.head = GlobalHead(4, 3)
    before = clone_state(classifier)
    agreement = engine.agreement(classifier, engine.problem.validation)
    chance = (agreement * (1 - agreement) / 60) ** 0.5
    stage, ran = model.correction(engine, "correction", classifier, transition), []

    def train(ends: list[tuple[float, float]]):
        """In place of training: each run ends with these weights and this agreement."""
        left = list(ends)

        def run(stage, **_):
            ran.append((stage.name, {round(group.lr, 6) for group in stage.groups.values()}))
            assert all(torch.equal(before[name], tensor) for name, tensor in classifier.state_dict().items())
            weight, reached = left.pop(0)
            torch.nn.init.constant_(classifier.linear.weight, weight)
            return StageResult(stage.name, 1, 0, reached)

        return run

    monkeypatch.setattr(engine, "_stage", train([(2.0, agreement - 2.9 * chance)]))
    monkeypatch.setattr("crowdwise.engine.loop.diagnosis", lambda *_: None)
    engine._guarded(stage)
    assert ran == [("correction", {0.05})]
    classifier.load_state_dict(before)

    monkeypatch.setattr(engine, "_stage", train([(0.0, 0.01), (1.0, 0.02 if better else 0.005)]))
    with pytest.warns(CrowdwiseWarning, match=r"stage 'correction' .*lost classes.*fell from .* to 0\.010"):
        engine._guarded(stage)
    assert ran[1:] == [("correction", {0.05}), ("correction, slower", {0.01})]
    assert bool((classifier.linear.weight == float(better)).all())


def test_an_annotator_without_enough_examples_keeps_the_global_head_bit_for_bit():
    transition, head, distilled, _ = fitted_heads(2, min_examples=85)
    counts = torch.bincount(distilled.annotator, minlength=8)
    kept = [torch.equal(transition.head.theta[j], head.theta) for j in range(8)]
    assert kept == (counts < 85).tolist()
    assert any(kept)
    assert not all(kept)


def test_groups_of_annotators_are_recovered():
    data = crowdwise.datasets.load("digits")
    made = simulate.aidn(data.X_train, data.y_train, n_annotators=30, n_groups=3, labels_per_instance=6, noise_rate=0.4)
    model = crowdwise.TAIDTM(
        epochs=1, warmup_epochs=8, transition_epochs=10, gcn_epochs=1, k=5, min_examples=5, verbose=0, prepare="auto"
    ).fit(data.X_train, made.annotations)
    found = model.annotator_graph_
    assert graph.edge_precision(found.before, made.groups).overall > 0.8
    assert found.before.shape == found.after.shape == (30, 30)
    np.testing.assert_array_equal(found.before.sum(axis=1), 5)
    np.testing.assert_array_equal(found.after.diagonal(), 1)
    assert model.heads_.shape == (30, 65, 10, 10)


def test_transition_is_what_the_heads_say():
    X, annotations, _ = crowd()
    model = crowdwise.TAIDTM(**TAIDTM_QUICK).fit(X, annotations)
    with torch.no_grad():
        g = model.transition_.features(model.prepare_(torch.from_numpy(X[:4])))
    logits = np.einsum("id,jdpq->ijpq", g.numpy(), model.heads_)
    expected = np.exp(logits) / np.exp(logits).sum(3, keepdims=True)
    np.testing.assert_allclose(model.transition(X[:4]), expected, atol=1e-5)
    np.testing.assert_allclose(model.transition(X[:4], [5, 2]), expected[:, [5, 2]], atol=1e-5)


def test_distilled_examples_are_training_instances_with_classes():
    X, annotations, y = crowd()
    model = crowdwise.TAIDTM(**TAIDTM_QUICK).fit(X, annotations)
    at, label = model.distilled_
    assert len(np.unique(at)) == len(at)
    assert (label == y[at]).mean() > 0.9


MAPPING_SETTINGS: list[dict[str, object]] = [{}, {"purify": False}, {"k": 5}, {"residual": True}, {"gcn_layers": 1}]


@pytest.mark.parametrize(
    "variant",
    [
        {"protocol": "reference"},
        {"similarity": "cosine"},
        {"similarity": "l1-normalised"},
        {"similarity": "jaccard"},
        {"similarity": "confusion-counts"},
        {"similarity": "confusion"},
        {"similarity": "cbcc", "communities": 2},
        {"purify": False},
        {"gcn_layers": 1},
        {"residual": True},
        *[{"mapping": "gat", **also} for also in MAPPING_SETTINGS],
        {"mapping": "deepwalk", "purify": False, "k": 5},
        {"mapping": "deepwalk", "residual": True, "gcn_layers": 1},
        *[pytest.param({"mapping": "deepwalk", **also}, marks=pytest.mark.slow) for also in MAPPING_SETTINGS],
        {"mapping": "gat", "mapping_options": {"attention_heads": 2, "threshold": 0.3}},
        {"mapping": "deepwalk", "mapping_options": {"walks": 5, "length": 10, "window": 3, "dimension": 4}},
        {"norm": "row"},
        {"norm": "sym_row"},
        {"classifier_start": "random"},
        {"classifier_start": "warm-up"},
        {"bottleneck": 0},
        {"reduction": "instance"},
        {"prior_weight": 0.0},
        {"class_prior": [0.2, 0.3, 0.5]},
        {"optimiser": "adam", "lr": 0.01},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_variants_train(variant, tmp_path, first_stages):
    X, annotations, y = crowd()
    model = crowdwise.TAIDTM(**(TAIDTM_QUICK | {"epochs": 4} | variant)).fit(X, annotations, share=first_stages)
    assert model.score(X, y) > (0.3 if variant == {"classifier_start": "random"} else 0.85)
    loaded = crowdwise.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.heads_, model.heads_)
    np.testing.assert_allclose(loaded.transition(X[:5]), model.transition(X[:5]), atol=SINGLE)


@pytest.mark.parametrize("mapping", ["gat", "deepwalk"])
def test_a_run_resumed_while_heads_are_mapped_equals_an_uninterrupted_one(mapping, tmp_path):
    X, annotations, _ = crowd()
    make = lambda: crowdwise.TAIDTM(**TAIDTM_QUICK, mapping=mapping)  # noqa: E731
    whole = make().fit(X, annotations)
    stages = [record["stage"] for record in whole.history_]
    middle = stages.index("mapped heads") + 2
    fit_and_interrupt(make(), X, annotations, tmp_path / "run", middle)
    resumed = make().fit(X, annotations, resume=tmp_path / "run")
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(resumed.heads_, whole.heads_)
    assert [record["loss"] for record in resumed.history_] == [record["loss"] for record in whole.history_]


@pytest.mark.parametrize("mapping", ["gat", "deepwalk"])
def test_the_seed_decides_every_mapping_and_global_generators_are_left_alone(mapping):
    X, annotations, _ = crowd()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, again = (crowdwise.TAIDTM(**TAIDTM_QUICK, mapping=mapping).fit(X, annotations) for _ in range(2))
    np.testing.assert_array_equal(first.heads_, again.heads_)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("similarity", list(graph.SIMILARITIES))
def test_every_annotator_has_k_neighbours_by_any_similarity(similarity, k, first_stages):
    X, annotations, _ = crowd()
    parameters = TAIDTM_QUICK | {"epochs": 1, "gcn_epochs": 1, "k": k, "similarity": similarity}
    found = crowdwise.TAIDTM(**parameters).fit(X, annotations, share=first_stages).annotator_graph_
    np.testing.assert_array_equal(found.before.sum(axis=1), min(k, 7))
    assert found.positions.shape == (8, 2)
    assert 0 <= found.unrelated <= 1
    assert 0 <= found.arbitrary <= 1


def test_confusion_matrices_are_smoothed_shares_on_distilled_examples():
    """One annotator says 1 for a distilled 0 and 1 for a distilled 1; with a label more in each entry."""
    X = np.zeros((2, 3), np.float32)
    annotations = crowdwise.Annotations.from_triples([0, 1], [0, 0], [1, 1], n_annotators=2, n_classes=2)
    problem = Problem.make(X, annotations, device=torch.device("cpu"), seed=0, validation_fraction=0.0)
    distilled = problem.train.subset(torch.arange(2), target=torch.tensor([0, 1]))
    matrices = confusion_matrices(distilled, problem)
    np.testing.assert_allclose(matrices, [[[1 / 3, 2 / 3], [1 / 3, 2 / 3]], [[0.5, 0.5], [0.5, 0.5]]], atol=SINGLE)


def test_reference_protocol_runs_the_stages_of_the_authors_code():
    X, annotations, _ = crowd()
    model = crowdwise.TAIDTM(**TAIDTM_QUICK, protocol="reference").fit(X, annotations)
    stages = list(dict.fromkeys(record["stage"] for record in model.history_))
    assert stages == [
        "warm-up",
        "global transition",
        "correction (BLTM)",
        "individual heads",
        "correction (individual)",
        "mapped heads",
        "correction",
    ]
    reference = crowdwise.TAIDTM(protocol="reference", milestones=(40, 55), warmup_epochs=5)
    schedule = reference.rates(PAPER.with_values({"milestones": (40, 55)}))
    assert [schedule(e) for e in (35, 36, 50, 51)] == pytest.approx([1, 0.1, 0.1, 0.01])


@pytest.mark.parametrize("protocol", ["paper", "reference"])
def test_frozen_layers_see_batches_in_training_mode_only_in_the_authors_code(protocol, monkeypatch):
    """Batch norm below the mapped heads: cached features in evaluation mode, or the statistics of each batch."""
    original, seen = crowdwise.TAIDTM.fit_mapping, []

    def watched(self, engine, transition, distilled, annotators, rank=None):
        generator = original(self, engine, transition, distilled, annotators, rank)
        stage = next(generator)
        layers = {f"below.{name}": value.clone() for name, value in transition.backbone.state_dict().items()}
        yield stage
        after = {f"below.{name}": value for name, value in transition.backbone.state_dict().items()}
        moved = {name for name, value in layers.items() if not torch.equal(value, after[name])}
        seen.append((stage.units.inputs.take(torch.arange(2)).ndim, {name.rsplit(".", 1)[1] for name in moved}))

    monkeypatch.setattr(crowdwise.TAIDTM, "fit_mapping", watched)
    X, annotations, _ = crowd(image=True)
    options = {"backbone": "cnn", "backbone_options": {"channels": 4, "hidden": 16}}
    crowdwise.TAIDTM(**(TAIDTM_QUICK | {"epochs": 1}), **options, protocol=protocol).fit(X, annotations)
    statistics = {"running_mean", "running_var", "num_batches_tracked"}
    assert seen == [(2, set()) if protocol == "paper" else (4, statistics)]


def test_with_the_papers_recipe_the_classifier_starts_at_random():
    X, annotations, _ = crowd()
    quick = {name: value for name, value in TAIDTM_QUICK.items() if name != "classifier_start"} | {"epochs": 1}
    plain = crowdwise.TAIDTM(**quick).fit(X, annotations)
    random = crowdwise.TAIDTM(**quick, classifier_start="random").fit(X, annotations)
    np.testing.assert_array_equal(plain.predict_proba(X), random.predict_proba(X))
    warm = crowdwise.TAIDTM(**quick, classifier_start="warm-up").fit(X, annotations)
    assert not np.array_equal(plain.predict_proba(X), warm.predict_proba(X))


def test_paper_schedule():
    schedule = crowdwise.TAIDTM().rates(PAPER)
    assert [schedule(e) for e in (39, 40, 54, 55)] == pytest.approx([1, 0.1, 0.1, 0.01])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"transfer": "grph"}, "unknown transfer 'grph'; did you mean 'graph'"),
        ({"protocol": "mine"}, "unknown protocol 'mine'"),
        ({"gcn_layers": 3}, "gcn_layers must be 1 or 2, got 3"),
        ({"similarity": "euclid"}, "unknown similarity 'euclid'"),
        ({"mapping": "transformer"}, "unknown mapping 'transformer'"),
        ({"norm": "column"}, "unknown norm 'column'"),
        ({"mapping": "gat", "gcn_hidden": 6}, "4 attention heads cannot share 6 hidden units"),
        ({"mapping": "gat", "mapping_options": {"walks": 3}}, "mapping 'gat': .*unexpected keyword argument 'walks'"),
        ({"mapping": "deepwalk", "mapping_options": {"window": 0}}, "window must be an integer of 1 or more, got 0"),
        ({"classifier_start": "cold"}, "unknown classifier_start 'cold'"),
        ({"device": "tpu9"}, "unknown device 'tpu9'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"prepare": "whiten"}, "unknown prepare='whiten'"),
        ({"epochs": -1}, "epochs must be an integer of 0 or more, got -1"),
        ({"batch_size": 0}, "batch_size must be an integer of 1 or more, got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer of 1 or more, got 2.5"),
        ({"lr": -1}, "lr must be a number of 0 or more, got -1"),
        ({"lr": float("nan")}, "lr must be a number of 0 or more, got nan"),
        ({"momentum": 2}, "momentum must be a number of 0 or more and below 1, got 2"),
        ({"milestones": [0.5, -1]}, "milestones must be a list, each a number of 0 or more, got"),
        ({"k": 0}, "k must be an integer of 1 or more, got 0"),
        ({"optimiser": "lion"}, "unknown optimiser 'lion'"),
        ({"reduction": "sum"}, "unknown reduction 'sum'"),
        ({"validation_fraction": 1.5}, "validation_fraction must be a number of 0 or more and below 1, got 1.5"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_unknown_parameters_are_named(parameters, message):
    X, annotations, _ = crowd(60)
    with pytest.raises(ConfigError, match=message):
        crowdwise.TAIDTM(**(TAIDTM_QUICK | parameters)).fit(X, annotations)


def test_nothing_to_distil_is_an_error():
    X, annotations, _ = crowd(60)
    with pytest.raises(TrainingError, match="no example could be distilled"):
        crowdwise.BLTM(
            warmup_epochs=1, warmup_lr=1e-9, min_distilled=0, max_retries=1, epochs=1, verbose=0, rho_max=0.99
        ).fit(X, annotations)


def test_individual_transfer_has_heads_but_no_graph():
    X, annotations, _ = crowd()
    model = crowdwise.TAIDTM(**TAIDTM_QUICK, transfer="individual").fit(X, annotations)
    assert isinstance(model.transition_.head, IndividualHeads)
    with pytest.raises(ConfigError, match="builds no annotator graph"):
        model.annotator_graph_


def test_methods_share_their_first_stages(tmp_path):
    X, annotations, _ = crowd()
    ran: list[tuple[str, str]] = []

    def fit(method: str, share=None, **overrides):
        model = METHODS[method](**(quick(method) | overrides))
        return model.fit(
            X,
            annotations,
            share=share,
            callbacks=[FromObserver(lambda record, _: ran.append((method, record["stage"])))],
        )

    fit("bltm", tmp_path)
    shared = fit("taidtm", tmp_path)
    assert {stage for method, stage in ran if method == "taidtm"} == {"individual heads", "mapped heads", "correction"}
    alone = fit("taidtm")
    np.testing.assert_array_equal(shared.predict_proba(X), alone.predict_proba(X))
    assert [record["stage"] for record in shared.history_] == [record["stage"] for record in alone.history_]
    ran.clear()
    fit("taidtm", tmp_path, warmup_lr=0.02)
    assert ("taidtm", "warm-up") in ran  # another setting, another warm-up
