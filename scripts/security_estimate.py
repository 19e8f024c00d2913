"""How hard ring-LWE is: two lattice attacks, priced by three models. Prints a table of docs/crypto.md.

Method: Alkim, Ducas, Poeppelmann, Schwabe, "Post-quantum key exchange - a new hope" (2016), section 6: the primal
attack with the 2016 estimate for a unique shortest vector, and the dual attack, with as many samples as are best. A
secret of another width than the error is rescaled (Bai and Galbraith 2014). The ring is taken as a plain lattice. Not
covered: attacks that guess part of the secret (they matter for ternary and sparse ones) and the newer dual attacks.
Run it: python -m scripts.security_estimate
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, e, exp, floor, log2, pi, sqrt
from typing import Final

SIEVE: Final = 0.292
"""Classical sieving in dimension b takes 2^(0.292 b) (Becker, Ducas, Gama, Laarhoven 2016), constants left out."""

FOUND_AT_ONCE: Final = 0.2075
"""A sieve in dimension b yields 2^(0.2075 b) short vectors at once."""

OVERHEAD: Final = 16.4
"""What one sieve costs over 2^(0.292 b), in bits, in the estimator behind the HomomorphicEncryption.org table."""

TERNARY: Final = sqrt(2 / 3)
"""Standard deviation of a uniform secret from -1, 0, 1."""

WIDTH: Final = 6.4
"""Standard deviation of the secrets and errors of scheme `ring`."""

RINGS: Final = ((4096, 109), (8192, 218))
HONEST: Final = (2, 3, 10)

_BLOCK_SIZES: Final = range(60, 20_000)


@dataclass(frozen=True, slots=True)
class Lwe:
    """An instance: dimension, log2 of the modulus, standard deviations of secret and error, samples at hand."""

    dimension: int
    modulus_bits: float
    secret: float
    error: float
    samples: int

    @property
    def stretch(self) -> float:
        """log2 of the factor that brings the secret to the width of the error."""
        return log2(self.error / self.secret)


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack at its best: block size, samples taken, lattice dimension, log2 of how often it is repeated."""

    name: str
    block_size: int
    samples: int
    lattice: int
    repeats: float = 0.0

    @property
    def core_svp(self) -> float:
        """Bits by core-SVP: one call of a sieve without constants, repeated. A lower bound in this method."""
        return SIEVE * self.block_size + self.repeats

    @property
    def one_sieve(self) -> float:
        """Bits with the overhead of one sieve."""
        return self.core_svp + OVERHEAD

    @property
    def standard(self) -> float:
        """Bits as the HomomorphicEncryption.org table counts them: 8 d sieves, each with its overhead."""
        return self.one_sieve + log2(8 * self.lattice)


def root_hermite(block_size: int) -> float:
    """Return log2 of the root Hermite factor that BKZ reaches (Chen 2013); sound from block size 50 or so."""
    b = block_size
    return log2((pi * b) ** (1 / b) * b / (2 * pi * e)) / (2 * (b - 1))


def primal(lwe: Lwe) -> Attack:
    """Return the primal attack with the smallest block size, 60 or more, that succeeds.

    Raises ValueError when none below 20,000 does.
    """
    at = bisect_left(_BLOCK_SIZES, True, key=lambda b: _primal_samples(lwe, b) is not None)
    if at == len(_BLOCK_SIZES):
        raise ValueError("no block size below 20,000 is enough: take a larger modulus or narrower errors")
    block_size = _BLOCK_SIZES[at]
    samples = _primal_samples(lwe, block_size) or 0
    return Attack("primal", block_size, samples, lwe.dimension + samples + 1)


def _primal_samples(lwe: Lwe, block_size: int) -> int | None:
    """The best number of samples if BKZ finds the secret with it: sigma sqrt(b) <= delta^(2b - d - 1) vol^(1/d)."""
    n, delta = lwe.dimension, root_hermite(block_size)
    best = sqrt(max(1.0, (n + 1) * lwe.modulus_bits - n * lwe.stretch) / delta)
    for samples in _around(best - n - 1, lwe.samples):
        d = n + samples + 1
        volume = (samples * lwe.modulus_bits + n * lwe.stretch) / d
        if log2(lwe.error * sqrt(block_size)) <= (2 * block_size - d - 1) * delta + volume:
            return samples
    return None


def dual(lwe: Lwe) -> Attack:
    """Return the cheapest dual attack: short dual vectors tell samples from noise, enough of them for certainty."""
    return min((_dual_at(lwe, b) for b in range(60, primal(lwe).block_size + 60)), key=lambda attack: attack.core_svp)


