"""What accuracy a privacy budget buys: one command a row, from whole encrypted runs. `python -m privacy_utility -h`."""
