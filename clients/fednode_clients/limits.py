"""What a member refuses, whatever the node asks: its own floor and cap, from its own configuration."""

from dataclasses import dataclass

from fednode.errors import PeerFault
from fednode.protocol.headroom import update_headroom
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason


@dataclass(frozen=True, slots=True)
class Limits:
    """A member's own terms.

    `min_survivors`: the fewest clients whose sum may be opened; `min_noise`: the least noise multiplier z of a
    released sum (noise over clip, honest survivors only); `max_rounds`: the most rounds of one task;
    `max_tasks`: the most tasks that this member ever takes, for what it knows of one stays on its disk;
    `max_staleness`: how many versions behind the round's own the model of an update may be. Above 0 a node that lies
    can pick which of these models each client trains from, and so shape what a sum tells.
    """

    min_survivors: int = 2
    min_noise: float = 0.5
    max_rounds: int = 1_000
    max_staleness: int = 0
    max_tasks: int = 1_000

    def check(self, spec: RoundSpec, clients: int) -> None:
        """Return if the round is within these limits; `clients` is how many the signed cohort has.

        Raises `PeerFault`: "min-survivors", "noise-floor", "no-room", "staleness" or "round-cap", with the numbers.
        """
        terms = spec.terms
        # a floor that nobody can reach would let every client believe that many others add noise too
        if terms.min_survivors > min(clients, spec.sum_params.summands):
            raise PeerFault(
                Reason.MIN_SURVIVORS,
                f"{terms.min_survivors} survivors are promised, and the cohort has {clients} clients",
            )
        if terms.min_survivors < self.min_survivors:
            raise PeerFault(
                Reason.MIN_SURVIVORS,
                f"the round opens {terms.min_survivors} updates, {self.min_survivors} are my least",
            )
        # two honest members are the least among whom one can hide
        if terms.min_survivors - terms.assumed_colluders < 2:
            raise PeerFault(
                Reason.MIN_SURVIVORS, "fewer than two honest survivors are left if the assumed colluders collude"
            )
        noise = terms.noise_multiplier(spec.sum_params.dimension)
        if not noise >= self.min_noise:
            raise PeerFault(
                Reason.NOISE_FLOOR, f"the noise multiplier is {noise:.4g}, {self.min_noise:.4g} is my least"
            )
        if spec.sum_params.value_bound < update_headroom(terms, spec.sum_params.dimension):
            raise PeerFault(
                Reason.NO_ROOM, "the sum has no room for one honest update: refusing later would tell of my data"
            )
        if terms.staleness > self.max_staleness:
            raise PeerFault(
                Reason.STALENESS,
                f"models of {terms.staleness} versions back are allowed, {self.max_staleness} are my most",
            )
        if spec.round > self.max_rounds:
            raise PeerFault(Reason.ROUND_CAP, f"round {spec.round} of {spec.task}, {self.max_rounds} are my most")
