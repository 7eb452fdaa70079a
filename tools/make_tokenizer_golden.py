#!/usr/bin/env python3
"""Makes tests/golden/tokenizer: small tokenizers of each published style, and what the Hugging Face
tokenizers library does with adversarial text.

    python3 -m venv VENV && VENV/bin/pip install tokenizers
    VENV/bin/python tools/make_tokenizer_golden.py tests/golden/tokenizer

<style>.json is a tokenizer.json; <style>.cases.json is a list of
{"text", "ids", "special_ids", "decoded", "skipped"}: ids without and with what the post-processor adds,
and the decoded text of special_ids with special tokens kept and skipped. Made with tokenizers 0.23.3.
"""
import json
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, "
    "must be in want of a wife. However little known the feelings or views of such a man may be.",
    "In the beginning God created the heaven and the earth. And the earth was without form, and "
    "void; and darkness was upon the face of the deep.",
    "I don't think we'll know what they've said, she'd said; it's what I'm saying you're doing.",
    "def main(args):\n    for i in range(100):\n        print(i, args[i])\n\n\treturn 0\r\n",
    "1 22 333 4444 55555 1815 2024 3.14159 10,000 100%",
    "Zażółć gęślą jaźń. Les élèves français étaient là. Größe, Äpfel, Übung. Привет, мир! Γειά σου.",
    "日本語のテキスト。中文文本。한국어 텍스트. العربية والعبرية עברית हिन्दी ไทย",
    "😀😃😄👍👍🏽👨‍👩‍👧‍👦🏳️‍🌈 e\u0301 a\u0308 n\u0303 -- == ## ... !!! ??? <html></html>",
    "the the the and and and    of    of\n\n\nto  to\t\tin   in",
]

# Added tokens of every kind; content, then flags.
ADDED = [
    AddedToken("<|end|>", special=True, normalized=False),
    AddedToken("<|end|><|end|>", special=True, normalized=False),
    AddedToken("<mask>", special=True, normalized=False, lstrip=True),
    AddedToken("<r>", special=False, normalized=False, rstrip=True),
    AddedToken("word", special=False, normalized=False, single_word=True),
    AddedToken("Norm", special=False, normalized=True),
    AddedToken("\n\n\n", special=False, normalized=False),
]


