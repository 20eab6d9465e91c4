"""Layer 2: old tool results leave the view, without a summary, when that is cheaper than keeping them."""
