"""Prime moduli as SEAL picks them, and their roots of unity. Plain Python integers; nothing here is secret."""

from functools import lru_cache

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def is_prime(number: int) -> bool:
    """Return whether `number` (below 2^64) is prime; never wrong there (Miller-Rabin with the first twelve primes)."""
    if number < 2 or any(number % p == 0 for p in _WITNESSES):
        return number in _WITNESSES
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    odd = (number - 1) >> twos
    return all(_passes(pow(w, odd, number), number, twos) for w in _WITNESSES)


def _passes(power: int, number: int, twos: int) -> bool:
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


@lru_cache(maxsize=256)
def largest_primes(degree: int, bits: int, count: int) -> tuple[int, ...]:
    """Return the `count` largest primes of exactly `bits` bits that are 1 mod 2 * degree, largest first.

    ValueError if there are fewer.
    """
    step = 2 * degree
    candidate = ((1 << bits) - 1) // step * step + 1
    if candidate >> bits:
        candidate -= step
    found: list[int] = []
    while len(found) < count and candidate >> (bits - 1):
        if is_prime(candidate):
            found.append(candidate)
        candidate -= step
    if len(found) < count:
        raise ValueError(f"there are no {count} primes of {bits} bits that are 1 mod {step}: take more bits")
    return tuple(found)


def seal_primes(degree: int, bits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the primes that SEAL's `CoeffModulus::Create(degree, bits)` returns, in its order.

    Of several primes of one size the smallest comes first. ValueError if there are not enough of a size.
    """
    pools = {size: list(largest_primes(degree, size, bits.count(size))) for size in set(bits)}
    return tuple(pools[size].pop() for size in bits)


@lru_cache(maxsize=64)
def minimal_root(prime: int, degree: int) -> int:
    """Return the smallest primitive (2 * degree)-th root of unity mod `prime`, the one that SEAL orders its NTT by."""
    root = next(
        r for r in (pow(g, (prime - 1) // (2 * degree), prime) for g in range(2, 1000)) if pow(r, degree, prime) != 1
    )
    square, power, least = root * root % prime, root, root
    for _ in range(degree):
        power = power * square % prime
        least = min(least, power)
    return least


def bit_reversed(degree: int) -> list[int]:
    """Return, for each index below `degree` (a power of two), the index with its bits reversed."""
    order = [0]
    while len(order) < degree:
        order = [2 * i for i in order] + [2 * i + 1 for i in order]
    return order