def texts():
    """What tokenizers get wrong."""
    out = ["", " ", "  ", "a", " a", "a ", "  a  ", "\n", "\r\n", "\r", "\t", "\0", "a\0b", "\x01\x7f",
           "Hello world", "Hello, world!", "HELLO WORLD", "hello  world   three    four",
           "don't DON'T don’t we'll WE'LL I'm I'd you've '\u017f 'twas 'tis o'clock 's 't",
           "line one\nline two\r\nline three\rline four\n\n\n\nend", "tabs\t\tand \t mixed \t",
           "trailing spaces   ", "   leading", "x" * 60, "ab" * 40, "a" * 300, " " * 70 + "x",
           "\n" * 40, "\r\n" * 20, " \n \n \n", "0", "12", "123", "1234", "1234567890" * 6,
           "3.14159e-10 0x1F 1,000,000", "٠١٢٣٤ ⅷ ½ ² 〇 一二三", "1st 2nd 3rd x86_64 v1.2.3",
           "email@example.com https://example.com/a?b=c&d=e#f", "C:\\path\\file.txt",
           "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\"}}",
           "if (x == y) { return a->b[c] + d++; } // comment\n", "#!/bin/sh\nset -eu\n\techo \"$1\"\n",
           "e\u0301 \u00e9 E\u0301\u0323 \u1e1b\u0323 a\u0328\u0301 \u0344 \u2126 \u212b \u1100\u1161\u11a8 \uac01",
           "q\u0307\u0323 q\u0323\u0307 \u0301start \u0301\u0301\u0301",
           "ﬁ ﬂ ﬃ Ⅷ ① ㌔ ﷺ ｆｕｌｌ ½ ™ ª", "İstanbul ISPARTA ıI ß ẞ ǅ ΑΣΣ Σ",
           "😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈🏴‍☠️", "🇩🇪🇫🇷", "☕️ ❤️ ✔️", "a😀b👍c", "𝕳𝖊𝖑𝖑𝖔 𠀀𪛖",
           "日本語のテキストです。", "中文文本，没有空格。", "한국어 텍스트", "العربية", "עברית שָׁלוֹם", "हिन्दी क्षेत्र",
           "ไทยภาษา", "Zażółć gęślą jaźń", "Привет, мир!", "a\u200bb\u200cc\u200dd\u2060e\ufefff",
           "\u00a0nbsp\u2003em\u3000ideographic\u180evowel\u2028line\u2029para\u0085nel",
           "\ufffd \ufffe \uffff \U0010ffff \ue000", "\u202eright-to-left\u202c \u2066isolate\u2069",
           "▁ ▁▁ a▁b ▁a Ġ Ċ ĠĠ Ġa <0x41> <0x0A> <unk> <s> </s>", "\u2581\u2581\u2581",
           "<|end|>", "a<|end|>b", " <|end|> ", "<|end|><|end|>", "<|end|><|end|><|end|>", "<|end",
           "text <mask> text", "text   <mask>   text", "<mask><mask>", "  <mask>", "\n<mask>\n",
           "a <r>   b", "<r>", "<r> <mask> <r>", "word", "a word b", "sword words word. _word word_ (word)",
           "word word", "éword wordé", "word<|end|>word", "Norm", "a Norm b", "NormNorm", "norm NORM",
           " Norm ", "x\n\n\ny\n\n\n\n\n\nz", "<bos>a<eos>", "<bos><bos>", "user: <start_of_turn>hi<end_of_turn>\n",
           "aaaaaaaaab aaab abab bbbb", "xxxxx xxxxxx", "the the  the   the", "a.b,c;d:e!f?g", "--- *** ___ === ###",
           "…—–‘’“”«»", "$100 €200 £300 ¥400 ₿", "x²+y²=z² ∑∫√∞≠≤≥", "A\u030a\u0327 fin", "Ｆ１２３ abc"]
    out += ["".join(chr(c) for c in range(32, 127)), "".join(chr(c) for c in range(160, 384)),
            "".join(map(chr, [0x1F600, 0x200D, 0x2764, 0xFE0F, 0x200D, 0x1F525]))]
    return out + CORPUS


def train(tokenizer, trainer, tokens=ADDED):
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(tokens)
    return tokenizer


def byte_trainer(size, special=("<|endoftext|>",), alphabet=True):
    return trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [])


def split_then_bytes(pattern, behavior="isolated"):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def with_bos(tokenizer, bos, eos=None):
    single = [bos, "$A"] + ([eos] if eos else [])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=single + [x.replace("$A", "$B") + ":1" for x in single],
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (bos, eos) if t])


def edit(tokenizer, change):
    """A tokenizer with its JSON changed: for what the Python interface cannot say."""
    value = json.loads(tokenizer.to_str())
    change(value)
    return Tokenizer.from_str(json.dumps(value))


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    train(t, byte_trainer(500))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def gpt2_prefix():
    t = gpt2()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    with_bos(t, "<|endoftext|>", "<|end|>")
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = split_then_bytes(LLAMA3)
    t.decoder = decoders.ByteLevel()
    train(t, byte_trainer(600, ["<|begin_of_text|>", "<|end_of_text|>"]))
    with_bos(t, "<|begin_of_text|>")

    # A token that merging cannot reach, so that ignore_merges shows.
    def unreachable(value):
        vocabulary = value["model"]["vocab"]
        vocabulary["xxxxx"] = len(vocabulary)
        for token in value["added_tokens"]:
            if token["content"] not in vocabulary:
                token["id"] += 1
    return edit(t, unreachable)


def qwen():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = split_then_bytes(QWEN)
    t.decoder = decoders.ByteLevel()
    return train(t, byte_trainer(600))


def o200k():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = split_then_bytes(O200K)
    t.decoder = decoders.ByteLevel()
    return train(t, byte_trainer(500))


