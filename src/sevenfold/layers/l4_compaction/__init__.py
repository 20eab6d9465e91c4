"""Layer 4: what happens when the window is nearly full and nothing cheaper has helped."""
