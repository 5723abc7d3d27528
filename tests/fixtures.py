"""Small crowds with hand-computed results, shared by the tests."""

from __future__ import annotations

from crowdwise.annotations import Annotations

T1 = [(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 0, 0), (2, 1, 0), (2, 2, 0)]
T1 += [(3, 0, 1), (3, 1, 1), (3, 2, 0), (4, 0, 0), (4, 1, 1)]
T2 = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 0, 2), (2, 1, 2), (2, 2, 0)]
T2 += [(3, 0, 0), (3, 2, 0), (3, 3, 0), (4, 1, 1), (4, 2, 2)]

CROWD_KIT = {
    "task": ["t2", "t1", "t2", "t3"],
    "worker": ["bob", "ann", "ann", "bob"],
    "label": ["dog", "cat", "cat", "ant"],
}


def t1() -> Annotations:
    """Five instances, three annotators, two classes; instance 4 is a tie."""
    return Annotations.from_triples(*zip(*T1, strict=True), n_instances=5, n_annotators=3, n_classes=2)


def t2() -> Annotations:
    """Six instances (5 has no label), five annotators (3 has one label, 4 none), four classes (3 is never seen)."""
    return Annotations.from_triples(*zip(*T2, strict=True), n_instances=6, n_annotators=5, n_classes=4)
