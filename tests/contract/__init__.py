"""One list of checks that every estimator goes through."""
