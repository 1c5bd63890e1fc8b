// y[row][n] = sum over k of w[n][k] * x[row][k], with w kept as small integers: w = bf16(scale * quant + min), a scale and a min
// for each output and group of 32 / PARTS inputs. A weight is rounded to bf16 in registers and multiplied like one of
// `linear.cu`: the same sums, bit for bit, as that kernel (and the library) over what `unpack` writes.
//
// A strip is 16 outputs: the rows of the matrix instruction. It consists of records of 64 inputs, in the order in which lanes
// want them; BITS / 8 bytes a weight and PARTS / 8 for factors, e.g. 5 bits in all for 4-bit quants in groups of 32.
//
//   strip    | record | record | ...                                 weights are multiples of the strip's unit, a power of two
//   record   | quants: BITS / 4 pieces of [32 lanes][16 bytes] | factors: PARTS pieces of [8 outputs][16 bytes] |
//   lane     outputs g = lane / 4 ("low") and g + 8 ("high"), inputs 2t, 2t + 1, 2t + 8, 2t + 9 of each step of 16, t = lane % 4
//   factors  [group][low, high]: scale * 2^x (f16) | min (f16) << 16
//
// A quant becomes a number by standing in the mantissa of 1.0: f = 1 + quant * 2^-x, and w = f * scale 2^x + (min - scale 2^x).
// With 11-bit factors this is exact up to the rounding to bf16, unless the min is tiny beside the scale.
//
//   4 bits   a step is a word. Rotated so that a nibble stands at bits 12 (low: x = 11) and one at bits 16 (high: x = 7):
//            as it is, << 8, >> 8 and by half, for the four inputs
//   8 bits   a step is a word for low and one for high; a byte goes to bits 8 to 15 (x = 15)

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

// One output's factors in a group: weight = f * scale + offset.
struct Factor {
    float scale, offset;
};
DEVICE Factor factor(u32 word) {
    float scale = low_f16(word);
    return {scale, __fsub_rn(high_f16(word), scale)};
}

#if BITS == 4
// The word of a step, rotated for its i-th input.
DEVICE u32 rotated(u32 word, int i) { return i == 0 ? word : i == 1 ? word << 8 : i == 2 ? word >> 8 : __byte_perm(word, 0, 0x1032); }
// 1.0 with the quant of the step's i-th input in its mantissa.
DEVICE float low_quant(const Piece &piece, int step, int i, u32 one) { return __uint_as_float((rotated(piece.quants[step], i) & 0xf000u) | one); }
DEVICE float high_quant(const Piece &piece, int step, int i, u32 one) { return __uint_as_float((rotated(piece.quants[step], i) & 0xf0000u) | one); }
#else
// 1.0 with the quant of the step's i-th input in its mantissa.
DEVICE float low_quant(const Piece &piece, int step, int i, u32 one) { return __uint_as_float(__byte_perm(piece.quants[2 * step], one, 0x7604u | i << 4)); }
DEVICE float high_quant(const Piece &piece, int step, int i, u32 one) { return __uint_as_float(__byte_perm(piece.quants[2 * step + 1], one, 0x7604u | i << 4)); }
#endif
#define ONE 0x3f800000u
// ONE in a register that stays: the compiler would load an immediate anew for every quant, and does not know that there are few slices.
DEVICE u32 held_one(u32 slices) { return ONE | slices >> 31; }
// The weights of a step of 16 inputs, as the matrix instruction takes them; `one` holds ONE.
DEVICE void load_weights(u32 *fragment, const Piece &piece, int step, u32 one) {
    const int group = step * PARTS / 2;
    const Factor low = factor(piece.factors[2 * group]), high = factor(piece.factors[2 * group + 1]);
    float l[4], h[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        l[i] = __fmaf_rn(low_quant(piece, step, i, one), low.scale, low.offset);
        h[i] = __fmaf_rn(high_quant(piece, step, i, one), high.scale, high.offset);
    }
    fragment[0] = pack2(l[0], l[1]), fragment[1] = pack2(h[0], h[1]);
    fragment[2] = pack2(l[2], l[3]), fragment[3] = pack2(h[2], h[3]);
}