def _dual_at(lwe: Lwe, block_size: int) -> Attack:
    n, delta = lwe.dimension, root_hermite(block_size)
    best = sqrt(n * (lwe.modulus_bits - lwe.stretch) / delta)
    samples = min(_around(best - n, lwe.samples), key=lambda m: _dual_length(lwe, delta, n + m))
    # one vector tells with advantage 4 exp(-2 pi^2 tau^2)
    tau = 2.0 ** min(100.0, _dual_length(lwe, delta, n + samples) + log2(lwe.error) - lwe.modulus_bits)
    advantage = 2 - 2 * pi**2 * tau**2 * log2(e)
    repeats = max(0.0, -2 * advantage - FOUND_AT_ONCE * block_size)
    return Attack("dual", block_size, samples, n + samples, repeats)


def _dual_length(lwe: Lwe, delta: float, d: int) -> float:
    return (d - 1) * delta + lwe.dimension * (lwe.modulus_bits - lwe.stretch) / d


def _around(best: float, most: int) -> tuple[int, int]:
    return min(most, max(1, floor(best))), min(most, max(1, ceil(best)))


def cheapest(lwe: Lwe) -> Attack:
    """Return the cheaper one of both attacks by core-SVP."""
    return min(primal(lwe), dual(lwe), key=lambda attack: attack.core_svp)


def largest_modulus(degree: int, width: float, bits: float) -> int:
    """Return the largest log2 of the modulus with which both attacks take at least `bits` bits by core-SVP."""
    hard = (
        size for size in range(degree // 16, 10, -1) if cheapest(ring_lwe(degree, size, width, width)).core_svp >= bits
    )
    return next(hard)


def ring_lwe(degree: int, modulus_bits: float, secret: float, error: float) -> Lwe:
    """Return ring-LWE of that degree with two polynomials of samples; the best attacks need less."""
    return Lwe(degree, modulus_bits, secret, error, 2 * degree)


def conditional_width(honest: int, width: float = WIDTH) -> float:
    """Return the standard deviation of one of `honest` equal Gaussians, given their sum."""
    return width * sqrt((honest - 1) / honest)


def proven_width(honest: int, width: float = WIDTH) -> float:
    """Return the width of plain ring-LWE that reduces to ring-LWE with the hint s + (honest - 1 more of its kind).

    1 / sigma_0^2 = 2 (1 / sigma_1^2 + B / sigma_2^2) with B = 1 and sigma_2^2 = (honest - 1) sigma_1^2.
    Source: Kim, Lee, Seo, Song, "Toward practical lattice-based proof of knowledge from Hint-MLWE" (2023).
    """
    return sqrt(1 / (2 * (1 / width**2 + 1 / ((honest - 1) * width**2))))


def split_loss(width: float) -> float:
    """Return log2 of how far the sum of two discrete Gaussians of `width` over Z is from one, in one coordinate.

    Poisson summation: at most x / (1 - x), x = 2 exp(-pi^2 width^2) and smaller terms; meant for widths from 2 on.
    """
    return log2(2.001 * exp(-(pi**2) * width**2))


def rows() -> Iterator[str]:
    """Yield the rows of the table of docs/crypto.md."""
    for degree, bits in RINGS:
        for honest in HONEST:
            # more honest survivors make the later steps of the proof harder, not its first: that is the floor for all
            step = "proven" if honest == HONEST[0] else "one step"
            for what, width in ((step, proven_width(honest)), ("given S", conditional_width(honest))):
                yield row(f"{degree:,} | {bits} | {honest} | {what}", ring_lwe(degree, bits, width, width))
        yield row(f"{degree:,} | {bits} | no hint | fresh", ring_lwe(degree, bits, WIDTH, WIDTH))
        yield row(f"{degree:,} | {bits} | `bfv` | ternary", ring_lwe(degree, bits, TERNARY, 3.2))


def row(head: str, lwe: Lwe) -> str:
    """Return one row: what it is, widths, block size, bits by each model, bits of the dual attack."""
    best, other = primal(lwe), dual(lwe)
    widths = f"{lwe.secret:.2f}" if lwe.secret == lwe.error else f"{lwe.secret:.2f}, {lwe.error:.2f}"
    bits = f"{best.core_svp:.0f} | {best.one_sieve:.0f} | {best.standard:.0f}"
    return f"| {head} | {widths} | {best.block_size} | {bits} | {other.core_svp:.0f} |"


def main() -> None:
    """Print the table."""
    print("| N | log q | honest | width is | sigma | block size | core-SVP | + 16.4 | HE standard | dual, core-SVP |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
