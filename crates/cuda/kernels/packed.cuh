// y[row][n] = sum over k of w[n][k] * x[row][k], with w kept as small integers and two factors for each output and group of 32 / PARTS
// inputs. A weight is rounded to bf16 in registers and multiplied like one of `linear.cu`: the same sums, bit for bit, as that kernel
// (and the library) over what `unpack` writes.
//
// A strip is 16 outputs: the rows of the matrix instruction. It consists of records of 64 inputs, in the order in which lanes
// want them; BITS / 8 bytes a weight and PARTS / 8 for factors, e.g. 5 bits in all for 4-bit quants in groups of 32.
//
//   strip    | record | record | ...                                 weights are multiples of the strip's scale, a power of two
//   record   | quants: BITS / 4 pieces of [32 lanes][16 bytes] | factors: PARTS pieces of [8 outputs][16 bytes] |
//   lane     outputs g = lane / 4 ("low") and g + 8 ("high"), inputs 2t, 2t + 1, 2t + 8, 2t + 9 of each step of 16, t = lane % 4
//   factors  [group][low, high], a word each
//
// A quant becomes a number by standing in the mantissa of a power of two.
//
//   4 bits   w = bf16((quant - 8) * scale + middle), scale (bf16) | middle (bf16) << 16: two weights at a time, rounded once. The middle is
//            what a quant of 8 stands for: 0 in symmetric formats. A step is a word, pair p of its inputs in bits 4p and 16 + 4p:
//            low 2t, high 2t, low 2t + 8, high 2t + 8, each with the input after it. 128 + quant is a bf16 with the quant in its lowest bits.
//   8 bits   w = bf16(quant * scale + min), scale * 2^15 (f16) | min (f16) << 16. A step is a word for low and one for high; a byte goes to
//            bits 8 to 15: f = 1 + quant * 2^-15, and w = f * scale 2^15 + (min - scale 2^15). With 11-bit factors this is exact up to
//            the rounding to bf16, unless the min is tiny beside the scale.

constexpr int QUANT_BYTES = BITS * 128, FACTOR_BYTES = PARTS * 128, RECORD = QUANT_BYTES + FACTOR_BYTES;

// A lane's part of a record.
struct Piece {
    u32 quants[BITS];
    u32 factors[PARTS * 4];
};
DEVICE void load_piece(Piece &piece, const char *record, int lane) {
#pragma unroll
    for (int i = 0; i < BITS / 4; i++) {
        uint4 v = *(const uint4 *)(record + (i * 32 + lane) * 16);
        piece.quants[4 * i] = v.x, piece.quants[4 * i + 1] = v.y, piece.quants[4 * i + 2] = v.z, piece.quants[4 * i + 3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        uint4 v = *(const uint4 *)(record + QUANT_BYTES + (i * 8 + lane / 4) * 16);
        piece.factors[4 * i] = v.x, piece.factors[4 * i + 1] = v.y, piece.factors[4 * i + 2] = v.z, piece.factors[4 * i + 3] = v.w;
    }
}

// What a quant is put into.
#if BITS == 4
#define BASE 0x43004300u  // 128, twice
#else
#define BASE 0x3f800000u  // 1
#endif
// BASE in a register: `slices >> 31` is always 0, which the compiler does not know, so it does not load an immediate for every quant.
DEVICE u32 held_base(u32 slices) { return BASE | slices >> 31; }

#if BITS == 4
// The factors of one output in a group, for two weights at a time.
struct Factor {
    u32 scale, middle;
};
DEVICE Factor factor(u32 word) { return {broadcast_low(word), broadcast_high(word)}; }
// The weights of a pair of inputs.
DEVICE u32 weight_pair(u32 quants, Factor f, u32 base) {
    const u32 from_middle = add_bf16x2((quants & 0x000f000fu) | base, 0xc308c308u);  // -136: exact
    return fma_bf16x2(from_middle, f.scale, f.middle);
}
// The weights of a step of 16 inputs, as the matrix instruction takes them; `base` holds BASE.
DEVICE void load_weights(u32 *fragment, const Piece &piece, int step, u32 base) {
    const int group = step * PARTS / 2;
    const Factor low = factor(piece.factors[2 * group]), high = factor(piece.factors[2 * group + 1]);
#pragma unroll
    for (int pair = 0; pair < 4; pair++) fragment[pair] = weight_pair(piece.quants[step] >> 4 * pair, pair % 2 ? high : low, base);
}
#else
// One output's factors in a group: weight = f * scale + offset.
struct Factor {
    float scale, offset;
};
DEVICE Factor factor(u32 word) {
    float scale = low_f16(word);
    return {scale, __fsub_rn(high_f16(word), scale)};
}
// 1.0 with the i-th quant of a word in its mantissa.
DEVICE float with_quant(u32 word, int i, u32 base) { return __uint_as_float(__byte_perm(word, base, 0x7604u | i << 4)); }
// The weights of a step of 16 inputs, as the matrix instruction takes them; `base` holds BASE.
DEVICE void load_weights(u32 *fragment, const Piece &piece, int step, u32 base) {
    const int group = step * PARTS / 2;
    const Factor low = factor(piece.factors[2 * group]), high = factor(piece.factors[2 * group + 1]);
    float l[4], h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        l[i] = __fmaf_rn(with_quant(piece.quants[2 * step], i, base), low.scale, low.offset);
        h[i] = __fmaf_rn(with_quant(piece.quants[2 * step + 1], i, base), high.scale, high.offset);
    }
    fragment[0] = pack_bf16x2(l[0], l[1]), fragment[1] = pack_bf16x2(h[0], h[1]);
    fragment[2] = pack_bf16x2(l[2], l[3]), fragment[3] = pack_bf16x2(h[2], h[3]);
}
#endif
