"""What every method shares: parameters and fitting."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import nn

from crowdwise import encoders
from crowdwise.callbacks import Callbacks, FromObserver, Observer
from crowdwise.constraints import (
    Interval,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Probability,
    check_parameters,
)
from crowdwise.data.matching import check_labels, match
from crowdwise.engine import Engine, Group, Problem, Stage, StageResult, distributed
from crowdwise.engine.augment import mirrors
from crowdwise.engine.checkpoint import RunDirectory, SharedStages
from crowdwise.engine.device import derive_seed, has_quick_bfloat16, resolve_device, seeded
from crowdwise.engine.recipe import (
    FEATURES,
    Augment,
    AugmentName,
    Decay,
    Dropout,
    MixupAlpha,
    Momentum,
    OptimiserName,
    Recipe,
    RecipeName,
    Schedule,
    ScheduleName,
    find_recipe,
)
from crowdwise.engine.stage import Loss
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError
from crowdwise.methods.core.files import fingerprint
from crowdwise.methods.core.labels import label_arrays
from crowdwise.methods.core.prediction import Array
from crowdwise.methods.core.saving import Fitted as Fitted
from crowdwise.methods.core.saving import Saved
from crowdwise.methods.core.skill import annotator_skill
from crowdwise.networks import Classifier, Stacked
from crowdwise.networks.backbones import takes_dropout


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdClassifier(Saved):
    """Base class of all methods, a scikit-learn classifier whose ``y`` is a crowd's annotations.

    Subclasses are dataclasses that add parameters, and a generator ``stages(engine)`` that yields training stages.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    """The name as papers and tables write it; where there is none, ``name``."""
    outside_paper: ClassVar[bool] = False
    """Whether the TAIDTM paper knows nothing of it, so that presets give it data and network, but not the paper's training."""
    shares_stages: ClassVar[bool] = False
    """Whether its first stages are those of other methods too, so that ``share`` saves work."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """What the method needs on any data, in place of the recipe's value."""
    paper_settings: ClassVar[Mapping[str, Any]] = {}
    """The same for ``recipe="paper"``."""

    encoder: Any = "auto"
    """What turns texts, pictures and tables into numbers: ``"tfidf"``, ``"pixels"``, ``"table"``, an encoder with settings
    of its own (`crowdwise.encoders`), a transformer or pipeline of scikit-learn, ``"none"``, or ``"auto"``: by what X is."""
    backbone: str | nn.Module | Callable[[], nn.Module] = "auto"
    """``"resnet18"``, ``"resnet34"``, ``"cnn"``, ``"mlp"``, a module that maps (B, ...) to (B, d), a function that makes one,
    or ``"auto"``: mlp for feature vectors, cnn for images. Each network starts as a copy of a module, whose weights the seed
    does not decide; a function is called anew for each network, and its weights follow from ``random_state``."""
    backbone_options: Mapping[str, Any] | None = None
    """Arguments of the named backbone, ``{"hidden": 128, "dropout": 0.5}`` for instance."""
    prepare: str = "auto"
    """How inputs are scaled, learnt on the training instances: ``"standardise"`` (mean 0, standard deviation 1, by feature or
    channel), ``"robust"`` (by feature, with median and quartiles; outliers are drawn in), ``"log1p"``, ``"none"``, or
    ``"auto"``: images standardised, features robust."""
    recipe: RecipeName = "auto"
    """What decides all settings of training that are None: ``"features"``, ``"pictures"``, ``"paper"`` (the protocol of the
    TAIDTM paper), or ``"auto"``: features or pictures, as the inputs are. See `crowdwise.engine.recipe`."""
    epochs: NonNegativeInt | None = None
    """Epochs of the (last) classifier stage."""
    steps: NonNegativeInt | None = None
    """Steps of the (last) classifier stage, in place of ``epochs``: as many epochs as make so many steps."""
    batch_size: PositiveInt | None = None
    """Instances in a step."""
    lr: NonNegativeFloat | None = None
    """Learning rate of the (last) classifier stage."""
    optimiser: OptimiserName | None = None
    """``"sgd"``, ``"adam"``, ``"adamw"`` or ``"radam"``."""
    momentum: Momentum | None = None
    """Momentum of sgd."""
    weight_decay: NonNegativeFloat | None = None
    """Weight decay of the (last) classifier stage."""
    schedule: ScheduleName | Schedule | None = None
    """How the learning rate goes: ``"cosine"`` (a short rise, then down to 0), ``"steps"`` (see ``milestones``),
    ``"constant"``, or a function from epochs so far (2.5: midway in the third) to a factor."""
    milestones: Sequence[NonNegativeFloat] | None = None
    """When ``schedule="steps"`` multiplies the rate by ``gamma``: numbers of epochs, or shares of ``epochs`` if below 1."""
    gamma: Probability | None = None
    """What the learning rate is multiplied by at each milestone: 0 to 1."""
    dropout: Dropout | None = None
    """Share of the features that is dropped in training. ``backbone_options`` may say it too, and then decide."""
    augment: AugmentName | Augment | None = None
    """What is done to pictures in training: ``"none"``, ``"crop"`` (move), ``"crop-flip"`` (and mirror), ``"strong"`` (and
    turn, change contrast, blank a square), ``"auto"`` (crop-flip for colour pictures, crop for grey ones), or a function of
    prepared batches (B, ...), on the device."""
    ema: Decay | None = None
    """Decay of a running average of weights, which predicts in place of the last weights: up to 0.99999; 0: none."""
    mixup: MixupAlpha | None = None
    """Mix instances, and their annotations, in pairs: alpha of the Beta distribution of shares, up to 100; 0: none."""
    patience: NonNegativeInt | None = None
    """Stop when agreement with held-out annotations has not improved for so many epochs; 0: never."""
    networks: PositiveInt = 1
    """Networks trained in one pass from different starting weights; their mean probabilities are the prediction."""
    reduction: Literal["annotation", "instance"] = "annotation"
    """``"annotation"``: every annotation counts alike; ``"instance"``: every instance does."""
    validation_fraction: Annotated[float, Interval(0, 1, open="high")] = 0.1
    """Share of the labelled instances that is held out to measure agreement with their (noisy) annotations."""
    keep: Literal["last", "best"] = "last"
    """Which epoch of the (last) classifier stage counts: the ``"last"``, as papers have it, or the one that agreed ``"best"``
    with the annotations of held-out instances. That takes no truth, and spares most methods the noise that they memorise."""
    device: str = "auto"
    """``"cpu"``, ``"cuda"``, ``"cuda:1"``, ..., or ``"auto"``: a GPU where there is one."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """``"bf16"`` (convolutions in bfloat16), ``"fp32"``, or ``"auto"``: bf16 on GPUs that have it, and on CPUs that do for the
    widest products of several networks in training."""
    random_state: int | np.random.Generator | None = 0
    """Seed of starting weights, order and held-out instances; runs that can be resumed need a number."""
    verbose: int = 1
    """0: silent; 1: progress bars on a terminal; 2: a line for each epoch."""

    # what subclasses write

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        """The method: yield a stage, get its result, build the next from it; return what was fitted."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its stages are")

    def validation_share(self, X: Any) -> float:
        """Share of the labelled instances that is held out."""
        return self.validation_fraction

    def settings_for(self, shape: tuple[int, ...]) -> Mapping[str, Any]:
        """What the method needs on inputs of this shape, in place of the recipe's value."""
        return self.settings

    # fitting

    def fit(
        self,
        X: Any,
        annotations: Any,
        *,
        ids: Any = None,
        run_dir: str | Path | RunDirectory | None = None,
        resume: str | Path | None = None,
        share: str | Path | None = None,
        callbacks: Sequence[Any] = (),
        observer: Observer | None = None,
    ) -> Self:
        """Train on instances ``X`` and what a crowd said of them.

        ``X`` is an array of features (n, d) or images (n, h, w[, channels]), a list of texts, a folder or list of picture
        files, a frame with columns of any kind (see ``encoder``), or a map-style data set. ``annotations`` is
        an `Annotations`, a long table, a matrix (n, R) with missing values, or labels (n,) of a single source. ``ids`` are the
        ids of the rows of ``X``, if it does not have them itself, by which annotations are matched: see
        `crowdwise.data.matching.match`. Rows without annotations may be there; they get labels, too.
        With ``run_dir`` the run can be interrupted at any time, and continued with ``resume=run_dir``. In the folder
        ``share`` the first stages that methods have in common (BLTM and TAIDTM: warm-up and global network) are kept, and
        taken from where an earlier fit with the same data, seed and settings left them. ``callbacks`` are told of every
        epoch, and may stop the fit: see `crowdwise.callbacks`. ``observer`` is an older form of a single one.
        """
        check_parameters(self)
        if observer is not None:
            warnings.warn("fit(observer=...) is now fit(callbacks=[...])", DeprecationWarning, stacklevel=2)
            callbacks = [*callbacks, FromObserver(observer)]
        told = Callbacks(callbacks)
        matched = match(encoders.opened_folder(X), annotations, ids)
        X, crowd = encoders.opened(matched.X), matched.annotations
        check_labels(crowd)
        encoder = encoders.choose(self.encoder, X)
        share_held_out = self.validation_share(X if encoder is None else _shaped(encoder, crowd.n_instances))
        run, seed = self._open_run(run_dir, resume), self._seed()
        device = distributed.join(resolve_device(self.device))
        problem = Problem.make(
            X,
            crowd,
            device=device,
            seed=seed,
            prepare="paper" if self.recipe == "paper" and self.prepare == "auto" else self.prepare,
            reduction=self.reduction,
            validation_fraction=share_held_out,
            order=matched.order,
            encoder=encoder,
        )
        if self.keep == "best" and not len(problem.validation):
            raise ConfigError(
                "keep='best' needs held-out instances with annotations, but there are none: "
                f"validation_fraction={share_held_out:g} of {len(problem.train)} labelled instances"
            )
        data = fingerprint(problem.train.inputs, crowd) if run is not None or share is not None else None
        shared = SharedStages(share, {"data": data, "seed": seed}) if share is not None else None
        with run.locked() if run is not None else nullcontext():
            if run is not None and distributed.rank() == 0:
                description = {"method": self.name, "parameters": self._json_parameters(), "data": data}
                defaults = type(self)()._json_parameters()
                run.resume(description, defaults, problem.shape) if resume is not None else run.start(description)
            engine = Engine(
                problem,
                precision=self.precision,
                verbose=self.verbose,
                title=self.name,
                run=run,
                shared=shared,
                callbacks=told,
            )
            told.begin(
                {
                    "method": self.name,
                    "parameters": self._json_parameters(),
                    "instances": crowd.n_instances,
                    "annotators": crowd.n_annotators,
                    "classes": crowd.n_classes,
                }
            )
            fitted = engine.run(self.stages(engine))
            fitted.arrays |= label_arrays(engine, crowd, fitted.classifier, fitted.honest)
            fitted.arrays["skill"] = annotator_skill(engine, fitted.classifier, fitted.transition)
            self._adopt(fitted, problem.prepare, problem.intake, crowd.classes, crowd.annotators)
            self.mirrored_ = mirrors(self.training(problem).augment, problem.shape)
            self.instances_, self.id_column_ = crowd.instances, matched.id_column
            self.history_, self.warnings_ = engine.history, engine.warnings
            if run is not None and distributed.rank() == 0:
                self.save(run.path / "model")
                run.finish()
        told.end(self)
        return self

    def _open_run(self, run_dir: str | Path | RunDirectory | None, resume: str | Path | None) -> RunDirectory | None:
        new = run_dir if run_dir is None or isinstance(run_dir, RunDirectory) else RunDirectory(run_dir)
        old = None if resume is None else RunDirectory(resume)
        if new is not None and old is not None and new.path != old.path:
            raise ConfigError(
                f"run_dir={str(new.path)!r} and resume={str(old.path)!r} name different runs; pass one of them"
            )
        run = old or new
        if run is None:
            return None
        if not isinstance(self.random_state, int):
            raise ConfigError(f"a run that can be resumed needs an integer random_state, got {self.random_state!r}")
        return run

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(np.random.default_rng(self.random_state).integers(2**31))

    def _json_parameters(self) -> dict[str, Any]:
        """Parameters that decide the result, as JSON; a module as backbone becomes its class's name."""
        parameters = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for neutral in ("device", "verbose"):
            parameters.pop(neutral)
        if isinstance(self.backbone, nn.Module):
            parameters["backbone"] = f"module:{type(self.backbone).__name__}"
        elif not isinstance(self.backbone, str):
            parameters["backbone"] = f"module:{getattr(self.backbone, '__qualname__', type(self.backbone).__name__)}"
        parameters["encoder"] = encoders.describe(self.encoder)
        for name, value in parameters.items():
            if isinstance(value, tuple):
                parameters[name] = list(value)
            elif callable(value) and not isinstance(value, nn.Module):
                parameters[name] = f"function:{getattr(value, '__qualname__', type(value).__name__)}"
        if not isinstance(self.random_state, int):
            parameters["random_state"] = None
        return parameters

    # pieces for subclasses

    def training(self, problem: Problem) -> Recipe:
        """The settings of the classifier stage: those of the recipe, of this method, and of the caller, who has the last word."""
        recipe = self._recipe(problem.shape)
        given = {f.name: getattr(self, f.name, None) for f in dataclasses.fields(recipe)}
        recipe = recipe.with_values(given).for_instances(len(problem.train))
        return dataclasses.replace(recipe, lr=self.rate(problem, recipe))

    def for_features(self, shape: tuple[int, ...]) -> bool:
        """Whether training follows the recipe for feature vectors."""
        return find_recipe(self.recipe, shape) is FEATURES

    def _recipe(self, shape: tuple[int, ...]) -> Recipe:
        own = self.paper_settings if self.recipe == "paper" else self.settings_for(shape)
        return find_recipe(self.recipe, shape).with_values(own)

    def new_classifier(self, engine: Engine, name: str) -> Classifier:
        """A classifier with starting weights that depend on ``random_state`` and ``name`` alone."""
        shape, n_classes = engine.problem.shape, engine.problem.n_classes
        classifier: Classifier = build(engine, name, lambda: self._classifier(shape, n_classes))
        if isinstance(classifier, Stacked):
            classifier.multiply_in_half(self.precision == "auto" and has_quick_bfloat16(engine.device))
        return classifier

    def _classifier(self, shape: tuple[int, ...], n_classes: int) -> Classifier:
        networks = self.n_networks(shape)
        if not isinstance(networks, int) or networks < 1:
            raise ConfigError(f"networks must be a whole number of at least 1, got {networks!r}")
        options = self.network_options(shape)
        members = [Classifier(self._backbone(), shape, n_classes, options) for _ in range(networks)]
        return members[0] if networks == 1 else Stacked(members)

    def n_networks(self, shape: tuple[int, ...]) -> int:
        """Networks trained in one pass on instances of this shape."""
        return self.networks

    def network_options(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Arguments of the backbone: ``backbone_options``, and the dropout of the parameters or the recipe."""
        options = dict(self.backbone_options or {})
        dropout = self.dropout
        if dropout is None and isinstance(self.backbone, str) and takes_dropout(self.backbone, shape):
            dropout = self._recipe(shape).dropout
        return {"dropout": dropout, **options} if dropout else options

    def _backbone(self) -> str | nn.Module:
        if isinstance(self.backbone, str):
            return self.backbone
        if not isinstance(self.backbone, nn.Module):
            made = self.backbone()
            if not isinstance(made, nn.Module):
                raise ConfigError(f"the function given as backbone must make a module, but it made {made!r}")
            return made
        own = copy.deepcopy(self.backbone)
        return own.to("meta") if torch.get_default_device().type == "meta" else own

    def classifier_stage(
        self,
        engine: Engine,
        classifier: nn.Module,
        loss: Loss,
        *,
        name: str = "classifier",
        also: Mapping[str, Group] | None = None,
        units: Units | None = None,
        before_epoch: Callable[[int], None] | None = None,
    ) -> Stage:
        """The stage that trains ``classifier`` as the common parameters say, and the groups ``also`` beside it.

        ``units`` are the training instances unless given. ``before_epoch`` is called with the number of each epoch.
        """
        recipe = self.training(engine.problem)
        return Stage(
            name,
            engine.problem.train if units is None else units,
            loss,
            {"classifier": Group(classifier, recipe.lr, recipe.weight_decay), **(also or {})},
            recipe.epochs,
            recipe.batch_size,
            recipe.optimiser,
            recipe.momentum,
            self.rates(recipe),
            score=classifier,
            keep=self.keep,
            before_epoch=before_epoch,
            augment=recipe.augment,
            ema=recipe.ema,
            mixup=recipe.mixup,
            patience=recipe.patience,
            guard="retry" if recipe.retry else "warn",
        )

    def warm_up_stage(
        self,
        engine: Engine,
        classifier: nn.Module,
        loss: Loss,
        epochs: int | None,
        lr: float | None,
        *,
        name: str = "warm-up",
        shared: Mapping[str, Any] | None = None,
    ) -> Stage:
        """A short stage on the noisy labels as they are; the epoch that agrees best with held-out annotations counts."""
        recipe, train = self.training(engine.problem), engine.problem.train
        return Stage(
            name,
            train,
            loss,
            {"classifier": Group(classifier, recipe.early_lr if lr is None else lr)},
            recipe.enough_epochs(epochs, usual=5, steps=recipe.early_steps, examples=len(train)),
            recipe.batch_size,
            recipe.optimiser,
            recipe.momentum,
            score=classifier,
            keep="best",
            augment=recipe.augment,
            ema=recipe.ema,
            shared=shared,
        )

    def decided_by(self, problem: Problem, *names: str) -> dict[str, Any] | None:
        """The named parameters and those that every stage depends on, for `Stage.shared`; None with an own backbone."""
        if not isinstance(self.backbone, str):
            return None
        own = ("backbone", "prepare", "reduction", "validation_fraction", "precision", "networks", *names)
        recipe = self.training(problem)
        shared = ("optimiser", "momentum", "batch_size", "weight_decay", "augment", "ema")
        return {
            **{name: getattr(self, name) for name in own},
            **{name: getattr(recipe, name) for name in shared},
            "backbone_options": self.network_options(problem.shape),
        }

    def rate(self, problem: Problem, recipe: Recipe) -> float:
        """The learning rate of the classifier stage."""
        return recipe.lr

    def rates(self, recipe: Recipe) -> Schedule:
        """The learning-rate schedule of the classifier stage."""
        return recipe.rates()


def build(engine: Engine, name: str, make: Callable[[], Any]) -> Any:
    """Make a module with seeded starting weights and put it on the engine's device."""
    with seeded(derive_seed(engine.problem.seed, "init", name), torch.device("cpu")):
        module = make()
    module.to(engine.device)
    if engine.device.type == "cuda":
        module.to(memory_format=torch.channels_last)
    return module


def _shaped(encoder: encoders.Encoder, n: int) -> Array:
    """What encoded instances are like, before they are encoded."""
    return np.empty((n, 1, 1, 1) if encoder.pictures else (n, 1), np.uint8)
