"""Privacy: events say what was done, the accountant prices them, the ledger holds the charge before a sum is opened."""

from fednode.privacy.accountant import (
    attack_advantage,
    attack_tpr,
    epsilon,
    epsilon_profile,
    gaussian_epsilon,
    gaussian_epsilon_of_mu,
    gaussian_mu,
)
from fednode.privacy.budget import Budget
from fednode.privacy.calibrate import NoiseRequest, local_variance
from fednode.privacy.chain import Charge, Entry
from fednode.privacy.ledger import Ledger, Receipt
from fednode.privacy.mechanism import DiscreteGaussianSum, honest_contributors

__all__ = [
    "Budget",
    "Charge",
    "DiscreteGaussianSum",
    "Entry",
    "Ledger",
    "NoiseRequest",
    "Receipt",
    "attack_advantage",
    "attack_tpr",
    "epsilon",
    "epsilon_profile",
    "gaussian_epsilon",
    "gaussian_epsilon_of_mu",
    "gaussian_mu",
    "honest_contributors",
    "local_variance",
]
