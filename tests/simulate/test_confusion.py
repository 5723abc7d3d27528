from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from crowdwise.errors import ConfigError, DataError
from crowdwise.simulate import SimulatedCrowd, adversarial, confusion_matrices, correlated, hammer_spammer, one_coin

Y = np.random.default_rng(0).integers(3, size=6_000)


def observed(crowd: SimulatedCrowd, annotator: int) -> np.ndarray:
    """Confusion matrix of one annotator's labels against the truth."""
    a = crowd.annotations
    mine = a.annotator == annotator
    counts = np.zeros((a.n_classes, a.n_classes))
    np.add.at(counts, (crowd.y[a.instance[mine]], a.label[mine]), 1)
    return counts / counts.sum(axis=1, keepdims=True)


CROWDS = {
    "confusion_matrices": lambda **design: confusion_matrices(
        Y, np.random.default_rng(1).dirichlet(np.ones(3), size=(6, 3)), **design
    ),
    "one_coin": lambda **design: one_coin(Y, np.linspace(0.3, 0.9, 6), **design),
    "hammer_spammer": lambda **design: hammer_spammer(Y, 6, **design),
    "adversarial": lambda **design: adversarial(Y, 6, **design),
    "correlated": lambda **design: correlated(Y, 6, **design),
}


@pytest.mark.parametrize("make", CROWDS.values(), ids=CROWDS.keys())
def test_labels_follow_the_matrices(make):
    crowd = make(labels_per_instance=6)
    for annotator in range(6):
        assert_allclose(observed(crowd, annotator), crowd.matrices[annotator], atol=0.05)


@pytest.mark.parametrize("make", CROWDS.values(), ids=CROWDS.keys())
def test_rows_and_transition_are_read_from_the_matrices(make):
    crowd = make()
    a = crowd.annotations
    assert_array_equal(crowd.rows, crowd.matrices[a.annotator, crowd.y[a.instance]])
    assert_array_equal(crowd.transition(None, a.instance, a.annotator), crowd.matrices[a.annotator])
    assert_allclose(crowd.matrices.sum(axis=2), 1)
    assert crowd.groups.shape == (6,)


@pytest.mark.parametrize("make", CROWDS.values(), ids=CROWDS.keys())
def test_the_design_is_the_users(make):
    assert_array_equal(make().annotations.labels_per_instance, 3)
    assert_array_equal(make(labels_per_annotator=500).annotations.labels_per_annotator, 500)
    both = make(labels_per_annotator=3_000, labels_per_instance=3).annotations
    assert_array_equal(both.labels_per_annotator, 3_000)
    assert_array_equal(both.labels_per_instance, 3)
    assert len(set(make(pairs="binomial", labels_per_instance=2).annotations.labels_per_instance.tolist())) > 2


@pytest.mark.parametrize("make", CROWDS.values(), ids=CROWDS.keys())
def test_the_seed_decides(make):
    first, again, other = (make(random_state=seed).annotations for seed in (1, 1, 2))
    assert first == again
    assert not np.array_equal(first.label, other.label)


def test_annotators_of_no_group_are_groups_of_their_own():
    assert_array_equal(CROWDS["confusion_matrices"]().groups, np.arange(6))
    assert_array_equal(CROWDS["confusion_matrices"](groups=[0, 0, 0, 1, 1, 1]).groups, [0, 0, 0, 1, 1, 1])


def test_spammers_do_not_look():
    crowd = hammer_spammer(Y, 10, spammer_share=0.3, accuracy=0.9)
    assert crowd.groups.tolist() == [0] * 7 + [1] * 3
    assert_allclose(crowd.matrices[9], 1 / 3)
    assert_allclose(np.diag(crowd.matrices[0]), 0.9)


def test_adversaries_say_another_class():
    crowd = adversarial(Y, 5, adversary_share=0.4, accuracy=0.8, permutation=[1, 2, 0])
    assert crowd.groups.tolist() == [0, 0, 0, 1, 1]
    assert_allclose([crowd.matrices[4][0, 1], crowd.matrices[4][1, 2], crowd.matrices[4][2, 0]], 0.8)
    assert_array_equal(crowd.matrices, adversarial(Y, 5, adversary_share=0.4).matrices)
    same = adversarial(Y, 5, permutation=[0, 1, 2])
    assert_array_equal(same.matrices[4], same.matrices[0])


