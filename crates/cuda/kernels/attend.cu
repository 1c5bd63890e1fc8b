// Attention over paged keys and values whose bits depend neither on the batch nor on how a sequence is cut into chunks.
//
// Keys are taken in segments of 128 at fixed positions, four KV blocks each. A segment has one maximum per row and its sums start from
// nothing; segments are merged in ascending order by one formula, whoever computes them. So a decoded row (a warp per segment) and the
// same row inside a prompt (16 rows per warp) agree bit for bit.
//
//   decode   item = (row, segment); a warp takes one (item, KV head): the group's query heads are the 16 rows of the matrix
//            instruction. What each leaves in memory is merged by the kernel after it (`attend_merge.cu`).
//   short    the same for rows of up to four segments: a block takes a (row, KV head), and its warps merge in shared memory.
//   prompt   item = up to 128 tokens of a chunk; a block takes one (item, query head): 8 warps with 16 tokens each.
//
// HEAD_DIM is set at compile time, a multiple of 16 up to 256; so are CAPPED, whether scores are capped, KV8, the form of keys and values
// (`kv.cuh`), KERNELS, which of the kernels are compiled (parts are compiled side by side), and DECODE_WARPS, DECODE_RING and PROMPT_STAGES,
// what fits into shared memory. Tokens outside of what a row may see are zeros in shared memory, so that what an earlier owner of a block left there
// can't reach a sum.
//
// With KV8, shared memory holds quants as they are stored, and whoever multiplies widens them. A key's scale multiplies its product with a
// query, before anything else is done to that; a value's scale multiplies the weight after it was added to the sum of weights.

#define DECODE 0
#define SHORT 1
#define PROMPT 2
#define HOPPER 3  // prompts, in `attend_hopper.cu`

#define SEGMENT 128
#define TILES (SEGMENT / BLOCK)
#define PITCH ((HEAD_DIM / PIECE | 1) * 16)                 // an odd number of 16-byte pieces: eight tokens lie in different banks
#define HALF_BYTES (BLOCK * PITCH + (KV8 ? BLOCK * 4 : 0))  // a block's keys or its values, and their scales
#define FRAGMENTS (HEAD_DIM / 16)
#define NONE minus_infinity()

