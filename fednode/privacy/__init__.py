"""Privacy: events describe releases, the accountant prices them, the ledger records the charge before an opening."""

from fednode.privacy.accountant import (
    attack_advantage,
    attack_tpr,
    epsilon,
    gaussian_epsilon_of_mu,
    gaussian_mu,
    group_epsilon,
    renyi_epsilon,
    rounds_left,
)
from fednode.privacy.budget import Budget
from fednode.privacy.calibrate import NoiseRequest, local_variance
from fednode.privacy.chain import ChargeRecord, History, LedgerEntry
from fednode.privacy.composition import dearest, paid_by_client
from fednode.privacy.ledger import Ledger, Receipt
from fednode.privacy.mechanism import DiscreteGaussianSum, honest_contributors

__all__ = [
    "Budget",
    "ChargeRecord",
    "DiscreteGaussianSum",
    "History",
    "Ledger",
    "LedgerEntry",
    "NoiseRequest",
    "Receipt",
    "attack_advantage",
    "attack_tpr",
    "dearest",
    "epsilon",
    "gaussian_epsilon_of_mu",
    "gaussian_mu",
    "group_epsilon",
    "honest_contributors",
    "local_variance",
    "paid_by_client",
    "renyi_epsilon",
    "rounds_left",
]
