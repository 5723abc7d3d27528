"""Agreement: published worked examples, brute force on small crowds, and what every measure promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdwise import Annotations, agreement
from crowdwise.agreement import _measures
from crowdwise.agreement._pairwise import NUMBERS
from crowdwise.agreement._votes import Bootstrap, Votes
from crowdwise.errors import AnnotationError, ConfigError

Matrix = list[list[Any]]
LEVELS = ("nominal", "ordinal", "interval", "ratio")
MEASURES: dict[str, Callable[..., agreement.Agreement]] = {
    "raw": agreement.raw_agreement,
    "fleiss": agreement.fleiss_kappa,
    "scott": agreement.scott_pi,
    "gwet": agreement.gwet_ac1,
    "cohen": agreement.cohen_kappa,
    **{
        f"alpha-{level}": lambda a, level=level, **options: agreement.krippendorff_alpha(a, level, **options)
        for level in LEVELS
    },
}

# -- published examples ----------------------------------------------------------------------------------------------

# Krippendorff (2011), Computing Krippendorff's alpha-reliability, example C: 4 observers, 12 units, some missing.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]
UNITS = [list(unit) for unit in zip(*OBSERVERS, strict=True)]

# Fleiss (1971), table 1: 30 patients, 6 psychiatrists, 5 diagnoses.
DIAGNOSES = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
# Wikipedia, "Fleiss' kappa": 10 subjects, 14 raters, 5 categories.
SUBJECTS = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]


def from_counts(counts: Any) -> Matrix:
    """A row of labels for each row of votes by class."""
    return [np.repeat(np.arange(len(row)), row).tolist() for row in np.asarray(counts)]


def from_table(table: Matrix) -> Matrix:
    """Two annotators' labels with this contingency table."""
    cells = np.asarray(table)
    first, second = np.divmod(np.repeat(np.arange(cells.size), cells.ravel()), cells.shape[1])
    return [list(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]


def value(measure: Callable[..., agreement.Agreement], data: Any, *arguments: Any, **options: Any) -> float:
    return measure(data, *arguments, **options, n_bootstrap=0).value


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849), ("ratio", 0.797)]
)
def test_krippendorffs_own_example(level: Any, published: float) -> None:
    result = agreement.krippendorff_alpha(UNITS, level, n_bootstrap=0)
    assert result.value == pytest.approx(published, abs=5e-4)
    assert result.n == 11  # the unit with one label cannot be paired


def test_krippendorffs_coincidence_matrix() -> None:
    third = 1 / 3
    published = [
        [7, 4 * third, third, third, 0],
        [4 * third, 10, 4 * third, third, 0],
        [third, 4 * third, 8, third, 0],
        [third, third, third, 4, 0],
        [0, 0, 0, 0, 3],
    ]
    np.testing.assert_allclose(agreement.coincidences(UNITS), published, atol=1e-12)


def test_krippendorffs_two_observer_examples() -> None:
    """Krippendorff (2011), examples A (binary) and B (nominal)."""
    for first, second, published in (
        ("0100000010", "1110010000", 0.095),
        ("aabbdcccedda", "babbbccceddd", 0.692),
    ):
        pairs = [list(pair) for pair in zip(first, second, strict=True)]
        assert value(agreement.krippendorff_alpha, pairs) == pytest.approx(published, abs=5e-4)


def test_fleiss_example_of_1971() -> None:
    counts = [[int(digit) for digit in row] for row in DIAGNOSES.split()]
    assert np.mean(counts, axis=0) / 6 == pytest.approx([0.144, 0.144, 0.167, 0.306, 0.239], abs=5e-4)
    assert value(agreement.fleiss_kappa, from_counts(counts)) == pytest.approx(0.430, abs=5e-4)


def test_fleiss_example_of_wikipedia() -> None:
    data = from_counts(SUBJECTS)
    assert value(agreement.raw_agreement, data) == pytest.approx(0.378, abs=5e-4)
    assert value(agreement.fleiss_kappa, data) == pytest.approx(0.210, abs=5e-4)


