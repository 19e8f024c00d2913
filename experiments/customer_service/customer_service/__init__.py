"""The customer-service experiment as a Flower app."""
