"""What a fit leaves behind: put in place, written to files, and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from crowdwise import encoders
from crowdwise.engine.intake import Intake
from crowdwise.engine.prepare import Prepare
from crowdwise.errors import ConfigError, CrowdwiseError, ModelFileError
from crowdwise.methods.core.files import load_model, named_ids, packed_ids, save_model, unpacked_ids
from crowdwise.methods.core.prediction import Array, Predictor
from crowdwise.networks import Classifier, ConstantTransition

if TYPE_CHECKING:
    from crowdwise.methods.core.base import CrowdClassifier


@dataclass
class Fitted:
    """What a method returns at the end of its stages."""

    classifier: nn.Module
    transition: nn.Module | None = None  # a `Transition`
    arrays: dict[str, Array] = field(default_factory=dict)  # saved with the model, see `attributes`
    honest: Tensor | None = None
    """ln f(x) of the training units (N, K, C) by K networks that were not trained on them; None: there are no such networks."""


class Saved(Predictor):
    """A fitted method that can be written to files."""

    def build_transition(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> nn.Module:
        """An untrained transition network into which saved ``tensors`` fit."""
        return ConstantTransition(tensors["matrices"])

    def _classifier(self, shape: tuple[int, ...], n_classes: int) -> Classifier:
        raise NotImplementedError(f"{type(self).__name__} does not say what its classifier is")

    def _json_parameters(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} does not say what its parameters are")

    def _adopt(self, fitted: Fitted, prepare: Prepare, intake: Intake, classes: Array, annotators: Array) -> None:
        self.classifier_ = fitted.classifier.eval()
        self.transition_ = fitted.transition.eval() if fitted.transition is not None else None
        self.prepare_, self.intake_ = prepare, intake
        self.classes_, self.annotators_ = classes, annotators
        self.n_features_in_ = int(np.prod(prepare.shape)) if intake.weights is None else len(intake.weights)
        if intake.columns is not None:
            self.feature_names_in_ = np.array(intake.columns, dtype=object)
        self.arrays_ = fitted.arrays

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to a directory (safetensors and JSON, data only); read it with `crowdwise.load`."""
        self._fitted_classifier()
        tensors = {f"classifier/{k}": v for k, v in self.classifier_.state_dict().items()}
        tensors |= {f"prepare/{k}": v for k, v in self.prepare_.state_dict().items()}
        if self.transition_ is not None:
            tensors |= {f"transition/{k}": v for k, v in self.transition_.state_dict().items()}
        tensors |= {f"intake/{k}": torch.from_numpy(v) for k, v in self.intake_.arrays().items()}
        encoder = self.intake_.encoder
        if encoder is not None:
            tensors |= {f"encoder/{k}": torch.from_numpy(np.ascontiguousarray(v)) for k, v in encoder.arrays_.items()}
        tensors |= {f"array/{k}": torch.from_numpy(np.ascontiguousarray(v)) for k, v in self.arrays_.items()}
        tensors |= {f"instances/{k}": torch.from_numpy(v) for k, v in packed_ids(self.instances_).items()}
        about = {
            "method": self.name,
            "parameters": self._json_parameters(),
            "classes": self.classes_.tolist(),
            "annotators": self.annotators_.tolist(),
            "prepare": {"mode": self.prepare_.mode, "shape": self.prepare_.shape, "scale": self.prepare_.scale},
            "columns": self.intake_.columns,
            "mirrored": self.mirrored_,
            "id_column": self.id_column_,
            "encoder": None if encoder is None else encoder.state(),
            "history": self.history_,
            "warnings": self.warnings_,
        }
        return save_model(Path(path), tensors, about)

    def _restore(self, tensors: dict[str, Tensor], about: dict[str, Any], encoder: encoders.Encoder | None) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.split("/", 1)[1]: v for k, v in tensors.items() if k.startswith(prefix + "/")}

        shape = tuple(map(int, about["prepare"]["shape"]))

        self._check_sizes(shape, tensors, about)

        def new_prepare() -> Prepare:
            return Prepare(about["prepare"]["mode"], shape, scale=float(about["prepare"]["scale"]))

        def new_classifier() -> Classifier:
            return self._classifier(shape, len(about["classes"]))

        prepare: Prepare = _restored(new_prepare, part("prepare"))
        classifier: Classifier = _restored(new_classifier, part("classifier"))
        saved = part("transition")
        transition = _restored(lambda: self.build_transition(shape, saved), saved) if saved else None
        columns = about.get("columns")  # models of earlier versions have none
        intake = Intake(
            tuple(map(str, columns)) if columns is not None else None,
            **{name: tensor.numpy() for name, tensor in part("intake").items()},
            encoder=encoder,
        )
        arrays = {name: tensor.numpy() for name, tensor in part("array").items()}
        self._adopt(
            Fitted(classifier, transition, arrays),
            prepare,
            intake,
            named_ids(about["classes"], "classes"),
            named_ids(about["annotators"], "annotators"),
        )
        self.mirrored_ = bool(about.get("mirrored", False))
        ids = unpacked_ids({name: tensor.numpy() for name, tensor in part("instances").items()})
        self.instances_ = np.arange(len(arrays.get("posterior", ()))) if ids is None else ids
        self.id_column_ = about.get("id_column")
        self.history_ = about["history"]
        self.warnings_ = list(map(str, about.get("warnings", [])))

    def n_networks(self, shape: tuple[int, ...]) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not say how many networks it has")

    def _check_sizes(self, shape: tuple[int, ...], tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Refuse a description that does not match the weights, before networks are built from it."""
        weight = tensors.get("classifier/linear.weight")
        if weight is None:
            raise ModelFileError("its weights have no classifier")
        there = len(weight) if weight.ndim == 3 else 1  # several networks are stacked: (K, d, C)
        described = self.n_networks(shape)
        if described != there:
            raise ModelFileError(f"it describes {described!r} networks, but has the weights of {there}")
        if about.get("mirrored") and len(shape) != 3:
            raise ModelFileError(f"it says that training mirrored pictures, but its instances have the shape {shape}")


def _restored(make: Callable[[], Any], tensors: Mapping[str, Tensor]) -> Any:
    """A module with saved weights; that these fit is found out before the module takes any memory."""
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in make().state_dict().items()}
    if expected != {name: tuple(tensor.shape) for name, tensor in tensors.items()}:
        raise ModelFileError("the weights are not those of the network that the model describes")
    module = make()
    module.load_state_dict(tensors)
    return module


def load(
    path: str | Path,
    *,
    backbone: nn.Module | Callable[[], nn.Module] | None = None,
    encoder: Any = None,
    device: str = "auto",
) -> CrowdClassifier:
    """Read a model that `CrowdClassifier.save` wrote. Nothing in the files is executed.

    A model that was trained with a module of yours as its backbone needs one of the same kind: ``backbone=``; one that was
    trained with a transformer of yours as its encoder needs that, fitted: ``encoder=``.
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
        for name, value in parameters.items():
            if isinstance(value, str) and value.startswith("function:"):
                parameters[name] = None  # a schedule, for instance: of no use in prediction
        state, fitted = about.get("encoder"), None
        if state is not None:
            arrays = {k.split("/", 1)[1]: v.numpy() for k, v in tensors.items() if k.startswith("encoder/")}
            fitted = encoders.restore(state, arrays, encoder, path)
        if encoder is not None:
            parameters["encoder"] = encoder
        model: CrowdClassifier = METHODS[about["method"]](**parameters, device=device)
        model._restore(tensors, about, fitted)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except CrowdwiseError:
        raise
    except Exception as error:  # checksums hold, so somebody made the file: what it says may be anything
        raise ModelFileError(f"{path} does not describe a model: {type(error).__name__}: {error}") from error
    return model
