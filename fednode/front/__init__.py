"""FedNode from Python: a task, a simulation of it, and what came of it."""
