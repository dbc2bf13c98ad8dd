"""The recipe of the reference pair: corpus, tokenizer, target, draft, prompts and model card."""
