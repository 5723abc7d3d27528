"""Concord: expectation maximisation for crowd labels, with out-of-fold predictions as class priors.

Extends the EM of V. C. Raykar et al., "Learning From Crowds" (JMLR 2010), in which a classifier f is the class prior of every
instance, in four ways:

1. Out-of-fold priors: f is evaluated by networks that were not trained on the instance, so that no network can confirm labels
   that it has memorised.
2. Shared confusion matrices: T^j = softmax(common + deviation_j), learned in the same steps as the networks. Annotators with
   few labels stay close to the common matrix.
3. Coupled cross-entropy: every label also has a likelihood term of its own, which preserves the labels of minorities.
4. Volume regularisation: predictions must span a volume to which every class contributes, so that rare classes survive.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise.constraints import Interval, NonNegativeFloat, PositiveInt, Probability
from crowdwise.data.matching import count_rows
from crowdwise.engine import Batch, Engine, Group, Problem, Stage, StageResult
from crowdwise.engine.device import derive_seed
from crowdwise.engine.distributed import sum_over_ranks, world_size
from crowdwise.engine.evaluation import evaluate
from crowdwise.engine.tensors import Units
from crowdwise.methods.core.annotator_graph import AnnotatorGraph, graph_of_matrices
from crowdwise.methods.core.base import CrowdClassifier, Fitted
from crowdwise.methods.core.coupled import FEWEST, LARGEST, REGULAR, CoupledLoss, Evidence
from crowdwise.methods.core.label_model import LabelRows
from crowdwise.methods.core.steps import FLOOR, label_amounts
from crowdwise.networks import ConstantTransition, Stacked
from crowdwise.networks.classifier import Classifier
from crowdwise.registry import METHODS

_STEPS = 16  # between judgements of feature vectors, at least, where epochs are shorter
_RIGHT = 0.9  # probability of a right label in every matrix at the start
_ALIKE = 0.3
"""Shares of the classes between C^-(1 + this) and C^-(1 - this) count as equal in the volume.

