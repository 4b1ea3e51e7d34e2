"""Hypothesis strategies for what anybody may send."""

from hypothesis import strategies as st

WORDS = st.sampled_from(
    ["node", "model", "models", "name", "qwen", "node-a", "replicas", "url", "id", "encoding", "catalog"]
)


def json_values() -> st.SearchStrategy[object]:
    """Any JSON value, biased to words that mean something here; with lone surrogates, as Python's parser lets in."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | WORDS
        | st.text(st.characters(codec=None), max_size=20)
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4),
        max_leaves=8,
    )
