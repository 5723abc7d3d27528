"""How good each annotator is, in the eyes of a trained model."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from crowdwise.engine import Engine
from crowdwise.engine.tensors import pairs_of
from crowdwise.networks.transition import Transition, stretches


def annotator_skill(engine: Engine, classifier: nn.Module, transition: nn.Module | None) -> npt.NDArray[Any]:
    """Mean probability that the label y given by an annotator was right, over its training annotations by weight: (R,).

    That is f_y(x), or with transition matrices f_y(x) T^j(x)[y, y] / sum_p f_p(x) T^j(x)[p, y].
    """
    units, n_annotators = engine.problem.train, engine.problem.n_annotators
    posterior = torch.softmax(engine.evaluate(classifier, units).double(), 1)
    row, _ = pairs_of(units.indptr, torch.arange(len(units), device=units.device))
    right = posterior[row, units.label]
    if transition is not None:
        network = cast(Transition, transition.to(units.device))
        features = engine.evaluate(transition, units, network.features)
        for part, logits in stretches(network, features, row, units.annotator):
            matrices = torch.softmax(logits.double(), 2)
            given = units.label[part, None]
            columns = matrices.gather(2, given[:, :, None].expand(-1, matrices.shape[1], 1)).squeeze(2)
            joint = posterior[row[part]] * columns  # P(class p, label y)
            right[part] = (joint.gather(1, given).squeeze(1) / joint.sum(1).clamp_min(1e-30)).clamp(0, 1)
    nothing = torch.zeros(n_annotators, dtype=torch.float64, device=units.device)
    total = nothing.index_add(0, units.annotator, units.weighed(right))
    count = nothing.index_add(0, units.annotator, units.weighed(torch.ones_like(right)))
    return np.asarray(torch.where(count > 0, total / count, torch.nan).cpu())
