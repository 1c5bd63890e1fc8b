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
// Set at compile time:
//
//   HEAD_DIM       values of a head, a multiple of 16 up to 256
//   CAPPED         1 if scores are soft-capped
//   KV8            1 if keys and values are 8-bit (`kv.cuh`)
//   KV_BY_TMA      1 if TMA copies keys and values of decoded rows, 0 or undefined if threads do (cp.async)
//   DECODE_WARPS   warps of a block of `attend_decode` and `attend_rows`
//   DECODE_RING    halves of KV blocks that each of these warps has in flight
//   PROMPT_STAGES  segments of keys and values in shared memory, 1 or 2
//
// Values of tokens that no row of a thread block sees are zeros in shared memory: a weight of 0 times a NaN that an earlier owner of the KV block
// left would be NaN. Scores of masked keys are replaced, whatever they are.
//
// With KV8, shared memory holds quants as they are stored, and whoever multiplies widens them. A key's scale multiplies its product with a
// query, before anything else is done to that; a value's scale multiplies the weight after it was added to the sum of weights.

#define SEGMENT 128
#define SEGMENT_BLOCKS (SEGMENT / BLOCK)
// A half in shared memory. Copied by threads, tokens are PITCH bytes apart, an odd number of 16-byte pieces, and with KV8 the tokens' scales follow
// them. Copied by TMA (KV_BY_TMA), it lies in swizzled panels of 64 columns (`hopper.cuh`). Either way eight tokens lie in different banks.
#define PITCH ((HEAD_DIM / VALUES_PER_PIECE | 1) * 16)
#if KV_BY_TMA
#define PANEL_BYTES (BLOCK * 128)
#define HALF_BYTES (HEAD_DIM / 64 * PANEL_BYTES)
#else
#define HALF_BYTES (BLOCK * PITCH + (KV8 ? BLOCK * 4 : 0))
#endif
#define FRAGMENTS (HEAD_DIM / 16)
#define MINUS_INFINITY minus_infinity()

// One segment of a decoded row, with everything that its warp needs: one load, then the copies of its keys.
struct alignas(16) DecodeItem {
    u32 token;     // the row's token, by its index in the step
    u32 keys;      // keys up to the row's own, which is the last: its position + 1
    u32 segment;   // index of the segment: keys 128 * segment and on
    u32 segments;  // how many items the row has; 0: this item is padding
    u32 blocks[SEGMENT_BLOCKS];
    u32 row_end;   // indexed by decoded row, not by item: items[r].row_end is one past the last item of decoded row r, 0 if there is no such row
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
    float *partial_values;     // [item][heads][HEAD_DIM]
    float2 *partial_stats;     // [item][heads]: maximum and sum
    u32 heads, kv_heads;
    u32 window;                // 0: all
    float scale, cap;          // cap is read if CAPPED
};

