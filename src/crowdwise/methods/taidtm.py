"""TAIDTM: transferring annotator- and instance-dependent transition matrices.

S. Li, X. Xia, J. Deng, S. Ge, T. Liu, "Transferring Annotator- and Instance-dependent Transition Matrix for Learning from
Crowds", IEEE TPAMI 2024 (arXiv 2306.03116). ``stages`` reads like the paper's Algorithm 1.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise import graph
from crowdwise.engine import Batch, Engine, Group, Problem, Stage, StageResult
from crowdwise.engine.device import derive_seed, seeded
from crowdwise.engine.distributed import sum_over_ranks
from crowdwise.engine.stage import step_schedule
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError
from crowdwise.graph.mappings import MAPPINGS, MappedHeads
from crowdwise.methods.base import Fitted, build
from crowdwise.methods.bltm import BLTM, distilled_arrays
from crowdwise.methods.conal import CoNAL
from crowdwise.methods.steps import annotator_matrices
from crowdwise.networks import Classifier, GlobalHead, IndividualHeads, TransitionNetwork
from crowdwise.networks.transition import row_loss
from crowdwise.registry import METHODS


@dataclass(frozen=True)
class AnnotatorGraph:
    """Who errs like whom. Rows are centres: ``before[i, j] > 0`` says that j is a neighbour of i."""

    before: sp.csr_array
    """k-nearest-neighbour graph (R, R), entries 1, no self loops."""
    after: sp.csr_array
    """Purified graph: weighted, diagonal 1."""
    positions: np.ndarray
    """Principal components (R, 2) of what sets each annotator's head apart, for drawing."""
    skipped: np.ndarray
    """Annotators with too few distilled examples for a head of their own."""
    unrelated: float
    """Share of pairs of annotators whose similarity is 0."""
    arbitrary: float
    """Share of the edges of ``before`` that only the tie rule chose."""


