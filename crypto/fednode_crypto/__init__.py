"""Secure sums: many parties add integers that nobody can read, and only the sum is opened.

`plan("ring", Demand(...))` returns `SumParams`, on which all parties agree by `digest()`.
`scheme(params.scheme)` returns the verbs, by role:

    client   sealer(params, key).seal(values, rng, context) -> Sealing: .payload; .shares, each for a holder's box;
             .check(challenge) -> what shows the holders that the shares belong together
    node     zero(params), then .absorb(payload) or .add(payload), .merge(other) -> SealedSum
    release  check_answer(params, answer) for each answer
             combine(params, total, answers, context) -> the exact int64 sum
    holder   `ring` (boxed):  check_share(params, share, point, challenge, check);  answer(params, shares of one roster)
             `bfv` (keyed):   contribute -> commitment, then reveal and shares;  join(shares);  answer(share, request)

Errors: WrongParameters (cannot work), Overflow (does not fit), Tampered (bytes from outside are wrong; BadSignature and
WrongAnswer are kinds of it), NotEnoughShares. Randomness is an argument; real runs use `SystemRng`. `noise_tail` bounds
noise. Noise is drawn in `fednode_crypto.noise`; signatures and boxes are in `fednode_crypto.identity`.

Importing this package loads neither compiled kernels nor TenSEAL: `scheme` imports them on first use.
"""

from fednode_crypto.errors import CryptoError, NotEnoughShares, Overflow, Tampered, WrongAnswer, WrongParameters
from fednode_crypto.interfaces import BoxedScheme, KeyedScheme, SealedSum, SumScheme
from fednode_crypto.params import Demand, SumParams
from fednode_crypto.registry import params_from_dict, plan, scheme
from fednode_crypto.rng import Rng
from fednode_crypto.secret import Sealing
from fednode_crypto.system_rng import SystemRng
from fednode_crypto.tail_bounds import noise_tail

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
    "params_from_dict",
    "plan",
    "scheme",
]
