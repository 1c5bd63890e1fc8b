// Attention over paged keys and values whose bits depend neither on the batch nor on how a sequence is cut into chunks.
//
// Keys are taken in segments of 128 at fixed positions, four KV blocks each. A segment has one maximum per row and its sums start from
// nothing; segments are merged in ascending order by one formula, whoever computes them. So a decoded row (a warp per segment) and the
// same row inside a prompt (16 rows per warp) agree bit for bit.
//
// Here is what all kernels share; each has a source of its own, and sources are compiled side by side:
//
//   decode   item = (row, segment); a warp takes one (item, KV head): the group's query heads are the 16 rows of the matrix
//            instruction. What each leaves in memory is merged by the kernel after it (`attend_merge.cu`).
//   rows     the same for many rows of up to four segments: a warp takes all segments of a (row, KV head).
//   few      the same for few rows of up to four segments: a block takes a (row, KV head), and its warps merge in shared memory.
//   prompt   item = up to 128 tokens of a chunk; a block takes one (item, query head): 8 warps with 16 tokens each.
//
// HEAD_DIM is set at compile time, a multiple of 16 up to 256; so are CAPPED, whether scores are capped, KV8, the form of keys and values
// (`kv.cuh`), BOXES, whether the copy engine brings them for decoded rows, and DECODE_WARPS, DECODE_RING and PROMPT_STAGES, what fits into
// shared memory. Outside of what a row may see, scores are replaced and values are zeros in shared memory, so that what an earlier owner of a
// block left there can't reach a sum.
//
// With KV8, shared memory holds quants as they are stored, and whoever multiplies widens them. A key's scale multiplies its product with a
// query, before anything else is done to that; a value's scale multiplies the weight after it was added to the sum of weights.

#define SEGMENT 128
#define TILES (SEGMENT / BLOCK)
// A block's keys or its values in shared memory. Threads copy them with an odd number of 16-byte pieces between tokens, and what those are
// multiplied by behind them; the copy engine, with BOXES, in panels of 64 columns (`hopper.cuh`). Either way eight tokens lie in different banks.
#define PITCH ((HEAD_DIM / PIECE | 1) * 16)
#if BOXES
#define PANEL_BYTES (BLOCK * 128)
#define HALF_BYTES (HEAD_DIM / 64 * PANEL_BYTES)
#else
#define HALF_BYTES (BLOCK * PITCH + (KV8 ? BLOCK * 4 : 0))
#endif
#define FRAGMENTS (HEAD_DIM / 16)
#define NONE minus_infinity()

// One segment of a decoded row, with all that its warp needs to know: one look, then the keys.
struct alignas(16) DecodeItem {
    u32 token;     // its index in the step
    u32 keys;      // positions up to its own
    u32 segment;   // which of them
    u32 segments;  // how many items the row has
    u32 blocks[TILES];
    u32 row_end;   // not of this item's row, but of the decoded row whose number is this item's: where its items end, 0 if there is none
    u32 unused[3];
};
struct PromptItem {
    u32 token;     // the first token's index in the step
    u32 rows;      // tokens, at most 128
    u32 position;  // of the first token
    u32 table;     // where the block table begins
    u32 keys;      // positions of the sequence that are written
};
struct Attend {
    const bf16 *queries;       // [tokens][heads][HEAD_DIM]
    const Stored *kv;          // this layer's blocks (`kv.cuh`)
    bf16 *out;                 // [tokens][heads][HEAD_DIM]
    const u32 *tables;
    const u32 *counts;         // decode items, prompt items
    const DecodeItem *items;
    const PromptItem *prompts;
    float *values;             // [item][heads][HEAD_DIM]
    float2 *scales;            // [item][heads]: maximum and sum
    u32 heads, kv_heads;
    u32 window;                // 0: all
    float scale, cap;          // cap is read if CAPPED
};

