"""Tiny text stacks for the test hosts: built in memory, seeded, nothing downloaded.

Every function returns a fresh object. The hidden size is ``dim`` (32 unless told) and the
vocabulary is the same small word list everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

hf: Any = import_module("transformers")  # untyped: its signatures are too narrow to build from
tk: Any = import_module("tokenizers")

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<mask>", "<image>", "<|im_start|>", "<|im_end|>")
SPECIAL += ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<think>")
WORDS = "a an the of in on and cat dog red blue house photo painting video user system assistant"
VOCAB = {word: i for i, word in enumerate((*SPECIAL, *WORDS.split(), *map(str, range(64))))}
PAD, BOS, EOS = VOCAB["<pad>"], VOCAB["<bos>"], VOCAB["<eos>"]
CHAT = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} "
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}


def tokenizer(max_length: int = 64, bos: bool = False, eos: bool = True) -> Any:
    """A fast tokeniser over a word list; ``bos`` and ``eos`` wrap every sequence."""
    tok = tk.Tokenizer(tk.models.WordLevel(VOCAB, unk_token="<unk>"))
    tok.pre_tokenizer = tk.pre_tokenizers.Whitespace()
    ends = (["<bos>"] if bos else []) + ["$A"] + (["<eos>"] if eos else [])
    specials = [("<bos>", BOS), ("<eos>", EOS)]
    tok.post_processor = tk.processors.TemplateProcessing(" ".join(ends), special_tokens=specials)
    out = hf.PreTrainedTokenizerFast(
        tokenizer_object=tok,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL[4:]),
        model_max_length=max_length,
        padding_side="right",
    )
    out.chat_template = CHAT
    return out


def clip_tokenizer() -> Any:
    """CLIP's convention: bos, words, eos, at most 77 places."""
    return tokenizer(max_length=77, bos=True, eos=True)


def processor(**kwargs: Any) -> TextProcessor:
    """A stand-in for a multimodal processor that only reads text."""
    return TextProcessor(tokenizer(**kwargs))


class TextProcessor(hf.ProcessorMixin):
    """The text half of a multimodal processor: images are ignored."""

    attributes = ("tokenizer",)
    tokenizer_class = "PreTrainedTokenizerFast"

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.chat_template = CHAT
        self.image_token, self.image_token_id = "<|image_pad|>", VOCAB["<|image_pad|>"]

    def __call__(self, text: Any = None, images: Any = None, videos: Any = None, **kwargs: Any):
        kwargs.pop("images_kwargs", None)
        return self.tokenizer(text, **{"padding": True, **kwargs})

    def apply_chat_template(self, conversation: Any, tokenize: bool = False, **kwargs: Any) -> Any:
        """As processors do: a single conversation becomes a batch of one when tokenised."""
        kwargs.pop("padding_side", None)
        if tokenize and not isinstance(conversation[0], (list, tuple)):
            conversation = [conversation]
        return self.tokenizer.apply_chat_template(conversation, tokenize=tokenize, **kwargs)


def seeded(build: Any, config: Any) -> Any:
    """``build(config)`` in eval mode, its weights a function of the configuration alone."""
    torch.manual_seed(0)
    return build(config).eval()


def _decoder(dim: int, layers: int, **more: Any) -> dict[str, Any]:
    """The fields shared by every causal language model here."""
    shared = dict(vocab_size=len(VOCAB), hidden_size=dim, intermediate_size=2 * dim)
    shared |= dict(num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2)
    shared |= dict(max_position_embeddings=512, pad_token_id=PAD, bos_token_id=BOS)
    return {**shared, "eos_token_id": EOS, **more}


def t5(dim: int = 32, layers: int = 2) -> Any:
    return seeded(hf.T5EncoderModel, _t5(hf.T5Config, dim, layers))


def umt5(dim: int = 32, layers: int = 2) -> Any:
    return seeded(hf.UMT5EncoderModel, _t5(hf.UMT5Config, dim, layers))


def _t5(config: Any, dim: int, layers: int) -> Any:
    sizes = dict(d_model=dim, d_kv=8, d_ff=2 * dim, num_layers=layers, num_heads=4)
    ends = dict(pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD)
    return config(vocab_size=len(VOCAB), feed_forward_proj="gated-gelu", **sizes, **ends)