def starcoder():
    """Digits before bytes, and a normalizer for compatibility forms."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    return train(t, byte_trainer(450))


def falcon():
    """Bytes in the middle: later steps see the byte characters. Letters of the corpus only."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    t.decoder = decoders.ByteLevel()
    return train(t, byte_trainer(400, alphabet=False))


def splits():
    """Each behaviour of Split, on text and on a regex, and inversion."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.normalizer = normalizers.Sequence([
        normalizers.NFKD(), normalizers.Strip(), normalizers.Replace(Regex(r"\d{4,}"), "#"),
        normalizers.Replace("--", "—")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("-", "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[.,;]"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\s"), "contiguous"),
        pre_tokenizers.Split(Regex(r"[\w']+"), "isolated", invert=True),
        pre_tokenizers.Split("_", "removed")])
    t.decoder = decoders.Fuse()
    return train(t, trainers.BpeTrainer(vocab_size=250, special_tokens=["<unk>"],
                                        limit_alphabet=60, show_progress=False))


def sentencepiece(size, special, **model):
    """A BPE with <0xHH> tokens, as converted from SentencePiece."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, **model))
    t.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=90,
        special_tokens=special + ["<0x%02X>" % b for b in range(256)])
    # Words, so that few tokens reach across spaces, as in published vocabularies.
    t.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    t.train_from_iterator(CORPUS, trainer)

    def bytes_are_ordinary(value):
        value["added_tokens"] = [a for a in value["added_tokens"]
                                 if not a["content"].startswith("<0x")]
    return edit(t, bytes_are_ordinary)


def gemma3():
    t = sentencepiece(800, ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse()])
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False),
                  AddedToken("▁▁▁▁", normalized=False), AddedToken("</html>", normalized=False)])
    t.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    t.add_tokens(ADDED)
    with_bos(t, "<bos>")
    return t


def llama2():
    t = sentencepiece(700, ["<unk>", "<s>", "</s>"])
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = None
    t = edit(t, lambda value: value.update(pre_tokenizer=None))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_tokens(ADDED)
    with_bos(t, "<s>")
    return t


def metaspace(scheme, split):
    def make():
        t = sentencepiece(600, ["<unk>", "<s>", "</s>"])
        t = edit(t, lambda value: value.update(normalizer=None))
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
        t.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme=scheme),
                                       decoders.ByteFallback()])
        t.add_tokens(ADDED)
        with_bos(t, "<s>", "</s>")
        return t
    return make


STYLES = {"gpt2": gpt2, "gpt2_prefix": gpt2_prefix, "llama3": llama3, "qwen": qwen, "o200k": o200k,
          "starcoder": starcoder, "falcon": falcon, "splits": splits, "gemma3": gemma3,
          "llama2": llama2, "metaspace_first": metaspace("first", False),
          "metaspace_always": metaspace("always", True)}


# Files of before 2024 have merges as "a b".
MERGES_AS_TEXT = {"gpt2", "llama2"}


def merges_as_text(value):
    value["model"]["merges"] = [" ".join(pair) for pair in value["model"]["merges"]]


def main(folder):
    for name, make in STYLES.items():
        tokenizer = make()
        path = f"{folder}/{name}.json"
        value = json.loads(tokenizer.to_str())
        if name in MERGES_AS_TEXT:
            merges_as_text(value)
        with open(path, "w") as f:
            json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        tokenizer = Tokenizer.from_file(path)
        cases = []
        for text in texts():
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            special = tokenizer.encode(text, add_special_tokens=True).ids
            cases.append({"text": text, "ids": ids, "special_ids": special,
                          "decoded": tokenizer.decode(special, skip_special_tokens=False),
                          "skipped": tokenizer.decode(special, skip_special_tokens=True)})
        with open(f"{folder}/{name}.cases.json", "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), ensure_ascii=False)
                                      for c in cases) + "\n]\n")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(cases)} cases")


if __name__ == "__main__":
    main(sys.argv[1])