@METHODS.register("taidtm")
@dataclass(kw_only=True, eq=False, repr=False)
class TAIDTM(BLTM):
    """Annotator- and instance-dependent transition matrices T^j(x), learned by two transfers of knowledge.

    From the crowd to its members: individual heads start at a global transition network. Between similar annotators: a
    graph convolution over the purified nearest-neighbour graph of heads maps them to better ones. The classifier is then
    trained through the matrices of the annotated pairs, and these are revised with it.

    After fitting: ``transition(X, annotators)``, ``heads_`` (R, d+1, C, C), ``annotator_graph_``, ``distilled_``.
    """

    name: ClassVar[str] = "taidtm"

    transfer: str = "graph"
    """``"graph"``, or ``"individual"``: without the second transfer (TAIDTM-FT)."""
    protocol: str = "paper"
    """``"paper"``: only the last layer is fitted for each annotator, and compared right after; ``"reference"``: the order of
    the authors' code, with correction runs of BLTM and TAIDTM-FT before the graph, at about three times the cost."""
    individual_epochs: int = 2
    individual_lr: float = 0.01
    min_examples: int = 30
    """Annotators with fewer distilled examples keep the global head, and become neighbours of each other."""
    similarity: str = "delta-cosine"
    """How annotators are compared: by their heads, ``"delta-cosine"`` (differences from the global head), ``"cosine"`` or
    ``"l1-normalised"``; by their labels, ``"jaccard"`` (of sets of instance and label), ``"confusion-counts"`` (confusion
    matrices on the distilled examples), ``"confusion"`` (those that CoNAL learns, for as many epochs as the classifier) or
    ``"cbcc"`` (communities)."""
    communities: int = 3
    """Communities that ``similarity="cbcc"`` looks for."""
    k: int = 50
    """Neighbours of each annotator."""
    purify: bool = True
    """Clean the graph by a low-rank approximation (left as it is for k = 1, where that is not unique)."""
    svd_rank: int = 5
    norm: str = "ref"
    """Normalisation of the graph: ``"ref"`` (by how often annotators are chosen), ``"sym_row"`` or ``"row"``."""
    mapping: str = "gcn"
    """From the graph to heads: ``"gcn"`` (graph convolution), ``"gat"`` (graph attention) or ``"deepwalk"`` (random walks)."""
    mapping_options: Mapping[str, Any] | None = None
    """Further arguments of the mapping: ``attention_heads`` and ``threshold`` of ``"gat"``; ``dimension``, ``walks``,
    ``length`` and ``window`` of ``"deepwalk"``."""
    gcn_layers: int = 2
    """Layers of the graph convolution; the other mappings have two."""
    gcn_hidden: int = 64
    """Hidden width of any mapping."""
    gcn_epochs: int = 10
    """Epochs of any mapping on the distilled examples."""
    gcn_lr: float = 0.01
    residual: bool = False
    """Add the global head to every mapped head."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        self._check()
        reference = self.protocol == "reference"
        warm = yield from self.warm_up(engine)
        distilled = self.distil(engine, warm)

        # training the global noise-transition network
        transition = yield from self.fit_global(engine, distilled)
        if reference:
            correction = self.correction(engine, "correction (BLTM)", self.start_classifier(engine, warm), transition)
            correction.keep = "best"
            yield correction
        global_head = transition.head
        assert isinstance(global_head, GlobalHead)

        # learning individual noise-transition networks
        individual = copy.deepcopy(transition)
        skipped = yield from self.fit_individuals(engine, individual, distilled)
        if reference or self.transfer == "individual":
            classifier = self.start_classifier(engine, warm)
            yield from self.correct(engine, "correction (individual)", classifier, individual)
        if self.transfer == "individual":
            return Fitted(classifier, individual, distilled_arrays(distilled) | {"skipped": skipped})

        # knowledge transfer between neighbouring individual networks
        matrices = yield from self.confusions(engine, distilled)
        annotators = self.connect(engine, individual, global_head, matrices, skipped)
        yield from self.fit_mapping(engine, transition, distilled, annotators)

        # classifier training with loss correction
        classifier = self.start_classifier(engine, warm)
        yield from self.correct(engine, "correction", classifier, transition)
        return Fitted(classifier, transition, distilled_arrays(distilled) | graph_arrays(annotators))

    def start_classifier(self, engine: Engine, warm: Classifier) -> Classifier:
        return copy.deepcopy(warm) if self.protocol == "reference" else super().start_classifier(engine, warm)

    def fit_individuals(
        self, engine: Engine, transition: TransitionNetwork, distilled: Units
    ) -> Generator[Stage, StageResult, np.ndarray]:
        """Minimise L2 for every annotator with enough examples, all heads at once; returns the annotators left out."""
        global_head = transition.head
        assert isinstance(global_head, GlobalHead)
        n_annotators = engine.problem.n_annotators
        heads = transition.head = IndividualHeads.from_global(global_head, n_annotators)
        counts = torch.bincount(distilled.annotator, minlength=n_annotators)
        enough = counts >= max(self.min_examples, 2)
        skipped = torch.nonzero(~enough).squeeze(1).cpu().numpy()
        if bool(enough.any()) and self.individual_epochs:
            reference = self.protocol == "reference"
            if not reference:
                distilled = distilled.with_inputs(engine.evaluate(transition, distilled, transition.features))
            examples = distilled.by_annotation()
            examples = examples.subset(torch.nonzero(enough[examples.annotator]).squeeze(1))
            # the reference takes one step for each annotator, through all layers; the paper fits the last layer
            groups = {"heads": Group(heads, self.individual_lr, rows=True)}
            if reference:
                layers = nn.ModuleList([transition.backbone, transition.bottleneck])
                groups["layers"] = Group(layers, self.individual_lr)

            def loss(batch: Batch) -> Tensor:
                g = transition.features(batch.x) if reference else batch.x
                logits = transition.row_logits(g, batch.target, batch.row, batch.annotator)
                return annotator_mean(row_loss(logits, batch.label), batch.annotator, n_annotators)

            def plan(generator: torch.Generator) -> Sequence[Tensor]:
                if reference:
                    return whole_annotators(examples.annotator)
                return annotator_batches(examples.annotator, self.batch_size, generator)

            yield Stage(
                "individual heads",
                examples,
                loss,
                groups,
                self.individual_epochs,
                momentum=self.momentum,
                planner=plan,
                shared=self.decided_by("individual_epochs", "individual_lr", "min_examples", "protocol"),
            )
        return skipped

    def confusions(
        self, engine: Engine, distilled: Units
    ) -> Generator[Stage, StageResult, npt.NDArray[np.float64] | None]:
        """Confusion matrices (R, C, C) for the similarities that compare them."""
        if self.similarity == "confusion-counts":
            return confusion_matrices(distilled, engine.problem)
        if self.similarity != "confusion":
            return None
        common = ("backbone", "backbone_options", "epochs", "batch_size", "milestones", "gamma")
        (stage, noise) = CoNAL(**{name: getattr(self, name) for name in common}).joint_training(engine)
        yield dataclasses.replace(stage, name="class confusions")
        return noise.individual.detach().cpu().double().numpy()

    def connect(
        self,
        engine: Engine,
        individual: TransitionNetwork,
        global_head: GlobalHead,
        matrices: npt.NDArray[np.float64] | None,
        skipped: np.ndarray,
    ) -> AnnotatorGraph:
        """The similarity graph of annotators (Eq. 4 and 5), before and after purifying (Eq. 6)."""
        problem = engine.problem
        heads = flat(cast(IndividualHeads, individual.head).theta)
        origin = flat(global_head.theta[None])[0]
        seed = derive_seed(problem.seed, "similarity")
        evidence = graph.Evidence(heads, origin, problem.annotations, matrices, self.communities, seed)
        before, unrelated, arbitrary = graph.nearest(evidence, self.k, self.similarity)
        if self.purify:
            after = graph.purify(before, self.svd_rank, skipped=skipped.tolist(), k=self.k)
        else:
            after = graph.add_self_loops(before, skipped.tolist())
        return AnnotatorGraph(before, after, graph.pca(heads - origin), skipped, unrelated, arbitrary)

    def fit_mapping(
        self, engine: Engine, transition: TransitionNetwork, distilled: Units, annotators: AnnotatorGraph
    ) -> Generator[Stage, StageResult, None]:
        """Minimise L3: learn the mapping from the annotator graph to heads, over frozen and cached features."""
        cached = distilled.with_inputs(engine.evaluate(transition, distilled, transition.features))
        global_head = transition.head
        assert isinstance(global_head, GlobalHead)
        transition.head = build(
            engine,
            "mapping",
            lambda: self.mapped_heads(
                annotators.after,
                transition.width,
                engine.problem.n_classes,
                global_head.theta.cpu() if self.residual else None,
            ),
        )

        def loss(batch: Batch) -> Tensor:
            logits = transition.row_logits(batch.x, batch.target, batch.row, batch.annotator)
            return batch.mean(row_loss(logits, batch.label))

        yield Stage(
            "mapped heads",
            cached,
            loss,
            {"heads": Group(transition.head, self.gcn_lr)},
            self.gcn_epochs,
            self.batch_size,
            momentum=self.momentum,
        )

    def mapped_heads(self, after: sp.csr_array, width: int, n_classes: int, residual: Tensor | None) -> MappedHeads:
        """Untrained heads over a graph with self loops."""
        options = {"hidden": self.gcn_hidden, "residual": residual, **(self.mapping_options or {})}
        if self.mapping == "gcn":
            options |= {"layers": self.gcn_layers, "norm": self.norm}
        try:
            return MAPPINGS[self.mapping].from_graph(after, width, n_classes, **options)
        except TypeError as error:
            raise ConfigError(f"mapping {self.mapping!r}: {error}") from error

    def _check(self) -> None:
        choices: dict[str, tuple[Any, ...]] = {
            "variant": ("reference",),
            "transfer": ("graph", "individual"),
            "protocol": ("paper", "reference"),
            "gcn_layers": (1, 2),
            "mapping": tuple(MAPPINGS),
            "similarity": tuple(graph.SIMILARITIES),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                known = ", ".join(map(repr, allowed))
                raise ConfigError(f"unknown {name}={getattr(self, name)!r}; use one of {known}")
        with seeded(0, torch.device("cpu")):  # what is wrong with the mapping shows before hours of training
            self.mapped_heads(sp.csr_array(np.eye(1)), 1, 1, None)

    def schedule(self) -> Callable[[int], float]:
        if self.protocol == "paper":
            return super().schedule()
        # the authors' code counts the warm-up epochs in, and drops one epoch later
        shifted = [round(at * self.epochs) if at < 1 else int(at) for at in self.milestones]
        return step_schedule([at + 1 - self.warmup_epochs for at in shifted], self.gamma)

    # what was fitted

    @property
    def annotator_graph_(self) -> AnnotatorGraph:
        """The annotator graph, before and after purifying."""
        self._fitted_classifier()
        if "graph_positions" not in self.arrays_:
            raise ConfigError("transfer='individual' builds no annotator graph")
        size = len(self.annotators_)
        parts = [
            sp.csr_array(tuple(self.arrays_[f"graph_{name}_{part}"] for part in _CSR), shape=(size, size))
            for name in ("before", "after")
        ]
        unrelated, arbitrary = self.arrays_["graph_ties"].tolist()
        positions, skipped = self.arrays_["graph_positions"], self.arrays_["skipped"]
        return AnnotatorGraph(parts[0], parts[1], positions, skipped, unrelated, arbitrary)

    @property
    def heads_(self) -> np.ndarray:
        """The head of every annotator, (R, d+1, C, C): logits of T^j(x) are sum_d (g(x), 1)_d heads[j, d]."""
        head = cast(TransitionNetwork, self._fitted_transition()).head
        with torch.no_grad():
            theta = head.theta if isinstance(head, IndividualHeads) else cast(MappedHeads, head).heads()
        return np.asarray(theta.cpu())

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> TransitionNetwork:
        transition = self.new_transition(shape)
        if self.transfer == "individual":
            size, _, n_classes, _ = tensors["head.theta"].shape
            transition.head = IndividualHeads(size, transition.width, n_classes)
            return transition
        saved = {name.removeprefix("head."): each for name, each in tensors.items() if name.startswith("head.")}
        transition.head = MAPPINGS[self.mapping].from_saved(saved)
        return transition


@METHODS.register("taidtm-ft")
@dataclass(kw_only=True, eq=False, repr=False)
class TAIDTMFT(TAIDTM):
    """TAIDTM without the transfer between annotators, under the name that the paper's ablation gives it."""

    name: ClassVar[str] = "taidtm-ft"

    transfer: str = "individual"


