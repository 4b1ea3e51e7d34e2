"""Properties are tried with as many examples as `tests.effort` says, and a busy machine fails none of them."""

from hypothesis import settings

from tests.effort import examples

settings.register_profile("house", max_examples=examples(50), deadline=None)
settings.load_profile("house")
