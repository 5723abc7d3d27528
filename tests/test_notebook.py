"""What notebooks show: a table or the plain text, and no markup from data."""

from __future__ import annotations

import numpy as np
import pytest

from crowdwise.aggregation import DawidSkene, MajorityVote
from crowdwise.annotations import Annotations
from crowdwise.comparison import Comparison, Entry
from crowdwise.comparison.judge import Expectation

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def crowd() -> Annotations:
    rows = [(item, who, label) for item in range(4) for who, label in ((EVIL, "cat"), ("ann", EVIL), ("bob", "cat"))]
    return Annotations.from_frame(
        dict(zip(("item", "who", "label"), zip(*rows, strict=True), strict=True)),
        instance="item",
        annotator="who",
        label="label",
    )


def test_annotations_show_their_classes(crowd: Annotations) -> None:
    shown = crowd._repr_html_()
    assert "4 instances" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert shown.index("cat") < shown.index("&lt;script&gt;")  # the most frequent one first


def test_a_fitted_aggregator_shows_its_annotators_worst_first(crowd: Annotations) -> None:
    assert MajorityVote()._repr_html_() == "<pre>MajorityVote()</pre>"
    shown = DawidSkene(max_iter=5).fit(crowd)._repr_html_()
    assert "DawidSkene(max_iter=5)" in shown
    assert "mean confidence" in shown
    assert "<script>" not in shown
    assert shown.index("ann</td>") < shown.index("bob</td>")


def test_long_tables_are_cut() -> None:
    shown = MajorityVote().fit(np.repeat([[0], [1]], 30, axis=1))._repr_html_()
    assert shown.count("<tr>") == 11
    assert "10 of 30 annotators." in shown


def test_nothing_to_show_is_no_error() -> None:
    empty = Annotations.from_triples([], [], [], classes=["a", "b"])
    assert "a</td>" in empty._repr_html_()
    assert "0 instances" in MajorityVote().fit(empty)._repr_html_()


def test_a_comparison_shows_its_ranking() -> None:
    entry = Entry("ce", EVIL, 0.8, 0.01, 0.0, 0.0, False, 5, 1.0)
    found = Comparison(
        (entry,), {"x": EVIL}, "ce", "Recommended: CE.", Expectation(0.8, 0.9, 0.8), "model = ...", False, 100
    )
    shown = found._repr_html_()
    assert "80.0 ± 1.0" in shown
    assert "<script>" not in shown


def test_a_model_shows_its_annotators_in_place_of_its_parameters() -> None:
    from crowdwise import CE

    assert CE()._repr_html_() == "<pre>CE()</pre>"
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    votes = np.repeat((X[:, :1] > 0).astype(int), 3, axis=1)
    votes[:, 2] = rng.integers(2, size=60)
    bundle = CE(epochs=30, lr=0.1, verbose=0).fit(X, votes)._repr_mimebundle_()
    assert bundle["text/plain"].startswith("CE(")
    assert bundle["text/html"].index("<td>2</td>") < bundle["text/html"].index("<td>0</td>")
