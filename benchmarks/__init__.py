"""Speed and memory, as ratios against a baseline in the same run. Run ``make bench``."""