def clip_text(projection: bool = False, dim: int = 32, layers: int = 3) -> Any:
    """CLIP's text tower, with the pooled projection head or without."""
    config = hf.CLIPTextConfig(
        vocab_size=len(VOCAB),
        hidden_size=dim,
        intermediate_size=2 * dim,
        projection_dim=dim,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=77,
        hidden_act="gelu",
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return seeded(hf.CLIPTextModelWithProjection if projection else hf.CLIPTextModel, config)


def clip_vision(dim: int = 32, size: int = 32, projection: bool = True) -> Any:
    """CLIP's image tower on ``size`` px images."""
    config = hf.CLIPVisionConfig(
        hidden_size=dim,
        intermediate_size=2 * dim,
        projection_dim=dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=size,
        patch_size=size // 4,
    )
    return seeded(hf.CLIPVisionModelWithProjection if projection else hf.CLIPVisionModel, config)


def bert(dim: int = 32) -> Any:
    config = hf.BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=dim,
        intermediate_size=2 * dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
    )
    return seeded(hf.BertModel, config)


def llama(dim: int = 32, layers: int = 2, head: bool = False) -> Any:
    """Llama, as a bare model or (``head``) as a causal language model."""
    build = hf.LlamaForCausalLM if head else hf.LlamaModel
    return seeded(build, hf.LlamaConfig(**_decoder(dim, layers)))


def gemma(dim: int = 32, layers: int = 2) -> Any:
    config = hf.GemmaConfig(**_decoder(dim, layers, head_dim=8))
    return seeded(hf.GemmaModel, config)


def gemma2(dim: int = 32, layers: int = 2) -> Any:
    config = hf.Gemma2Config(**_decoder(dim, layers, head_dim=8))
    return seeded(hf.Gemma2Model, config)


def gemma3(dim: int = 32, layers: int = 2) -> Any:
    """Gemma 3's text model with its head (the multimodal wrapper is ``gemma3_vl``)."""
    return seeded(hf.Gemma3ForCausalLM, hf.Gemma3TextConfig(**_decoder(dim, layers, head_dim=8)))


def gemma3_vl(dim: int = 32, layers: int = 2) -> Any:
    vision = dict(hidden_size=dim, intermediate_size=dim, num_hidden_layers=1)
    vision |= dict(num_attention_heads=4, image_size=16, patch_size=8)
    config = hf.Gemma3Config(
        text_config=_decoder(dim, layers, head_dim=8),
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=VOCAB["<image>"],
    )
    return seeded(hf.Gemma3ForConditionalGeneration, config)


def glm(dim: int = 32, layers: int = 2) -> Any:
    return seeded(hf.GlmModel, hf.GlmConfig(**_decoder(dim, layers, head_dim=8)))


def qwen2(dim: int = 32, layers: int = 2, head: bool = False) -> Any:
    build = hf.Qwen2ForCausalLM if head else hf.Qwen2Model
    return seeded(build, hf.Qwen2Config(**_decoder(dim, layers)))


def qwen3(dim: int = 32, layers: int = 2, head: bool = False) -> Any:
    """Qwen 3, as a bare model or (``head``) as a causal language model."""
    build = hf.Qwen3ForCausalLM if head else hf.Qwen3Model
    return seeded(build, hf.Qwen3Config(**_decoder(dim, layers, head_dim=8)))


def _vl_ids() -> dict[str, int]:
    names = dict(image_token_id="<|image_pad|>", video_token_id="<|video_pad|>")
    names |= dict(vision_start_token_id="<|vision_start|>", vision_end_token_id="<|vision_end|>")
    return {key: VOCAB[word] for key, word in names.items()}


def qwen_vl(dim: int = 32, layers: int = 2) -> Any:
    """Qwen2.5-VL with its language head."""
    vision = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=dim)
    vision |= dict(window_size=112, fullatt_block_indexes=[0])
    text = _decoder(dim, layers, rope_parameters=ROPE)
    config = hf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **_vl_ids())
    return seeded(hf.Qwen2_5_VLForConditionalGeneration, config)


def qwen3_vl(dim: int = 32, layers: int = 2, head: bool = False) -> Any:
    """Qwen3-VL, as a bare model or (``head``) with its language head."""
    vision = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=dim)
    vision |= dict(num_position_embeddings=16, deepstack_visual_indexes=[0])
    text = _decoder(dim, layers, head_dim=8, rope_parameters=ROPE)
    config = hf.Qwen3VLConfig(text_config=text, vision_config=vision, **_vl_ids())
    return seeded(hf.Qwen3VLForConditionalGeneration if head else hf.Qwen3VLModel, config)


def mistral(dim: int = 32, layers: int = 2, head: bool = False) -> Any:
    build = hf.MistralForCausalLM if head else hf.MistralModel
    return seeded(build, hf.MistralConfig(**_decoder(dim, layers)))