#define FEW_RING 6    // halves of blocks in flight, per warp: a segment's keys or values, and two of what follows
#define SHORT_RING 3  // the same where there are many rows: few enough for many blocks on a multiprocessor
#define PROMPT_WARPS 8

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
DEVICE void load_keys(u32 (&b)[KEY_WORDS], const char *keys, int k) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int row = j * 16 + lane % 8 + lane / 16 * 8, piece = k * 2 + lane / 8 % 2;
        load_matrices4(b + 4 * j, keys + row * PITCH + piece * 16);
    }
}
DEVICE void multiply_eight_keys(float *s, const u32 *q, const u32 (&b)[KEY_WORDS], int j) { multiply(s, q, b + 2 * j); }
DEVICE void load_values(u32 (&b)[VALUE_WORDS], const char *values, int j, int i) {
    const int lane = threadIdx.x % 32;
    int row = j * 16 + lane % 8 + lane / 8 % 2 * 8, piece = i * 2 + lane / 16;
    load_matrices4_transposed(b, values + row * PITCH + piece * 16);
}
DEVICE void multiply_eight_columns(float *s, const u32 *p, const u32 (&b)[VALUE_WORDS], u32 part) { multiply(s, p, b + 2 * part); }
#endif
// q . k for the keys of blocks that lie at `keys`. Operands are loaded two steps before they are multiplied: a warp has nobody to hide
// their latency behind.
template <int BLOCKS> DEVICE void multiply_keys(float (*s)[4][4], const u32 (&q)[FRAGMENTS][4], const char *const (&keys)[BLOCKS]) {
    constexpr int STEPS = FRAGMENTS * BLOCKS;
    u32 b[3][KEY_WORDS];
#pragma unroll
    for (int t = 0; t < BLOCKS; t++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[t][j][e] = 0.0f;
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
template <bool MASKED> DEVICE void soften(float (&s)[TILES][4][4], Rows &r, i32 base, const Span &span, const Attend &a) {
#pragma unroll
    for (int h = 0; h < 2; h++) score_row<MASKED>(s, r, h, base, span, a), weigh_row(s, r, h, a);
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

// --- decode ---

#define HALVES (2 * TILES)  // of a segment: its keys, then its values

struct Units {
    u32 count, parts, per_item;  // parts of a group of more than 16 query heads; units of an item
};
// What a warp computes: a segment and a KV head.
struct DecodeUnit {
    u32 number, kv_head;
    i32 lower;           // the first position that counts
    uint4 what, blocks;  // the item: token, keys, segment, segments; blocks
};
struct ItemWords {
    uint4 what, blocks;
};
DEVICE ItemWords read_item(const DecodeItem *item) { return {((const uint4 *)item)[0], ((const uint4 *)item)[1]}; }
// The item of a unit; of one beyond the last, any.
DEVICE ItemWords item_of(u32 number, const Attend &a, const Units &units) {
    if (number >= units.count) return {};
    return read_item(a.items + number / units.per_item);
}
DEVICE DecodeUnit unit_of(u32 number, const ItemWords &item, const Attend &a, const Units &units) {
    return {number, number % units.per_item / units.parts, lowest(item.what.y, a.window), item.what, item.blocks};
}
DEVICE u32 block_of(const DecodeUnit &u, u32 tile) { return tile == 0 ? u.blocks.x : tile == 1 ? u.blocks.y : tile == 2 ? u.blocks.z : u.blocks.w; }
// Brings one of the unit's halves; of blocks outside of what the row sees nothing is read.
DEVICE void bring_half(const DecodeUnit &u, u32 half, const Attend &a, char *to) {
    const u32 tile = half % TILES;
    const i32 base = (i32)(u.what.z * SEGMENT + tile * BLOCK);
    bring<32>(to, a, block_of(u, tile), u.kv_head, half / TILES, u.lower - base, (i32)u.what.y - base, threadIdx.x % 32);
}
// The query heads of a unit: all of its group, or a part of it.
struct Heads {
    u32 first, count;
};
DEVICE Heads heads_of(u32 in_item, const Attend &a, const Units &units) {
    u32 group = a.heads / a.kv_heads, part = in_item % units.parts;
    return {in_item / units.parts * group + part * 16, min(group - part * 16, 16u)};
}
DEVICE void load_queries(u32 (&q)[FRAGMENTS][4], const bf16 *rows, u32 count) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            u32 row = lane / 4 + e % 2 * 8, col = k * 16 + lane % 4 * 2 + e / 2 * 8;
            q[k][e] = row < count ? *(const u32 *)(rows + (u64)row * HEAD_DIM + col) : 0u;
        }
}
// A warp's ring of SLOTS halves, all of them in use or on their way: the slot of the oldest one is filled when that is done with.
template <int SLOTS> struct Ring {
    char *bytes;
    u32 oldest;
};
template <int SLOTS> DEVICE char *oldest_half(const Ring<SLOTS> &ring) { return ring.bytes + ring.oldest * HALF_BYTES; }
// The oldest half, as soon as it is there. Every fill is a group of copies, also where there was nothing to bring.
template <int SLOTS> DEVICE const char *await_half(const Ring<SLOTS> &ring) {
    copy_wait<SLOTS - 1>();
    __syncwarp();
    return oldest_half(ring);
}
// Fills a ring for the first time. What earlier steps wrote is brought while the kernel before, which writes this step's keys and values,
// may still run; a row's own token is in the last block that it sees.
template <int SLOTS, class Fill> DEVICE void fill_ring(const Ring<SLOTS> &ring, const DecodeUnit &first, bool some, Fill fill) {
    const u32 older = some ? (first.what.y - 1) / BLOCK - first.what.z * TILES : 0, early = older < TILES ? min(older, SLOTS) : SLOTS;
#pragma unroll 1
    for (u32 i = 0; i < early; i++) fill(i, ring.bytes + i * HALF_BYTES);
    after_the_kernel_before();
#pragma unroll 1
    for (u32 i = early; i < SLOTS; i++) fill(i, ring.bytes + i * HALF_BYTES);
}
// One segment, block by block. `fill(n, to)` brings half n of the unit, or of those that the warp computes after it: one behind the other.
template <int SLOTS, class Fill>
DEVICE void attend_segment(Rows &r, const u32 (&q)[FRAGMENTS][4], const DecodeUnit &unit, const Attend &a, Ring<SLOTS> &ring, Fill fill) {
    float s[TILES][4][4];
    auto next = [&](u32 used) {
        __syncwarp();
        fill(used + SLOTS, oldest_half(ring));
        ring.oldest = ring.oldest + 1 == SLOTS ? 0 : ring.oldest + 1;
    };
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const char *keys[1] = {await_half(ring)};
        multiply_keys(s + t, q, keys);
        next(t);
    }
    const i32 base = (i32)(unit.what.z * SEGMENT), keys = (i32)unit.what.y;
    const Span span = {{unit.lower, unit.lower}, {keys, keys}};
    if (base >= unit.lower && base + SEGMENT <= keys) soften<false>(s, r, base, span, a);
    else soften<true>(s, r, base, span, a);
    begin_values(r);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        const char *values[1] = {await_half(ring)};
        multiply_values(r, s + t, values);
        next(TILES + t);
    }
}
// What weighted values are multiplied by when all segments are merged, and two of them so.
DEVICE float share_of(float sum) { return __fdiv_rn(1.0f, sum); }
DEVICE u32 result(float2 values, float share) { return pack2(__fmul_rn(values.x, share), __fmul_rn(values.y, share)); }
DEVICE void write_row(bf16 *out, const Rows &r, int h) {
    const u32 lane = threadIdx.x % 32;
    const float share = share_of(r.sum[h]);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(out + i * 8 + lane % 4 * 2) = result(make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]), share);
}