// A warp's 16 rows over one segment: maximum and sum of each of a thread's two rows, and the weighted values.
struct Rows {
    float most[2], sum[2], values[HEAD_DIM / 8][4];
};
// Keys lower[h] <= t < upper[h] count for a thread's row h.
struct Span {
    i32 lower[2], upper[2];
};
// A key's weight is 2^(score * factor - most), where `most` is the segment's largest score times the factor, which is above 0. One
// instruction makes the exponent; what is capped has the factor in its score.
DEVICE float score(float product, const Attend &a) {
#if !CAPPED
    return product;
#else
    float capped = __fmul_rn(a.cap, tanh_by_power(__fdiv_rn(__fmul_rn(product, a.scale), a.cap)));
    return __fmul_rn(capped, 1.442695041f);
#endif
}
DEVICE float factor(const Attend &a) { return CAPPED ? 1.0f : __fmul_rn(a.scale, 1.442695041f); }
// Multiplies what there is for the 32 tokens of a half by their scales, which lie behind it.
DEVICE void scale_tokens(float (&s)[4][4], const char *scales) {
#if KV8
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 scale = ((const float2 *)scales)[j * 4 + lane % 4];
        s[j][0] = __fmul_rn(s[j][0], scale.x), s[j][1] = __fmul_rn(s[j][1], scale.y);
        s[j][2] = __fmul_rn(s[j][2], scale.x), s[j][3] = __fmul_rn(s[j][3], scale.y);
    }