// A warp's 16 rows over one segment: maximum and sum of each of a thread's two rows, and the weighted values.
struct SoftmaxState {
    float most[2], sum[2], values[HEAD_DIM / 8][4];
};
// Keys lower[h] <= t < upper[h] count for a thread's row h.
struct Span {
    i32 lower[2], upper[2];
};
// A key's weight is 2^(score * factor - most). `factor` is scale * log2(e), which is above 0, and `most` the segment's largest score times it, so
// that one fma computes the exponent. Capped scores are multiplied by log2(e) in `score`; their factor is 1.
DEVICE float score(float product, const Attend &a) {
#if !CAPPED
    return product;
#else
    float capped = __fmul_rn(a.cap, tanh_by_exp2(__fdiv_rn(__fmul_rn(product, a.scale), a.cap)));
    return __fmul_rn(capped, 1.442695041f);
#endif
}
DEVICE float exp2_scale(const Attend &a) { return CAPPED ? 1.0f : __fmul_rn(a.scale, 1.442695041f); }
// With KV8, multiplies what a thread has for the 32 tokens of a half by the tokens' `scales`. Without, does nothing.
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
DEVICE void load_keys(u32 (&b)[KEY_WORDS], const char *keys, int k) { ldmatrix_x4(b, keys + threadIdx.x % 32 * PITCH + k * 16); }
DEVICE void multiply_eight_keys(float *s, const u32 *q, const u32 (&b)[KEY_WORDS], int j) {
    const u32 wide[2] = {widened(b[j], selector(KEYS, LOW)), widened(b[j], selector(KEYS, HIGH))};
    mma_m16n8k16(s, q, wide);
}
DEVICE void load_values(u32 (&b)[VALUE_WORDS], const char *values, int j, int i) {
    ldmatrix_x2_trans(b, values + (j * 16 + threadIdx.x % 16) * PITCH + i * 16);
}
DEVICE void multiply_eight_columns(float *s, const u32 *p, const u32 (&b)[VALUE_WORDS], u32 part) {
    const u32 wide[2] = {widened(b[0], selector(VALUES, part)), widened(b[1], selector(VALUES, part))};
    mma_m16n8k16(s, p, wide);
}
#else
#define KEY_WORDS 8
#define VALUE_WORDS 4
// Where one of two pieces of a token lies, those of columns 16 k and 16 k + 8.
DEVICE u32 piece_of_token(u32 token, u32 k, u32 second) {
#if KV_BY_TMA
    return k / 4 * PANEL_BYTES + token * 128 + (k % 4 * 2 ^ second ^ token % 8) * 16;
#else
    return token * PITCH + (k * 2 + second) * 16;
#endif
}
DEVICE void load_keys(u32 (&b)[KEY_WORDS], const char *keys, int k) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 2; j++) ldmatrix_x4(b + 4 * j, keys + piece_of_token(j * 16 + lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
}
DEVICE void multiply_eight_keys(float *s, const u32 *q, const u32 (&b)[KEY_WORDS], int j) { mma_m16n8k16(s, q, b + 2 * j); }
DEVICE void load_values(u32 (&b)[VALUE_WORDS], const char *values, int j, int i) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(b, values + piece_of_token(j * 16 + lane % 8 + lane / 8 % 2 * 8, i, lane / 16));
}
DEVICE void multiply_eight_columns(float *s, const u32 *p, const u32 (&b)[VALUE_WORDS], u32 part) { mma_m16n8k16(s, p, b + 2 * part); }
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
// A product to a score, in place. Without MASKED, no key is masked out. Even and odd keys have separate maxima until the end, so that fewer
// comparisons depend on each other.
template <bool MASKED> DEVICE void score_key(float (&s)[SEGMENT_BLOCKS][4][4], float (&most)[2], int h, int n, i32 base, const Span &span, const Attend &a) {
    float &v = key_of_row(s, h, n);
    const i32 key = base + n / 2 * 8 + (i32)(threadIdx.x % 4 * 2) + n % 2;
    v = score(v, a);  // of all keys: a choice between two values needs no branch
    if (MASKED && (key >= span.upper[h] || key < span.lower[h])) v = MINUS_INFINITY;
    most[n % 2] = fmaxf(most[n % 2], v);
}
// A row's maximum, from those of its four threads.
DEVICE float row_most(const float (&most)[2], const Attend &a) {
    float all = fmaxf(most[0], most[1]);
    all = fmaxf(all, __shfl_xor_sync(LANES_ALL, all, 1));
    return __fmul_rn(fmaxf(all, __shfl_xor_sync(LANES_ALL, all, 2)), exp2_scale(a));
}
// A key's weight is 2 to the power of its exponent; `zero` is what the exponents of a row begin at.
DEVICE float finite_max(float most) { return most == MINUS_INFINITY ? 0.0f : most; }
DEVICE float exponent(float score, float zero, const Attend &a) { return __fmaf_rn(score, exp2_scale(a), -zero); }
// An exponent to its key's weight, in place, added to the sum.
DEVICE void weigh_key(float &exponent, float &sum) {
    exponent = exp2_approx(exponent);
    sum = __fadd_rn(sum, exponent);
}
DEVICE float row_sum(float sum) {
    sum = __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 1));
    return __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 2));
}
// Products to scores of a thread's row h, in place, and their maximum over the segment that begins at position `base`.
template <bool MASKED> DEVICE void score_row(float (&s)[SEGMENT_BLOCKS][4][4], SoftmaxState &r, int h, i32 base, const Span &span, const Attend &a) {
    float most[2] = {MINUS_INFINITY, MINUS_INFINITY};
#pragma unroll
    for (int n = 0; n < THREAD_KEYS; n++) score_key<MASKED>(s, most, h, n, base, span, a);
    r.most[h] = row_most(most, a);
}
// Scores to weights, in place, and their sum.
DEVICE void weigh_row(float (&s)[SEGMENT_BLOCKS][4][4], SoftmaxState &r, int h, const Attend &a) {
    const float zero = finite_max(r.most[h]);
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < THREAD_KEYS; n++) {
        float &v = key_of_row(s, h, n);
        v = exponent(v, zero, a);
        weigh_key(v, sum);
    }
    r.sum[h] = row_sum(sum);
}
// Segment softmax without the division: scores to weights in place, and each row's maximum and sum. Only the first HALF_ROWS of a thread's two rows.
template <bool MASKED, int HALF_ROWS = 2> DEVICE void softmax_segment(float (&s)[SEGMENT_BLOCKS][4][4], SoftmaxState &r, i32 base, const Span &span, const Attend &a) {
#pragma unroll
    for (int h = 0; h < HALF_ROWS; h++) score_row<MASKED>(s, r, h, base, span, a), weigh_row(s, r, h, a);
}
// Sixteen keys' weights as the matrix instruction takes them.
DEVICE void pack_weights(u32 (&p)[4], const float (&s)[4][4], int j) {
    p[0] = pack_bf16x2(s[2 * j][0], s[2 * j][1]), p[1] = pack_bf16x2(s[2 * j][2], s[2 * j][3]);
    p[2] = pack_bf16x2(s[2 * j + 1][0], s[2 * j + 1][1]), p[3] = pack_bf16x2(s[2 * j + 1][2], s[2 * j + 1][3]);
}
DEVICE void begin_values(SoftmaxState &r) {
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) r.values[i][e] = 0.0f;
}
// Adds the weighted values of blocks that lie at `values`.
template <int BLOCKS> DEVICE void multiply_values(SoftmaxState &r, float (*s)[4][4], const char *const (&values)[BLOCKS]) {
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
    return {exp2_approx(__fsub_rn(total, most)), exp2_approx(__fsub_rn(segment, most)), most};
}
// Where the maximum stays, `keep` is 1, and the product with it may be left out.
DEVICE float merged(const Merge &w, float total, float segment) { return __fmaf_rn(segment, w.take, __fmul_rn(total, w.keep)); }
// `reciprocal_of`: the factor 1 / sum that merged values are multiplied by in the end. `result`: two of them times it, as bf16.
DEVICE float reciprocal_of(float sum) { return __fdiv_rn(1.0f, sum); }
DEVICE u32 result(float2 values, float share) { return pack_bf16x2(__fmul_rn(values.x, share), __fmul_rn(values.y, share)); }
DEVICE void write_row(bf16 *out, const SoftmaxState &r, int h) {
    const u32 lane = threadIdx.x % 32;
    const float share = reciprocal_of(r.sum[h]);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(out + i * 8 + lane % 4 * 2) = result(make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]), share);
}

