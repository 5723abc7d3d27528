"""How certain and how difficult every instance is, and which annotations look wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import entr

from crowdwise.annotations import Annotations
from crowdwise.constraints import NonNegativeInt, checked
from crowdwise.data.types import Floats
from crowdwise.quality._belief import Belief, floats, ids


def instances(annotations: Any, posterior: Any = None) -> pa.Table:
    """One row per instance, in the order of ``annotations.instances``; null if unknown.

    ``posterior`` is as in `annotators`. Columns: ``instance``; ``consensus_label``, the most likely class, and
    ``consensus_quality_score``, its probability; ``annotator_agreement``, the share of labels equal to the consensus;
    ``num_annotations``; and two measures of difficulty from 0 to 1: ``entropy``, of the posterior relative to the
    uniform distribution, and ``disagreement``, the share of pairs of labels that differ. Where nothing tells right labels
    from wrong ones (no instance has labels of two annotators, and no gold was fitted), probabilities and entropy are null.

    >>> instances([["cat", "cat", "dog"], ["dog", None, None]]).select(["consensus_label", "disagreement"]).to_pylist()
    [{'consensus_label': 'cat', 'disagreement': 0.6666666666666666}, {'consensus_label': 'dog', 'disagreement': None}]
    """
    crowd = Annotations.coerce(annotations)
    belief, labels = Belief.of(crowd, posterior), crowd.labels_per_instance
    agreeing = np.bincount(crowd.instance, crowd.label == belief.label[crowd.instance], crowd.n_instances)
    unknown = np.logical_and(belief.majority, labels == 0)
    untold = np.logical_and(not belief.comparable, labels > 0)
    votes = crowd.votes()
    pairs = labels * (labels - 1)
    differing = pairs - (votes * (votes - 1)).sum(axis=1)
    return pa.table(
        {
            "instance": crowd.instance_vocabulary.arrow,
            "consensus_label": ids(crowd.class_vocabulary, belief.label, unknown),
            "consensus_quality_score": floats(belief.confidence, untold),
            "annotator_agreement": floats(agreeing / np.maximum(labels, 1), labels == 0),
            "num_annotations": labels,
            "entropy": floats(entropy(belief), untold),
            "disagreement": floats(differing / np.maximum(pairs, 1), pairs == 0),
        }
    )


@checked
def issues(annotations: Any, posterior: Any = None, *, limit: NonNegativeInt | None = None) -> pa.Table:
    """Annotations that differ from the most likely class of their instance, the least likely first.

    ``posterior`` is as in `annotators`; ``limit`` keeps the first ones. Columns: ``annotation``, the row in the
    annotations; ``instance``; ``annotator``; ``given_label``; ``predicted_label``, the most likely class;
    ``label_quality``, the probability of the given label; ``consensus_quality_score``, that of the predicted one.

    >>> found = issues([["cat", "cat", "dog"], ["dog", "dog", "dog"]])
    >>> found.select(["instance", "annotator", "given_label"]).to_pylist()
    [{'instance': 0, 'annotator': 2, 'given_label': 'dog'}]
    """
    crowd = Annotations.coerce(annotations)
    belief = Belief.of(crowd, posterior)
    given, likely = belief.posterior[crowd.instance, crowd.label], belief.confidence[crowd.instance]
    rows = np.flatnonzero((given < likely - 1e-9) & belief.comparable)  # a tie is not an issue
    rows = rows[np.lexsort((-likely[rows], given[rows]))][:limit]
    return pa.table(
        {
            "annotation": rows,
            "instance": crowd.instance_vocabulary.take(crowd.instance[rows]),
            "annotator": crowd.annotator_vocabulary.take(crowd.annotator[rows]),
            "given_label": crowd.class_vocabulary.take(crowd.label[rows]),
            "predicted_label": crowd.class_vocabulary.take(belief.label[crowd.instance[rows]]),
            "label_quality": given[rows],
            "consensus_quality_score": likely[rows],
        }
    )


def entropy(belief: Belief) -> Floats:
    """Entropy of every instance's posterior, (n,), from 0 (certain) to 1 (all classes equally likely)."""
    return np.asarray(entr(belief.posterior).sum(axis=1) / np.log(max(belief.posterior.shape[1], 2)))
