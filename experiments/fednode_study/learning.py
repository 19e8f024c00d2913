"""What a client of the experiment computes: the clipped gradient sum over its share, at the model it was given."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fednode.errors import PeerFault
from fednode.protocol.model import Layout
from fednode.reasons import Reason
from fednode_clients.membership import Place
from fednode_clients.training.gradients import GradientSum, clipped_gradient_sum
from fednode_clients.training.models import linear_head, load_vector, travelling
from fednode_study.experiment import ExperimentConfig, load_experiment


def local_sum(place: Place, arrays: Mapping[str, NDArray[np.generic]], clip: float) -> GradientSum:
    """The sum over this client's records, each clipped to `clip`. Raises `PeerFault("wrong-shape")` for another
    model's arrays."""
    experiment = load_experiment(ExperimentConfig.from_run_config(place.run))
    rows, labels = experiment.share(place.partition())
    model = linear_head(experiment.featuriser.dimension, len(experiment.dataset.labels))
    wanted = Layout.of({name: parameter.detach().numpy() for name, parameter in travelling(model)})
    try:
        load_vector(model, wanted.flatten(arrays))
    except ValueError as error:
        raise PeerFault(Reason.WRONG_SHAPE, str(error)) from error
    return clipped_gradient_sum(model, rows, labels, clip)
