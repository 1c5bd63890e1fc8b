// Keys and values in memory. A block holds 32 tokens of one layer. A *half* of a block is the keys, or the values, of one KV head:
//
//   block      [kv head][keys | values] halves
//   KV8 = 0    [32 tokens][HEAD_DIM] bf16
//   KV8 = 1    [32 tokens][HEAD_DIM] i8, then [32 tokens] f32: what a token's quants are multiplied by
//
// Quants are widened to bf16, which holds them exactly, where they are multiplied; scales are applied to sums, in f32. The order of a
// token's quants within each 16 gives a thread what it multiplies in one word, by the loads that matrices of 16-bit values have:
//
//   word w of a key      values 2w, 2w + 1, 2w + 8, 2w + 9
//   word w of a value    values 2w, 2w + 8, 2w + 1, 2w + 9
//
// HEAD_DIM and KV8 are set at compile time.
#pragma once

#define BLOCK 32
#define KEYS 0u
#define VALUES 1u

#if !KV8
typedef bf16 Stored;
#define STORED_HALF (BLOCK * HEAD_DIM)
#define VALUES_PER_PIECE 8  // values in 16 bytes
#else
typedef u8 Stored;
#define STORED_HALF (BLOCK * HEAD_DIM + BLOCK * 4)
#define VALUES_PER_PIECE 16

// --- quantising ---

// Heads whose largest value is not above this count as zeros: the inverse of their scale might overflow.
#define LEAST_HEAD 1e-30f

// scale: value = quant * scale. inverse: quant = round(value * inverse). `most` is the head's largest absolute value.
struct Scales {
    float scale, inverse;
};
DEVICE Scales scales_for(float most) {
    if (most <= LEAST_HEAD) return {0.0f, 0.0f};
    return {__fdiv_rn(most, 127.0f), __fdiv_rn(127.0f, most)};
}
DEVICE u32 quant(float value, float inverse) { return (u32)__float2int_rn(__fmul_rn(value, inverse)) & 0xffu; }
// Which of a head's values is quant `e` of a word.
DEVICE u32 value_at(u32 which, u32 word, u32 e) {
    const u32 first = word / 4 * 16 + word % 4 * 2;
    return which == KEYS ? first + e % 2 + e / 2 * 8 : first + e / 2 + e % 2 * 8;
}
// One of the two words that hold four values, `low`, and the four that come eight later.
DEVICE u32 interleave(u32 low, u32 high, u32 which, bool second) {
    if (which == KEYS) return __byte_perm(low, high, second ? 0x7632u : 0x5410u);
    return __byte_perm(low, high, second ? 0x7362u : 0x5140u);
}

// --- widening ---

// Which two quants of a word belong together, as bytes 0 and 2 of a selector whose others are the exponent: the values 2w and 2w + 1 of 16
// (LOW), or those eight later (HIGH).
#define LOW 0u
#define HIGH 1u
DEVICE u32 selector(u32 which, u32 part) { return which == KEYS ? (part == LOW ? 0x4140u : 0x4342u) : (part == LOW ? 0x4240u : 0x4341u); }
// Two quants as bf16. With the sign and the exponent of -128 above a byte, its lower seven bits make -128 less of them, and its sign, which
// becomes the lowest bit of the exponent, makes -128 or -256: the difference is the quant.
DEVICE u32 widened(u32 quants, u32 selector) {
    const u32 x = __byte_perm(quants, 0xc3c3c3c3u, selector);
    return sub_bf16x2(x & 0xff80ff80u, x & 0xff7fff7fu);
}
#endif