// Copies a block's keys or values of one head into shared memory, by so many threads; tokens outside of first .. last become zeros.
template <u32 THREADS> DEVICE void fetch_kv(char *to, const Attend &a, u32 block, u32 kv_head, u32 which, i32 first, i32 last, u32 thread) {
    constexpr u32 PIECES = HEAD_DIM / VALUES_PER_PIECE;
    const Stored *from = a.kv + (((u64)block * a.kv_heads + kv_head) * 2 + which) * STORED_HALF;
    const u32 seen = (u32)(last - first);
    if (THREADS % PIECES == 0 && THREADS <= BLOCK * PIECES) {  // a thread copies the same piece of several rows, constants apart
        const u32 row = thread / PIECES, piece = thread % PIECES;
        char *my_to = to + row * PITCH + piece * 16;
        const Stored *my_from = from + row * HEAD_DIM + piece * VALUES_PER_PIECE;
#pragma unroll
        for (int more = 0; more < BLOCK; more += THREADS / PIECES)
            cp_async_16(my_to + more * PITCH, my_from + more * HEAD_DIM, row + more - (u32)first < seen);
    } else {
#pragma unroll 4
        for (u32 at = thread; at < BLOCK * PIECES; at += THREADS) {
            const u32 row = at / PIECES, piece = at % PIECES;
            cp_async_16(to + row * PITCH + piece * 16, from + row * HEAD_DIM + piece * VALUES_PER_PIECE, row - (u32)first < seen);
        }
    }
#if KV8
    if (thread < BLOCK) cp_async_4(to + BLOCK * PITCH + thread * 4, from + BLOCK * HEAD_DIM + thread * 4, thread - (u32)first < seen);
#endif
}
DEVICE i32 first_visible_key(u32 keys, u32 window) { return window && keys > window ? (i32)(keys - window) : 0; }
