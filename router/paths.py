"""The paths of clients: whatever is a POST whose body names a `model`, answered by an engine under the same path.

A newcomer adds a row. Which of them an engine serves is its own affair: it answers 404 for the others.
"""

JSON_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/moderations",
    "/v1/audio/speech",
    "/v1/images/generations",
    "/v2/rerank",
    "/rerank",
    "/score",
    "/classify",
    "/pooling",
    "/tokenize",
    "/detokenize",
)
FORM_PATHS = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits")
"""Sent as forms with files."""
PATHS = (*JSON_PATHS, *FORM_PATHS)
