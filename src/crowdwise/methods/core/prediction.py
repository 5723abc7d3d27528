"""What a fitted method is used for: predictions, transition matrices and the annotators' skill."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from crowdwise import encoders
from crowdwise.annotations import Annotations
from crowdwise.data import notebook
from crowdwise.data.matching import count_rows, labels_by_row, match, rows_only
from crowdwise.engine.device import resolve_device, resolve_precision
from crowdwise.engine.evaluation import evaluate
from crowdwise.engine.intake import Intake
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.problem import make_inputs
from crowdwise.engine.tensors import Inputs
from crowdwise.errors import ConfigError, CrowdwiseWarning, DataError, NonFiniteError, TrainingError, shorten
from crowdwise.methods.core.labels import POSTERIOR, as_sure_as, label_model, new_posterior
from crowdwise.networks import ConstantTransition, Transition
from crowdwise.networks.rows import few_log_softmax
from crowdwise.networks.transition import stretches

Array = npt.NDArray[Any]
_NO_LABELS = (
    "this model holds no labels of its training instances: an earlier version saved it, or its training diverged; "
    "fit it again"
)
_AT_ONCE = 1 << 20  # values in a part of a large array of feature vectors
_CHECKED = 1000  # instances that are compared with the training data


class Predictor(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that was trained on a crowd's annotations."""

    name: ClassVar[str]
    device: str
    precision: str
    classifier_: nn.Module
    transition_: nn.Module | None
    prepare_: Prepare
    intake_: Intake
    classes_: Array
    annotators_: Array
    instances_: Array
    """Ids of the instances of `fit`, in the order of ``X`` (n,); row numbers where there were none."""
    id_column_: str | None
    arrays_: dict[str, Array]
    mirrored_: bool
    """Whether pictures were mirrored in training."""
    history_: list[dict[str, Any]]
    warnings_: list[str]
    """What was found wrong with the classifier in training; empty where all went well."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.three_d_array = True
        return tags

    def _repr_html_(self) -> str:
        if not hasattr(self, "classifier_"):
            return notebook.plain(repr(self))
        note = " ".join([f"{len(self.classes_)} classes, {len(self.instances_):,} instances.", *self.warnings_])
        return notebook.skills(repr(self), self.annotators_.tolist(), self.skill_, note)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """In place of scikit-learn's diagram, which shows parameters alone."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def predict(self, X: Any) -> Array:
        """The most probable class of each instance, in the user's vocabulary: (len(X),)."""
        parts = [part.numpy() for part in self._scored(X, self._power())]  # probabilities would take longer
        scores = self._finite("predictions", parts[0] if len(parts) == 1 else np.concatenate(parts))
        predicted: Array = self.classes_[scores.argmax(1)]
        return predicted

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class, in the order of ``classes_``: (len(X), C).

        Each network's probabilities are raised to the power that suits labels it has not learnt (temperature scaling), so that
        they are as sure as they should be. Where training mirrored pictures, it is the mean over a picture and its mirror image.
        """
        log_p = self._log_p(X, self._power())
        return np.exp(log_p, out=log_p)

    def _power(self) -> float:
        """To which the networks' probabilities are raised."""
        self._fitted_classifier()
        model = label_model(self.arrays_)
        return 1.0 if model is None else model.alone

    def _log_p(self, X: Any, power: float = 1.0) -> Array:
        """ln f(x), what the networks say, their probabilities to the given power: (len(X), C)."""
        parts = [few_log_softmax(part.double())[0].numpy() for part in self._scored(X, power)]
        return self._finite("predictions", parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _scored(self, X: Any, power: float) -> Iterator[Tensor]:
        """The same before it is normalised, in single precision, part by part."""
        classifier = self._fitted_classifier()
        function = as_sure_as(classifier, power)
        function = with_mirror_image(function) if self.mirrored_ else function
        return (part.cpu() for part in self._evaluated(classifier, X, function))

    def posterior(self, X: Any, annotations: Any, *, ids: Any = None) -> Array:
        """Probability of each class, given the instances and what annotators said of them: (len(X), C).

        ln P(y) = a ln f_y(x) + b sum over the labels of ln T^j[y, l], normalised, with a and b that make it calibrated.
        ``annotations`` and ``ids`` are as in `fit`, and matched in the same way. Rows without labels get ``predict_proba(X)``;
        annotators that the model does not know get the crowd's mean matrix. For the instances of `fit` use ``posterior_``:
        here the model would meet labels it has already learnt from.
        """
        self._fitted_classifier()
        X = encoders.opened_folder(X)
        model = label_model(self.arrays_)
        if model is None:
            raise ConfigError(_NO_LABELS)
        matched = match(X, annotations, ids)
        found = new_posterior(model, self._log_p(matched.X), matched.annotations, self.classes_, self.annotators_)
        unlabelled = matched.annotations.labels_per_instance == 0
        if unlabelled.any():
            found[unlabelled] = self.predict_proba(matched.X)[unlabelled]
        return found

    @property
    def posterior_(self) -> Array:
        """Probability of each class for every instance of `fit`, given its labels, in the order of ``classes_``: (n, C).

        The classifier's part in it comes from networks that have not learnt the instance's labels, or is cleared of them.
        """
        self._fitted_classifier()
        if POSTERIOR not in self.arrays_:
            raise AttributeError(_NO_LABELS)
        return self.arrays_[POSTERIOR]

    @property
    def labels_(self) -> Array:
        """The most probable class of every instance of `fit`, in the user's vocabulary: (n,)."""
        labels: Array = self.classes_[self.posterior_.argmax(1)]
        return labels

    @property
    def label_confidence_(self) -> Array:
        """The probability of each of ``labels_``: (n,)."""
        confidence: Array = self.posterior_.max(1)
        return confidence

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy against true labels ``y`` (n,), or skill-weighted agreement with annotations of any other form.

        The latter is `crowdwise.scoring.skill_weighted_agreement`, with skills estimated from these annotations.
        """
        if isinstance(y, Annotations) or np.ndim(y) != 1 or hasattr(y, "columns"):
            X = encoders.opened_folder(X)
            from crowdwise.scoring import skill_weighted_agreement

            return skill_weighted_agreement(match(X, y).annotations, self.predict(X))
        truth, classes = labels_by_row(X, y), set(self.classes_.tolist())
        unknown = [value for value in dict.fromkeys(truth.tolist()) if value not in classes]
        if unknown:
            raise DataError(
                f"y has labels that this model cannot give: {shorten(unknown, 8)}; "
                f"its classes are {shorten(self.classes_.tolist(), 8)}"
            )
        return float(np.average(self.predict(X) == truth, weights=sample_weight))

    def transition(self, X: Any, annotators: Any = None) -> Array:
        """Estimated T^j(x)[p, q] = P(annotator j says q | true class p, x): (len(X), len(annotators), C, C).

        ``annotators`` are ids; all of them by default. Matrices that do not depend on the instance are a read-only view.
        """
        module, X = self._fitted_transition(), encoders.opened(X)
        codes = self._annotator_codes(annotators)
        X = self._rows(X)
        n, n_classes = count_rows(X), len(self.classes_)
        if isinstance(module, ConstantTransition):
            matrices = module.matrices.cpu().numpy()
            chosen = np.broadcast_to(matrices, (len(self.annotators_), n_classes, n_classes))[codes]
            return np.broadcast_to(chosen, (n, *chosen.shape))
        network = cast(Transition, module)
        features = self._evaluate(module, X, network.features)
        row = torch.arange(n, device=features.device).repeat_interleave(len(codes))
        annotator = torch.from_numpy(np.tile(codes, n)).to(features.device)
        result = np.empty((n * len(codes), n_classes, n_classes), dtype=np.float32)
        for part, logits in stretches(network, features, row, annotator):
            result[part] = torch.softmax(logits, 2).cpu().numpy()
        return self._finite("matrices", result.reshape(n, len(codes), n_classes, n_classes))

    def _finite(self, what: str, values: Array) -> Array:
        """The values (n, ...), if they are finite."""
        if np.isfinite(values.sum()):
            return values
        bad = np.count_nonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
        if bad:
            raise TrainingError(
                f"{what} for {bad:,} of {len(values):,} instances are NaN or infinite: training diverged (its last loss was "
                f"{self.history_[-1]['loss']:.3g}), or X is far from what was trained on; fit again with a lower lr"
            )
        return values

    @property
    def skill_(self) -> Array:
        """How often each annotator is expected to be right on what it labelled (R,); NaN for annotators without labels."""
        self._fitted_classifier()
        return self.arrays_["skill"]

    def _annotator_codes(self, annotators: Any) -> Array:
        if annotators is None:
            return np.arange(len(self.annotators_), dtype=np.int64)
        known = {value: code for code, value in enumerate(self.annotators_.tolist())}
        values = np.asarray(annotators).reshape(-1).tolist()
        unknown = [value for value in values if value not in known]
        if unknown:
            raise DataError(f"unknown annotator {unknown[0]!r}: this model knows {len(known)} annotators (annotators_)")
        return np.array([known[value] for value in values], dtype=np.int64)

    def _evaluate(self, module: nn.Module, X: Any, function: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """``function``, or the module, of the instances: (len(X), ...)."""
        parts = list(self._evaluated(module, X, function))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _evaluated(
        self, module: nn.Module, X: Any, function: Callable[[Tensor], Tensor] | None = None
    ) -> Iterator[Tensor]:
        """The same part by part: large arrays of features are cut, so that copies of them stay small."""
        device, X = resolve_device(self.device), self._rows(encoders.opened_folder(X))
        parts = [X]
        if isinstance(X, np.ndarray) and X.ndim == 2 and X.size > _AT_ONCE and self.intake_.encoder is None:
            rows = max(1, _AT_ONCE // X.shape[1])
            parts = [X[start : start + rows] for start in range(0, len(X), rows)]

        def inputs_of(part: Any) -> Inputs:
            try:
                return make_inputs(self.intake_(part), device)
            except NonFiniteError:
                if part is not X:
                    make_inputs(self.intake_(X), device)  # names the rows of X
                raise

        encoder = self.intake_.encoder
        inputs = inputs_of(X if len(parts) == 1 else X[:: max(1, len(X) // _CHECKED)])
        if len(inputs):
            step = max(1, len(inputs) // _CHECKED)
            self._check_inputs(inputs.take(torch.arange(0, len(inputs), step, device=device)))
        unlike = "" if encoder is None else encoder.departure(X)
        if unlike:
            warnings.warn(f"X is unlike the training data: {unlike}", CrowdwiseWarning, stacklevel=5)
        dtype, prepare = resolve_precision(self.precision, device), self.prepare_.to(device)
        module.to(device)
        scale = prepare.for_many() if device.type == "cpu" else prepare
        for part in parts:
            inputs = inputs if len(parts) == 1 else inputs_of(part)
            at = torch.arange(len(inputs), device=device)
            result = evaluate(module, inputs, at, scale, dtype=dtype, function=function, everything=True)
            yield result if len(inputs) else result.reshape(0, len(self.classes_))

    def _rows(self, X: Any) -> Any:
        """X without what names its rows."""
        encoder = self.intake_.encoder
        columns = () if encoder is not None and encoder.takes == "table" else self.intake_.columns
        return rows_only(X, columns, getattr(self, "id_column_", None))

    def _check_inputs(self, raw: Tensor) -> None:
        """Refuse inputs of another kind than the model was trained on, and warn of values that are far from those."""
        prepare, shape = self.prepare_, tuple(raw.shape[1:])
        if shape != prepare.shape:
            counts = f"X has {shape[0]} features, but {type(self).__name__} is expecting {prepare.shape[0]} features as input: "
            raise DataError(
                f"{counts if len(shape) == len(prepare.shape) == 1 else ''}this model was trained on instances of shape "
                f"{prepare.shape}, X has {shape}"
            )
        if prepare.scale != 1 and raw.is_floating_point() and float(raw.max()) <= 1:
            raise DataError(
                f"this model was trained on 8-bit pictures (0 to 255), X has values from {float(raw.min()):g} to "
                f"{float(raw.max()):g}: multiply it by 255"
            )
        problem = prepare.to(raw.device).departure(raw)
        if problem:
            warnings.warn(f"X is unlike the training data: {problem}", CrowdwiseWarning, stacklevel=4)

    def _fitted_classifier(self) -> nn.Module:
        if not hasattr(self, "classifier_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit(X, annotations) first")
        return self.classifier_

    def _fitted_transition(self) -> nn.Module:
        self._fitted_classifier()
        if self.transition_ is None:
            raise ConfigError(f"{self.name!r} has no transition matrices; BLTM and TAIDTM, for instance, estimate them")
        return self.transition_


def with_mirror_image(classifier: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The logarithm of the mean probabilities of pictures (B, c, h, w) and their mirror images: (B, C)."""

    def log_mean(x: Tensor) -> Tensor:
        both = torch.stack([torch.log_softmax(classifier(each).float(), 1) for each in (x, x.flip(3))])
        return torch.logsumexp(both, 0)

    return log_mean
