//! The smallest GGUF file with a tokenizer: one f32 tensor, a byte-level vocabulary of a few letters.

const U32: u32 = 4;
const I32: u32 = 5;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Bytes of a GGUF file in the making.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.0.extend(n.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn text_entry(&mut self, key: &str, value: &str) {
        self.string(key);
        self.u32(STRING);
        self.string(value);
    }

    fn number_entry(&mut self, key: &str, value: u32) {
        self.string(key);
        self.u32(U32);
        self.u32(value);
    }

    fn array_entry(&mut self, key: &str, kind: u32, length: usize) {
        self.string(key);
        self.u32(ARRAY);
        self.u32(kind);
        self.u64(length as u64);
    }

    fn texts_entry(&mut self, key: &str, values: &[&str]) {
        self.array_entry(key, STRING, values.len());
        for value in values {
            self.string(value);
        }
    }

    fn numbers_entry(&mut self, key: &str, values: &[u32]) {
        self.array_entry(key, I32, values.len());
        for value in values {
            self.u32(*value);
        }
    }
}

/// A whole file: architecture `llama`, context 64, tokens `a`, `b`, space, `ab` and the special `<end>`.
pub fn tiny_gguf() -> Vec<u8> {
    let mut file = Writer::default();
    file.0.extend(b"GGUF");
    file.u32(3);
    file.u64(1);
    file.u64(9);
    file.text_entry("general.architecture", "llama");
    file.number_entry("general.file_type", 0);
    file.number_entry("llama.context_length", 64);
    file.text_entry("tokenizer.ggml.model", "gpt2");
    file.text_entry("tokenizer.ggml.pre", "gpt-2");
    file.texts_entry("tokenizer.ggml.tokens", &["a", "b", "Ġ", "ab", "<end>"]);
    file.texts_entry("tokenizer.ggml.merges", &["a b"]);
    file.numbers_entry("tokenizer.ggml.token_type", &[1, 1, 1, 1, 3]);
    file.number_entry("tokenizer.ggml.eos_token_id", 4);
    file.string("token_embd.weight");
    file.u32(2);
    file.u64(32);
    file.u64(5);
    file.u32(0);
    file.u64(0);
    file.0.resize(file.0.len().next_multiple_of(32), 0);
    file.0.resize(file.0.len() + 32 * 5 * 4, 0);
    file.0
}
