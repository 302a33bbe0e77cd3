"""From return curves to the metrics, intervals and comparisons of a study."""
