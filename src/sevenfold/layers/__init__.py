"""The seven layers, cheapest first. Each is usable alone; they meet in `ladder`."""
