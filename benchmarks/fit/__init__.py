"""Our step beside the steps of other packages, on the same conversation in the same run."""
