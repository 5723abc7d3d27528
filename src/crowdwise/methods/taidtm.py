"""TAIDTM: transferring annotator- and instance-dependent transition matrices.

S. Li, X. Xia, J. Deng, S. Ge, T. Liu, "Transferring Annotator- and Instance-dependent Transition Matrix for Learning from
Crowds", IEEE TPAMI 2024 (arXiv 2306.03116). ``stages`` reads like the paper's Algorithm 1.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crowdwise import graph
from crowdwise.constraints import NonNegativeFloat, NonNegativeInt, PositiveInt
from crowdwise.engine import Batch, Engine, Group, Problem, Stage, StageResult
from crowdwise.engine.device import derive_seed, seeded
from crowdwise.engine.recipe import Recipe, Schedule, step_schedule
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError
from crowdwise.graph.mappings import MAPPINGS, MappedHeads
from crowdwise.graph.purify import DENSE_ROWS, Norm
from crowdwise.methods.bltm import BLTM, distilled_arrays
from crowdwise.methods.conal import CoNAL
from crowdwise.methods.core.annotator_graph import AnnotatorGraph, graph_arrays, graph_of
from crowdwise.methods.core.base import Fitted, build
from crowdwise.methods.core.heads import annotator_batches, annotator_mean, choose_rank, examples_of, whole_annotators
from crowdwise.methods.core.steps import annotator_matrices
from crowdwise.networks import (
    Classifier,
    FactoredHeads,
    GlobalHead,
    IndividualHeads,
    ProductHeads,
    TransitionNetwork,
)
from crowdwise.networks.factored import PAIRS_AT_ONCE
from crowdwise.networks.transition import row_loss
from crowdwise.registry import METHODS


@METHODS.register("taidtm")
@dataclass(kw_only=True, eq=False, repr=False)
class TAIDTM(BLTM):
    """Annotator- and instance-dependent transition matrices T^j(x), learned by two transfers of knowledge.

    From the crowd to its members: individual heads start at a global transition network. Between similar annotators: a
    graph convolution over the purified nearest-neighbour graph of heads maps them to better ones. The classifier is then
    trained through the matrices of the annotated pairs, and these are revised with it.

    After fitting: ``transition(X, annotators)``, ``heads_`` (R, d+1, C, C) and ``head_factors_``, ``annotator_graph_``,
    ``distilled_``.
    """

    name: ClassVar[str] = "taidtm"
    title: ClassVar[str] = "TAIDTM"

    variant: Literal["reference"] = "reference"
    """Of the warm-up and the global network, as in BLTM; TAIDTM's own is the only one."""
    transfer: Literal["graph", "individual"] = "graph"
    """``"graph"``, or ``"individual"``: without the second transfer (TAIDTM-FT)."""
    protocol: Literal["paper", "reference"] = "paper"
    """``"paper"``: only the last layer is fitted for each annotator, and compared right after; ``"reference"``: the order of
    the authors' code, with correction runs of BLTM and TAIDTM-FT before the graph, at about three times the cost."""
    individual_epochs: NonNegativeInt = 2
    """Epochs of the individual heads on each annotator's distilled examples."""
    individual_lr: NonNegativeFloat = 0.01
    """Learning rate of the individual heads."""
    min_examples: NonNegativeInt | None = None
    """Annotators with fewer distilled examples keep the global head, and become neighbours of each other; by default 30, or
    half of what an annotator has on average where that is less."""
    head_rank: PositiveInt | Literal["auto"] | None = "auto"
    """Individual heads are full, (R, d+1, C, C), with None; with a number r they are the global head plus a combination of r
    shared matrices, (R, r). ``"auto"``: full up to 2 GiB, beyond that of rank 16."""
    similarity: str = "delta-cosine"
    """How annotators are compared: by their heads, ``"delta-cosine"`` (differences from the global head), ``"cosine"`` or
    ``"l1-normalised"``; by their labels, ``"jaccard"`` (of sets of instance and label), ``"confusion-counts"`` (confusion
    matrices on the distilled examples), ``"confusion"`` (those that CoNAL learns, for as many epochs as the classifier) or
    ``"cbcc"`` (communities)."""
    communities: PositiveInt = 3
    """Communities that ``similarity="cbcc"`` looks for."""
    k: PositiveInt | None = None
    """Neighbours of each annotator; by default a sixth of the annotators, at most 50 (as of the paper's 300), and a sixtieth
    with the recipe for features: small crowds learn best from their one nearest neighbour (1 to 3 points on LabelMe and
    Music). With nearly all annotators as neighbours, all would get one and the same matrix."""
    purify: bool = True
    """Clean the graph by a low-rank approximation (left as it is for k = 1, where that is not unique)."""
    svd_rank: PositiveInt = 5
    """Rank of that approximation; about the number of groups."""
    norm: Norm = "ref"
    """Normalisation of the graph: ``"ref"`` (by how often annotators are chosen), ``"sym_row"`` or ``"row"``."""
    mapping: str = "gcn"
    """From the graph to heads: ``"gcn"`` (graph convolution), ``"gat"`` (graph attention) or ``"deepwalk"`` (random walks)."""
    mapping_options: Mapping[str, Any] | None = None
    """Further arguments of the mapping: ``attention_heads`` and ``threshold`` of ``"gat"``; ``dimension``, ``walks``,
    ``length`` and ``window`` of ``"deepwalk"``."""
    gcn_layers: Literal[1, 2] = 2
    """Layers of the graph convolution; the other mappings have two."""
    gcn_hidden: PositiveInt | None = None
    """Hidden width of any mapping; by default 64, and 16 with the recipe for features."""
    gcn_epochs: NonNegativeInt | None = None
    """Epochs of any mapping on the distilled examples; by default 10, and as many more as make 200 steps."""
    gcn_lr: NonNegativeFloat = 0.01
    """Learning rate of any mapping."""
    residual: bool = False
    """Add the global head to every mapped head."""

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        self._check()
        rank = self.rank_of_heads(engine.problem)
        reference = self.protocol == "reference"
        warm = yield from self.warm_up(engine)
        distilled = self.distil(engine, warm)

        # training the global noise-transition network
        transition = yield from self.fit_global(engine, distilled)
        if reference:
            correction = self.correction(engine, "correction (BLTM)", self.start_classifier(engine, warm), transition)
            yield dataclasses.replace(correction, keep="best", keeps_classes=False)
        global_head = transition.head
        assert isinstance(global_head, GlobalHead)

        # learning individual noise-transition networks
        individual = copy.deepcopy(transition)
        skipped = yield from self.fit_individuals(engine, individual, distilled, rank)
        if reference or self.transfer == "individual":
            classifier = self.start_classifier(engine, warm)
            yield self.correction(engine, "correction (individual)", classifier, individual)
        if self.transfer == "individual":
            return Fitted(classifier, individual, distilled_arrays(distilled) | {"skipped": skipped})

        # knowledge transfer between neighbouring individual networks
        matrices = yield from self.confusions(engine, distilled)
        annotators = self.connect(engine, individual, global_head, matrices, skipped)
        yield from self.fit_mapping(engine, transition, distilled, annotators, rank)

        # classifier training with loss correction
        classifier = self.start_classifier(engine, warm)
        yield self.correction(engine, "correction", classifier, transition)
        return Fitted(classifier, transition, distilled_arrays(distilled) | graph_arrays(annotators))

    def start_classifier(self, engine: Engine, warm: Classifier) -> Classifier:
        return copy.deepcopy(warm) if self.protocol == "reference" else super().start_classifier(engine, warm)

    def rank_of_heads(self, problem: Problem) -> int | None:
        """The rank of the individual heads, None for full ones: known, and refused, before anything is trained."""
        with seeded(0, torch.device("cpu")):
            width = self.new_transition(problem.shape).width
        return choose_rank(self.head_rank, problem.n_annotators, width, problem.n_classes, problem.device)

    def fit_individuals(
        self, engine: Engine, transition: TransitionNetwork, distilled: Units, rank: int | None = None
    ) -> Generator[Stage, StageResult, np.ndarray]:
        """Minimise L2 for every annotator with enough examples, all heads at once; returns the annotators left out."""
        global_head = transition.head
        assert isinstance(global_head, GlobalHead)
        n_annotators, recipe = engine.problem.n_annotators, self.training(engine.problem)
        heads: IndividualHeads | FactoredHeads
        if rank is None:
            heads = IndividualHeads.from_global(global_head, n_annotators)
        else:
            heads = build(engine, "heads", lambda: FactoredHeads.from_global(global_head, n_annotators, rank))
        transition.head = heads
        counts = torch.bincount(distilled.annotator, minlength=n_annotators)
        enough = counts >= max(self.least_examples(counts), 2)
        skipped = torch.nonzero(~enough).squeeze(1).cpu().numpy()
        if bool(enough.any()) and self.individual_epochs:
            reference = self.protocol == "reference"
            features = engine.evaluate(transition, distilled, transition.features)
            cached = examples_of(distilled.with_inputs(features), enough)
            examples = examples_of(distilled, enough) if reference else cached
            if isinstance(heads, FactoredHeads):
                heads.align(features, cached.instance, cached.target, cached.annotator, cached.label)
                heads.train_scores_only(True)
            # the reference takes one step for each annotator, through all layers; the paper fits the last layer
            groups = {"heads": Group(heads, self.individual_lr, rows=True)}
            if reference:
                layers = nn.ModuleList([transition.backbone, transition.bottleneck])
                groups["layers"] = Group(layers, self.individual_lr)

            def loss(batch: Batch) -> Tensor:
                g = transition.features(batch.x) if reference else batch.x
                logits = transition.row_logits(g, batch.target, batch.row, batch.annotator)
                losses = row_loss(logits, batch.label)
                return annotator_mean(losses, batch.weight, batch.annotator, n_annotators)

            def plan(generator: torch.Generator) -> Sequence[Tensor]:
                if reference:
                    return whole_annotators(examples.annotator)
                limit = heads.pairs_at_once if isinstance(heads, FactoredHeads) else PAIRS_AT_ONCE
                return annotator_batches(examples.annotator, recipe.batch_size, generator, limit)

            yield Stage(
                "individual heads",
                examples,
                loss,
                groups,
                self.individual_epochs,
                momentum=recipe.momentum,
                planner=plan,
                shared=self.decided_by(
                    engine.problem, "individual_epochs", "individual_lr", "min_examples", "protocol", "head_rank"
                ),
            )
        if isinstance(heads, FactoredHeads):
            heads.train_scores_only(False)
        return skipped

    def least_examples(self, counts: Tensor) -> float:
        """``min_examples``, or what suits annotators with as many distilled examples as ``counts`` says."""
        if self.min_examples is not None:
            return self.min_examples
        having = counts[counts > 0]
        return min(30.0, max(3.0, float(having.double().mean()) / 2)) if len(having) else 30.0

    def neighbours(self, n_annotators: int, features: bool = False) -> int:
        """``k``, or what suits a crowd of this size."""
        return min(max(n_annotators // (60 if features else 6), 1), 50) if self.k is None else self.k

    def confusions(
        self, engine: Engine, distilled: Units
    ) -> Generator[Stage, StageResult, npt.NDArray[np.float64] | None]:
        """Confusion matrices (R, C, C) for the similarities that compare them."""
        if self.similarity == "confusion-counts":
            return confusion_matrices(distilled, engine.problem)
        if self.similarity != "confusion":
            return None
        common = ("backbone", "backbone_options", "recipe", "epochs", "batch_size", "milestones", "gamma")
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
        head = cast(IndividualHeads | FactoredHeads, individual.head)
        heads, origin = head.coordinates(global_head.theta)
        seed = derive_seed(problem.seed, "similarity")
        norms = head.l1_norms() if self.similarity == "l1-normalised" else None
        evidence = graph.Evidence(heads, origin, norms, problem.annotations, matrices, self.communities, seed)
        k = self.neighbours(problem.n_annotators, self.for_features(problem.shape))
        large = problem.device.type == "cuda" and problem.n_annotators > DENSE_ROWS
        device = str(problem.device) if large else None  # what is small is as quick on the CPU
        before, unrelated, arbitrary = graph.nearest(evidence, k, self.similarity, device=device)
        if self.purify:
            after = graph.purify(before, self.svd_rank, skipped=skipped.tolist(), k=k, device=device)
        else:
            after = graph.add_self_loops(before, skipped.tolist())
        return AnnotatorGraph(before, after, graph.pca(heads - origin), skipped, unrelated, arbitrary)

    def fit_mapping(
        self,
        engine: Engine,
        transition: TransitionNetwork,
        distilled: Units,
        annotators: AnnotatorGraph,
        rank: int | None = None,
    ) -> Generator[Stage, StageResult, None]:
        """Minimise L3: learn the mapping from the annotator graph to heads, over frozen and cached features.

        In the authors' code the frozen layers are in training mode: batch norm takes the statistics of each batch, and
        its running ones drift.
        """
        as_published = self.protocol == "reference"
        examples = distilled
        if not as_published:
            examples = distilled.with_inputs(engine.evaluate(transition, distilled, transition.features))
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
                rank,
                self.for_features(engine.problem.shape),
            ),
        )

        groups = {"heads": Group(transition.head, self.gcn_lr)}
        if as_published:  # no gradient reaches them, but their running statistics belong to the stage's result
            groups["layers"] = Group(nn.ModuleList([transition.backbone, transition.bottleneck]), 0.0)

        def loss(batch: Batch) -> Tensor:
            g = batch.x
            if as_published:
                with torch.no_grad():
                    g = transition.features(batch.x)
            logits = transition.row_logits(g, batch.target, batch.row, batch.annotator)
            return batch.mean(row_loss(logits, batch.label))

        recipe = self.training(engine.problem)
        yield Stage(
            "mapped heads",
            examples,
            loss,
            groups,
            recipe.enough_epochs(self.gcn_epochs, usual=10, steps=200, examples=len(distilled)),
            recipe.batch_size,
            momentum=recipe.momentum,
        )

    def mapped_heads(
        self,
        after: sp.csr_array,
        width: int,
        n_classes: int,
        residual: Tensor | None,
        rank: int | None = None,
        features: bool = False,
    ) -> MappedHeads:
        """Untrained heads over a graph with self loops; only a single layer is not factored by itself, and needs ``rank``."""
        hidden = (16 if features else 64) if self.gcn_hidden is None else self.gcn_hidden
        options = {"hidden": hidden, "residual": residual, **(self.mapping_options or {})}
        if self.mapping == "gcn":
            options |= {"layers": self.gcn_layers, "norm": self.norm, "rank": rank}
        try:
            return MAPPINGS[self.mapping].from_graph(after, width, n_classes, **options)
        except TypeError as error:
            raise ConfigError(f"mapping {self.mapping!r}: {error}") from error

    def _check(self) -> None:
        graph.SIMILARITIES[
            self.similarity
        ]  # what is unknown, or wrong with the mapping, shows before hours of training
        with seeded(0, torch.device("cpu")):
            self.mapped_heads(sp.csr_array(np.eye(1)), 1, 1, None)

    def rates(self, recipe: Recipe) -> Schedule:
        if self.protocol == "paper" or recipe.schedule != "steps":
            return super().rates(recipe)
        # the authors' code counts the warm-up epochs in, and drops one epoch later
        warmup = 5 if self.warmup_epochs is None else self.warmup_epochs
        return step_schedule([at + 1 - warmup for at in recipe.drops()], recipe.gamma)

    # what was fitted

    @property
    def annotator_graph_(self) -> AnnotatorGraph:
        """The annotator graph, before and after purifying."""
        self._fitted_classifier()
        if "graph_positions" not in self.arrays_:
            raise ConfigError("transfer='individual' builds no annotator graph")
        return graph_of(self.arrays_)

    @property
    def heads_(self) -> np.ndarray:
        """The head of every annotator, (R, d+1, C, C): logits of T^j(x) are sum_d (g(x), 1)_d heads[j, d]."""
        head = cast(TransitionNetwork, self._fitted_transition()).head
        with torch.no_grad():
            theta = head.theta if isinstance(head, IndividualHeads) else cast(ProductHeads, head).heads()
        return np.asarray(theta.cpu())

    @property
    def head_factors_(self) -> tuple[np.ndarray, np.ndarray]:
        """H (R, Z) and W (Z, d+1, C, C) with ``heads_`` = sum_z H[:, z] W[z], which very large crowds have no memory for.

        A head that is added to all of them is the last of W, with ones in H.
        """
        head = cast(TransitionNetwork, self._fitted_transition()).head
        if not isinstance(head, ProductHeads):
            raise ConfigError("full heads have no factors: read heads_, or fit with head_rank=16, for instance")
        return head.factors()

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> TransitionNetwork:
        transition = self.new_transition(shape)
        saved = {name.removeprefix("head."): each for name, each in tensors.items() if name.startswith("head.")}
        if self.transfer == "graph":
            transition.head = MAPPINGS[self.mapping].from_saved(saved)
        elif "scores" in saved:
            transition.head = FactoredHeads.from_saved(saved)
        else:
            transition.head = IndividualHeads(len(saved["theta"]), transition.width, saved["theta"].shape[-1])
        return transition


@METHODS.register("taidtm-ft")
@dataclass(kw_only=True, eq=False, repr=False)
class TAIDTMFT(TAIDTM):
    """TAIDTM without the transfer between annotators, under the name that the paper's ablation gives it."""

    name: ClassVar[str] = "taidtm-ft"
    title: ClassVar[str] = "TAIDTM-FT"

    transfer: Literal["graph", "individual"] = "individual"


def confusion_matrices(distilled: Units, problem: Problem) -> np.ndarray:
    """Smoothed confusion matrices (R, C, C) on the distilled examples; a label more in each entry keeps rows defined."""
    truth = F.one_hot(distilled.target, problem.n_classes)
    return annotator_matrices(distilled, truth, problem.n_annotators, smoothing=1.0).cpu().double().numpy()