def test_cohen_examples() -> None:
    """Cohen (1960), kappa = .492, repeated in Cohen (1968); and the 50 proposals of Wikipedia."""
    assert value(agreement.cohen_kappa, from_table([[88, 14, 18], [10, 40, 10], [2, 6, 12]])) == pytest.approx(
        0.492, abs=5e-4
    )
    assert value(agreement.cohen_kappa, from_table([[20, 5], [10, 15]])) == pytest.approx(0.4)


def test_gwets_pregnancy_example() -> None:
    """Gwet (2014): two abstractors, 100 charts, three diagnoses."""
    data = from_table([[13, 0, 0], [0, 20, 7], [0, 4, 56]])
    assert value(agreement.cohen_kappa, data) == pytest.approx(0.7964094, abs=5e-8)
    assert value(agreement.scott_pi, data) == pytest.approx(0.7962397, abs=5e-8)


def test_scott_example_of_wikipedia() -> None:
    assert value(agreement.scott_pi, from_table([[1, 2, 3], [4, 5, 6], [7, 8, 9]])) == pytest.approx(-0.057, abs=1e-3)


def test_gwet_examples() -> None:
    """Gwet (2002), where kappa is paradoxical: 94 % of labels agree, kappa is negative; Gwet (2014), missing labels."""
    paradox = from_table([[118, 5], [2, 0]])
    assert value(agreement.gwet_ac1, paradox) == pytest.approx(0.941, abs=5e-4)
    assert value(agreement.cohen_kappa, paradox) == pytest.approx(-0.023, abs=5e-4)
    assert value(agreement.gwet_ac1, UNITS) == pytest.approx(0.77544, abs=5e-6)
    assert value(agreement.fleiss_kappa, UNITS) == pytest.approx(0.76117, abs=5e-6)


def test_quadratic_conger_example() -> None:
    """Units 2 to 9 of the example, which all four rated, with quadratic weights: 0.6719243."""
    assert value(agreement.cohen_kappa, UNITS[1:9], weights="quadratic") == pytest.approx(0.6719243, abs=5e-8)


# -- brute force -----------------------------------------------------------------------------------------------------


def labels_of(matrix: Matrix) -> list[list[int]]:
    """The labels that are there, by instance."""
    return [[label for label in row if label is not None] for row in matrix]


def pairs_of(matrix: Matrix) -> list[tuple[int, int, int]]:
    """Every ordered pair of labels of an instance, with the number of labels of the instance."""
    return [(a, b, len(row)) for row in labels_of(matrix) for a, b in itertools.permutations(row, 2)]


def brute_alpha(matrix: Matrix, level: str) -> float:
    pairs = pairs_of(matrix)
    labels = [label for row in labels_of(matrix) if len(row) >= 2 for label in row]
    count = {c: labels.count(c) for c in labels}

    def difference(c: int, k: int) -> float:
        low, high = min(c, k), max(c, k)
        if level == "nominal":
            return float(c != k)
        if level == "interval":
            return float((c - k) ** 2)
        if level == "ratio":
            return ((c - k) / (c + k)) ** 2 if c + k else 0.0
        between = sum(number for g, number in count.items() if low <= g <= high)
        return (between - (count[low] + count[high]) / 2) ** 2

    observed = sum(difference(a, b) / (m - 1) for a, b, m in pairs) / max(len(labels), 1)
    expected = sum(difference(a, b) for a, b in itertools.permutations(labels, 2))
    if not expected:
        return math.nan
    return 1 - observed * len(labels) * (len(labels) - 1) / expected


def brute_observed(matrix: Matrix) -> float:
    rows = [row for row in labels_of(matrix) if len(row) >= 2]
    if not rows:
        return math.nan
    return float(np.mean([np.mean([a == b for a, b in itertools.permutations(row, 2)]) for row in rows]))


def brute_shares(matrix: Matrix, classes: int) -> npt.NDArray[np.float64]:
    rows = [row for row in labels_of(matrix) if row]
    return np.mean([[row.count(c) / len(row) for c in range(classes)] for row in rows], axis=0)