def agreement_given_truth(crowd, first, second):
    """How much more often two annotators agree than independent ones would."""
    n = len(crowd.y)
    table = np.full((n, crowd.annotations.n_annotators), -1)
    table[crowd.annotations.instance, crowd.annotations.annotator] = crowd.annotations.label
    expected = np.sum(crowd.matrices[first, crowd.y] * crowd.matrices[second, crowd.y], axis=1).mean()
    return np.mean(table[:, first] == table[:, second]) - expected


def test_copiers_agree_with_their_leader_and_with_each_other_only():
    crowd = correlated(Y, 9, n_leaders=2, copier_share=0.5, copy_rate=0.8, labels_per_instance=9)
    assert crowd.groups.tolist() == [1, 2, 1, 2, 1, 2, 0, 0, 0]
    assert agreement_given_truth(crowd, 0, 2) > 0.2
    assert agreement_given_truth(crowd, 2, 4) > 0.2
    for first, second in ((0, 1), (0, 3), (0, 7), (6, 7), (2, 3)):
        assert abs(agreement_given_truth(crowd, first, second)) < 0.03


def test_copiers_repeat_a_leader_who_did_not_label_the_instance():
    crowd = correlated(Y, 20, copier_share=0.9, copy_rate=1.0, accuracy=0.4)
    a = crowd.annotations
    copied = a.annotator[a.by_instance.order] < 19
    same = [len(set(a.label[(a.instance == i) & copied].tolist())) <= 1 for i in range(200)]
    assert all(same)


def test_no_copying_is_independence_and_accuracy_may_differ_by_annotator():
    crowd = correlated(Y, 4, copy_rate=0.0, accuracy=[0.9, 0.8, 0.7, 0.6], labels_per_instance=4)
    assert_allclose(crowd.matrices[:, 0, 0], [0.9, 0.8, 0.7, 0.6])
    assert abs(agreement_given_truth(crowd, 0, 1)) < 0.03


def test_a_copier_is_as_good_as_the_mixture_of_itself_and_its_leader():
    crowd = correlated(Y, 4, copy_rate=0.5, accuracy=[0.9, 0.5, 0.5, 0.5])
    assert_allclose(crowd.matrices[:, 0, 0], [0.9, 0.7, 0.7, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: confusion_matrices([0, 1], np.eye(2)), r"not \(2, 2\)"),
        (lambda: confusion_matrices([0, 1], [[[1, 0], [0.5, 0.4]]]), r"row 1 of annotator 0's matrix .* \[0.5, 0.4\]"),
        (lambda: confusion_matrices([0, 2], [np.eye(2)]), r"class 2 is out of range: this crowd has 2 classes"),
        (lambda: confusion_matrices([0, 1], [np.eye(2)], groups=[0, 1]), r"one entry per annotator, \(1,\)"),
        (lambda: one_coin([0, 1], [0.5, 1.5]), "accuracy of annotator 1 must be between 0 and 1, not 1.5"),
        (lambda: one_coin([0, 1], 0.5), r"one entry per annotator, \(R,\)"),
        (lambda: hammer_spammer([0, 1], 5, spammer_share=2), "spammer_share must be a number from 0 to 1, got 2"),
        (lambda: hammer_spammer([0, 1], 0), "n_annotators must be an integer of 1 or more, got 0"),
        (lambda: adversarial([0, 1], 5, permutation=[0, 0]), r"each of the 2 classes once, not \[0, 0\]"),
        (lambda: correlated([0, 1], 4, copier_share=1.0), "1 leaders and 4 copiers are more than 4 annotators"),
        (lambda: correlated([0, 1], 4, copy_rate=-1), "copy_rate must be a number from 0 to 1, got -1"),
        (lambda: hammer_spammer([], 5), "at least one class code"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises((ConfigError, DataError), match=message):
        call()


def test_the_old_name_of_a_simulated_crowd_warns():
    from crowdwise import simulate

    with pytest.warns(DeprecationWarning, match="now crowdwise.simulate.SimulatedCrowd"):
        assert simulate.Crowd is SimulatedCrowd
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        simulate.nonsense
