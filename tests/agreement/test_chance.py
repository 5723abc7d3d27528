"""Agreement within chance: few false alarms, exact on small crowds, and able to find agreement."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from crowdwise import Annotations, agreement
from crowdwise.errors import ConfigError


def by_chance(rng: np.random.Generator, n: int, annotators: int, classes: int, each: int) -> Annotations:
    """Labels that do not depend on the item, of annotators who each prefer other classes."""
    instance = np.repeat(np.arange(n), each)
    who = np.argsort(rng.random((n, annotators)), axis=1)[:, :each].ravel()
    preference = rng.dirichlet(np.ones(classes), annotators).cumsum(axis=1)
    label = np.minimum((preference[who] < rng.random((len(who), 1))).sum(axis=1), classes - 1)
    return Annotations.from_triples(instance, who, label, n_classes=classes)


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
@pytest.mark.parametrize(("n", "annotators", "classes", "each"), [(15, 3, 2, 3), (40, 6, 6, 2), (60, 150, 3, 3)])
def test_labels_by_chance_seldom_count_as_agreement(
    level: str, n: int, annotators: int, classes: int, each: int
) -> None:
    rng = np.random.default_rng(0)
    draws = 300
    found = [agreement.chance_test(by_chance(rng, n, annotators, classes, each), level) for _ in range(draws)]
    alarms = sum(test.defined and not test.within_chance for test in found)
    assert alarms <= 0.05 * draws + 2 * np.sqrt(0.05 * 0.95 * draws)


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
def test_the_p_value_is_the_share_of_all_orders_of_an_annotators_labels(level: str) -> None:
    """Two annotators of ten items: every order of the second one's labels, tried out, is as likely."""
    first = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2]
    second = [0, 0, 0, 0, 0, 0, 1, 0, 2, 2]

    def alpha(labels: tuple[int, ...]) -> float:
        crowd = np.array([first, labels]).T.tolist()
        return agreement.krippendorff_alpha(crowd, level, n_bootstrap=0).value

    distinct = set(permutations(second))
    observed = alpha(tuple(second))
    share = np.mean([alpha(order) >= observed - 1e-9 for order in distinct])
    test = agreement.chance_test(np.array([first, second]).T.tolist(), level, n_permutations=4000)
    assert test.alpha == pytest.approx(observed)
    assert 0.001 < share < 0.2
    assert test.p_value == pytest.approx(share, abs=4 * np.sqrt(share / 4000) + 2 * share / np.sqrt(20))


def test_weak_agreement_is_found_if_there_are_many_labels_only() -> None:
    def crowd(n: int) -> Annotations:
        rng = np.random.default_rng(3)
        truth = rng.integers(0, 3, (n, 1))
        return Annotations.from_dense(np.where(rng.random((n, 4)) < 0.4, truth, rng.integers(0, 3, (n, 4))))

    assert agreement.chance_test(crowd(6)).within_chance
    assert not agreement.chance_test(crowd(300)).within_chance


def test_ordered_classes_agree_where_nobody_gives_the_same_class() -> None:
    """The second annotator is always one grade above the first."""
    grades = np.array([0, 1, 2, 3] * 15)
    crowd = np.stack([grades, grades + 1], axis=1)
    assert agreement.chance_test(crowd, "nominal").within_chance
    assert not agreement.chance_test(crowd, "ordinal").within_chance
    assert not agreement.chance_test(crowd, "interval").within_chance


def test_the_order_of_classes_is_that_of_their_values() -> None:
    """Neighbours on the scale low, mid, high are not neighbours in the alphabet."""
    rng = np.random.default_rng(4)
    grades = rng.integers(0, 3, 60)
    near = np.clip(grades + rng.choice([-1, 1], 60), 0, 2)
    names = np.array(["low", "mid", "high"])
    crowd = Annotations.from_dense(np.stack([names[grades], names[near]], axis=1).tolist())
    assert crowd.classes.tolist() == ["high", "low", "mid"]
    in_order = agreement.chance_test(crowd, "ordinal", values=[3, 1, 2]).alpha
    assert in_order > agreement.chance_test(crowd, "ordinal").alpha + 0.2


def test_people_who_label_once_are_compared_too() -> None:
    """Shuffling the one label of each of them would change nothing."""
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, 100)
    label = np.where(rng.random(300) < 0.8, np.repeat(truth, 3), 1 - np.repeat(truth, 3))
    crowd = Annotations.from_triples(np.repeat(np.arange(100), 3), np.arange(300), label)
    assert not agreement.chance_test(crowd).within_chance


def test_annotators_who_always_say_the_same_agree_by_chance() -> None:
    """Both say yes nine times in ten: 82% of the labels agree, as chance would have it."""
    rng = np.random.default_rng(6)
    crowd = (rng.random((200, 2)) < 0.9).astype(int)
    assert agreement.raw_agreement(crowd, n_bootstrap=0).value > 0.75
    assert agreement.chance_test(crowd).within_chance


