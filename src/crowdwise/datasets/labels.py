"""Label-only sets, the usual test bed of aggregation: annotations and some true classes, no instances."""

from __future__ import annotations

from functools import partial

import numpy as np

from crowdwise.datasets.base import DATASETS, Dataset
from crowdwise.datasets.files import Files
from crowdwise.datasets.prepared import PREPARED_HINT, TRIPLES, annotations_from, count_of, read_npz

CITATIONS = {
    "bluebird": "Welinder, Branson, Belongie, Perona: The multidimensional wisdom of crowds. NIPS 2010",
    "rte": "Snow, O'Connor, Jurafsky, Ng: Cheap and fast, but is it good? EMNLP 2008",
    "dog": "Zhou, Basu, Mao, Platt: Learning from the wisdom of crowds by minimax entropy. NIPS 2012",
    "web": "Zhou, Basu, Mao, Platt: Learning from the wisdom of crowds by minimax entropy. NIPS 2012",
    "cf-weather": "Venanzi, Guiver, Kazai, Kohli, Shokouhi: Community-based Bayesian aggregation models for "
    "crowdsourcing. WWW 2014",
}


def label_set(name: str, files: Files) -> Dataset:
    """The label-only set in ``agg_<name>.npz``; its classes are numbered."""
    (path,) = files.find([f"agg_{name.replace('-', '_')}.npz"], hint=PREPARED_HINT)
    data = read_npz(path, *TRIPLES)
    return Dataset(
        name=name,
        kind="labels",
        class_names=tuple(map(str, range(count_of(data, "n_classes")))),
        annotations=annotations_from(data),
        truth=data["clean"].astype(np.int64),
        licence="MIT (the repository that distributes it)",
        citation=CITATIONS[name],
    )


for _name in CITATIONS:
    DATASETS.register(_name)(partial(label_set, _name))
