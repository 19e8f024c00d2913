"""Secure sums: many parties add integers that nobody can read, and only the sum is ever opened.

A short tour. `plan("bfv", Demand(...))` gives `SumParams`, which everyone agrees on by `digest()`.
`scheme(params.scheme)` gives the verbs, by role:

    holder   contribute -> commitment, then reveal and shares;   join(shares) -> share;   answer(share, request)
    client   sealer(joint_key(...)).seal(values, rng) -> bytes
    node     zero(params).add(payload).merge(other) -> SealedSum, .request()
    release  combine(total, answers) -> the exact int64 sum

Errors: WrongParameters (cannot work), Overflow (does not fit), Tampered (bytes from outside are bad; BadSignature and
WrongAnswer are kinds of it), NotEnoughShares. Randomness is an argument; `SystemRng` is the one for real runs.
`noise_tail` says how much room noise needs. Noise is drawn in `fednode_crypto.noise`; signatures and boxes are in
`fednode_crypto.identity`.
"""

from fednode_crypto.errors import CryptoError, NotEnoughShares, Overflow, Tampered, WrongParameters
from fednode_crypto.params import SumParams
from fednode_crypto.planner import Demand, noise_tail, plan
from fednode_crypto.rng import Rng, SystemRng
from fednode_crypto.scheme import SealedSum, SumScheme, WrongAnswer, scheme

__all__ = [
    "CryptoError",
    "Demand",
    "NotEnoughShares",
    "Overflow",
    "Rng",
    "SealedSum",
    "SumParams",
    "SumScheme",
    "SystemRng",
    "Tampered",
    "WrongAnswer",
    "WrongParameters",
    "noise_tail",
    "plan",
    "scheme",
]