_CSR = ("data", "indices", "indptr")


def graph_arrays(annotators: AnnotatorGraph) -> dict[str, np.ndarray]:
    arrays = {
        "graph_positions": annotators.positions,
        "graph_ties": np.array([annotators.unrelated, annotators.arbitrary]),
        "skipped": annotators.skipped,
    }
    for name, matrix in (("before", annotators.before), ("after", annotators.after)):
        arrays |= {f"graph_{name}_{part}": getattr(matrix, part) for part in _CSR}
    return arrays


def confusion_matrices(distilled: Units, problem: Problem) -> np.ndarray:
    """Smoothed confusion matrices (R, C, C) on the distilled examples; a label more in each entry keeps rows defined."""
    truth = F.one_hot(distilled.target, problem.n_classes)
    return annotator_matrices(distilled, truth, problem.n_annotators, smoothing=1.0).cpu().double().numpy()


def flat(theta: Tensor) -> np.ndarray:
    """(R, d+1, C, C) -> (R, D) in double precision: heads differ little after an epoch or two."""
    return theta.detach().flatten(1).cpu().double().numpy()


def annotator_mean(losses: Tensor, annotator: Tensor, n_annotators: int) -> Tensor:
    """The mean loss of each annotator in the batch; shows their mean, but lets every head follow its own."""
    counts = sum_over_ranks(torch.bincount(annotator, minlength=n_annotators).float())
    total = (losses / counts[annotator].clamp_min(1)).sum()
    shown = total.detach() / (counts > 0).sum().clamp_min(1)
    return shown + total - total.detach()


def annotator_batches(annotator: Tensor, batch_size: int, generator: torch.Generator) -> list[Tensor]:
    """Batches of all annotators' mini-batches: the s-th holds the s-th mini-batch of every annotator that has so many."""
    shuffled = torch.randperm(len(annotator), generator=generator).to(annotator.device)
    order = shuffled[torch.argsort(annotator[shuffled], stable=True)]
    sizes = torch.bincount(annotator)
    first = sizes.cumsum(0) - sizes
    step = (torch.arange(len(order), device=order.device) - first[annotator[order]]) // batch_size
    return [order[step == number] for number in range(int(step.max()) + 1)]


def whole_annotators(annotator: Tensor) -> list[Tensor]:
    """All examples of one annotator after the other, in the order of their numbers."""
    order = torch.argsort(annotator, stable=True)
    sizes = torch.bincount(annotator)
    return [part for part in order.split(sizes.tolist()) if len(part)]
