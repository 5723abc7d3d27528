"""Gold labels in every form, intervals, calibration, and the warning about sparse crowds."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from crowds import LABEL_ONLY, real, simulated

from crowdwise import quality
from crowdwise.aggregation import (
    DawidSkene,
    HierarchicalDawidSkene,
    MajorityVote,
    OneCoinDawidSkene,
    Wawa,
    calibrate,
    calibration,
)
from crowdwise.aggregation.core.gold import gold_codes
from crowdwise.annotations import Annotations
from crowdwise.errors import AnnotationError, ConfigError, CrowdwiseWarning, DataError


@pytest.fixture
def pets() -> Annotations:
    return Annotations.coerce((["a", "a", "b", "c"], ["x", "y", "x", "y"], ["cat", "dog", "dog", "cat"]))


@pytest.mark.parametrize(
    "gold",
    [
        {"b": "cat"},
        {"b": "cat", "c": None},
        {"b": "cat", "elsewhere": "dog"},
        [None, "cat", None],
        ["", "cat", float("nan")],
        np.array([None, "cat", None], dtype=object),
        pa.table({"task": ["b"], "truth": ["cat"]}),
        {"b": np.str_("cat")},
    ],
)
def test_gold_in_any_form(pets: Annotations, gold: object) -> None:
    codes = gold_codes(pets, gold)
    assert codes is not None
    assert codes.tolist() == [-1, 0, -1]


def test_gold_as_a_pandas_series_or_frame(pets: Annotations) -> None:
    pd = pytest.importorskip("pandas")
    series = gold_codes(pets, pd.Series({"b": "cat"}))
    frame = gold_codes(pets, pd.DataFrame({"task": ["b"], "true_label": ["cat"]}))
    assert series is not None
    assert frame is not None
    assert series.tolist() == frame.tolist() == [-1, 0, -1]


def test_gold_as_codes_of_integer_classes() -> None:
    crowd = Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 1])
    codes = gold_codes(crowd, np.array([-1, 0, -1]))
    assert codes is not None
    assert codes.tolist() == [-1, 0, -1]
    assert gold_codes(crowd, None) is None


def test_gold_that_fits_nothing_is_refused(pets: Annotations) -> None:
    with pytest.raises(DataError, match="gold has 2 labels, but this crowd has 3 instances"):
        gold_codes(pets, ["cat", "dog"])
    with pytest.raises(DataError, match="none of the 1 gold instances"):
        gold_codes(pets, {"z": "cat"})
    with pytest.raises(AnnotationError, match="'bird' is unknown"):
        gold_codes(pets, {"a": "bird"})
    with pytest.raises(DataError, match="gold needs an instance and a label column"):
        gold_codes(pets, pa.table({"x": ["b"]}))


def test_intervals_of_skill_cover_the_truth() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for seed in range(5):
        skill = rng.uniform(0.6, 0.95, 30)
        table = np.where(np.eye(3, dtype=bool), skill[:, None, None], (1 - skill[:, None, None]) / 2)
        crowd, _ = simulated(600, 30, 3, 7, matrices=table, seed=seed)
        for model in (DawidSkene(), OneCoinDawidSkene(), HierarchicalDawidSkene()):
            interval = model.fit(crowd).skill_interval(0.9)
            covered.append(np.mean((interval[:, 0] <= skill) & (skill <= interval[:, 1])))
            assert np.all((interval[:, 0] < model.skill_) & (model.skill_ < interval[:, 1]))
    assert 0.8 < np.mean(covered) < 0.98


def test_intervals_of_confusion_rows_cover_the_truth() -> None:
    table = np.random.default_rng(1).dirichlet(np.ones(3), (20, 3)) * 0.4 + 0.6 * np.eye(3)
    crowd, _ = simulated(2_000, 20, 3, 6, matrices=table, seed=3)
    model = DawidSkene().fit(crowd)
    interval = model.confusion_interval(0.9)
    inside = (interval[..., 0] <= table) & (table <= interval[..., 1])
    assert 0.78 < inside.mean() < 0.99


def test_intervals_narrow_with_labels_and_level() -> None:
    few, many = (Wawa().fit(simulated(n, 5, 3, 5, seed=2)[0]) for n in (20, 500))
    assert np.all(np.ptp(many.skill_interval(), axis=1) < np.ptp(few.skill_interval(), axis=1))
    assert np.all(np.ptp(few.skill_interval(0.5), axis=1) < np.ptp(few.skill_interval(0.99), axis=1))
    with pytest.raises(ConfigError, match="level must be a number above 0 and below 1, got 95"):
        few.skill_interval(95)


def test_calibration_error_of_known_posteriors() -> None:
    posterior = np.array([[0.8, 0.2]] * 10 + [[0.4, 0.6]] * 10)
    truth = np.array([0] * 8 + [1] * 2 + [1] * 6 + [0] * 4)
    assert quality.calibration(posterior, truth, n_bins=10).ece == pytest.approx(0)
    assert quality.calibration(posterior, 1 - truth, n_bins=10).ece == pytest.approx((0.6 + 0.2) / 2)
    assert quality.calibration(posterior, truth, n_bins=10).bins["count"].to_pylist() == [10, 10]


def test_calibration_by_its_old_name() -> None:
    posterior, truth = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 0])
    with pytest.warns(DeprecationWarning, match=r"use crowdwise\.quality\.calibration"):
        found = calibration(posterior, truth)
    assert found.error == pytest.approx((0.2 + 0.6) / 2)
    assert (found.number.tolist(), found.accuracy.tolist()) == ([1, 1], [0.0, 1.0])
    with pytest.warns(DeprecationWarning, match="deprecated"):
        assert calibration(posterior, np.full(2, -1)).error == 0
    with pytest.warns(DeprecationWarning, match="deprecated"), pytest.raises(DataError, match="truth has shape"):
        calibration(posterior, truth[:1])


def test_posteriors_are_calibrated_on_crowds_that_fit_the_model() -> None:
    crowd, truth = simulated(4_000, 40, 3, 3, (0.5, 0.9), seed=4)
    for model, bound in ((HierarchicalDawidSkene(), 0.03), (OneCoinDawidSkene(), 0.03), (DawidSkene(), 0.05)):
        assert quality.calibration(model.fit(crowd).raw_posterior_, truth, n_bins=10).ece < bound, type(model).__name__
    assert quality.calibration(MajorityVote().fit(crowd).posterior_, truth, n_bins=10).ece > 0.03


def test_hard_instances_make_posteriors_overconfident_and_calibrating_mends_it() -> None:
    rng = np.random.default_rng(0)
    truth, other = rng.integers(0, 3, 1_000), rng.integers(1, 3, 1_000)
    crowd, _ = simulated(1_000, 40, 3, 8, seed=8)
    hard = rng.random(1_000) < 0.35  # on these, everybody draws one of the same two classes
    i = crowd.instance
    doubtful = hard[i] & (rng.random(len(crowd)) < 0.5) | (rng.random(len(crowd)) < 0.15)
    label = (truth[i] + np.where(doubtful, other[i], 0)) % 3
    model = HierarchicalDawidSkene().fit(Annotations.from_triples(i, crowd.annotator, label, n_annotators=40))
    honest = calibrate(model)
    assert honest.temperature > 1.2
    assert (
        quality.calibration(honest.posterior, truth, n_bins=10).ece
        < 0.8 * quality.calibration(model.raw_posterior_, truth, n_bins=10).ece
    )
    assert (honest.posterior.argmax(axis=1) == model.posterior_.argmax(axis=1)).mean() > 0.99
    np.testing.assert_allclose(honest.posterior.sum(axis=1), 1.0)


def test_a_model_that_fits_is_left_as_it_is() -> None:
    crowd, truth = simulated(1_000, 20, 3, 5, (0.6, 0.9), seed=9)
    model = DawidSkene().fit(crowd, gold={0: int(truth[0])})
    honest = calibrate(model, folds=3)
    assert honest.temperature < 1.3
    np.testing.assert_array_equal(honest.posterior[0], np.eye(3)[truth[0]])
    with pytest.raises(ConfigError, match="folds must be 2 or more, got 1"):
        calibrate(model, folds=1)


@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
def test_calibrating_makes_posteriors_on_real_sets_more_honest() -> None:
    before, after = [], []
    for name in LABEL_ONLY:
        crowd, truth = real(name)
        model = HierarchicalDawidSkene().fit(crowd)
        before.append(quality.calibration(model.raw_posterior_, truth, n_bins=10).ece)
        after.append(quality.calibration(calibrate(model).posterior, truth, n_bins=10).ece)
    assert np.mean(after) < 0.8 * np.mean(before)


@pytest.mark.filterwarnings("ignore:this crowd is too sparse")
@pytest.mark.parametrize("name", LABEL_ONLY)
def test_calibration_on_real_sets(name: str) -> None:
    crowd, truth = real(name)
    for model in (HierarchicalDawidSkene(), DawidSkene()):
        assert quality.calibration(model.fit(crowd).posterior_, truth, n_bins=10).ece < 0.25


def test_sparse_crowds_warn_and_others_do_not() -> None:
    crowd, _ = simulated(300, 600, 4, 3, seed=5)  # one or two labels each
    with pytest.warns(CrowdwiseWarning, match="or use HierarchicalDawidSkene, MajorityVote or"):
        DawidSkene().fit(crowd)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CrowdwiseWarning)
        HierarchicalDawidSkene().fit(crowd)
        MajorityVote().fit(crowd)
        DawidSkene().fit(simulated(300, 30, 4, 3, seed=5)[0])


def test_rounds_that_do_not_settle_warn() -> None:
    from sklearn.exceptions import ConvergenceWarning

    crowd, _ = simulated(100, 10, 3, 4, (0.4, 0.8), seed=6)
    with pytest.warns(ConvergenceWarning, match="did not settle within max_iter=2 rounds"):
        DawidSkene(max_iter=2).fit(crowd)


def test_verbose_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    crowd, _ = simulated(50, 5, 3, 4, seed=7)
    DawidSkene(max_iter=3, tol=0, verbose=2).fit(crowd)
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split(",")[0].removeprefix("DawidSkene: ") for line in lines]
    assert starts == ["round 1", "round 2", "round 3", "3 rounds"]