def brute(measure: str, matrix: Matrix, classes: int) -> float:
    """A measure by its textbook formula, one pair of labels after the other."""
    if measure.startswith("alpha-"):
        return brute_alpha(matrix, measure.removeprefix("alpha-"))
    observed = brute_observed(matrix)
    if measure == "raw" or math.isnan(observed):
        return observed
    if measure == "fleiss":
        chance = float((brute_shares(matrix, classes) ** 2).sum())
    elif measure == "gwet":
        shares = brute_shares(matrix, classes)
        chance = float((shares * (1 - shares)).sum()) / (classes - 1) if classes > 1 else math.nan
    elif measure == "scott":
        pairs = pairs_of(matrix)
        observed = float(np.mean([a == b for a, b, _ in pairs]))
        chance = sum(np.mean([a == c for a, _, _ in pairs]) ** 2 for c in range(classes))
    else:
        columns = [[label for label in column if label is not None] for column in zip(*matrix, strict=True)]
        shares = np.array([[column.count(c) / len(column) for c in range(classes)] for column in columns if column])
        if len(shares) < 2:
            return math.nan
        chance = float(np.mean([first @ second for first, second in itertools.permutations(shares, 2)]))
    return math.nan if math.isnan(chance) or chance > 1 - 1e-12 else (observed - chance) / (1 - chance)


def kappa_of_two(pairs: list[tuple[int, int]], credit: npt.NDArray[np.float64]) -> float:
    table = np.zeros(credit.shape)
    for a, b in pairs:
        table[a, b] += 1 / len(pairs)
    chance = (np.outer(table.sum(1), table.sum(0)) * credit).sum()
    return math.nan if chance > 1 - 1e-12 else ((table * credit).sum() - chance) / (1 - chance)


@st.composite
def crowds(draw: st.DrawFn, largest: int = 6) -> tuple[Matrix, int]:
    """A small matrix of labels, with gaps, and its number of classes, not all of which need be chosen."""
    classes = draw(st.integers(1, 4))
    instances, annotators = draw(st.integers(1, largest)), draw(st.integers(1, 5))
    label = st.one_of(st.none(), st.integers(0, classes - 1))
    row = st.lists(label, min_size=annotators, max_size=annotators)
    return draw(st.lists(row, min_size=instances, max_size=instances)), classes


def annotations_of(matrix: Matrix, classes: int) -> Annotations:
    rows = [(i, j, label) for i, row in enumerate(matrix) for j, label in enumerate(row) if label is not None]
    i, j, y = zip(*rows, strict=True) if rows else ((), (), ())
    return Annotations.from_triples(i, j, y, n_instances=len(matrix), n_annotators=len(matrix[0]), n_classes=classes)


