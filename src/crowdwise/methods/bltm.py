"""BLTM: the instance-dependent Bayes-label transition matrix of a crowd taken as one source.

S. Yang et al., "Estimating Instance-dependent Bayes-label Transition Matrix using a Deep Neural Network", ICML 2022, in the
variant that the TAIDTM paper compares with: warm-up, distillation, a transition network, and a joint correction run. The
other variant is in ``bltm_original``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from crowdwise.constraints import NonNegativeFloat, NonNegativeInt, Probability
from crowdwise.engine import Batch, Engine, Group, Problem, Stage, StageResult
from crowdwise.engine.checkpoint import clone_state
from crowdwise.engine.device import side_by_side
from crowdwise.engine.tensors import Units
from crowdwise.errors import CrowdwiseWarning, TrainingError
from crowdwise.methods.bltm_original import RevisedNetwork, fit_original
from crowdwise.methods.ce import annotation_cross_entropy
from crowdwise.methods.core.base import CrowdClassifier, Fitted, build
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
    lr: NonNegativeFloat | None = None
    """Learning rate of the last stage; by default 0.05 for images, where 0.01 memorises, and 0.01 for feature vectors."""
    warmup_epochs: NonNegativeInt | None = None
    """Epochs of the warm-up; by default 5 (the paper's for large data sets), and as many more as make 100 steps."""
    warmup_lr: NonNegativeFloat = 0.01
    """Learning rate of the warm-up."""
    transition_epochs: NonNegativeInt | None = None
    """Epochs of the global transition network on the distilled examples; by default 5 (the paper's for large data sets), and
    as many more as make 200 steps where few examples are distilled."""
    transition_lr: NonNegativeFloat = 0.01
    """Learning rate of the global transition network."""
    bottleneck: NonNegativeInt = 64
    """Width of the layer before the transition head; 0: none, as the paper describes it."""
    rho_max: Probability = 0.1
    """Bound on the rate with which other classes flip into one: p > (1 + rho_max) / 2 makes an example distilled."""
    min_distilled: NonNegativeInt = 6
    """Distilled examples that every class must have, or else the warm-up is tried again."""
    max_retries: NonNegativeInt = 10
    """Warm-ups that are tried at most."""
    prior_weight: NonNegativeFloat = 1.0
    """Weight of KL(class_prior || mean prediction) in the warm-up; 0 for crowds with very unequal classes."""
    class_prior: Sequence[NonNegativeFloat] | None = None
    """Uniform by default."""
    classifier_start: Literal["sharpened", "warm-up", "random"] = "sharpened"
    """Where the corrected classifier starts: at the ``"warm-up"`` classifier (the authors' code), at ``"random"`` weights (the
    paper's Algorithm 1), or ``"sharpened"``: at the warm-up classifier with its logits scaled up to a mean confidence of 0.9.
    A warmed-up classifier gives the *noisy* posterior; trained on through noise as it is, it pulls T towards the identity
    and then memorises. Random weights may settle on permuted classes where heads had few examples."""

    @property
    def distilled_(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the distilled training instances, and their distilled classes."""
        self._fitted_classifier()
        return self.arrays_["distilled_instance"], self.classes_[self.arrays_["distilled_class"]]

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        warm = yield from self.warm_up(engine)
        distilled = self.distil(engine, warm)
        if self.variant == "original":
            tuned, revised = yield from fit_original(self, engine, warm, distilled)
            return Fitted(tuned, revised, distilled_arrays(distilled))
        transition = yield from self.fit_global(engine, distilled)
        classifier = self.start_classifier(engine, warm)
        yield from self.correct(engine, "correction", classifier, transition)
        return Fitted(classifier, transition, distilled_arrays(distilled))

    # the stages, shared with TAIDTM

    def warm_up(self, engine: Engine) -> Generator[Stage, StageResult, Classifier]:
        """Train on the noisy labels for a few epochs; again from new weights while some class has too few distilled."""
        for attempt in range(max(self.max_retries, 1)):
            classifier = self.new_classifier(engine, f"warm-up {attempt}")
            prior = self._class_prior(engine)

            def loss(batch: Batch, classifier: Classifier = classifier, prior: Tensor = prior) -> Tensor:
                if not self.prior_weight or self.variant == "original":
                    return annotation_cross_entropy(classifier, batch)
                logits = classifier(batch.x)
                losses = torch.nn.functional.cross_entropy(logits[batch.row], batch.label, reduction="none")
                penalty = class_prior_penalty(batch.instance_mean(torch.softmax(logits, 1)), prior)
                return batch.mean(losses) + batch.once(self.prior_weight * penalty)

            yield Stage(
                "warm-up" if attempt == 0 else f"warm-up {attempt + 1}",
                engine.problem.train,
                loss,
                {"classifier": Group(classifier, self.warmup_lr)},
                self.enough_epochs(self.warmup_epochs, usual=5, steps=100, examples=len(engine.problem.train)),
                self.batch_size,
                self.optimiser,
                self.momentum,
                score=classifier,
                keep="best",
                shared=self.decided_by(
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

    def distil(self, engine: Engine, warm: Classifier) -> Units:
        """Training instances whose Bayes label is known (Cheng et al., ICML 2020), with that label as target."""
        posterior = self._posterior(engine, warm)
        at, label = distil(posterior, self.rho_max)
        missing = self._missing(engine, label)
        if missing.numel():
            warnings.warn(
                f"classes {missing.tolist()} have fewer than {self.min_distilled} distilled examples after "
                f"{self.max_retries} warm-ups; their most confident examples are taken instead",
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

        return Stage(
            "global transition",
            distilled,
            loss,
            {"transition": Group(transition, self.transition_lr)},
            self.enough_epochs(self.transition_epochs, usual=5, steps=200, examples=len(distilled)),
            self.batch_size,
            momentum=self.momentum,
            shared=self.decided_by("transition_lr", "transition_epochs", "bottleneck"),
        )

    def start_classifier(self, engine: Engine, warm: Classifier) -> Classifier:
        """The classifier that a correction stage starts from."""
        if self.classifier_start == "random":
            return self.new_classifier(engine, "classifier")
        classifier = copy.deepcopy(warm)
        if self.classifier_start == "sharpened":
            factor = sharpening(engine.evaluate(warm, engine.problem.train), confidence=0.9)
            with torch.no_grad():
                classifier.linear.weight.mul_(factor)
                classifier.linear.bias.mul_(factor)
        return classifier

    def correct(
        self, engine: Engine, name: str, classifier: Classifier, transition: TransitionNetwork
    ) -> Generator[Stage, StageResult, None]:
        """The correction, and once more at a fifth of the learning rate if it lost classes; the better of the two counts.

        The first steps at a high rate may leap to permuted classes: matrices permuted the other way explain the annotations
        just as well, so the loss falls on. Agreement with annotations of held-out instances tells: it may not end lower
        than it began, but for chance (three standard errors).
        """
        modules = (classifier, transition)
        before = engine.agreement(classifier, engine.problem.validation)
        start = [clone_state(module) for module in modules]
        result = yield self.correction(engine, name, classifier, transition)
        if before is None or result.agreement is None:
            return
        chance = (before * (1 - before) / len(engine.problem.validation)) ** 0.5
        if result.agreement >= before - 3 * chance:
            return
        warnings.warn(
            f"the classifier lost classes in stage {name!r}: agreement with held-out annotations fell from "
            f"{before:.3f} to {result.agreement:.3f}. The stage is run again with a fifth of lr={self.rate(engine.problem):g}",
            CrowdwiseWarning,
            stacklevel=2,
        )
        first = [clone_state(module) for module in modules]
        for module, state in zip(modules, start, strict=True):
            module.load_state_dict(state)
        again = self.correction(engine, f"{name}, slower", classifier, transition)
        for group in again.groups.values():
            group.lr /= 5
        second = yield again
        if second.agreement is not None and second.agreement < result.agreement:
            for module, state in zip(modules, first, strict=True):
                module.load_state_dict(state)

    def correction(self, engine: Engine, name: str, classifier: Classifier, transition: TransitionNetwork) -> Stage:
        """Minimise L4: train the classifier through the transition matrices, and revise these with it."""

        def loss(batch: Batch) -> Tensor:
            f, g = side_by_side(lambda: classifier(batch.x), lambda: transition.features(batch.x))
            t = transition.pair_logits(g, batch.row, batch.annotator)
            return batch.mean(corrected_loss(f, t, batch.row, batch.label))

        also = {"transition": Group(transition, self.rate(engine.problem), self.weight_decay)}
        return self.classifier_stage(engine, classifier, loss, name=name, also=also)

    def rate(self, problem: Problem) -> float:
        pictures = len(problem.shape) > 1 and self.variant == "reference"
        return 0.05 if self.lr is None and pictures else super().rate(problem)

    def new_transition(self, shape: tuple[int, ...]) -> TransitionNetwork:
        return TransitionNetwork(self._backbone(), shape, bottleneck=self.bottleneck, options=self.backbone_options)

    def revised_network(self, shape: tuple[int, ...], n_classes: int) -> RevisedNetwork:
        return RevisedNetwork(self._backbone(), shape, n_classes, self.backbone_options)

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
