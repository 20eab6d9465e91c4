"""Small scripts that drive one other package each, run in that package's own environment."""
