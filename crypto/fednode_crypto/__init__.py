"""Secure sums: many parties add integers that nobody can read, and only the sum is ever opened.

A short tour. `plan("ring", Demand(...))` gives `SumParams`, which everyone agrees on by `digest()`.
`scheme(params.scheme)` gives the verbs, by role:

    client   sealer(params, key).seal(values, rng, context) -> Sealing: .payload; .shares, each for a holder's box
    node     zero(params), then .absorb(payload) or .add(payload), .merge(other) -> SealedSum
    release  check_answer(params, answer), as each comes
             combine(params, total, answers, context) -> the exact int64 sum
    holder   `ring` (boxed):  check_share(params, share);  answer(params, shares of one roster)
             `bfv` (keyed):   contribute -> commitment, then reveal and shares;  join(shares);  answer(share, request)

Errors: WrongParameters (cannot work), Overflow (does not fit), Tampered (bytes from outside are bad; BadSignature and
WrongAnswer are kinds of it), NotEnoughShares. Randomness is an argument; `SystemRng` is the one for real runs.
`noise_tail` says how much room noise needs. Noise is drawn in `fednode_crypto.noise`; signatures and boxes are in
`fednode_crypto.identity`.
"""

from fednode_crypto.errors import CryptoError, NotEnoughShares, Overflow, Tampered, WrongParameters
from fednode_crypto.interfaces import BoxedScheme, KeyedScheme, SealedSum, Sealing, SumScheme, WrongAnswer, scheme
from fednode_crypto.params import SumParams
from fednode_crypto.planner import Demand, noise_tail, plan
from fednode_crypto.rng import Rng, SystemRng

__all__ = [
    "BoxedScheme",
    "CryptoError",
    "Demand",
    "KeyedScheme",
    "NotEnoughShares",
    "Overflow",
    "Rng",
    "SealedSum",
    "Sealing",
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