#endif
}
// Operands of 32 keys, or of 16 tokens' values, for sixteen of a head's columns: as they lie in shared memory.
#if KV8
#define KEY_WORDS 4
#define VALUE_WORDS 2
DEVICE void load_keys(u32 (&b)[KEY_WORDS], const char *keys, int k) { load_matrices4(b, keys + threadIdx.x % 32 * PITCH + k * 16); }
DEVICE void multiply_eight_keys(float *s, const u32 *q, const u32 (&b)[KEY_WORDS], int j) {
    const u32 wide[2] = {widened(b[j], selector(KEYS, LOW)), widened(b[j], selector(KEYS, HIGH))};
    multiply(s, q, wide);
}
DEVICE void load_values(u32 (&b)[VALUE_WORDS], const char *values, int j, int i) {
    load_matrices2_transposed(b, values + (j * 16 + threadIdx.x % 16) * PITCH + i * 16);
}
DEVICE void multiply_eight_columns(float *s, const u32 *p, const u32 (&b)[VALUE_WORDS], u32 part) {
    const u32 wide[2] = {widened(b[0], selector(VALUES, part)), widened(b[1], selector(VALUES, part))};
    multiply(s, p, wide);
}
#else
#define KEY_WORDS 8
#define VALUE_WORDS 4
// Where one of two pieces of a token lies, those of columns 16 k and 16 k + 8.
DEVICE u32 piece_of_token(u32 token, u32 k, u32 second) {
#if BOXES
    return k / 4 * PANEL_BYTES + token * 128 + (k % 4 * 2 ^ second ^ token % 8) * 16;
#else
    return token * PITCH + (k * 2 + second) * 16;
#endif
}
DEVICE void load_keys(u32 (&b)[KEY_WORDS], const char *keys, int k) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 2; j++) load_matrices4(b + 4 * j, keys + piece_of_token(j * 16 + lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
}
DEVICE void multiply_eight_keys(float *s, const u32 *q, const u32 (&b)[KEY_WORDS], int j) { multiply(s, q, b + 2 * j); }
DEVICE void load_values(u32 (&b)[VALUE_WORDS], const char *values, int j, int i) {
    const int lane = threadIdx.x % 32;
    load_matrices4_transposed(b, values + piece_of_token(j * 16 + lane % 8 + lane / 8 % 2 * 8, i, lane / 16));
}
DEVICE void multiply_eight_columns(float *s, const u32 *p, const u32 (&b)[VALUE_WORDS], u32 part) { multiply(s, p, b + 2 * part); }
#endif
DEVICE void clear_scores(float (&s)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
}
// q . k for the keys of blocks that lie at `keys`. Operands are loaded two steps before they are multiplied: a warp has nobody to hide
// their latency behind.
template <int BLOCKS> DEVICE void multiply_keys(float (*s)[4][4], const u32 (&q)[FRAGMENTS][4], const char *const (&keys)[BLOCKS]) {
    constexpr int STEPS = FRAGMENTS * BLOCKS;
    u32 b[3][KEY_WORDS];
#pragma unroll
    for (int t = 0; t < BLOCKS; t++) clear_scores(s[t]);
#pragma unroll
    for (int n = -2; n < STEPS; n++) {
        if (n + 2 < STEPS) load_keys(b[(n + 2) % 3], keys[(n + 2) % BLOCKS], (n + 2) / BLOCKS);
#pragma unroll
        for (int j = 0; j < 4 && n >= 0; j++) multiply_eight_keys(s[n % BLOCKS][j], q[n / BLOCKS], b[n % 3], j);
    }
#pragma unroll
    for (int t = 0; t < BLOCKS; t++) scale_tokens(s[t], keys[t] + BLOCK * PITCH);
}
// The n-th of the 32 keys that a thread has of a segment, in its row h.
#define THREAD_KEYS (SEGMENT / 4)
DEVICE float &key_of_row(float (*s)[4][4], int h, int n) { return s[n / 8][n / 2 % 4][2 * h + n % 2]; }
// A product to a score, in place. Without MASKED, all keys count. Even and odd keys have maxima of their own until the end, so that fewer
// comparisons wait for one another.
template <bool MASKED> DEVICE void score_key(float (&s)[TILES][4][4], float (&most)[2], int h, int n, i32 base, const Span &span, const Attend &a) {
    float &v = key_of_row(s, h, n);
    const i32 key = base + n / 2 * 8 + (i32)(threadIdx.x % 4 * 2) + n % 2;
    v = score(v, a);  // of all keys: a choice between two values needs no branch
    if (MASKED && (key >= span.upper[h] || key < span.lower[h])) v = NONE;
    most[n % 2] = fmaxf(most[n % 2], v);
}
// A row's maximum, from those of its four threads.
DEVICE float row_most(const float (&most)[2], const Attend &a) {
    float all = fmaxf(most[0], most[1]);
    all = fmaxf(all, __shfl_xor_sync(LANES_ALL, all, 1));
    return __fmul_rn(fmaxf(all, __shfl_xor_sync(LANES_ALL, all, 2)), factor(a));
}
// A key's weight is 2 to the power of its exponent; `zero` is what the exponents of a row begin at.
DEVICE float row_zero(float most) { return most == NONE ? 0.0f : most; }
DEVICE float exponent(float score, float zero, const Attend &a) { return __fmaf_rn(score, factor(a), -zero); }
// An exponent to its key's weight, in place, added to the sum.
DEVICE void weigh_key(float &exponent, float &sum) {
    exponent = power2(exponent);
    sum = __fadd_rn(sum, exponent);
}
DEVICE float row_sum(float sum) {
    sum = __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 1));
    return __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 2));
}
// Products to scores of a thread's row h, in place, and their maximum over the segment that begins at position `base`.
template <bool MASKED> DEVICE void score_row(float (&s)[TILES][4][4], Rows &r, int h, i32 base, const Span &span, const Attend &a) {
    float most[2] = {NONE, NONE};
#pragma unroll
    for (int n = 0; n < THREAD_KEYS; n++) score_key<MASKED>(s, most, h, n, base, span, a);
    r.most[h] = row_most(most, a);
}
// Scores to weights, in place, and their sum.
DEVICE void weigh_row(float (&s)[TILES][4][4], Rows &r, int h, const Attend &a) {
    const float zero = row_zero(r.most[h]);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < THREAD_KEYS; n++) {
        float &v = key_of_row(s, h, n);
        v = exponent(v, zero, a);
        weigh_key(v, sum);
    }
    r.sum[h] = row_sum(sum);
}
// Only a thread's first HALF_ROWS rows are wanted.
template <bool MASKED, int HALF_ROWS = 2> DEVICE void soften(float (&s)[TILES][4][4], Rows &r, i32 base, const Span &span, const Attend &a) {
#pragma unroll
    for (int h = 0; h < HALF_ROWS; h++) score_row<MASKED>(s, r, h, base, span, a), weigh_row(s, r, h, a);
}
// Sixteen keys' weights as the matrix instruction takes them.
DEVICE void pack_weights(u32 (&p)[4], const float (&s)[4][4], int j) {
    p[0] = pack2(s[2 * j][0], s[2 * j][1]), p[1] = pack2(s[2 * j][2], s[2 * j][3]);
    p[2] = pack2(s[2 * j + 1][0], s[2 * j + 1][1]), p[3] = pack2(s[2 * j + 1][2], s[2 * j + 1][3]);
}
DEVICE void begin_values(Rows &r) {
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) r.values[i][e] = 0.0f;
}
// Adds the weighted values of blocks that lie at `values`.
template <int BLOCKS> DEVICE void multiply_values(Rows &r, float (*s)[4][4], const char *const (&values)[BLOCKS]) {
    constexpr int STEPS = BLOCKS * 2 * FRAGMENTS, AHEAD = STEPS < 3 ? STEPS : 3;
    u32 b[AHEAD + 1][VALUE_WORDS], p[4];
#pragma unroll
    for (int n = 0; n < AHEAD; n++) load_values(b[n], values[n / (2 * FRAGMENTS)], n / FRAGMENTS % 2, n % FRAGMENTS);
#pragma unroll
    for (int n = 0; n < STEPS; n++) {
        const int next = n + AHEAD, t = n / (2 * FRAGMENTS), j = n / FRAGMENTS % 2, i = n % FRAGMENTS;
        if (next < STEPS) load_values(b[next % (AHEAD + 1)], values[next / (2 * FRAGMENTS)], next / FRAGMENTS % 2, next % FRAGMENTS);
        if (i == 0 && j == 0) scale_tokens(s[t], values[t] + BLOCK * PITCH);
        if (i == 0) pack_weights(p, s[t], j);
        multiply_eight_columns(r.values[2 * i], p, b[n % (AHEAD + 1)], 0);
        multiply_eight_columns(r.values[2 * i + 1], p, b[n % (AHEAD + 1)], 1);
    }
}
// How a total and the next segment are weighted: total * keep + segment * take.
struct Merge {
    float keep, take, most;
};
DEVICE Merge merge(float total, float segment) {
    float most = fmaxf(total, segment);
    return {power2(__fsub_rn(total, most)), power2(__fsub_rn(segment, most)), most};
}
// Where the maximum stays, `keep` is 1, and the product with it may be left out.
DEVICE float merged(const Merge &w, float total, float segment) { return __fmaf_rn(segment, w.take, __fmul_rn(total, w.keep)); }
// What weighted values are multiplied by when all segments are merged, and two of them so.
DEVICE float share_of(float sum) { return __fdiv_rn(1.0f, sum); }
DEVICE u32 result(float2 values, float share) { return pack2(__fmul_rn(values.x, share), __fmul_rn(values.y, share)); }
DEVICE void write_row(bf16 *out, const Rows &r, int h) {
    const u32 lane = threadIdx.x % 32;
    const float share = share_of(r.sum[h]);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(out + i * 8 + lane % 4 * 2) = result(make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]), share);
}