def test_disagreement_beyond_chance_is_no_agreement() -> None:
    """Two of four people say x and two y, of every item: ties only."""
    test = agreement.chance_test([[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]] * 10)
    assert test.alpha < 0
    assert test.within_chance


@pytest.mark.parametrize("crowd", [[[0, 0], [0, 0]], [[0, None], [None, 1]], [[None, None]]])
def test_where_there_is_nothing_to_compare_nothing_is_said(crowd: list[list[int | None]]) -> None:
    test = agreement.chance_test(crowd)
    assert not test.defined
    assert not test.within_chance
    assert np.isnan(test.p_value)
    assert "cannot be compared" in str(test)


def test_repeated_labels_are_no_agreement() -> None:
    """One annotator who gives everything twice does not agree with another."""
    rng = np.random.default_rng(7)
    items, own = np.arange(50), rng.integers(0, 3, 50)
    crowd = Annotations.from_triples(
        np.concatenate([items, items, items]),
        np.repeat([0, 0, 1], 50),
        np.concatenate([own, own, rng.integers(0, 3, 50)]),
    )
    test = agreement.chance_test(crowd)
    assert (test.n, test.n_labels) == (50, 100)
    assert test.within_chance


def test_items_with_one_label_do_not_matter() -> None:
    crowd = [[0, 1, 1], [1, 1, 0], [2, 2, 2], [0, 0, 2]] * 4
    alone = [[0, None, None]] * 30
    both, plain = agreement.chance_test([*crowd, *alone]), agreement.chance_test(crowd)
    assert both == plain


def test_large_crowds_are_sampled() -> None:
    rng = np.random.default_rng(8)
    instance = np.repeat(np.arange(30_000), 3)
    label = np.where(rng.random(90_000) < 0.3, instance % 5, rng.integers(0, 5, 90_000))
    test = agreement.chance_test(Annotations.from_triples(instance, np.tile([0, 1, 2], 30_000), label))
    assert 49_997 <= test.n_labels <= 50_003
    assert not test.within_chance


def test_results_are_reproducible_and_the_level_is_that_asked_for() -> None:
    crowd = by_chance(np.random.default_rng(9), 30, 4, 3, 3)
    one, other = (agreement.chance_test(crowd, random_state=5) for _ in range(2))
    assert one == other
    strict, lenient = (agreement.chance_test(crowd, significance=level) for level in (1e-6, 0.999999))
    assert strict.p_value == lenient.p_value
    assert (strict.within_chance, lenient.within_chance) == (True, False)
    with pytest.raises(ConfigError, match="level"):
        agreement.chance_test(crowd, "rank")  # type: ignore[arg-type]


def test_few_items_cannot_show_agreement() -> None:
    """Two annotators agree on all of three items: with so few labels, one order in 15 does so by chance."""
    test = agreement.chance_test([[k, k] for k in range(3)], n_permutations=999)
    assert test.alpha == pytest.approx(1.0)
    # fewer than ten labels each: the labels of both are shuffled together
    pairings = [
        sorted(order[0:2]) == sorted([order[0]] * 2) and order[2] == order[3] and order[4] == order[5]
        for order in set(permutations([0, 0, 1, 1, 2, 2]))
    ]
    share = float(np.mean(pairings))
    assert share == pytest.approx(1 / 15)
    assert test.p_value == pytest.approx(share, rel=0.6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_order_of_rows_and_instances_changes_nothing(weighted: bool) -> None:
    """A streamed table and one in memory hold the same labels in other orders: the verdict is that of the labels."""
    rng = np.random.default_rng(5)
    instance, annotator = rng.integers(0, 20, 80), rng.integers(0, 5, 80)  # with repeats that contradict each other
    label = np.where(rng.random(80) < 0.3, instance % 3, rng.integers(0, 3, 80))
    weight = rng.choice([0.5, 1.25, 1.75], 80) if weighted else np.ones(80)
    tests = []
    for shuffled in (np.arange(80), rng.permutation(80), rng.permutation(80)):
        renamed = rng.permutation(20)[instance]
        triples = renamed[shuffled], annotator[shuffled], label[shuffled]
        tests.append(agreement.chance_test(Annotations.from_triples(*triples, n_classes=3, weight=weight[shuffled])))
    assert tests[0].p_value == tests[1].p_value == tests[2].p_value
    assert tests[0].alpha == pytest.approx(tests[1].alpha, abs=1e-12)


def test_of_contradicting_repeats_the_most_frequent_label_counts() -> None:
    kept = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 1, 1)]
    repeated = [(0, 0, 0), *kept, (0, 0, 1)]  # annotator 0 called item 0 once 0, and twice 1
    assert agreement.chance_test(Annotations.from_triples(*zip(*repeated, strict=True))) == agreement.chance_test(
        Annotations.from_triples(*zip(*kept, strict=True))
    )
