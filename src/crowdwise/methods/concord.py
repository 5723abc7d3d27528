"""Concord: networks that learn from the crowd, and from what networks that never saw an instance believe of it.

Expectation maximisation in which a classifier is every instance's class prior (V. C. Raykar et al., "Learning From Crowds", JMLR
2010), changed in four ways. The prior of an instance comes from networks that were not trained on it, so that a network cannot
confirm what it has memorised. Annotators' matrices are a common matrix and deviations from it, learnt in the same steps, so that
annotators with few labels lean on the crowd. Each label is also explained on its own, which keeps the opinions of minorities
(coupled cross-entropy). And predictions must span a volume, in which every class has its part, so that rare ones do not die out.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Generator, Mapping
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
_ALIKE = 0.3
"""Shares of the classes between C^-(1 + this) and C^-(1 - this) count as equal in the volume.

Set by hand, with true labels, on 35 crowds of tables, texts and features, one to four seeds: accuracy on new instances was
76.5 %, balanced 70.9; with all classes alike 71.1 and 70.8. With bounds that do not grow with the number of classes (factors of
e^0.3) it was 76.4 and 71.0, but LabelMe lost .4 points and Music .2; with shares by votes LabelMe lost 1.1.
"""


@METHODS.register("concord")
@dataclass(kw_only=True, eq=False, repr=False)
class Concord(CrowdClassifier):
    """The method to start with: a classifier, labels and matrices that agree with each other.

    The target of an instance is q(p), proportional to f_p(x) times the product of T^j[p, y_j] over its labels, with f from the
    networks that do not train on it. The loss is -sum_p q(p) ln f_p(x), -ln sum_p f_p(x) T^j[p, y_j] for each label, and
    -sum_p q(p) ln T^j[p, y_j] for T^j = softmax(common + deviation_j).

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
        problem = engine.problem
        units, n_classes, networks = problem.train, problem.n_classes, self.n_networks(problem.shape)
        volume = self.volume if self.volume is not None else 0.03 if len(problem.shape) == 1 else 0.0
        annotator_lr = self.annotator_lr if self.annotator_lr is not None else 0.02 if len(problem.shape) == 1 else 0.01
        classifier = self.new_classifier(engine, "classifier")
        matrices = CommonAndOwn(problem.n_annotators, n_classes).to(units.device)
        trained_on = folds(len(units), networks, self.held_out, derive_seed(problem.seed, "folds")).to(units.device)
        amounts = label_amounts(units)
        labels = torch.zeros(problem.n_annotators, device=units.device)
        labels = labels.index_add_(0, units.annotator, units.weighed(torch.ones_like(units.weight))).clamp_min(FEWEST)
        log_prior = torch.zeros(
            len(units), n_classes, device=units.device
        )  # ln f, from networks that left the instance out
        log_share = torch.zeros(n_classes, device=units.device)  # ln of C times the classes' shares, where balanced
        matrices.register_buffer("log_prior", log_prior)  # so that checkpoints hold them
        matrices.register_buffer("log_share", log_share)
        follows = volume > 0 and self.class_weight != "balanced"
        shares = wanted_shares(problem) if follows else torch.full((n_classes,), 1 / n_classes)
        excess = (1 - n_classes * shares).to(units.device)  # what each class has too much of in a volume of equals
        recipe, kept = self.training(problem), trained_on.mean()
        first = max(1, math.ceil(self.start * recipe.epochs))
        steps = max(math.ceil(len(units) / recipe.batch_size), 1)
        every = max(_STEPS // steps, 1) if len(problem.shape) == 1 else 1

        def judge(epoch: int) -> None:
            """What networks say of the instances they left out, every few steps."""
            if epoch == 0:  # a second try starts afresh
                log_prior.zero_()
                log_share.zero_()
            elif epoch >= first and (epoch - first) % every == 0:
                log_prior.copy_(F.log_softmax(honest_log_f(engine, classifier, units, trained_on) + log_share, 1))
                if self.class_weight == "balanced":
                    log_share.copy_((n_classes * log_prior.exp().mean(0)).clamp_min(0.01).log())

        def loss(batch: Batch) -> Tensor:
            total: Tensor
            size, pairs = (
                len(batch.unit) // networks,
                len(batch.label) // networks // (1 if batch.partner is None else 2),
            )
            row, annotator, label = (
                batch.row[:pairs],
                batch.annotator[:pairs],
                batch.label[:pairs],
            )  # the same for every network
            log_t, squares = matrices.columns(annotator, label)  # (P, C), (P,)
            amount = amounts(batch)[:pairs]
            votes = torch.zeros(size, n_classes, device=log_t.device)
            votes.index_add_(0, row, log_t.detach() * amount[:, None])
            target = torch.softmax(log_prior[batch.unit[:size]] + votes, 1)  # (B, C)
            each = (target[row] * log_t).sum(1) - self.decay / 2 * squares / labels[annotator]
            total = -(each * amount).sum() / sum_over_ranks(amount.sum()).clamp_min(FEWEST)

            target = target.repeat(networks, 1)  # (K B, C)
            member = torch.arange(networks, device=row.device).repeat_interleave(size)
            log_f = F.log_softmax(classifier(batch.x).float(), 1)
            learns = trained_on[member, batch.unit]
            wanted = target * learns[:, None]
            if batch.partner is not None:
                unit, share = batch.partner
                wanted = torch.lerp(target.roll(1, 0) * trained_on[member, unit][:, None], wanted, share[:, None])
            total = total - (wanted * (-log_share).exp() * log_f).sum() / (kept * batch.size)
            if batch.partner is None:
                given = F.log_softmax(log_f + log_share, 1)[batch.row] + log_t.repeat(networks, 1)
                weight = batch.weight * learns[batch.row]
                total = total - self.coupled * (torch.logsumexp(given, 1) * weight).sum() / (kept * batch.total)
                if volume:
                    f = log_f.unflatten(0, (networks, -1)).exp()
                    total = total + batch.once(volume * volume_loss(f, excess))
            return total

        def quick_loss(batch: Batch) -> Tensor:
            """The same for several networks on the CPU, with its derivative written out."""
            scale = float(kept) * networks
            evidence = Evidence(
                batch.row,
                batch.annotator,
                batch.label,
                batch.weight,
                amounts(batch),
                self.decay / labels.index_select(0, batch.annotator),
                log_prior.index_select(0, batch.unit),
                log_share,
                trained_on.index_select(1, batch.unit),
                per_instance=1 / (scale * float(batch.size)),
                per_label=self.coupled / (scale * float(batch.total)),
                volume=volume,
                excess=excess,
            )
            logits = cast(Stacked, classifier).member_logits(batch.x).transpose(0, 1)
            total: Tensor = CoupledLoss.apply(logits, matrices.common, matrices.deviation, evidence)  # type: ignore[no-untyped-call]
            return total

        quick = isinstance(classifier, Stacked) and engine.device.type == "cpu" and world_size() == 1
        quick = quick and not recipe.mixup and recipe.augment == "none"
        stage = self.classifier_stage(
            engine,
            classifier,
            quick_loss if quick else loss,
            also={"annotators": Group(matrices, annotator_lr, average=False, optimiser="adam")},
            before_epoch=judge,
        )
        yield dataclasses.replace(stage, repeat=not quick)
        honest = honest_members(engine, classifier, units, trained_on)
        return Fitted(classifier, ConstantTransition(matrices.all()), honest=honest)

    @property
    def annotator_graph_(self) -> AnnotatorGraph:
        """Who errs like whom, by how the annotators' matrices depart from the mean one."""
        matrices = cast(ConstantTransition, self._fitted_transition()).matrices.cpu().numpy()
        return graph_of_matrices(matrices, k=min(max(len(matrices) // 6, 3), 50))


class CommonAndOwn(nn.Module):
    """T^j = softmax(common + deviation_j), by rows: a matrix that all annotators share, and what is special to each."""

    def __init__(self, n_annotators: int, n_classes: int, diagonal: float = 0.9) -> None:
        super().__init__()
        start = math.log(diagonal * max(n_classes - 1, 1) / (1 - diagonal))
        self.common = nn.Parameter(start * torch.eye(n_classes))
        self.deviation = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))

    def columns(self, annotator: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """ln T^j[., y] of annotations, and the sum of squares of deviation_j: (P,), (P,) -> (P, C), (P,)."""
        deviation = self.deviation[annotator]
        log_t = torch.log_softmax(self.common + deviation, 2)
        return log_t.gather(2, label[:, None, None].expand(-1, log_t.shape[1], 1)).squeeze(2), deviation.square().sum(
            (1, 2)
        )

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
