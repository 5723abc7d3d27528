"""How far posteriors can be trusted: measured against the truth, and mended without it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crowdwise.aggregation.core import kernels
from crowdwise.aggregation.core.base import Aggregator
from crowdwise.aggregation.core.crowd import Crowd, MemoryCrowd
from crowdwise.aggregation.core.kernels import FLOOR, Floats
from crowdwise.errors import ConfigError

_TEMPERATURES = np.concatenate([np.arange(1.0, 3.0, 0.1), np.arange(3.0, 8.0, 0.25), [8.0, 10.0, 15.0, 20.0]])
_ENOUGH = 50_000  # labels of a fold that are foretold; more would tell the same


class Calibration(NamedTuple):
    """What the deprecated `calibration` returns."""

    error: float  # expected calibration error: mean |accuracy - confidence|, weighted by bin
    confidence: Floats  # (bins,) mean probability of the chosen class
    accuracy: Floats  # (bins,) share that is right
    number: npt.NDArray[np.int64]  # (bins,) instances


def calibration(posterior: Floats, truth: npt.NDArray[Any], bins: int = 10) -> Calibration:
    """`crowdwise.quality.calibration` by its old name, with ten bins."""
    warnings.warn(
        "crowdwise.aggregation.calibration is deprecated; use crowdwise.quality.calibration(posterior, truth, n_bins=10)",
        DeprecationWarning,
        stacklevel=2,
    )
    found = importlib.import_module("crowdwise.quality").calibration(posterior, truth, n_bins=bins)  # a later layer
    columns = (found.bins[name].to_numpy() for name in ("confidence", "accuracy", "count"))
    return Calibration(found.ece if found.n else 0.0, *columns)


class Calibrated(NamedTuple):
    """A posterior that admits what the votes themselves show, see `calibrate`."""

    temperature: float  # 1: the model was not overconfident
    posterior: Floats  # (n, C)


def calibrate(model: Aggregator, *, folds: int = 5, random_state: int | np.random.Generator | None = 0) -> Calibrated:
    """Flatten an overconfident posterior by what votes foretell: q_i(c) ∝ raw_posterior_i(c)^(1 / temperature).

    Votes do not show the errors that annotators have in common, so it stays overconfident on most real crowds; the default
    ``posterior_`` of aggregators (``calibration="crowd"``) allows for them.

    Models take the labels of an instance for independent; where some instances are hard for everybody they are not,
    and posteriors are overconfident. The votes show it: with parameters learnt on the other folds, each label of an
    instance is foretold from its other labels, and the temperature is the one that foretells best. Labels stay as they
    are, up to ties. ``model`` is any fitted aggregator; it is fitted ``folds`` times more, on some of the instances.
    The foretelling multiplies confusion rows, as Dawid-Skene and its kin do. Shares of votes (majority vote, WAWA,
    zero-based skill, CRH) are not made that way, nor is GLAD's posterior: leave those as they are.

    >>> from crowdwise.aggregation.majority_vote import MajorityVote
    >>> answers = [[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 1, 1]]
    >>> calibrate(MajorityVote().fit(answers), folds=2).posterior.shape
    (5, 2)
    """
    crowd, annotations = model._fitted_crowd(), model.annotations_
    if folds < 2:
        raise ConfigError(f"folds must be 2 or more, got {folds!r}")
    rng = np.random.default_rng(random_state)
    fold = rng.permutation(crowd.n_instances) % folds
    scores = np.zeros(len(_TEMPERATURES))
    for number in range(folds):
        rest, held = fold != number, np.flatnonzero(fold == number)
        if np.any(crowd.labelled[rest]) and crowd.n_classes > 1:
            gold = crowd.gold[rest] if crowd.gold.size else None
            with warnings.catch_warnings():  # what there was to say was said about the whole crowd
                warnings.simplefilter("ignore")
                learnt = type(model)(**model.get_params())._fit(annotations.select(rest), gold, model._history)
            scores += _foretold(learnt, MemoryCrowd.of(annotations.select(held)))
    temperature = float(_TEMPERATURES[int(np.argmax(scores))])
    logits = np.log(np.maximum(model.raw_posterior_, kernels.TINY))
    return Calibrated(temperature, crowd.clamp(_softmax(logits, temperature)))


def _foretold(learnt: Aggregator, held: Crowd) -> Floats:
    """Log-probability of the labels of unseen instances given their other labels, by temperature; by weight."""
    layout, c = held.layout, held.n_classes
    emission = np.maximum(learnt.confusion_.transpose(0, 2, 1).reshape(-1, c), FLOOR)
    logs = np.log(emission)
    instance = kernels.instances(layout)
    chosen = np.flatnonzero((np.diff(layout.indptr) > 1)[instance])
    chosen = chosen[:: len(chosen) // _ENOUGH + 1]
    cells = layout.cells[chosen]
    weight = np.ones(len(chosen)) if layout.weight is None else layout.weight[chosen]
    everything = kernels.incidence(layout) @ logs + np.log(np.maximum(learnt.class_prior_, FLOOR))
    others = everything[instance[chosen]] - weight[:, None] * logs[cells]  # (labels, C) without the label itself
    likelihood = [weight @ np.log((_softmax(others, t) * emission[cells]).sum(axis=1)) for t in _TEMPERATURES]
    return np.array(likelihood)


def _softmax(scores: Floats, temperature: float) -> Floats:
    flat = np.exp((scores - scores.max(axis=1, keepdims=True, initial=-np.inf)) / temperature)
    return np.asarray(flat / flat.sum(axis=1, keepdims=True))
