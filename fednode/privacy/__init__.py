"""Privacy: events describe releases, the accountant prices them, the ledger records the charge before an opening."""

from fednode.privacy.accountant import (
    attack_advantage,
    attack_tpr,
    epsilon,
    gaussian_epsilon_of_mu,
    gaussian_mu,
    gaussian_mu_of_epsilon,
    group_epsilon,
    member_epsilon,
    renyi_epsilon,
    rounds_left,
)
from fednode.privacy.adaptive import AdaptiveClip
from fednode.privacy.budget import Budget
from fednode.privacy.calibrate import NoiseRequest, coarsest_grid, local_variance
from fednode.privacy.chain import ChargeRecord, History, LedgerEntry
from fednode.privacy.composition import dearest, paid_by_client
from fednode.privacy.ledger import Ledger, Receipt
from fednode.privacy.mechanism import DiscreteGaussianSum

__all__ = [
    "AdaptiveClip",
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
    "coarsest_grid",
    "dearest",
    "epsilon",
    "gaussian_epsilon_of_mu",
    "gaussian_mu",
    "gaussian_mu_of_epsilon",
    "group_epsilon",
    "local_variance",
    "member_epsilon",
    "paid_by_client",
    "renyi_epsilon",
    "rounds_left",
]