@pytest.mark.parametrize("measure", MEASURES)
@given(crowd=crowds())
@settings(max_examples=60, deadline=None)
def test_measures_equal_brute_force(measure: str, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    found = value(MEASURES[measure], annotations_of(matrix, classes))
    assert found == pytest.approx(brute(measure, matrix, classes), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
@given(crowd=crowds())
@settings(max_examples=60, deadline=None)
def test_pairwise_kappa_equals_brute_force(weights: Any, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    distance = np.abs(np.subtract.outer(np.arange(classes), np.arange(classes))) / max(classes - 1, 1)
    credit = {None: np.eye(classes), "linear": 1 - distance, "quadratic": 1 - distance**2}[weights]
    found = agreement.pairwise(annotations_of(matrix, classes), weights=weights)
    shared = 0
    for a, b in itertools.combinations(range(len(matrix[0])), 2):
        pairs = [(row[a], row[b]) for row in matrix if row[a] is not None and row[b] is not None]
        assert found.common()[a, b] == found.common()[b, a] == len(pairs)
        expected = kappa_of_two(pairs, credit) if pairs else math.nan
        assert found.matrix()[a, b] == pytest.approx(expected, abs=1e-9, nan_ok=True)
        shared += bool(pairs)
    assert len(found.value) == shared


@pytest.mark.parametrize("measure", ["scott", "gwet", "raw"])
@given(crowd=crowds())
@settings(max_examples=40, deadline=None)
def test_other_pairwise_measures_are_those_of_two_annotators(measure: Any, crowd: tuple[Matrix, int]) -> None:
    matrix, classes = crowd
    found = agreement.pairwise(annotations_of(matrix, classes), measure)
    for a, b, of_pair in zip(found.first, found.second, found.value, strict=True):
        both = [[row[a], row[b]] for row in matrix if row[a] is not None and row[b] is not None]
        assert of_pair == pytest.approx(brute(measure, both, classes), abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("weights", [None, "linear", "quadratic"])
def test_kappa_of_two_equals_scikit_learn(weights: Any) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(3)
    first = rng.integers(0, 4, 200)
    second = np.where(rng.random(200) < 0.5, first, rng.integers(0, 4, 200))
    expected = metrics.cohen_kappa_score(first, second, weights=weights)
    data = np.stack([first, second], axis=1)
    assert value(agreement.cohen_kappa, data, weights=weights) == pytest.approx(expected)
    assert agreement.pairwise(data, weights=weights).value == pytest.approx([expected])


def test_pairs_in_many_blocks_equal_pairs_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = simulated(60, 12, 4, np.random.default_rng(0))
    whole = agreement.pairwise(crowd, n_bootstrap=20, random_state=1)
    monkeypatch.setattr("crowdwise.agreement._pairwise.NUMBERS", NUMBERS // 2**21)
    split = agreement.pairwise(crowd, n_bootstrap=20, random_state=1)
    assert len(whole.value) == 66
    for name in ("first", "second", "value", "n_common", "low", "high"):
        np.testing.assert_allclose(getattr(split, name), getattr(whole, name))


# -- intervals -------------------------------------------------------------------------------------------------------


def simulated(n: int, annotators: int, classes: int, rng: np.random.Generator, votes: int = 4) -> Annotations:
    """Every instance gets ``votes`` labels, each right with chance 0.7."""
    truth = rng.integers(0, classes, n)
    instance = np.repeat(np.arange(n), votes)
    annotator = np.argsort(rng.random((n, annotators)), axis=1)[:, :votes].ravel()
    label = np.where(rng.random(n * votes) < 0.7, truth[instance], rng.integers(0, classes, n * votes))
    return Annotations.from_triples(
        instance, annotator, label, n_instances=n, n_annotators=annotators, n_classes=classes
    )


def repeated(annotations: Annotations, times: npt.NDArray[Any]) -> Annotations:
    """The crowd with instance i taken ``times[i]`` times, as instances of their own."""
    codes = np.repeat(np.arange(annotations.n_instances), times)
    rows = [(new, row) for new, code in enumerate(codes) for row in annotations.by_instance[code]]
    new, old = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Annotations.from_triples(
        new,
        annotations.annotator[old],
        annotations.label[old],
        n_annotators=annotations.n_annotators,
        n_classes=annotations.n_classes,
    )


STATISTICS = {
    "raw": _measures.raw_statistic,
    "fleiss": _measures.fleiss_statistic,
    "scott": _measures.scott_statistic,
    "gwet": _measures.gwet_statistic,
}


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "cohen"])
def test_a_weighted_instance_counts_like_a_repeated_one(measure: str) -> None:
    crowd = simulated(12, 6, 3, np.random.default_rng(0))
    votes, times = Votes.of(crowd), np.array([3, 0, 1, 1, 2, 0, 1, 1, 0, 5, 1, 1])
    if measure.startswith("alpha-"):
        level: Any = measure.removeprefix("alpha-")
        statistic = _measures.alpha_statistic(crowd, votes, level, None)
    else:
        statistic = STATISTICS[measure](votes)
    weights = np.bincount(votes.pattern, times, len(votes.count))
    expected = value(MEASURES[measure], repeated(crowd, times))
    assert statistic(np.stack([weights, weights])) == pytest.approx([expected, expected])


def test_cohen_and_pairwise_intervals_equal_those_of_rebuilt_crowds() -> None:
    crowd = simulated(30, 5, 3, np.random.default_rng(1))
    draws = Bootstrap(40, 0.9, 7).draws(30)
    assert draws.sum(axis=1).tolist() == [30] * 40
    rebuilt = [repeated(crowd, times) for times in draws]
    overall = agreement.cohen_kappa(crowd, n_bootstrap=40, confidence=0.9, random_state=7)
    samples = [value(agreement.cohen_kappa, other) for other in rebuilt]
    assert overall.interval == pytest.approx(tuple(np.quantile(samples, [0.05, 0.95])))
    pairs = agreement.pairwise(crowd, n_bootstrap=40, confidence=0.9, random_state=7)
    matrices = np.array([agreement.pairwise(other).matrix() for other in rebuilt])
    low, high = np.nanquantile(matrices, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(pairs.low, low[pairs.first, pairs.second])
    np.testing.assert_allclose(pairs.high, high[pairs.first, pairs.second])


@pytest.mark.parametrize("measure", MEASURES)
def test_intervals_hold_the_value_and_shrink_with_more_instances(measure: str) -> None:
    rng = np.random.default_rng(0)
    widths = []
    for n in (50, 2000):
        result = MEASURES[measure](simulated(n, 10, 3, rng), n_bootstrap=200, random_state=0)
        low, high = result.interval
        assert low < result.value < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


def test_intervals_cover_the_agreement_of_the_population() -> None:
    rng = np.random.default_rng(5)
    population = 0.7 + 0.3 / 3  # chance that a label is right
    truth = population**2 + (1 - population) ** 2 / 2
    hits = 0
    for _ in range(200):
        low, high = agreement.raw_agreement(simulated(100, 10, 3, rng), n_bootstrap=300, random_state=rng).interval
        hits += low <= truth <= high
    assert 180 <= hits <= 199  # 95 % of 200 are 190


def test_many_patterns_are_resampled_like_few() -> None:
    """Whether patterns or instances are drawn, the interval is the same but for chance."""
    crowd = simulated(400, 20, 8, np.random.default_rng(2), votes=12)
    assert len(Votes.of(crowd).count) > 400 / 8
    coarse = agreement.raw_agreement(crowd, n_bootstrap=4000, random_state=0).interval
    direct = np.array([np.mean(_shares(crowd)[np.random.default_rng(k).integers(0, 400, 400)]) for k in range(4000)])
    assert coarse == pytest.approx(tuple(np.quantile(direct, [0.025, 0.975])), abs=3e-3)


def _shares(crowd: Annotations) -> npt.NDArray[np.float64]:
    votes = crowd.votes()
    return ((votes**2).sum(1) - votes.sum(1)) / (votes.sum(1) * (votes.sum(1) - 1))


def test_the_same_seed_gives_the_same_interval() -> None:
    first, again, other = (agreement.fleiss_kappa(UNITS, random_state=seed).interval for seed in (4, 4, 5))
    assert first == again != other


# -- what holds for every measure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_order_of_rows_and_names_of_annotators_are_irrelevant(measure: str) -> None:
    crowd = simulated(40, 6, 3, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    rows, people = rng.permutation(len(crowd)), rng.permutation(6)
    shuffled = Annotations.from_triples(crowd.instance[rows], people[crowd.annotator[rows]], crowd.label[rows])
    assert value(MEASURES[measure], shuffled) == pytest.approx(value(MEASURES[measure], crowd))


@pytest.mark.parametrize("measure", MEASURES)
def test_unlabelled_instances_and_silent_annotators_change_nothing(measure: str) -> None:
    crowd = simulated(40, 6, 3, np.random.default_rng(0))
    larger = Annotations.from_triples(
        crowd.instance + 2, crowd.annotator + 1, crowd.label, n_instances=50, n_annotators=9, n_classes=3
    )
    assert value(MEASURES[measure], larger) == pytest.approx(value(MEASURES[measure], crowd))


@pytest.mark.parametrize("measure", MEASURES)
def test_perfect_agreement_is_one(measure: str) -> None:
    assert value(MEASURES[measure], [[0, 0, 0], [1, 1, 1], [2, 2, None]]) == pytest.approx(1)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "raw"])
def test_labels_drawn_at_random_agree_by_chance_only(measure: str) -> None:
    labels = np.random.default_rng(0).integers(0, 4, (4000, 5))
    assert value(MEASURES[measure], labels) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    "crowd",
    [
        Annotations.from_triples([], [], []),
        Annotations.from_triples([], [], [], n_instances=3, n_annotators=2, n_classes=2),
        Annotations.from_triples([0, 1, 2], [0, 0, 0], [0, 1, 0]),
        Annotations.from_triples([0, 1], [0, 1], [0, 1], n_classes=1000),
    ],
    ids=["nothing", "no labels", "a crowd of one", "nothing shared"],
)
def test_without_shared_instances_agreement_is_undefined(crowd: Annotations) -> None:
    for measure in MEASURES.values():
        result = measure(crowd, n_bootstrap=20)
        assert math.isnan(result.value)
        assert all(math.isnan(end) for end in result.interval)
        assert result.n == 0
    pairs = agreement.pairwise(crowd, n_bootstrap=20)
    assert pairs.matrix().shape == (crowd.n_annotators, crowd.n_annotators)
    assert len(pairs.value) == 0
    assert "raw agreement" in str(agreement.report(crowd))


def test_one_class_leaves_only_raw_agreement_defined() -> None:
    crowd = Annotations.from_dense([[0, 0], [0, 0]])
    for name, measure in MEASURES.items():
        assert value(measure, crowd) == pytest.approx(1 if name == "raw" else math.nan, nan_ok=True)
    assert agreement.pairwise(crowd, "raw").value.tolist() == [1]
    assert np.isnan(agreement.pairwise(crowd, "cohen").value).all()


def test_a_class_chosen_always_leaves_chance_corrected_agreement_undefined() -> None:
    crowd = Annotations.from_triples([0, 0, 1, 1], [0, 1, 0, 1], [7, 7, 7, 7], n_classes=9)
    for name in ("fleiss", "scott", "cohen", *(f"alpha-{level}" for level in LEVELS)):
        assert math.isnan(value(MEASURES[name], crowd)), name
    assert value(MEASURES["gwet"], crowd) == 1


def test_repeated_labels_of_one_annotator_count_as_labels_but_not_as_a_pair() -> None:
    crowd = Annotations.from_triples([0, 0, 0], [0, 0, 1], [0, 0, 1], n_classes=2)
    assert value(agreement.raw_agreement, crowd) == pytest.approx(1 / 3)
    pairs = agreement.pairwise(crowd, "raw")
    assert (pairs.value.tolist(), pairs.n_common.tolist()) == ([0], [2])


def test_silent_annotators_have_nan_on_the_diagonal() -> None:
    crowd = Annotations.from_triples([0, 0], [0, 1], [1, 1], n_annotators=3, n_classes=2)
    matrix = agreement.pairwise(crowd, "raw").matrix()
    np.testing.assert_array_equal(matrix, [[1, 1, math.nan], [1, 1, math.nan], [math.nan, math.nan, math.nan]])
    assert agreement.pairwise(crowd).common().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_a_thousand_classes() -> None:
    crowd = simulated(300, 10, 1000, np.random.default_rng(0))
    for name, measure in MEASURES.items():
        assert 0.2 < measure(crowd, n_bootstrap=10).value < 0.7, name
    assert np.isfinite(agreement.pairwise(crowd, weights="linear").value).all()


# -- classes that are numbers ----------------------------------------------------------------------------------------


def test_classes_that_are_numbers_or_digits_are_their_own_values() -> None:
    numbers = [[1, 2], [10, 10], [1, 1], [10, 2]]
    digits = [[str(label) for label in row] for row in numbers]
    for level in ("ordinal", "interval", "ratio"):
        assert value(agreement.krippendorff_alpha, digits, level) == pytest.approx(
            value(agreement.krippendorff_alpha, numbers, level)
        )


def test_interval_alpha_knows_neither_unit_nor_origin() -> None:
    plain = value(agreement.krippendorff_alpha, UNITS, "interval")
    for scale, origin in ((1e-6, 0.0), (3.0, 1e9)):
        values = [origin + scale * label for label in range(1, 6)]
        assert value(agreement.krippendorff_alpha, UNITS, "interval", values=values) == pytest.approx(plain, abs=1e-6)


def test_ordinal_alpha_depends_on_the_order_of_values_only() -> None:
    words = [["good", "ok"], ["bad", "bad"], ["good", "good"], ["ok", "ok"], ["bad", "good"]]
    rank = {"bad": 1, "ok": 2, "good": 3}
    numbers = [[rank[word] for word in row] for row in words]
    by_number = value(agreement.krippendorff_alpha, numbers, "ordinal")
    assert value(agreement.krippendorff_alpha, words, "ordinal", values=[1, 9, 2]) == pytest.approx(by_number)
    assert value(agreement.krippendorff_alpha, words, "ordinal") != pytest.approx(by_number)  # bad < good < ok


@pytest.mark.parametrize("level", ["interval", "ratio"])
def test_words_cannot_be_measured_on_a_numeric_scale(level: Any) -> None:
    with pytest.raises(AnnotationError, match=rf"{level} alpha needs classes that are numbers, but class 'cat' is not"):
        agreement.krippendorff_alpha([["cat", "dog"]], level)


def test_ratio_needs_non_negative_numbers() -> None:
    with pytest.raises(AnnotationError, match="ratio alpha needs classes of 0 or more, got -2"):
        agreement.krippendorff_alpha(Annotations.from_dense([[-2, 1]], missing=()), "ratio")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement.krippendorff_alpha(UNITS, "nomnal"), "unknown level 'nomnal'; did you mean 'nominal'"),
        (lambda: agreement.krippendorff_alpha(UNITS, "interval", values=[1, 2]), "for each of the 5 classes"),
        (lambda: agreement.krippendorff_alpha(UNITS, "ordinal", values=[1, 1, 2, 3, 4]), "different values"),
        (lambda: agreement.cohen_kappa(UNITS, weights="cubic"), "unknown weights 'cubic'"),
        (lambda: agreement.pairwise(UNITS, weights="cubic"), "unknown weights 'cubic'"),
        (lambda: agreement.pairwise(UNITS, "cohn"), "unknown measure 'cohn'; did you mean 'cohen'"),
        (lambda: agreement.pairwise(UNITS, "scott", weights="linear"), "weights='linear' is for Cohen's kappa"),
        (lambda: agreement.raw_agreement(UNITS, n_bootstrap=-1), "n_bootstrap must be 0"),
        (lambda: agreement.raw_agreement(UNITS, confidence=95), "confidence must lie between 0 and 1, got 95"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()


# -- results ---------------------------------------------------------------------------------------------------------


def test_report_holds_every_measure() -> None:
    report = agreement.report(UNITS, levels=LEVELS, n_bootstrap=50, random_state=0)
    assert report["Krippendorff's alpha (ratio)"].value == pytest.approx(0.797, abs=5e-4)
    assert report["Cohen's kappa"].value == value(agreement.cohen_kappa, UNITS)
    table = report.to_table()
    assert table.column_names == ["measure", "value", "low", "high", "n"]
    assert table.num_rows == len(str(report).splitlines()) - 3 == 9
    assert "Krippendorff's alpha (ordinal)" in str(report)


def test_pairwise_table_speaks_in_the_users_ids() -> None:
    frame = {"task": ["t", "t", "u", "u"], "worker": ["bob", "ann", "bob", "ann"], "label": ["x", "x", "y", "x"]}
    table = agreement.pairwise(frame).to_table()
    assert isinstance(table, pa.Table)
    assert table.select(["first", "second", "n_common"]).to_pylist() == [
        {"first": "bob", "second": "ann", "n_common": 2}
    ]


def test_result_reads_as_a_number_and_as_a_sentence() -> None:
    result = agreement.raw_agreement([[0, 0]], n_bootstrap=0)
    assert float(result) == 1
    assert str(result) == "raw agreement: 1.000, 1 instance"
