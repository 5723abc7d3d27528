"""What every method shares: parameters, fitting, saving and loading."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise.constraints import Interval, NonNegativeFloat, NonNegativeInt, PositiveInt, check_parameters
from crowdwise.engine import Engine, Group, Problem, Stage, StageResult, distributed
from crowdwise.engine.checkpoint import RunDirectory, SharedStages
from crowdwise.engine.device import derive_seed, resolve_device, seeded
from crowdwise.engine.loop import Observer
from crowdwise.engine.prepare import Prepare
from crowdwise.engine.stage import Loss, step_schedule
from crowdwise.engine.tensors import Units
from crowdwise.errors import ConfigError, CrowdwiseError, ModelFileError
from crowdwise.methods.core.files import fingerprint, load_model, save_model
from crowdwise.methods.core.prediction import Array, Predictor, as_annotations
from crowdwise.methods.core.skill import annotator_skill
from crowdwise.networks import Classifier, ConstantTransition


@dataclass
class Fitted:
    """What a method returns at the end of its stages."""

    classifier: nn.Module
    transition: nn.Module | None = None  # a `Transition`
    arrays: dict[str, Array] = field(default_factory=dict)  # saved with the model, see `attributes`


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdClassifier(Predictor):
    """Base class of all methods, a scikit-learn classifier whose ``y`` is a crowd's annotations.

    Subclasses are dataclasses that add parameters, and a generator ``stages(engine)`` that yields training stages.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    """The name as papers and tables write it; where there is none, ``name``."""
    shares_stages: ClassVar[bool] = False
    """Whether its first stages are those of other methods too, so that ``share`` saves work."""

    backbone: str | nn.Module = "auto"
    """``"resnet18"``, ``"resnet34"``, ``"cnn"``, ``"mlp"``, a module that maps (B, ...) to (B, d) (each network starts as a
    copy of it), or ``"auto"``: mlp for feature vectors, cnn for images."""
    backbone_options: Mapping[str, Any] | None = None
    """Arguments of the named backbone, ``{"hidden": 128, "dropout": 0.5}`` for instance."""
    prepare: str = "auto"
    """How inputs are scaled: ``"auto"`` (images standardised by channel, features as they are), ``"standardise"``,
    ``"log1p"`` or ``"none"``."""
    epochs: NonNegativeInt = 60
    """Epochs of the (last) classifier stage."""
    batch_size: PositiveInt = 128
    """Instances in a step."""
    lr: NonNegativeFloat | None = 0.01
    """Learning rate of the (last) classifier stage."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """``"sgd"`` or ``"adam"``."""
    momentum: Annotated[float, Interval(0, 1, open="high")] = 0.9
    """Momentum of sgd."""
    weight_decay: NonNegativeFloat = 1e-4
    """Weight decay of the (last) classifier stage."""
    milestones: Sequence[NonNegativeFloat] = (2 / 3, 11 / 12)
    """When the learning rate is multiplied by ``gamma``: numbers of epochs, or shares of ``epochs`` if below 1."""
    gamma: NonNegativeFloat = 0.1
    """What the learning rate is multiplied by at each milestone."""
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
    """``"bf16"`` (convolutions in bfloat16), ``"fp32"``, or ``"auto"``: bf16 on GPUs that have it."""
    random_state: int | np.random.Generator | None = 0
    """Seed of starting weights, order and held-out instances; runs that can be resumed need a number."""
    verbose: int = 1
    """0: silent; 1: progress bars on a terminal; 2: a line for each epoch."""

    # what subclasses write

    def stages(self, engine: Engine) -> Generator[Stage, StageResult, Fitted]:
        """The method: yield a stage, get its result, build the next from it; return what was fitted."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its stages are")

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> nn.Module:
        """An untrained transition network into which saved ``tensors`` fit."""
        return ConstantTransition(tensors["matrices"])

    # fitting

    def fit(
        self,
        X: Any,
        annotations: Any,
        *,
        run_dir: str | Path | RunDirectory | None = None,
        resume: str | Path | None = None,
        share: str | Path | None = None,
        observer: Observer | None = None,
    ) -> Self:
        """Train on instances ``X`` and what a crowd said of them.

        ``X`` is an array of features (n, d) or images (n, h, w[, channels]), or a map-style data set. ``annotations`` is
        an `Annotations`, a long table, a matrix (n, R) with missing values, or labels (n,) of a single source.
        With ``run_dir`` the run can be interrupted at any time, and continued with ``resume=run_dir``. In the folder
        ``share`` the first stages that methods have in common (BLTM and TAIDTM: warm-up and global network) are kept, and
        taken from where an earlier fit with the same data, seed and settings left them. ``observer`` is called after every
        epoch with its record, and a function from instances to their probabilities as the classifier now sees them.
        """
        check_parameters(self)
        crowd = as_annotations(annotations, len(X))
        run, seed = self._open_run(run_dir, resume), self._seed()
        device = distributed.join(resolve_device(self.device))
        problem = Problem.make(
            X,
            crowd,
            device=device,
            seed=seed,
            prepare=self.prepare,
            reduction=self.reduction,
            validation_fraction=self.validation_fraction,
        )
        if self.keep == "best" and not len(problem.validation):
            raise ConfigError(
                "keep='best' needs held-out instances with annotations, but there are none: "
                f"validation_fraction={self.validation_fraction:g} of {len(problem.train)} labelled instances"
            )
        data = fingerprint(problem.train.inputs, crowd) if run is not None or share is not None else None
        shared = SharedStages(share, {"data": data, "seed": seed}) if share is not None else None
        with run.locked() if run is not None else nullcontext():
            if run is not None and distributed.rank() == 0:
                description = {"method": self.name, "parameters": self._json_parameters(), "data": data}
                defaults = type(self)()._json_parameters()
                run.resume(description, defaults) if resume is not None else run.start(description)
            engine = Engine(
                problem,
                precision=self.precision,
                verbose=self.verbose,
                title=self.name,
                run=run,
                shared=shared,
                observer=observer,
            )
            fitted = engine.run(self.stages(engine))
            fitted.arrays["skill"] = annotator_skill(engine, fitted.classifier, fitted.transition)
            self._adopt(fitted, problem.prepare, crowd.classes, crowd.annotators)
            self.history_ = engine.history
            if run is not None and distributed.rank() == 0:
                self.save(run.path / "model")
                run.finish()
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
        for name, value in parameters.items():
            if isinstance(value, tuple):
                parameters[name] = list(value)
        if not isinstance(self.random_state, int):
            parameters["random_state"] = None
        return parameters

    def _adopt(self, fitted: Fitted, prepare: Prepare, classes: Array, annotators: Array) -> None:
        self.classifier_ = fitted.classifier.eval()
        self.transition_ = fitted.transition.eval() if fitted.transition is not None else None
        self.prepare_ = prepare
        self.classes_, self.annotators_ = classes, annotators
        self.n_features_in_ = int(np.prod(prepare.shape))
        self.arrays_ = fitted.arrays

    # pieces for subclasses

    def new_classifier(self, engine: Engine, name: str) -> Classifier:
        """A classifier with starting weights that depend on ``random_state`` and ``name`` alone."""
        problem = engine.problem
        classifier: Classifier = build(
            engine, name, lambda: Classifier(self._backbone(), problem.shape, problem.n_classes, self.backbone_options)
        )
        return classifier

    def _backbone(self) -> str | nn.Module:
        if not isinstance(self.backbone, nn.Module):
            return self.backbone
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
        return Stage(
            name,
            engine.problem.train if units is None else units,
            loss,
            {"classifier": Group(classifier, self.rate(engine.problem), self.weight_decay), **(also or {})},
            self.epochs,
            self.batch_size,
            self.optimiser,
            self.momentum,
            self.schedule(),
            score=classifier,
            keep=self.keep,
            before_epoch=before_epoch,
        )

    def decided_by(self, *names: str) -> dict[str, Any] | None:
        """The named parameters and those that every stage depends on, for `Stage.shared`; None with a module as backbone."""
        if isinstance(self.backbone, nn.Module):
            return None
        common = ("backbone", "backbone_options", "prepare", "batch_size", "optimiser", "momentum", "reduction")
        names = (*common, "validation_fraction", "precision", *names)
        return {name: getattr(self, name) for name in names}

    def rate(self, problem: Problem) -> float:
        """The learning rate of the classifier stage: ``lr``, or where that is None, what suits the data."""
        return 0.01 if self.lr is None else self.lr

    def enough_epochs(self, epochs: int | None, usual: int, steps: int, examples: int) -> int:
        """``epochs``; where these are None, the ``usual`` ones, or as many more as make ``steps`` steps over few examples."""
        if epochs is not None:
            return epochs
        return max(usual, math.ceil(steps * self.batch_size / max(examples, self.batch_size)))

    def schedule(self) -> Callable[[int], float]:
        """The learning-rate schedule of the classifier stage."""
        epochs = [round(at * self.epochs) if at < 1 else int(at) for at in self.milestones]
        return step_schedule(epochs, self.gamma)

    # files

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a directory (safetensors and JSON, data only); read it with `crowdwise.load`."""
        self._fitted_classifier()
        tensors = {f"classifier/{k}": v for k, v in self.classifier_.state_dict().items()}
        tensors |= {f"prepare/{k}": v for k, v in self.prepare_.state_dict().items()}
        if self.transition_ is not None:
            tensors |= {f"transition/{k}": v for k, v in self.transition_.state_dict().items()}
        tensors |= {f"array/{k}": torch.from_numpy(np.ascontiguousarray(v)) for k, v in self.arrays_.items()}
        about = {
            "method": self.name,
            "parameters": self._json_parameters(),
            "classes": self.classes_.tolist(),
            "annotators": self.annotators_.tolist(),
            "prepare": {"mode": self.prepare_.mode, "shape": self.prepare_.shape, "scale": self.prepare_.scale},
            "history": self.history_,
        }
        return save_model(Path(path), tensors, about)

    def _restore(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.split("/", 1)[1]: v for k, v in tensors.items() if k.startswith(prefix + "/")}

        shape = tuple(map(int, about["prepare"]["shape"]))

        def new_prepare() -> Prepare:
            return Prepare(about["prepare"]["mode"], shape, scale=float(about["prepare"]["scale"]))

        def new_classifier() -> Classifier:
            return Classifier(self._backbone(), shape, len(about["classes"]), self.backbone_options)

        prepare: Prepare = _restored(new_prepare, part("prepare"))
        classifier: Classifier = _restored(new_classifier, part("classifier"))
        saved = part("transition")
        transition = _restored(lambda: self.build_transition(shape, saved), saved) if saved else None
        arrays = {name: tensor.numpy() for name, tensor in part("array").items()}
        self._adopt(
            Fitted(classifier, transition, arrays), prepare, np.array(about["classes"]), np.array(about["annotators"])
        )
        self.history_ = about["history"]


def _restored(make: Callable[[], Any], tensors: Mapping[str, Tensor]) -> Any:
    """A module with saved weights; that these fit is found out before the module takes any memory."""
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in make().state_dict().items()}
    if expected != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
        raise ModelFileError("the weights are not those of the network that the model describes")
    module = make()
    module.load_state_dict(tensors)
    return module


def build(engine: Engine, name: str, make: Callable[[], Any]) -> Any:
    """Make a module with seeded starting weights and put it on the engine's device."""
    with seeded(derive_seed(engine.problem.seed, "init", name), torch.device("cpu")):
        module = make()
    module.to(engine.device)
    if engine.device.type == "cuda":
        module.to(memory_format=torch.channels_last)
    return module


def load(path: str | Path, *, backbone: nn.Module | None = None, device: str = "auto") -> CrowdClassifier:
    """Read a model that `CrowdClassifier.save` wrote. Nothing in the files is executed.

    A model that was trained with a module of yours as its backbone needs one of the same kind: ``backbone=``.
    """
    from crowdwise.registry import METHODS

    tensors, about = load_model(Path(path))
    try:
        parameters = dict(about["parameters"])
        if str(parameters.get("backbone", "")).startswith("module:"):
            if backbone is None:
                raise ConfigError(
                    f"{path} was trained with your own backbone ({parameters['backbone'][7:]}): "
                    "pass load(..., backbone=module)"
                )
            parameters["backbone"] = backbone
        model: CrowdClassifier = METHODS[about["method"]](**parameters, device=device)
        model._restore(tensors, about)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except CrowdwiseError:
        raise
    except Exception as error:  # checksums hold, so somebody made the file: what it says may be anything
        raise ModelFileError(f"{path} does not describe a model: {type(error).__name__}: {error}") from error
    return model
