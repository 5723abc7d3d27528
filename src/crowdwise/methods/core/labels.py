"""Labels of the instances: those a method was trained on, new ones with annotations, and a table of them to read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from scipy.special import log_softmax, logsumexp, softmax
from torch import Tensor, nn

from crowdwise.aggregation.core.queries import against_votes, tied_votes
from crowdwise.annotations import Annotations
from crowdwise.engine import Engine
from crowdwise.engine.evaluation import evaluate
from crowdwise.errors import CrowdwiseWarning, DataError, ModelFileError, shorten
from crowdwise.methods.core.label_check import CHECK, by_labels_alone, check_labels
from crowdwise.methods.core.label_model import Floats, LabelModel, LabelRows, forget, power_alone, power_by_agreement
from crowdwise.networks import Classifier, Stacked
from crowdwise.networks.rows import few_log_softmax

Array = npt.NDArray[Any]
POSTERIOR = "posterior"
_PREFIX = "label_"
_UNSURE = 0.7  # confidence below which a label is doubtful for that alone


def label_arrays(engine: Engine, crowd: Annotations, classifier: nn.Module, honest: Tensor | None) -> dict[str, Array]:
    """What a fitted model keeps of the crowd's labels: the posterior of every instance, and the `LabelModel`.

    ``honest`` is ln f of the training instances (N, K, C) by K networks that were not trained on them, if there are any.
    Where held-out labels show that the classifier makes labels no better, the posterior is that of labels alone. A
    classifier whose predictions are not finite has no labels to give, and nothing is kept.
    """
    problem = engine.problem
    order = np.arange(crowd.n_instances) if problem.order is None else problem.order
    everything = torch.from_numpy(order).to(problem.device)
    logits = evaluate(classifier, problem.train.inputs, everything, problem.prepare, dtype=engine.dtype)
    log_f = log_softmax(logits.double().cpu().numpy(), axis=1)
    trained = np.isin(order, problem.train.instance.cpu().numpy())
    ordered = crowd if problem.order is None else crowd.select(instances=order)
    rows = LabelRows.of(ordered)
    members = log_f[:, None]
    if honest is not None:
        members = np.repeat(members, honest.shape[1], axis=1)
        members[trained] = honest.double().cpu().numpy()
        log_f = logsumexp(members, axis=1) - np.log(members.shape[1])
    if not np.isfinite(log_f).all():
        return {}
    if honest is None:
        log_f = forget(log_f, rows, trained)
    judged = ~trained if honest is None else np.ones_like(trained)
    most = power_by_agreement(members[trained], rows)
    model, found = LabelModel.fit(log_f, rows, judged, most)
    sample, instances = rows.sample(judged)
    if len(instances):
        model = replace(model, alone=power_alone(model, members[instances], sample, found[instances], most))
    posterior = np.empty_like(found, dtype=np.float32)
    check = check_labels(ordered, log_f, judged, most, problem.seed)
    if check.labels_alone:
        found = by_labels_alone(ordered, problem.seed)
    posterior[order] = found
    unlabelled = np.flatnonzero(crowd.labels_per_instance == 0)
    if len(unlabelled):
        at, function = torch.from_numpy(unlabelled).to(problem.device), as_sure_as(classifier, model.alone)
        sure = evaluate(classifier, problem.train.inputs, at, problem.prepare, dtype=engine.dtype, function=function)
        posterior[unlabelled] = softmax(sure.double().cpu().numpy(), axis=1)
    return {POSTERIOR: posterior, CHECK: check.to_array(), **_to_arrays(model)}


def as_sure_as(classifier: nn.Module, power: float) -> Callable[[Tensor], Tensor]:
    """ln of the classifier's probabilities (B, C), or of the mean over its members', to the given power.

    Up to a constant for each instance, of which softmax makes nothing.
    """

    logits: Callable[[Tensor], Tensor] | None = None

    def log_p(x: Tensor) -> Tensor:
        nonlocal logits
        if not isinstance(classifier, Stacked):
            logits = logits or (classifier.for_many() if isinstance(classifier, Classifier) else classifier)
            return power * logits(x).float()
        logits = logits or classifier.member_function()
        each = _log_softmax(power * logits(x).float())  # (K, C, B)
        top = each.amax(0)
        return (each - top).exp_().mean(0).log_().add_(top).T

    return log_p


def _log_softmax(logits: Tensor) -> Tensor:
    return few_log_softmax(logits, 1)[0] if logits.device.type == "cpu" else torch.log_softmax(logits, 1)


def _to_arrays(model: LabelModel) -> dict[str, Array]:
    arrays = {"cells": model.cells, "counts": model.counts, "totals": model.totals, "common": model.common}
    arrays["weights"] = np.array([*model.weights, model.strength, model.alone])
    arrays["shares"] = model.shares
    return {_PREFIX + name: array for name, array in arrays.items()}


def label_model(arrays: Mapping[str, Array]) -> LabelModel | None:
    """The label model that is among a fitted model's arrays, if it is."""
    if _PREFIX + "weights" not in arrays:
        return None
    names = [_PREFIX + name for name in ("cells", "counts", "totals", "common", "weights")]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ModelFileError(f"the model is damaged: it has no array {missing[0]!r}")
    cells, counts, totals, common, weights = (arrays[name] for name in names)
    a, b, strength, alone = [*weights.tolist(), 1.0][:4]  # models of earlier versions have no weight of f alone
    shares = arrays.get(_PREFIX + "shares", np.zeros((2, len(common))))  # models of earlier versions have none
    return LabelModel(cells, counts, totals, common, strength, (a, b), shares, alone)