// Copies a block's keys or values of one head into shared memory, by so many threads; tokens outside of first .. last become zeros.
template <u32 THREADS> DEVICE void bring(char *to, const Attend &a, u32 block, u32 kv_head, u32 which, i32 first, i32 last, u32 thread) {
    constexpr u32 PIECES = HEAD_DIM / PIECE;
    const Stored *from = a.kv + (((u64)block * a.kv_heads + kv_head) * 2 + which) * STORED_HALF;
    const u32 seen = (u32)(last - first);
    if (THREADS % PIECES == 0 && THREADS <= BLOCK * PIECES) {  // a thread copies the same piece of several rows, constants apart
        const u32 row = thread / PIECES, piece = thread % PIECES;
        char *my_to = to + row * PITCH + piece * 16;
        const Stored *my_from = from + row * HEAD_DIM + piece * PIECE;
#pragma unroll
        for (int more = 0; more < BLOCK; more += THREADS / PIECES)
            copy16(my_to + more * PITCH, my_from + more * HEAD_DIM, row + more - (u32)first < seen);
    } else {
#pragma unroll 4
        for (u32 at = thread; at < BLOCK * PIECES; at += THREADS) {
            const u32 row = at / PIECES, piece = at % PIECES;
            copy16(to + row * PITCH + piece * 16, from + row * HEAD_DIM + piece * PIECE, row - (u32)first < seen);
        }
    }
#if KV8
    if (thread < BLOCK) copy4(to + BLOCK * PITCH + thread * 4, from + BLOCK * HEAD_DIM + thread * 4, thread - (u32)first < seen);
#endif
}
DEVICE i32 lowest(u32 keys, u32 window) { return window && keys > window ? (i32)(keys - window) : 0; }
