"""What a compaction costs, beside other packages' on the same conversation in the same run."""
