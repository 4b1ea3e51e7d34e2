"""Writes a tiny, deterministic chat model that a real llama.cpp server loads, for the dev stack, tests and benches.

The model recites one fixed sentence whatever it is asked, so a sentence per deployment makes the answer tell which
replica gave it. Attention and feed-forward layers are computed as in any model, but their output projections are zero:
the residual stream stays the last token's embedding. Row j of the output matrix is the embedding of the token that
comes before j in the sentence, so each token predicts its successor, with logits too sharp for sampling to leave it.

Never for serving. It needs `gguf` and `numpy` of the `dev` extra: import it only where a model is to be written.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import gguf
import numpy as np
import numpy.typing as npt

Matrix: TypeAlias = npt.NDArray[np.float32]

N_HEAD = 4
N_FF = 128
CONTEXT_TOKENS = 4096
EPSILON = 1e-5

SPACE = "\u2581"
"""How a SentencePiece vocabulary writes the blank before a word."""
PROMPT_MARK = 4.0
"""Dimension 0 of an embedding: this for a token of the prompt, 0 for a word of the sentence."""
LOGIT = 60.0
"""A right successor's logit; every other token's is near 0."""
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_tiny_gguf(path: Path, text: str, loop: bool = False, n_embd: int = 64, n_layer: int = 2) -> None:
    """Write a GGUF at `path` whose model answers `text`; the same arguments give the same bytes.

    `text` is words apart by blanks, each at most once, since a word is a token and a token has one successor. With
    `loop` the sentence starts over for ever: a stream lasts until `max_tokens` or the context of 4096 tokens. Larger
    `n_embd` (a multiple of 8) and `n_layer` make tokens slower; the defaults make a file of about 350 KB. The file
    appears whole or not at all. ValueError names what is wrong with the arguments.
    """
    if problems := _problems(text, n_embd, n_layer):
        raise ValueError("; ".join(problems))
    vocabulary = _vocabulary(text.split())
    rng = np.random.default_rng(0)
    embedding = _embedding(vocabulary, n_embd, rng)
    tensors = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(n_embd, np.float32),
        "output.weight": _output(vocabulary, embedding, loop),
    }
    for block in range(n_layer):
        tensors |= _block(block, n_embd, rng)
    partial = path.with_name(path.name + ".partial")
    _write(partial, vocabulary, tensors, n_embd, n_layer)
    partial.replace(path)


def _problems(text: str, n_embd: int, n_layer: int) -> list[str]:
    words = text.split()
    repeated = sorted({word for word in words if words.count(word) > 1})
    checks = [
        (not words, "text is empty: give at least one word"),
        (bool(repeated), f"text repeats {', '.join(map(repr, repeated))}: use each word once"),
        (n_embd < 8 or n_embd % 8 != 0, f"n_embd is {n_embd}: use a multiple of 8"),
        (n_layer < 1, f"n_layer is {n_layer}: use at least 1"),
    ]
    return [problem for wrong, problem in checks if wrong]


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Tokens by id, and the ids of the sentence's words in order."""

    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[gguf.TokenType, ...]
    sentence: tuple[int, ...]


UNKNOWN, BEGIN, END = range(3)


def _vocabulary(words: list[str]) -> _Vocabulary:
    """Three special tokens, the 256 bytes that any prompt falls back to, the sentence's words, and plain characters."""
    kinds = gguf.TokenType
    special = [("<unk>", 0.0, kinds.UNKNOWN), ("<s>", 0.0, kinds.CONTROL), ("</s>", 0.0, kinds.CONTROL)]
    fallback = [(f"<0x{byte:02X}>", 0.0, kinds.BYTE) for byte in range(256)]
    sentence = [(SPACE + word, -1.0 - place, kinds.NORMAL) for place, word in enumerate(words)]
    characters = [(character, -1000.0, kinds.NORMAL) for character in [SPACE, *map(chr, range(33, 127))]]
    rows = [*special, *fallback, *sentence, *characters]
    tokens, scores, types = zip(*rows, strict=True)
    start = len(special) + len(fallback)
    return _Vocabulary(tokens, scores, types, tuple(range(start, start + len(words))))


def _embedding(vocabulary: _Vocabulary, n_embd: int, rng: np.random.Generator) -> Matrix:
    """A random direction for each token; dimension 0 tells the prompt's tokens from the sentence's."""
    rows = rng.standard_normal((len(vocabulary.tokens), n_embd)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, 0] = PROMPT_MARK
    rows[list(vocabulary.sentence), 0] = 0.0
    return rows


def _output(vocabulary: _Vocabulary, embedding: Matrix, loop: bool) -> Matrix:
    """The row of each token of the sentence points at what comes before it: a prompt, or another word."""
    gain = np.float32(LOGIT / np.sqrt(embedding.shape[1]))
    rows = np.zeros_like(embedding)
    first, last = vocabulary.sentence[0], vocabulary.sentence[-1]
    rows[first, 0] = gain
    for before, after in [*pairwise(vocabulary.sentence), (last, first if loop else END)]:
        rows[after] += gain * embedding[before]
    return rows


def _block(block: int, n_embd: int, rng: np.random.Generator) -> dict[str, Matrix]:
    """One transformer block: real work, and nothing of it added to the residual stream."""

    def noise(*shape: int) -> Matrix:
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    tensors: dict[str, Matrix] = {
        "attn_norm": np.ones(n_embd, np.float32),
        "attn_q": noise(n_embd, n_embd),
        "attn_k": noise(n_embd, n_embd),
        "attn_v": noise(n_embd, n_embd),
        "attn_output": np.zeros((n_embd, n_embd), np.float32),
        "ffn_norm": np.ones(n_embd, np.float32),
        "ffn_gate": noise(N_FF, n_embd),
        "ffn_up": noise(N_FF, n_embd),
        "ffn_down": np.zeros((n_embd, N_FF), np.float32),
    }
    return {f"blk.{block}.{name}.weight": tensor for name, tensor in tensors.items()}


def _write(path: Path, vocabulary: _Vocabulary, tensors: dict[str, Matrix], n_embd: int, n_layer: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(n_embd // N_HEAD)
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_scores(vocabulary.scores)
    writer.add_token_types([int(kind) for kind in vocabulary.types])
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in tensors.items():
        # llama.cpp wants norms, which are vectors, in full precision.
        writer.add_tensor(name, tensor.astype(np.float16) if tensor.ndim == 2 else tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