Set by hand, with true labels, on 35 crowds of tables, texts and features, one to four seeds: accuracy on new instances was
76.5 %, balanced 70.9; with all classes alike 71.1 and 70.8. With bounds that do not grow with the number of classes (factors of
e^0.3) it was 76.4 and 71.0, but LabelMe lost .4 points and Music .2; with shares by votes LabelMe lost 1.1.
"""


@METHODS.register("concord")
@dataclass(kw_only=True, eq=False, repr=False)
class Concord(CrowdClassifier):
    """Classifier trained on crowd labels by EM; the default of ``crowdwise train``.

    f_p(x) is the probability of class p, g_p(x) the same from the networks that were not trained on x, and
    T^j[p, q] = P(annotator j gives q | true class p); y_j is the label from annotator j.

    The target of an instance is q(p), proportional to g_p(x) times the product of T^j[p, y_j] over its labels. For the first
    ``start`` share of the epochs, g is uniform. The loss is the sum of

    - the annotator loss, -sum_p q(p) ln T^j[p, y_j] for each label, plus ``decay`` times the squared deviations;
    - the classifier loss, -sum_p q(p) ln f_p(x) for each instance;
    - the coupled loss, -ln sum_p f_p(x) T^j[p, y_j] for each label, times ``coupled`` (without mixup);
    - the volume loss, -ln det(F'F) of the predictions F of a batch, times ``volume`` (without mixup).

    >>> import numpy as np, crowdwise
    >>> X = np.random.default_rng(0).normal(size=(90, 5))
    >>> annotations = np.stack([X[:, 0] > 0, X[:, 0] > 0.1, X[:, 1] > 0], axis=1).astype(int)
    >>> model = crowdwise.Concord(steps=200).fit(X, annotations)
    >>> model.score(X, X[:, 0] > 0) > 0.85
    True
    """

    name: ClassVar[str] = "concord"
    title: ClassVar[str] = "Concord"
    outside_paper: ClassVar[bool] = True

    networks: PositiveInt | None = None  # type: ignore[assignment]
    """Networks trained in one pass; None: 6 for feature vectors, 1 for pictures (or what ``backbone`` as a module needs)."""
    validation_fraction: Annotated[float, Interval(0, 1, open="high")] | None = None  # type: ignore[assignment]
    """Share of the labelled instances that no network is trained on; None: 0 with several networks, which judge what they left
    out, else 0.1, and at most so many as make 1,000 instances."""
    held_out: Annotated[float, Interval(0, 1, open="high")] = 1 / 3
    """Share of the instances that each of several networks leaves out, and so can judge without having learnt them."""
    volume: NonNegativeFloat | None = None
    """Weight of the volume that predictions span; None: 0.03 for feature vectors, 0 for pictures, whose mixup does the same."""
    coupled: NonNegativeFloat = 1.0
    """Weight of the likelihood of single labels."""
    decay: NonNegativeFloat = 0.1
    """Pull of annotators' matrices towards the common one."""
    annotator_lr: NonNegativeFloat | None = None
    """Learning rate of the matrices, by Adam; None: 0.02 for feature vectors, 0.01 for pictures, which take more steps."""
    start: Probability = 0.1
    """Share of the epochs after which the classifier has a say in the targets."""
    class_weight: Literal["balanced"] | None = None
    """``"balanced"``: every class counts alike in training and in the volume, however rare it is; predictions then assume equal
    shares. None: classes count by how often they are."""

    def settings_for(self, shape: tuple[int, ...]) -> Mapping[str, Any]:
        return (
            {"lr": 6e-3, "steps": 500, "epochs": 10, "batch_size": 256, "ema": 0.96}
            if len(shape) == 1
            else {"mixup": 1.0, "steps": 1500, "epochs": 60}
        )

    def n_networks(self, shape: tuple[int, ...]) -> int:
        return self.networks if self.networks is not None else 6 if len(shape) == 1 else 1

    def validation_share(self, X: Any) -> float:
        if self.validation_fraction is not None:
            return self.validation_fraction
        if self.keep == "best":
            return 0.1
        shape = X.shape[1:] if hasattr(X, "shape") else np.shape(X[0])
        return 0.0 if self.n_networks(tuple(shape)) > 1 else min(0.1, 1000 / max(count_rows(X), 1))

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        parts = self._parts(engine)
        recipe = self.training(engine.problem)
        vectors = len(engine.problem.shape) == 1
        steps_per_epoch = max(math.ceil(len(parts.units) / recipe.batch_size), 1)
        judgement = FoldJudgement(
            engine,
            parts,
            first=max(1, math.ceil(self.start * recipe.epochs)),
            every=max(_STEPS // steps_per_epoch, 1) if vectors else 1,
            balanced=self.class_weight == "balanced",
        )
        written_out = self._has_written_out_loss(engine, parts)
        stage = self.classifier_stage(
            engine,
            parts.classifier,
            WrittenOutLoss(parts) if written_out else SummedLoss(parts),
            also={"annotators": Group(parts.matrices, self._annotator_lr(vectors), average=False, optimiser="adam")},
            before_epoch=judgement.update,
        )
        yield dataclasses.replace(stage, repeat=not written_out)
        honest = honest_members(engine, parts.classifier, parts.units, parts.trained_on)
        return Fitted(parts.classifier, ConstantTransition(parts.matrices.all()), honest=honest)

    def _parts(self, engine: Engine) -> Parts:
        """Create the networks, the matrices, and the tables that the losses read."""
        problem = engine.problem
        units = problem.train
        n_classes = problem.n_classes
        networks = self.n_networks(problem.shape)
        volume = self._volume(vectors=len(problem.shape) == 1)
        classifier = self.new_classifier(engine, "classifier")
        matrices = CommonAndOwn(problem.n_annotators, n_classes).to(units.device)
        trained_on = folds(len(units), networks, self.held_out, derive_seed(problem.seed, "folds")).to(units.device)

        labels = torch.zeros(problem.n_annotators, device=units.device)
        labels = labels.index_add_(0, units.annotator, units.weighed(torch.ones_like(units.weight)))

        log_prior = torch.zeros(len(units), n_classes, device=units.device)
        log_share = torch.zeros(n_classes, device=units.device)
        matrices.register_buffer("log_prior", log_prior)  # so that checkpoints hold them
        matrices.register_buffer("log_share", log_share)

        shares = torch.full((n_classes,), 1 / n_classes)
        if volume > 0 and self.class_weight != "balanced":
            shares = wanted_shares(problem)
        return Parts(
            classifier=classifier,
            matrices=matrices,
            units=units,
            networks=networks,
            trained_on=trained_on,
            kept=trained_on.mean(),
            amounts=label_amounts(units),
            labels=labels.clamp_min(FEWEST),
            log_prior=log_prior,
            log_share=log_share,
            excess=(1 - n_classes * shares).to(units.device),
            volume=volume,
            coupled=self.coupled,
            decay=self.decay,
        )

    def _volume(self, *, vectors: bool) -> float:
        if self.volume is not None:
            return self.volume
        return 0.03 if vectors else 0.0

    def _annotator_lr(self, vectors: bool) -> float:
        if self.annotator_lr is not None:
            return self.annotator_lr
        return 0.02 if vectors else 0.01

    def _has_written_out_loss(self, engine: Engine, parts: Parts) -> bool:
        """Return whether `WrittenOutLoss` serves: several networks in one process on the CPU, on inputs as they are."""
        recipe = self.training(engine.problem)
        one_process = engine.device.type == "cpu" and world_size() == 1
        plain_inputs = not recipe.mixup and recipe.augment == "none"
        return isinstance(parts.classifier, Stacked) and one_process and plain_inputs

    @property
    def annotator_graph_(self) -> AnnotatorGraph:
        """Who errs like whom, by how the annotators' matrices depart from the mean one."""
        matrices = cast(ConstantTransition, self._fitted_transition()).matrices.cpu().numpy()
        return graph_of_matrices(matrices, k=min(max(len(matrices) // 6, 3), 50))


@dataclass(frozen=True, eq=False)
class Parts:
    """The networks and matrices that Concord trains, and the tables that its losses read."""

    classifier: Classifier
    matrices: CommonAndOwn
    units: Units
    networks: int
    """K networks, trained in one pass."""
    trained_on: Tensor
    """(K, N): 1 where a network is trained on an instance, 0 where it is left out."""
    kept: Tensor
    """(): the mean of ``trained_on``."""
    amounts: Callable[[Batch], Tensor]
    """From a batch to how much of a label each of its annotations is, (P,)."""
    labels: Tensor
    """(R,): labels of each annotator."""
    log_prior: Tensor
    """(N, C): ln f(x) from the networks that leave the instance out; 0 before the first judgement."""
    log_share: Tensor
    """(C,): ln of C times the classes' shares if classes are balanced, else 0."""
    excess: Tensor
    """(C,): what each class has too much of in a volume of equal classes."""
    volume: float
    coupled: float
    decay: float


class FoldJudgement:
    """Predictions for the instances that networks leave out: the class priors of the next epochs."""

    def __init__(self, engine: Engine, parts: Parts, *, first: int, every: int, balanced: bool) -> None:
        self.engine = engine
        self.parts = parts
        self.first = first
        self.every = every
        self.balanced = balanced

    def update(self, epoch: int) -> None:
        """Renew the priors before an epoch, if it is one of those that do."""
        if epoch == 0:
            # A second try of the stage starts from equal priors, too.
            self.parts.log_prior.zero_()
            self.parts.log_share.zero_()
        elif epoch >= self.first and (epoch - self.first) % self.every == 0:
            self._renew()

    def _renew(self) -> None:
        parts = self.parts
        log_f = honest_log_f(self.engine, parts.classifier, parts.units, parts.trained_on)
        parts.log_prior.copy_(F.log_softmax(log_f + parts.log_share, 1))
        if self.balanced:
            n_classes = parts.log_prior.shape[1]
            parts.log_share.copy_((n_classes * parts.log_prior.exp().mean(0)).clamp_min(0.01).log())


class SummedLoss:
    """The loss as the class's docstring has it: matrices, classifier, single labels, volume, one after the other."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def __call__(self, batch: Batch) -> Tensor:
        parts = self.parts
        size = len(batch.unit) // parts.networks
        target, log_t, total = self._targets(batch, size)
        log_f = F.log_softmax(parts.classifier(batch.x).float(), 1)  # (K B, C)
        member = torch.arange(parts.networks, device=batch.row.device).repeat_interleave(size)
        learns = parts.trained_on[member, batch.unit]  # (K B,)
        total = total - self._of_targets(batch, target, log_f, member, learns)
        if batch.partner is not None:  # mixed instances have no labels of their own, and span no volume
            return total
        total = total - self._of_single_labels(batch, log_f, log_t, learns)
        if parts.volume:
            f = log_f.unflatten(0, (parts.networks, -1)).exp()
            total = total + batch.once(parts.volume * volume_loss(f, parts.excess))
        return total

    def _targets(self, batch: Batch, size: int) -> tuple[Tensor, Tensor, Tensor]:
        """Targets q (B, C) of the instances, ln T^j[., y] of the labels (P, C), and the loss of the matrices."""
        parts = self.parts
        # The batch is there once for every network, and with mixup once for every partner: the labels are the same.
        pairs = len(batch.label) // parts.networks // (1 if batch.partner is None else 2)
        row = batch.row[:pairs]
        annotator = batch.annotator[:pairs]
        log_t, squares = parts.matrices.columns(annotator, batch.label[:pairs])  # (P, C), (P,)
        amount = parts.amounts(batch)[:pairs]
        votes = torch.zeros(size, log_t.shape[1], device=log_t.device)
        votes.index_add_(0, row, log_t.detach() * amount[:, None])
        target = torch.softmax(parts.log_prior[batch.unit[:size]] + votes, 1)
        each = (target[row] * log_t).sum(1) - parts.decay / 2 * squares / parts.labels[annotator]
        loss = -(each * amount).sum() / sum_over_ranks(amount.sum()).clamp_min(FEWEST)
        return target, log_t, loss

    def _of_targets(self, batch: Batch, target: Tensor, log_f: Tensor, member: Tensor, learns: Tensor) -> Tensor:
        """Mean of sum_p q(p) ln f_p(x) over the instances that each network is trained on."""
        parts = self.parts
        target = target.repeat(parts.networks, 1)  # (K B, C)
        wanted = target * learns[:, None]
        if batch.partner is not None:
            unit, share = batch.partner
            partners = target.roll(1, 0) * parts.trained_on[member, unit][:, None]
            wanted = torch.lerp(partners, wanted, share[:, None])
        return (wanted * (-parts.log_share).exp() * log_f).sum() / (parts.kept * batch.size)

    def _of_single_labels(self, batch: Batch, log_f: Tensor, log_t: Tensor, learns: Tensor) -> Tensor:
        """``coupled`` times the mean of ln sum_p f_p(x) T^j[p, y_j] over the labels."""
        parts = self.parts
        given = F.log_softmax(log_f + parts.log_share, 1)[batch.row] + log_t.repeat(parts.networks, 1)
        weight = batch.weight * learns[batch.row]
        return parts.coupled * (torch.logsumexp(given, 1) * weight).sum() / (parts.kept * batch.total)


class WrittenOutLoss:
    """`SummedLoss` of several networks on the CPU, with its derivative written out."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def __call__(self, batch: Batch) -> Tensor:
        parts = self.parts
        scale = float(parts.kept) * parts.networks
        evidence = Evidence(
            batch.row,
            batch.annotator,
            batch.label,
            batch.weight,
            parts.amounts(batch),
            parts.decay / parts.labels.index_select(0, batch.annotator),
            parts.log_prior.index_select(0, batch.unit),
            parts.log_share,
            parts.trained_on.index_select(1, batch.unit),
            per_instance=1 / (scale * float(batch.size)),
            per_label=parts.coupled / (scale * float(batch.total)),
            volume=parts.volume,
            excess=parts.excess,
        )
        logits = cast(Stacked, parts.classifier).member_logits(batch.x).transpose(0, 1)
        loss: Tensor = CoupledLoss.apply(logits, parts.matrices.common, parts.matrices.deviation, evidence)  # type: ignore[no-untyped-call]
        return loss


class CommonAndOwn(nn.Module):
    """T^j = softmax(common + deviation_j), by rows: a matrix that all annotators share, and what is special to each."""

    def __init__(self, n_annotators: int, n_classes: int) -> None:
        super().__init__()
        start = math.log(_RIGHT * max(n_classes - 1, 1) / (1 - _RIGHT))
        self.common = nn.Parameter(start * torch.eye(n_classes))
        self.deviation = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))

    def columns(self, annotator: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """ln T^j[., y] of annotations, and the sum of squares of deviation_j: (P,), (P,) -> (P, C), (P,)."""
        deviation = self.deviation[annotator]
        log_t = torch.log_softmax(self.common + deviation, 2)
        columns = log_t.gather(2, label[:, None, None].expand(-1, log_t.shape[1], 1)).squeeze(2)
        return columns, deviation.square().sum((1, 2))

    def all(self) -> Tensor:
        """(R, C, C)."""
        return torch.softmax(self.common + self.deviation, 2)


def folds(n: int, networks: int, held_out: float, seed: int) -> Tensor:
    """1 where a network is trained on an instance, 0 where it is not: (K, n). Every instance is left out equally often.

    >>> folds(6, 3, 1 / 3, seed=0).sum(0)
    tensor([2., 2., 2., 2., 2., 2.])
    """
    trained_on = torch.ones(networks, n)
    if networks > 1:
        place = torch.from_numpy(np.random.default_rng(seed).permutation(n))
        for offset in range(round(networks * held_out)):
            trained_on[(place + offset) % networks, torch.arange(n)] = 0.0
    return trained_on


def honest_log_f(engine: Engine, classifier: Classifier, units: Units, trained_on: Tensor) -> Tensor:
    """ln f(x) by the networks that were not trained on the instance, or by all where there are none: (N, C)."""
    if not isinstance(classifier, Stacked):
        return F.log_softmax(engine.evaluate(classifier, units).float(), 1)
    if units.device.type == "cpu" and bool((trained_on.mean(0) < 1).all()):
        return _left_out_log_f(engine, classifier, units, trained_on)
    each = torch.softmax(engine.evaluate(classifier, units, classifier.member_logits), 2)  # (N, K, C)
    judges = 1 - trained_on.T
    judges = torch.where(judges.sum(1, keepdim=True) > 0, judges, 1.0)[:, :, None]
    return ((each * judges).sum(1) / judges.sum(1)).clamp_min(FLOOR).log()


def _left_out_log_f(engine: Engine, classifier: Stacked, units: Units, trained_on: Tensor) -> Tensor:
    """`honest_log_f`, with every network evaluated on the instances that it left out alone."""
    total = torch.zeros(len(units), classifier.linear.out_features)
    inputs, prepare = engine.prepared(units)
    with engine.averaged():
        for number, learnt in enumerate(trained_on):
            at = torch.nonzero(learnt == 0).squeeze(1)
            member = functools.partial(classifier.one_logits, number)
            logits = evaluate(classifier, inputs, units.instance[at], prepare, dtype=engine.dtype, function=member)
            total.index_add_(0, at, torch.softmax(logits, 1))
    return (total / (1 - trained_on).sum(0)[:, None]).clamp_min(FLOOR).log()


def honest_members(engine: Engine, classifier: Classifier, units: Units, trained_on: Tensor) -> Tensor | None:
    """ln f(x) of each of the networks that were not trained on the instance: (N, K', C); None where there are none."""
    left_out = trained_on.T == 0
    if not isinstance(classifier, Stacked) or not left_out.any():
        return None
    each = torch.log_softmax(engine.evaluate(classifier, units, classifier.member_logits), 2)  # (N, K, C)
    members: Tensor = each[left_out].unflatten(0, (len(each), -1))
    return members


def wanted_shares(problem: Problem) -> Tensor:
    """The classes' shares (C,) that predictions are drawn to: those that labels alone tell, a step closer to equal ones.

    Where shares hardly differ, it may be the annotators who confuse classes, the more so the more classes there are, and equal
    shares are the better guess.
    """
    told = np.log(problem.n_classes * np.maximum(LabelRows.of(problem.annotations).shares(), FLOOR))
    near = np.sign(told) * np.maximum(np.abs(told) - _ALIKE * math.log(problem.n_classes), 0)
    return torch.from_numpy(softmax(near)).float()


def volume_loss(f: Tensor, excess: Tensor) -> Tensor:
    """Mean over networks of -ln det(F'F) + sum_c excess_c ln sum_i f_ic of their predictions (K, B, C).

    The determinant of certain predictions is the product of the classes' numbers, largest where they are equal. With an
    ``excess`` (C,) of 1 - C s_c it is largest at shares s. 0 without gradient where -ln det is above 100.
    """
    f = f.double()
    gram = sum_over_ranks(f.transpose(1, 2) @ f) + REGULAR * torch.eye(f.shape[2], dtype=f.dtype, device=f.device)
    value = -torch.linalg.slogdet(gram).logabsdet
    numbers = (sum_over_ranks(f.sum(1)) + REGULAR).log() @ excess.double()
    return torch.where(value <= LARGEST, value + numbers, 0.0).mean().float()
