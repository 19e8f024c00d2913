"""What members are called where nobody named them."""


def member_names(role: str, count: int) -> tuple[str, ...]:
    """Names of one role in a run that enrols its own members: `client-01` to `client-20`, `holder-1` to `holder-5`."""
    width = len(str(count))
    return tuple(f"{role}-{number:0{width}d}" for number in range(1, count + 1))
