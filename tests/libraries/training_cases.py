"""Programs around models: generation, training with checkpoints, adapters, embeddings of sentences.

Weights are drawn by each side from the same seed.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from tests.libraries.cases import Case, Program

WORDS = "the a cat dog sees likes small big red house".split()
SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def language_model() -> Any:
    """A small Llama, random weights."""
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()


def token_ids(rows: int, length: int, seed: int = 3) -> Any:
    """Random tokens that are no special ones."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, SIZES["vocab_size"], (rows, length), generator=generator)


def generate(**options: Any) -> Any:
    """Tokens after a prompt."""
    model = language_model()
    return model.generate(token_ids(2, 7), max_new_tokens=12, **options)


def generate_padded() -> Any:
    """Tokens after prompts of different lengths, and the scores of each step."""
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, :3] = 0
    result = language_model().generate(
        token_ids(2, 7), attention_mask=mask, max_new_tokens=6, do_sample=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    return [result.sequences, *result.scores]


def generate_from_encoder() -> Any:
    """Beams of an encoder and decoder."""
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0, initializer_factor=3.0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    return model.generate(token_ids(2, 7), max_new_tokens=8, num_beams=2, do_sample=False)


def generate_from_state() -> Any:
    """Tokens of a state space model."""
    config = transformers.MambaConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, state_size=8, initializer_range=0.3
    )
    model = transformers.MambaForCausalLM(config).eval()
    return model.generate(token_ids(2, 7), max_new_tokens=8, do_sample=False)


class Sentences(torch.utils.data.Dataset[Any]):
    """Random tokens whose labels are themselves."""

    def __init__(self, count: int) -> None:
        self.rows = token_ids(count, 9)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def arguments(kind: Any, folder: str, **options: Any) -> Any:
    """Settings of a trainer that writes to a folder and nowhere else."""
    common = {
        "output_dir": folder, "per_device_train_batch_size": 4, "learning_rate": 1e-2,
        "report_to": [], "use_cpu": True, "logging_steps": 1, "disable_tqdm": True, "seed": 7,
        "max_steps": 6, "bf16": False,
    }  # fmt: skip
    return kind(**(common | options))


def parameters(model: Any) -> list[Any]:
    """Copies of a model's parameters."""
    return [p.detach().clone() for p in model.parameters()]


def losses(trainer: Any) -> Any:
    """What a trainer logged."""
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return torch.tensor(logged)


def train_and_resume() -> Any:
    """Six steps of training, and the last three again from a checkpoint."""
    results: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for checkpoint in (None, f"{folder}/checkpoint-3"):
            torch.manual_seed(5)
            settings = arguments(transformers.TrainingArguments, folder, save_steps=3)
            trainer = transformers.Trainer(language_model(), settings, train_dataset=Sentences(24))
            trainer.train(resume_from_checkpoint=checkpoint)
            results += [losses(trainer), *parameters(trainer.model)]
        results.append(torch.tensor(trainer.evaluate(Sentences(8))["eval_loss"]))
    return results


def save_and_load() -> Any:
    """A folder with weights in parts, read as several classes and dtypes."""
    ids = token_ids(2, 7)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        language_model().save_pretrained(folder, max_shard_size="20KB")
        again = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        bare = transformers.AutoModel.from_pretrained(folder).eval()
        half = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        return [again(ids).logits, bare(ids).last_hidden_state, *parameters(half)]


def adapt() -> Any:
    """Low-rank adapters: trained, saved, loaded and merged."""
    import peft

    ids, base = token_ids(2, 7), language_model()
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    values = []
    for _ in range(4):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.detach())
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        torch.manual_seed(1)
        again = peft.PeftModel.from_pretrained(language_model(), folder)
        logits = again(input_ids=ids).logits
        merged = again.merge_and_unload()
        return [torch.stack(values), logits, merged(input_ids=ids).logits]


def tokenizer() -> Any:
    """One token for each of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["[PAD]", "[BOS]", "[EOS]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    words = models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    own = Tokenizer(words)
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]",
        unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", model_max_length=32,
    )  # fmt: skip


def texts() -> Iterator[str]:
    """Sentences of the tokenizer's words."""
    for shift in range(12):
        yield " ".join(WORDS[(shift * 3 + k * k) % len(WORDS)] for k in range(4 + shift % 3))


def fine_tune() -> Any:
    """Supervised fine-tuning on a few sentences."""
    import trl
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(trl.SFTConfig, folder, max_steps=3, max_length=16, save_steps=3)
        trainer = trl.SFTTrainer(
            language_model(), args=settings, processing_class=tokenizer(),
            train_dataset=Dataset.from_dict({"text": list(texts())}),
        )  # fmt: skip
        trainer.train()
        return [losses(trainer), *parameters(trainer.model)]


def accelerate_steps() -> Any:
    """Steps with accumulated, clipped gradients, and a state that is saved and loaded."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = language_model().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=4)
    loader = torch.utils.data.DataLoader(Sentences(16), batch_size=4)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    values = []
    with tempfile.TemporaryDirectory() as folder:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            values.append(accelerator.gather(loss.detach()).reshape(()))
        accelerator.save_state(folder)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        accelerator.load_state(folder)
    return [torch.stack(values), *parameters(accelerator.unwrap_model(model))]


def embed_sentences() -> Any:
    """Embeddings of sentences by a local model, and a contrastive loss of pairs of them."""
    import sentence_transformers as library
    from sentence_transformers.sentence_transformer import losses as losses_of_pairs

    words = tokenizer()
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(config).save_pretrained(folder)
        words.save_pretrained(folder)
        model = library.SentenceTransformer(folder, device="cpu")  # mean of the tokens' vectors
        sentences = list(texts())
        vectors = model.encode(sentences, convert_to_tensor=True, show_progress_bar=False)
        pairs = [model.tokenize(sentences[:4]), model.tokenize(sentences[4:8])]
        loss = losses_of_pairs.MultipleNegativesRankingLoss(model)(pairs, None)
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        return [vectors.clone(), model.similarity(vectors, vectors), loss.detach(), *gradients]


PROGRAMS: dict[str, Callable[[], Any]] = {
    "generate_greedy": functools.partial(generate, do_sample=False),
    "generate_sampled": functools.partial(
        generate, do_sample=True, top_k=20, top_p=0.9, temperature=0.8
    ),
    "generate_beams": functools.partial(generate, do_sample=False, num_beams=3),
    "generate_static_cache": functools.partial(
        generate, do_sample=False, cache_implementation="static"
    ),
    "generate_padded": generate_padded,
    "generate_from_encoder": generate_from_encoder,
    "generate_from_state": generate_from_state,
    "train_and_resume": train_and_resume,
    "save_and_load": save_and_load,
    "adapt": adapt,
    "fine_tune": fine_tune,
    "accelerate_steps": accelerate_steps,
    "embed_sentences": embed_sentences,
}
CASES: dict[str, Callable[[], Case | Program]] = {
    name: functools.partial(Program, program) for name, program in PROGRAMS.items()
}
