"""BLTM: the instance-dependent Bayes-label transition matrix of a crowd taken as one source.

S. Yang et al., "Estimating Instance-dependent Bayes-label Transition Matrix using a Deep Neural Network", ICML 2022, in the
variant that the TAIDTM paper compares with: warm-up, distillation, a transition network, and a joint correction run. The
other variant is in ``bltm_original``.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crowdwise.constraints import NonNegativeFloat, NonNegativeInt, Probability
from crowdwise.engine import Batch, Engine, Group, Stage, StageResult
from crowdwise.engine.device import side_by_side
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError, CrowdwiseWarning, TrainingError
from crowdwise.methods.bltm_original import RevisedNetwork, fit_original
from crowdwise.methods.ce import annotation_cross_entropy
from crowdwise.methods.core.base import CrowdClassifier, Fitted, build
from crowdwise.methods.core.steps import FLOOR, annotator_matrices, class_posterior, soft_votes
from crowdwise.networks import Classifier, GlobalHead, TransitionNetwork
from crowdwise.networks.transition import corrected_loss, row_loss
from crowdwise.registry import METHODS


@METHODS.register("bltm")
@dataclass(kw_only=True, eq=False, repr=False)
class BLTM(CrowdClassifier):
    """One transition matrix T(x) for the whole crowd; the classifier is trained through it.

    After fitting: ``distilled_`` (indices of training instances, their distilled labels), ``transition(X)``.
    """

    name: ClassVar[str] = "bltm"
    title: ClassVar[str] = "BLTM"
    shares_stages: ClassVar[bool] = True

    variant: Literal["reference", "original"] = "reference"
    """``"reference"``: as the authors of TAIDTM run it. ``"original"``: as its own authors do, with a plain warm-up (without
    class prior), a transition network that starts at the warm-up's weights and has no bottleneck, and a last stage that
    leaves this network alone: it tunes the warm-up classifier, and a slack on T(x), by Adam. Their settings are
    ``warmup_epochs=10``, ``transition_epochs=50``, ``epochs=20``."""
    revision_lr: NonNegativeFloat = 5e-7
    """Of the last stage of variant ``"original"``, in place of ``lr``."""
    warmup_epochs: NonNegativeInt | None = None
    """Epochs of the warm-up; by default 5 (the paper's for large data sets), and as many more as the recipe's steps take."""
    warmup_lr: NonNegativeFloat | None = None
    """Learning rate of the warm-up; by default that of the recipe."""
    transition_epochs: NonNegativeInt | None = None
    """Epochs of the global transition network on the distilled examples; by default 5 (the paper's for large data sets), and
    as many more as make 200 steps where few examples are distilled."""
    transition_lr: NonNegativeFloat | None = None
    """Learning rate of the global transition network; by default that of the recipe."""
    bottleneck: NonNegativeInt | None = None
    """Width of the layer before the transition head; 0: none, as the paper describes it. By default 64, as in the authors'
    code, and none with the recipe for features, whose networks are narrow (worth about 1 point)."""
    rho_max: Probability = 0.1
    """Bound on the rate with which other classes flip into one: p > (1 + rho_max) / 2 makes an example distilled."""
    min_distilled: NonNegativeInt = 6
    """Distilled examples that every class must have, or else the warm-up is tried again."""
    max_retries: NonNegativeInt | None = None
    """Warm-ups that are tried at most; by default 10 with ``recipe="paper"``, else 2."""
    prior_weight: NonNegativeFloat = 1.0
    """Weight of KL(class_prior || mean prediction) in the warm-up; 0 for crowds with very unequal classes."""
    class_prior: Sequence[NonNegativeFloat] | None = None
    """Uniform by default."""
    classifier_start: Literal["sharpened", "calibrated", "warm-up", "random"] | None = None
    """Where the corrected classifier starts: at ``"random"`` weights (the paper's Algorithm 1, and the default with
    ``recipe="paper"``), at the ``"warm-up"`` classifier (the authors' code), or at the warm-up classifier with its logits
    scaled up, ``"sharpened"`` to a mean confidence of 0.9 (the default for pictures), or ``"calibrated"`` to the confidence
    that it deserves by the annotations (the default for features). A warmed-up classifier gives the *noisy* posterior;
    trained on through noise as it is, it pulls T towards the identity and then memorises. Random weights may settle on
    permuted classes where heads had few examples."""

    @property
    def distilled_(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the distilled training instances, and their distilled classes."""
        self._fitted_classifier()
        return self.arrays_["distilled_instance"], self.classes_[self.arrays_["distilled_class"]]

    def settings_for(self, shape: tuple[int, ...]) -> Mapping[str, Any]:
        """Feature vectors: a quarter of the recipe's steps, on batches four times as large, which is as accurate."""
        quarter = {"batch_size": 256, "steps": 375, "epochs": 10, "early_steps": 75, "ema": 0.96}
        return {**quarter, "lr": 2e-3, "early_lr": 2e-3} if len(shape) == 1 else {}

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        if self.variant == "original" and self.networks > 1:
            raise ConfigError(f"variant='original' trains a single network, not networks={self.networks}")
        warm = yield from self.warm_up(engine)
        distilled = self.distil(engine, warm)
        if self.variant == "original":
            tuned, revised = yield from fit_original(self, engine, warm, distilled)
            return Fitted(tuned, revised, distilled_arrays(distilled))
        transition = yield from self.fit_global(engine, distilled)
        classifier = self.start_classifier(engine, warm)
        yield self.correction(engine, "correction", classifier, transition)
        return Fitted(classifier, transition, distilled_arrays(distilled))

    # the stages, shared with TAIDTM

    def warm_up(self, engine: Engine) -> Generator[Stage, StageResult, Classifier]:
        """Train on the noisy labels for a few epochs; again from new weights while some class has too few distilled."""
        for attempt in range(self.warm_ups):
            classifier = self.new_classifier(engine, f"warm-up {attempt}")
            prior = self._class_prior(engine)

            def loss(batch: Batch, classifier: Classifier = classifier, prior: Tensor = prior) -> Tensor:
                if not self.prior_weight or self.variant == "original":
                    return annotation_cross_entropy(classifier, batch)
                logits = classifier(batch.x)
                losses = torch.nn.functional.cross_entropy(logits[batch.row], batch.label, reduction="none")
                penalty = class_prior_penalty(batch.instance_mean(torch.softmax(logits, 1)), prior)
                return batch.mean(losses) + batch.once(self.prior_weight * penalty)

            yield self.warm_up_stage(
                engine,
                classifier,
                loss,
                self.warmup_epochs,
                self.warmup_lr,
                name="warm-up" if attempt == 0 else f"warm-up {attempt + 1}",
                shared=self.decided_by(
                    engine.problem,
                    "warmup_lr",
                    "warmup_epochs",
                    "prior_weight",
                    "class_prior",
                    "rho_max",
                    "min_distilled",
                    "max_retries",
                ),
            )
            if self._missing(engine, distil(self._posterior(engine, classifier), self.rho_max)[1]).numel() == 0:
                return classifier
        return classifier

    @property
    def warm_ups(self) -> int:
        """How many are tried at most."""
        if self.max_retries is None:
            return 10 if self.recipe == "paper" else 2
        return max(self.max_retries, 1)

    def distil(self, engine: Engine, warm: Classifier) -> Units:
        """Training instances whose Bayes label is known (Cheng et al., ICML 2020), with that label as target."""
        posterior = self._posterior(engine, warm)
        at, label = distil(posterior, self.rho_max)
        missing = self._missing(engine, label)
        if missing.numel():
            warnings.warn(
                f"classes {missing.tolist()} have fewer than {self.min_distilled} distilled examples after "
                f"{self.warm_ups} warm-ups; their most confident examples are taken instead",
                CrowdwiseWarning,
                stacklevel=2,
            )
            at, label = top_up(posterior, at, label, missing, self.min_distilled)
        if len(at) == 0:
            raise TrainingError(
                "no example could be distilled: the warm-up classifier is nowhere surer than "
                f"{(1 + self.rho_max) / 2:.2f}; train it longer (warmup_epochs) or lower rho_max"
            )
        return engine.problem.train.subset(at, target=label)

    def fit_global(self, engine: Engine, distilled: Units) -> Generator[Stage, StageResult, TransitionNetwork]:
        """Minimise L1: one head for all annotators, on the distilled examples."""
        transition: TransitionNetwork = build(engine, "transition", lambda: self.new_transition(engine.problem.shape))
        transition.head = build(engine, "global head", lambda: GlobalHead(transition.width, engine.problem.n_classes))
        yield self.global_stage(engine, transition, distilled)
        return transition

    def global_stage(self, engine: Engine, transition: TransitionNetwork, distilled: Units) -> Stage:
        """The stage that minimises L1: row y* of T(x) is to say what annotators said."""

        def loss(batch: Batch) -> Tensor:
            g = transition.features(batch.x)
            logits = transition.row_logits(g, batch.target, batch.row, batch.annotator)
            return batch.mean(row_loss(logits, batch.label))

        recipe, lr = self.training(engine.problem), self.transition_lr
        return Stage(
            "global transition",
            distilled,
            loss,
            {"transition": Group(transition, recipe.early_lr if lr is None else lr)},
            recipe.enough_epochs(self.transition_epochs, usual=5, steps=200, examples=len(distilled)),
            recipe.batch_size,
            recipe.optimiser,
            recipe.momentum,
            shared=self.decided_by(engine.problem, "transition_lr", "transition_epochs", "bottleneck"),
        )

    def start_classifier(self, engine: Engine, warm: Classifier) -> Classifier:
        """The classifier that a correction stage starts from."""
        start = self.classifier_start or self.usual_start(engine.problem.shape)
        if start == "random":
            return self.new_classifier(engine, "classifier")
        classifier = copy.deepcopy(warm)
        if start != "warm-up":
            logits = engine.evaluate(warm, engine.problem.train)
            confidence = 0.9 if start == "sharpened" else deserved_confidence(logits, engine)
            factor = sharpening(logits, confidence)
            classifier.sharpen(factor)
        return classifier

    def usual_start(self, shape: tuple[int, ...]) -> str:
        """``classifier_start`` where it is not given, for instances of this shape."""
        if self.recipe == "paper":
            return "random"
        return "calibrated" if self.for_features(shape) else "sharpened"

    def correction(self, engine: Engine, name: str, classifier: Classifier, transition: TransitionNetwork) -> Stage:
        """Minimise L4: train the classifier through the transition matrices, and revise these with it."""
        recipe = self.training(engine.problem)
        alike = recipe.augment == "none" and not recipe.mixup  # several networks are given the same inputs

        def loss(batch: Batch) -> Tensor:
            copies = batch.networks if alike else 1
            x, pairs = batch.x[: len(batch.x) // copies], len(batch.row) // copies
            f, g = side_by_side(lambda: classifier(batch.x), lambda: transition.features(x))
            t = transition.pair_logits(g, batch.row[:pairs], batch.annotator[:pairs])
            t = t if copies == 1 else t.repeat(copies, 1, 1)
            return batch.mean(corrected_loss(f, t, batch.row, batch.label))

        also = {"transition": Group(transition, recipe.lr, recipe.weight_decay)}
        stage = self.classifier_stage(engine, classifier, loss, name=name, also=also)
        return dataclasses.replace(stage, keeps_classes=True)

    def new_transition(self, shape: tuple[int, ...]) -> TransitionNetwork:
        options = self.network_options(shape)
        usual = 0 if self.for_features(shape) else 64
        bottleneck = usual if self.bottleneck is None else self.bottleneck
        return TransitionNetwork(self._backbone(), shape, bottleneck=bottleneck, options=options)

    def revised_network(self, shape: tuple[int, ...], n_classes: int) -> RevisedNetwork:
        return RevisedNetwork(self._backbone(), shape, n_classes, self.network_options(shape))

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> TransitionNetwork:
        if self.variant == "original":
            return self.revised_network(shape, tensors["head.theta"].shape[1])
        transition = self.new_transition(shape)
        transition.head = GlobalHead(transition.width, tensors["head.theta"].shape[1])
        return transition

    def _posterior(self, engine: Engine, classifier: Classifier) -> Tensor:
        return torch.softmax(engine.evaluate(classifier, engine.problem.train), 1)

    def _missing(self, engine: Engine, label: Tensor) -> Tensor:
        """Classes that annotators use, but with too few distilled examples."""
        n_classes = engine.problem.n_classes
        used = torch.bincount(engine.problem.train.label, minlength=n_classes) > 0
        return torch.nonzero(used & (torch.bincount(label, minlength=n_classes) < self.min_distilled)).squeeze(1)

    def _class_prior(self, engine: Engine) -> Tensor:
        n_classes = engine.problem.n_classes
        prior = torch.full((n_classes,), 1 / n_classes, device=engine.device)
        if self.class_prior is not None:
            prior = torch.tensor(self.class_prior, dtype=torch.float32, device=engine.device)
            if prior.shape != (n_classes,) or bool((prior < 0).any()) or float(prior.sum()) <= 0:
                raise TrainingError(f"class_prior must be {n_classes} non-negative numbers, got {self.class_prior}")
            prior = prior / prior.sum()
        return prior


def class_prior_penalty(mean_prediction: Tensor, prior: Tensor) -> Tensor:
    """KL(prior || mean prediction) of a batch: keeps the warm-up from giving up a class.

    >>> round(class_prior_penalty(torch.tensor([0.5, 0.3, 0.2]), torch.full((3,), 1 / 3)).item(), 6)
    0.07024
    """
    penalty: Tensor = (torch.special.xlogy(prior, prior) - prior * mean_prediction.clamp_min(1e-8).log()).sum()
    return penalty


def sharpening(logits: Tensor, confidence: float) -> float:
    """The factor (at least 1) on logits (n, C) with which the mean of the largest probability reaches ``confidence``.

    >>> round(sharpening(torch.tensor([[1.0, 0.0]]), 0.9), 3)  # ln 9
    2.197
    """
    low, high = 1.0, 64.0
    for _ in range(30):
        middle = (low + high) / 2
        if float(torch.softmax(middle * logits.double(), 1).amax(1).mean()) < confidence:
            low = middle
        else:
            high = middle
    return low


def deserved_confidence(logits: Tensor, engine: Engine) -> float:
    """How often the predicted class is right by the annotations alone: its mean posterior under Dawid and Skene's model."""
    units, n_annotators = engine.problem.train, engine.problem.n_annotators
    posterior = soft_votes(units, logits.shape[1])
    for _ in range(10):
        matrices = annotator_matrices(units, posterior, n_annotators, smoothing=0.1)
        posterior = class_posterior(units, posterior.mean(0).clamp_min(FLOOR).log(), matrices)
    return float(posterior.gather(1, logits.argmax(1, keepdim=True)).mean())


def distil(posterior: Tensor, rho_max: float) -> tuple[Tensor, Tensor]:
    """Instances with p_c > (1 + rho_max) / 2, and that class c: positions (m,) and labels (m,).

    If other classes flip into c with a rate of at most rho_max, the noisy posterior is at most eta_c + (1 - eta_c) rho_max;
    above the threshold eta_c must exceed 1/2, so c is the Bayes label.

    >>> [part.tolist() for part in distil(torch.tensor([[0.56, 0.44], [0.55, 0.45]]), 0.1)]
    [[0], [0]]
    """
    confidence, label = posterior.max(1)
    at = torch.nonzero(confidence > (1 + rho_max) / 2).squeeze(1)
    return at, label[at]


def top_up(posterior: Tensor, at: Tensor, label: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Add, for each of ``classes``, its ``count`` most confident instances among those that were not distilled."""
    free = torch.ones(len(posterior), dtype=torch.bool, device=posterior.device)
    free[at] = False
    for p in classes.tolist():
        candidates = torch.where(free & (posterior.argmax(1) == p), posterior[:, p], -1.0)
        chosen = candidates.topk(min(count, len(candidates))).indices
        chosen = chosen[candidates[chosen] > 0]
        free[chosen] = False
        at, label = torch.cat([at, chosen]), torch.cat([label, torch.full_like(chosen, p)])
    order = torch.argsort(at)
    return at[order], label[order]


def distilled_arrays(distilled: Units) -> dict[str, np.ndarray]:
    return {
        "distilled_instance": distilled.instance.cpu().numpy(),
        "distilled_class": distilled.target.cpu().numpy(),
    }