def new_posterior(model: LabelModel, log_f: Floats, crowd: Annotations, classes: Array, annotators: Array) -> Floats:
    """P(class) of new instances (n, C): what the classifier says of them, and what their labels say.

    ``classes`` and ``annotators`` are the ids the model knows. Annotators it does not know get the crowd's mean matrix.
    """
    label = _codes(crowd.classes, classes)
    used = np.bincount(crowd.label, minlength=crowd.n_classes) > 0
    unknown = crowd.classes[used & (label < 0)].tolist()
    if unknown:
        raise DataError(
            f"the annotations use classes that this model does not know: {shorten(unknown, 8)}; "
            f"its classes are {shorten(classes.tolist(), 8)}"
        )
    annotator = _codes(crowd.annotators, annotators)
    active = crowd.labels_per_annotator > 0
    if active.any() and (annotator[active] < 0).all():
        warnings.warn(
            f"this model knows none of the annotators, {shorten(crowd.annotators[active].tolist(), 4)}: "
            "all of them get the crowd's mean matrix",
            CrowdwiseWarning,
            stacklevel=3,
        )
    rows = LabelRows.of(crowd)
    columns = model.columns(annotator[rows.annotator], label[rows.label])
    return model.weigh(log_f, rows, columns)


def _codes(ids: Array, known: Array) -> npt.NDArray[np.int64]:
    """The place of each id among the known ones, -1 where it is not among them."""
    place = {value: code for code, value in enumerate(known.tolist())}
    return np.array([place.get(value, -1) for value in ids.tolist()], dtype=np.int64)


def label_table(annotations: Any, posterior: Any, classes: Any = None, *, confident: bool = True) -> pa.Table:
    """One row per instance: ``instance``, ``label``, ``confidence``, ``majority_vote``, ``doubt``.

    ``posterior`` is an array (n, C), or a fitted method or aggregator (its ``posterior_``); its columns are ``classes``, by
    default those of the annotations. ``majority_vote`` is null without labels. ``doubt`` says why a label deserves a second
    look, and is null where nothing speaks against it: ``"no labels"``, ``"against the votes"``, ``"tied votes"`` or
    ``"low confidence"`` (below 0.7). Confidence is null, and no reason for doubt, unless the table is ``confident``: where
    labels agree no more than by chance, it would be made up.

    >>> label_table([["cat", "cat", "dog"], ["dog", None, None]], [[0.4, 0.6], [0.1, 0.9]]).to_pylist()[0]["doubt"]
    'against the votes'
    """
    crowd = Annotations.coerce(annotations)
    posterior = np.asarray(getattr(posterior, "posterior_", posterior), dtype=np.float64)
    known = crowd.classes if classes is None else np.asarray(classes)
    expected = crowd.n_instances, len(known)
    if posterior.shape != expected:
        raise DataError(f"posterior has shape {posterior.shape}, but the annotations need {expected} (n, C)")
    given, place = crowd.votes(), _codes(crowd.classes, known)
    votes = np.zeros(expected, dtype=given.dtype)  # numbers of labels, or sums of weights
    votes[:, place[place >= 0]] = given[:, place >= 0]
    label, confidence = posterior.argmax(1), posterior.max(1)
    unlabelled = votes.sum(1) == 0
    reasons = [
        (unlabelled, "no labels"),
        (against_votes(votes, label), "against the votes"),
        (tied_votes(votes), "tied votes"),
        ((confidence < _UNSURE) & confident, "low confidence"),
    ]
    doubt = np.select([mask for mask, _ in reasons], [reason for _, reason in reasons], default="")
    return pa.table(
        {
            "instance": crowd.instance_vocabulary.arrow,
            "label": pa.array(known[label].tolist()),
            "confidence": pa.array(confidence, pa.float64(), mask=np.full(len(confidence), not confident)),
            "majority_vote": pa.array(known.tolist()).take(pa.array(votes.argmax(1), mask=unlabelled)),
            "doubt": pa.array(doubt, type=pa.string(), mask=doubt == ""),
        }
    )


def label_summary(table: pa.Table) -> str:
    """What a label table says, in one line.

    >>> label_summary(label_table([["cat", "cat", "dog"], ["dog", None, None]], [[0.4, 0.6], [0.1, 0.9]]))
    '1 of 2 labels go against the majority vote (50.0 %)'
    """
    labelled = table.num_rows - table["majority_vote"].null_count
    doubts = table["doubt"].to_pylist()
    changed = doubts.count("against the votes")
    share = f"{changed / max(labelled, 1):.1%}".replace("%", " %")
    tied = doubts.count("tied votes")
    line = f"{changed:,} of {labelled:,} labels go against the majority vote ({share})"
    line += f", {tied:,} decide a tie" if tied else ""
    return line if labelled == table.num_rows else f"{line}; {table.num_rows - labelled:,} without labels"
