"""Text encoders and tokenizers with a few words and random weights."""

from __future__ import annotations

from importlib import import_module
from typing import Any

DIM = 32  # channels of every embedding
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", "<|image_pad|>", "<|video_pad|>")
SPECIAL += ("<|vision_start|>", "<|vision_end|>")
WORDS = "a an the of in on and cat dog red blue house photo painting video user system assistant"
VOCAB = {word: i for i, word in enumerate((*SPECIAL, *WORDS.split()))}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CHAT = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
LAYER = {"hidden_size": DIM, "intermediate_size": 2 * DIM, "num_attention_heads": 4}
DECODER = {**LAYER, "num_key_value_heads": 2, "max_position_embeddings": 512}


def transformers() -> Any:
    return import_module("transformers")


def tokenizer(longest: int = 64, begins: bool = False) -> Any:
    """Splits at spaces; what is no word of the list is <unk>."""
    kit: Any = import_module("tokenizers")
    words = kit.Tokenizer(kit.models.WordLevel(VOCAB, unk_token="<unk>"))
    words.pre_tokenizer = kit.pre_tokenizers.Whitespace()
    words.post_processor = kit.processors.TemplateProcessing(
        "<bos> $A <eos>" if begins else "$A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    made = transformers().PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=list(SPECIAL[4:]),
        model_max_length=longest,
        padding_side="right",
    )
    made.chat_template = CHAT
    return made


def clip(projected: bool = False, dim: int = DIM) -> Any:
    kit = transformers()
    config = kit.CLIPTextConfig(
        vocab_size=len(VOCAB),
        hidden_size=dim,
        intermediate_size=2 * dim,
        projection_dim=dim,
        num_hidden_layers=3,
        num_attention_heads=4,
        **ENDS,
    )
    return (kit.CLIPTextModelWithProjection if projected else kit.CLIPTextModel)(config)


def clip_tokenizer() -> Any:
    return tokenizer(77, begins=True)


def t5() -> Any:
    kit = transformers()
    sizes = dict(d_model=DIM, d_kv=8, d_ff=2 * DIM, num_layers=2, num_heads=4)
    ends = dict(pad_token_id=0, eos_token_id=2, decoder_start_token_id=0)
    return kit.T5EncoderModel(kit.T5Config(vocab_size=len(VOCAB), **sizes, **ends))


def llama() -> Any:
    kit = transformers()
    sizes = dict(vocab_size=len(VOCAB), num_hidden_layers=2, **ENDS)
    return kit.LlamaModel(kit.LlamaConfig(**DECODER, **sizes))


def qwen3() -> Any:
    kit = transformers()
    sizes = dict(vocab_size=len(VOCAB), num_hidden_layers=2, head_dim=8, **ENDS)
    return kit.Qwen3Model(kit.Qwen3Config(**DECODER, **sizes))


def qwen3_vl(layers: int) -> Any:
    """With its head; a request of text alone does not reach its eyes."""
    kit = transformers()
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    sizes = dict(vocab_size=len(VOCAB), num_hidden_layers=layers, head_dim=8, rope_parameters=rope)
    eyes = dict(depth=1, hidden_size=DIM, intermediate_size=DIM, num_heads=2, out_hidden_size=DIM)
    eyes |= dict(num_position_embeddings=16, deepstack_visual_indexes=[0])
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {f"vision_{end}_token_id": f"<|vision_{end}|>" for end in ("start", "end")}
    config = kit.Qwen3VLConfig(
        text_config={**DECODER, **sizes, **ENDS},
        vision_config=eyes,
        **{key: VOCAB[word] for key, word in names.items()},
    )
    return kit.Qwen3VLForConditionalGeneration(config)