// Leaves a segment's sums in memory.
DEVICE void leave_segment(const Attend &a, const Rows &r, u32 item, const Heads &heads) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const u32 g = lane / 4 + h * 8;
        if (g < heads.count) {
            const u64 at = (u64)item * a.heads + heads.first + g;
            if (lane % 4 == 0) a.scales[at] = make_float2(r.most[h], r.sum[h]);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; i++)
                *(float2 *)(a.values + at * HEAD_DIM + i * 8 + lane % 4 * 2) = make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]);
        }
    }
}

#if KERNELS == DECODE
// Warps take units in turn, so that few units lie on different multiprocessors. Halves of the next unit are on their way before this one's
// sums are written, and the item after that is read: no load but that of queries is waited for between two units.
EARLY_KERNEL(attend_decode, Attend, DECODE_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, stride = gridDim.x * DECODE_WARPS;
    const u32 parts = (a.heads / a.kv_heads + 15) / 16, per_item = a.kv_heads * parts, first = warp * gridDim.x + blockIdx.x;
    const Units units = {a.counts[0] * per_item, parts, per_item};
    DecodeUnit here = unit_of(first, item_of(first, a, units), a, units), ahead = here;
    ItemWords upcoming = item_of(first + stride, a, units);
    Ring<DECODE_RING> ring = {bytes + warp * DECODE_RING * HALF_BYTES, 0};
    auto fill = [&](u32 n, char *to) {
        if (n == HALVES) {
            ahead = unit_of(ahead.number + stride, upcoming, a, units);
            upcoming = item_of(ahead.number + stride, a, units);
        }
        if (ahead.number < units.count) bring_half(ahead, n % HALVES, a, to);
        copy_commit();
    };
    fill_ring(ring, here, here.number < units.count, fill);
#pragma unroll 1
    while (here.number < units.count) {
        const Heads heads = heads_of(here.number % per_item, a, units);
        const u64 place = ((u64)here.what.x * a.heads + heads.first) * HEAD_DIM;
        u32 q[FRAGMENTS][4];
        load_queries(q, a.queries + place, heads.count);
        Rows r;
        attend_segment(r, q, here, a, ring, fill);
        if (here.what.w == 1) {  // merging one segment with nothing gives its own bits
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (lane / 4 + h * 8 < heads.count) write_row(a.out + place + (u64)(lane / 4 + h * 8) * HEAD_DIM, r, h);
        } else {
            leave_segment(a, r, here.number / per_item, heads);
        }
        here = ahead;  // a ring is shorter than a unit
    }
}

#endif

// --- short ---

