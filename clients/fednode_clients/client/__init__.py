"""A client's side of a round: consent, its copy of the model, clip, noise, seal."""