// Block b computes row b / per_item, whose items begin at 4 * row; those that it does not have say that there are no segments. A row has
// at most WARPS of them.
template <int WARPS, int SLOTS> DEVICE void attend_short(const Attend &a) {
    DYNAMIC_SHARED(bytes);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 parts = (a.heads / a.kv_heads + 15) / 16, per_item = a.kv_heads * parts, row = blockIdx.x / per_item, in_item = blockIdx.x % per_item;
    const Units units = {~0u, parts, per_item};
    const Heads heads = heads_of(in_item, a, units);
    const DecodeUnit unit = unit_of(in_item, read_item(a.items + row * TILES + warp), a, units);
    const bool busy = unit.what.w != 0;
    Rows r;
    if (busy) {
        Ring<SLOTS> ring = {bytes + warp * SLOTS * HALF_BYTES, 0};
        u32 half = 0;  // counted, as constants would have the compiler find the addresses of all halves first and keep them
        auto fill = [&](u32 n, char *to) {
            if (n < HALVES) bring_half(unit, half++, a, to);
            copy_commit();
        };
        fill_ring(ring, unit, true, fill);
        u32 q[FRAGMENTS][4];
        load_queries(q, a.queries + ((u64)unit.what.x * a.heads + heads.first) * HEAD_DIM, heads.count);
        attend_segment(r, q, unit, a, ring, fill);
        copy_wait<0>();
    } else {
        after_the_kernel_before();
    }
    __syncthreads();
    float *values = (float *)bytes;                                // [segment][head][HEAD_DIM]
    float2 *scales = (float2 *)(values + WARPS * 16 * HEAD_DIM);  // [segment][head]: maximum and sum
    if (busy)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 at = warp * 16 + lane / 4 + h * 8;
            if (lane % 4 == 0) scales[at] = make_float2(r.most[h], r.sum[h]);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; i++) *(float2 *)(values + at * HEAD_DIM + i * 8 + lane % 4 * 2) = make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]);
        }
    __syncthreads();
    const u32 segments = a.items[row * TILES].segments;
    bf16 *out = a.out + ((u64)a.items[row * TILES].token * a.heads + heads.first) * HEAD_DIM;
    for (u32 pair = threadIdx.x; segments > 0 && pair < heads.count * (HEAD_DIM / 2); pair += WARPS * 32) {
        const u32 head = pair / (HEAD_DIM / 2), d = pair % (HEAD_DIM / 2);
        float most = NONE, sum = 0.0f;
        float2 total = make_float2(0.0f, 0.0f);
        for (u32 s = 0; s < segments; s++) {
            float2 scale = scales[s * 16 + head], v = ((const float2 *)(values + (s * 16 + head) * HEAD_DIM))[d];
            Merge w = merge(most, scale.x);
            total.x = merged(w, total.x, v.x), total.y = merged(w, total.y, v.y);
            sum = merged(w, sum, scale.y), most = w.most;
        }
        ((u32 *)out)[pair] = result(total, share_of(sum));
    }
}

#if KERNELS == DECODE
// For few rows: as much as fits is under way at once.
EARLY_KERNEL(attend_few, Attend, 128) { attend_short<4, FEW_RING>(a); }
#endif
#if KERNELS == SHORT
// For many rows of one to four segments: as many blocks as fit are under way at once.
EARLY_KERNEL(attend_short_1, Attend, 32) { attend_short<1, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_2, Attend, 64) { attend_short<2, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_3, Attend, 96) { attend_short<3, SHORT_RING>(a); }
EARLY_KERNEL(attend_short_4, Attend, 128) { attend_short<4, SHORT_RING>(a); }
#endif

// --- prompt ---

// Brings the keys or values of a segment, by all threads.
DEVICE void bring_segment(char *to, const Attend &a, const PromptItem &item, u32 kv_head, u32 which, i32 segment, i32 lower, i32 end) {
#pragma unroll
    for (i32 t = 0; t < TILES; t++) {
        const i32 base = segment * SEGMENT + t * BLOCK;
        const bool used = base + BLOCK > lower && base < end;
        const u32 block = used ? a.tables[item.table + segment * TILES + t] : 0;
        bring<PROMPT_WARPS * 32>(to + t * HALF_BYTES, a, block, kv_head, which, used ? lower - base : 0, used ? end - base : 0, threadIdx.x);
    }
}

#if KERNELS == PROMPT
KERNEL(attend_prompt, Attend, PROMPT_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
    constexpr u32 BUFFER = TILES * HALF_BYTES;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, work = a.counts[1] * a.heads;
#pragma unroll 1
    for (u32 unit = blockIdx.x; unit < work; unit += gridDim.x) {
        const PromptItem item = a.prompts[unit / a.heads];
        const u32 head = unit % a.heads, kv_head = head / (a.heads / a.kv_heads), own = warp * 16 + lane / 4;
        const u32 row[2] = {min(own, item.rows - 1), min(own + 8, item.rows - 1)};
        Span span;
        u32 q[FRAGMENTS][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            span.upper[h] = (i32)(item.position + row[h] + 1);
            span.lower[h] = lowest((u32)span.upper[h], a.window);
        }
#pragma unroll
        for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 col = k * 16 + lane % 4 * 2 + e / 2 * 8;
                q[k][e] = *(const u32 *)(a.queries + ((u64)(item.token + row[e % 2]) * a.heads + head) * HEAD_DIM + col);
            }
        // What the first and the last row of the warp see.
        const i32 first_upper = (i32)(item.position + warp * 16 + 1), last_upper = first_upper + 15;
        const i32 first_lower = lowest((u32)first_upper, a.window), last_lower = lowest((u32)last_upper, a.window);
        // What any row of the block sees.
        const i32 lower = lowest(item.position + 1, a.window), end = (i32)(item.position + item.rows);
        const i32 first = lower / SEGMENT, last = (end + SEGMENT - 1) / SEGMENT;
        auto keys_at = [&](i32 s) { return bytes + s % PROMPT_STAGES * BUFFER; };
        auto values_at = [&](i32 s) { return bytes + (PROMPT_STAGES + s % PROMPT_STAGES) * BUFFER; };
        auto bring_keys = [&](i32 s) {
            if (s < last) bring_segment(keys_at(s), a, item, kv_head, KEYS, s, lower, end);
            copy_commit();
        };
        auto bring_values = [&](i32 s) {
            if (s < last) bring_segment(values_at(s), a, item, kv_head, VALUES, s, lower, end);
            copy_commit();
        };
        bring_keys(first), bring_values(first);
        float most[2] = {NONE, NONE}, sum[2] = {0.0f, 0.0f}, total[HEAD_DIM / 8][4];
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total[i][e] = 0.0f;
#pragma unroll 1
        for (i32 g = first; g < last; g++) {
            const i32 base = g * SEGMENT;
            const bool seen = base < last_upper && base + SEGMENT > first_lower;
            float s[TILES][4][4];
            Rows r;
            // With two stages one barrier a segment is enough: warps drift apart, and one's exponentials hide behind another's products.
            if (PROMPT_STAGES == 2) copy_wait<0>();
            else copy_wait<1>();
            __syncthreads();
            if (PROMPT_STAGES == 2) bring_keys(g + 1), bring_values(g + 1);
            if (seen) {
                const char *at[TILES];
                for (int t = 0; t < TILES; t++) at[t] = keys_at(g) + t * HALF_BYTES;
                multiply_keys(s, q, at);
                if (base >= last_lower && base + SEGMENT <= first_upper) soften<false>(s, r, base, span, a);
                else soften<true>(s, r, base, span, a);
            }
            if (PROMPT_STAGES == 1) {
                __syncthreads();
                bring_keys(g + 1);
                copy_wait<1>();
                __syncthreads();
            }
            if (seen) {
                const char *at[TILES];
                for (int t = 0; t < TILES; t++) at[t] = values_at(g) + t * HALF_BYTES;
                begin_values(r);
                multiply_values(r, s, at);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (r.most[h] != NONE) {
                        Merge w = merge(most[h], r.most[h]);
                        sum[h] = merged(w, sum[h], r.sum[h]);
                        most[h] = w.most;
#pragma unroll
                        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
                            for (int e = 0; e < 2; e++) total[i][2 * h + e] = merged(w, total[i][2 * h + e], r.values[i][2 * h + e]);
                    }
            }
            if (PROMPT_STAGES == 1) {
                __syncthreads();
                bring_values(g + 1);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (own + h * 8 < item.rows) {
                bf16 *y = a.out + ((u64)(item.token + own + h * 8) * a.heads + head) * HEAD_DIM + lane % 4 * 2;
                const float share = share_of(sum[h]);
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(y + i * 8) = result(make_float2(total[i][2 * h], total[i][2 * h + 1]), share);
            }
        copy_wait<0>();
        __syncthreads();
    }
}
#endif
