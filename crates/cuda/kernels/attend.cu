// Attention over paged keys and values whose bits depend neither on the batch nor on how a sequence is cut into chunks.
//
// Keys are walked in tiles of 32 (a KV block) and segments of 128 at fixed positions. A segment's sums start from nothing, and
// segments are merged in ascending order by one formula, whoever computes them: a decoded row (a warp per segment) and the same
// row inside a prompt (16 rows per warp) agree bit for bit.
//
//   decode   item = (row, segment); a warp takes one (item, KV head): the group's query heads are the 16 rows of the matrix
//            instruction. The warp that finishes a row's last segment merges all of them.
//   prompt   item = up to 128 tokens of a chunk; a block takes one (item, query head): 8 warps with 16 tokens each.
//
// HEAD_DIM is set at compile time, a multiple of 16 up to 256; so is CAPPED, whether scores are capped. Tokens beyond a sequence's end are zeros in shared memory, so that
// what an earlier owner of the block left there can't reach a sum.

#define BLOCK 32
#define SEGMENT 128
#define TILES (SEGMENT / BLOCK)
#define PITCH (HEAD_DIM * 2 + 16)  // an odd number of 16-byte pieces: eight rows lie in different banks
#define TILE_BYTES (2 * BLOCK * PITCH)
#define FRAGMENTS (HEAD_DIM / 16)
#define NONE minus_infinity()

#if HEAD_DIM <= 128
#define DECODE_WARPS 4
#else
#define DECODE_WARPS 2
#endif
#define DECODE_RING 3
#define PROMPT_WARPS 8
#define PROMPT_ROWS (PROMPT_WARPS * 16)
#define PROMPT_RING 4

// One segment of a decoded row, with all that its warp needs to know: one look, then the keys.
struct alignas(16) DecodeItem {
    u32 token;       // its index in the step
    u32 keys;        // positions up to its own
    u32 segment;     // which of them
    u32 row;         // among the decoded rows
    u32 first_item;  // the row's first item
    u32 segments;    // how many items the row has
    u32 unused[2];
    u32 blocks[TILES];
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
    const bf16 *kv;            // this layer's blocks: [block][kv head][keys | values][32][HEAD_DIM]
    bf16 *out;                 // [tokens][heads][HEAD_DIM]
    const u32 *tables;
    const u32 *counts;         // decode items, prompt items
    const DecodeItem *items;
    const PromptItem *prompts;
    float *values;             // [item][kv head][part][16 or fewer heads][HEAD_DIM]
    float2 *scales;            // the same without HEAD_DIM: maximum and sum
    u32 *finished;             // [row][kv head][part], zero between launches
    u32 heads, kv_heads;
    u32 window;                // 0: all
    float scale, cap;          // cap is read if CAPPED
};

// A warp's 16 rows over some keys: maximum and sum of each of a thread's two rows, and the weighted values.
struct Rows {
    float most[2], sum[2], values[HEAD_DIM / 8][4];
};
DEVICE void clear(Rows &r) {
#pragma unroll
    for (int h = 0; h < 2; h++) r.most[h] = NONE, r.sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) r.values[i][e] = 0.0f;
}
// Keys lower[h] <= t < upper[h] count for a thread's row h.
struct Span {
    i32 lower[2], upper[2];
};
DEVICE float score(float product, const Attend &a) {
#if !CAPPED
    return __fmul_rn(product, __fmul_rn(a.scale, 1.442695041f));
#else
    float capped = __fmul_rn(a.cap, tanh_by_power(__fdiv_rn(__fmul_rn(product, a.scale), a.cap)));
    return __fmul_rn(capped, 1.442695041f);
#endif
}
// One tile of 32 keys that begins at position `base`. Without MASKED, all of them count for all rows.
template <bool MASKED> DEVICE void walk(Rows &r, const u32 (&q)[FRAGMENTS][4], const char *tile, i32 base, const Span &span, const Attend &a) {
    const int lane = threadIdx.x % 32;
    const char *keys = tile, *values = tile + BLOCK * PITCH;
    float s[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int row = j * 16 + lane % 8 + lane / 16 * 8, piece = k * 2 + lane / 8 % 2;
            u32 b[4];
            load_matrices4(b, keys + row * PITCH + piece * 16);
            multiply(s[2 * j], q[k], b);
            multiply(s[2 * j + 1], q[k], b + 2);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = r.most[h];
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &v = s[j][2 * h + e];
                i32 t = base + j * 8 + lane % 4 * 2 + e;
                v = !MASKED || (t < span.upper[h] && t >= span.lower[h]) ? score(v, a) : NONE;
                most = fmaxf(most, v);
            }
        most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, 1));
        most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, 2));
        float zero = most == NONE ? 0.0f : most, shrink = power2(__fsub_rn(r.most[h], zero)), sum = 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float p = power2(__fsub_rn(s[j][2 * h + e], zero));
                s[j][2 * h + e] = p;
                sum = __fadd_rn(sum, p);
            }
        r.most[h] = most;
        r.sum[h] = __fmaf_rn(r.sum[h], shrink, sum);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++) {
            r.values[i][2 * h] = __fmul_rn(r.values[i][2 * h], shrink);
            r.values[i][2 * h + 1] = __fmul_rn(r.values[i][2 * h + 1], shrink);
        }
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        u32 p[4] = {pack2(s[2 * j][0], s[2 * j][1]), pack2(s[2 * j][2], s[2 * j][3]), pack2(s[2 * j + 1][0], s[2 * j + 1][1]),
                    pack2(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
        for (int i = 0; i < FRAGMENTS; i++) {
            int row = j * 16 + lane % 8 + lane / 8 % 2 * 8, piece = i * 2 + lane / 16;
            u32 b[4];
            load_matrices4_transposed(b, values + row * PITCH + piece * 16);
            multiply(r.values[2 * i], p, b);
            multiply(r.values[2 * i + 1], p, b + 2);
        }
    }
}
// A row's sum lies spread over four threads.
DEVICE void gather(Rows &r) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        r.sum[h] = __fadd_rn(r.sum[h], __shfl_xor_sync(LANES_ALL, r.sum[h], 1));
        r.sum[h] = __fadd_rn(r.sum[h], __shfl_xor_sync(LANES_ALL, r.sum[h], 2));
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
DEVICE float merged(const Merge &w, float total, float segment) { return __fmaf_rn(total, w.keep, __fmul_rn(segment, w.take)); }

// Copies a block's keys and values of one head into shared memory; tokens from the `keys`-th on become zeros.
DEVICE void bring(char *to, const Attend &a, u32 block, u32 kv_head, i32 keys, u32 thread, u32 threads) {
    constexpr u32 PIECES = HEAD_DIM / 8;
    const bf16 *from = a.kv + ((u64)block * a.kv_heads + kv_head) * (2 * BLOCK * HEAD_DIM);
    for (u32 at = thread; at < 2 * BLOCK * PIECES; at += threads) {
        u32 row = at / PIECES, piece = at % PIECES;  // rows 0..31 are keys, 32..63 values
        copy16(to + row * PITCH + piece * 16, from + (u64)row * HEAD_DIM + piece * 8, (i32)(row % BLOCK) < keys);
    }
}
DEVICE i32 lowest(u32 keys, u32 window) { return window && keys > window ? (i32)(keys - window) : 0; }

// Where a warp is in its items.
struct Cursor {
    u32 unit, tile, end;  // tile of the segment, and the first one that is not its
    i32 lower;
    uint4 what, more, blocks;  // the item: token, keys, segment, row; first_item, segments; blocks
};
struct Units {
    u32 count, parts;  // parts of a group of more than 16 query heads
};
DEVICE u32 block_of(const Cursor &c) {
    return c.tile == 0 ? c.blocks.x : c.tile == 1 ? c.blocks.y : c.tile == 2 ? c.blocks.z : c.blocks.w;
}
DEVICE void open(Cursor &c, const Attend &a, const Units &units) {
    if (c.unit >= units.count) return;
    const uint4 *item = (const uint4 *)(a.items + c.unit / (a.kv_heads * units.parts));
    c.what = item[0], c.more = item[1], c.blocks = item[2];
    c.lower = lowest(c.what.y, a.window);
    i32 start = (i32)(c.what.z * SEGMENT), left = (i32)c.what.y - start;
    c.tile = c.lower > start ? (u32)(c.lower - start) / BLOCK : 0;
    c.end = left >= SEGMENT ? TILES : (u32)(left + BLOCK - 1) / BLOCK;
}
DEVICE void next(Cursor &c, const Attend &a, const Units &units, u32 stride) {
    if (++c.tile == c.end) c.unit += stride, open(c, a, units);
}

// Adds up a row's segments for the heads of one unit. A lane takes pairs of columns, eight at a time so that their loads overlap.
#define MERGED 8
DEVICE void merge_segments(const Attend &a, u32 first_item, u32 segments, u32 in_item, u32 per_item, u32 heads, bf16 *out) {
    const u32 lane = threadIdx.x % 32, group = min(a.heads / a.kv_heads, 16u), pairs = heads * (HEAD_DIM / 2);
#pragma unroll 1
    for (u32 base = lane; base < pairs; base += 32 * MERGED) {
        float most[MERGED], sum[MERGED];
        float2 total[MERGED];
#pragma unroll
        for (int e = 0; e < MERGED; e++) most[e] = NONE, sum[e] = 0.0f, total[e] = make_float2(0.0f, 0.0f);
#pragma unroll 2
        for (u32 s = 0; s < segments; s++) {
            const u64 unit = ((u64)(first_item + s) * per_item + in_item) * group;
#pragma unroll
            for (int e = 0; e < MERGED; e++) {
                u32 pair = min(base + 32 * e, pairs - 1);
                u64 at = unit + pair / (HEAD_DIM / 2);
                float2 scale = __ldcg(a.scales + at), v = __ldcg((const float2 *)(a.values + at * HEAD_DIM) + pair % (HEAD_DIM / 2));
                Merge w = merge(most[e], scale.x);
                total[e].x = merged(w, total[e].x, v.x), total[e].y = merged(w, total[e].y, v.y);
                sum[e] = merged(w, sum[e], scale.y), most[e] = w.most;
            }
        }
#pragma unroll
        for (int e = 0; e < MERGED; e++)
            if (base + 32 * e < pairs) ((u32 *)out)[base + 32 * e] = pack2(__fdiv_rn(total[e].x, sum[e]), __fdiv_rn(total[e].y, sum[e]));
    }
}

KERNEL(attend_decode, Attend, DECODE_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, stride = gridDim.x * DECODE_WARPS;
    const u32 group = a.heads / a.kv_heads, parts = (group + 15) / 16, stored = min(group, 16u), per_item = a.kv_heads * parts;
    const Units units = {a.counts[0] * per_item, parts};
    char *ring = bytes + warp * DECODE_RING * TILE_BYTES;
    Cursor here;
    here.unit = blockIdx.x * DECODE_WARPS + warp;
    open(here, a, units);
    Cursor ahead = here;
    u32 filled = 0, used = 0;
    auto fill = [&]() {
        if (ahead.unit < units.count) {
            i32 base = (i32)(ahead.what.z * SEGMENT + ahead.tile * BLOCK);
            bring(ring + filled % DECODE_RING * TILE_BYTES, a, block_of(ahead), ahead.unit % per_item / parts, (i32)ahead.what.y - base, lane, 32);
            next(ahead, a, units, stride);
        }
        filled++;
        copy_commit();
    };
#pragma unroll 1
    for (int i = 0; i < DECODE_RING - 1; i++) fill();
    Rows r;
    u32 q[FRAGMENTS][4];
    bool fresh = true;
#pragma unroll 1
    while (here.unit < units.count) {
        const u32 in_item = here.unit % per_item, first_head = in_item / parts * group + in_item % parts * 16;
        const u32 heads = min(group - in_item % parts * 16, 16u);
        if (fresh) {
            clear(r);
            const bf16 *rows = a.queries + ((u64)here.what.x * a.heads + first_head) * HEAD_DIM;
#pragma unroll
            for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    u32 row = lane / 4 + e % 2 * 8, col = k * 16 + lane % 4 * 2 + e / 2 * 8;
                    q[k][e] = row < heads ? *(const u32 *)(rows + (u64)row * HEAD_DIM + col) : 0u;
                }
        }
        fill();
        copy_wait<DECODE_RING - 1>();
        __syncwarp();
        Span span = {{here.lower, here.lower}, {(i32)here.what.y, (i32)here.what.y}};
        const i32 base = (i32)(here.what.z * SEGMENT + here.tile * BLOCK);
        const char *tile = ring + used % DECODE_RING * TILE_BYTES;
        if (base >= here.lower && base + BLOCK <= (i32)here.what.y) walk<false>(r, q, tile, base, span, a);
        else walk<true>(r, q, tile, base, span, a);
        __syncwarp();
        used++;
        fresh = here.tile + 1 == here.end;
        if (fresh) {
            gather(r);
            const u32 segments = here.more.y;
            bf16 *out = a.out + ((u64)here.what.x * a.heads + first_head) * HEAD_DIM;
            if (segments == 1) {  // merging one segment with nothing gives its own bits
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (lane / 4 + h * 8 < heads)
#pragma unroll
                        for (int i = 0; i < HEAD_DIM / 8; i++)
                            *(u32 *)(out + (u64)(lane / 4 + h * 8) * HEAD_DIM + i * 8 + lane % 4 * 2) =
                                pack2(__fdiv_rn(r.values[i][2 * h], r.sum[h]), __fdiv_rn(r.values[i][2 * h + 1], r.sum[h]));
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    u32 g = lane / 4 + h * 8;
                    if (g < heads) {
                        u64 at = (u64)here.unit * stored + g;
                        if (lane % 4 == 0) a.scales[at] = make_float2(r.most[h], r.sum[h]);
#pragma unroll
                        for (int i = 0; i < HEAD_DIM / 8; i++)
                            *(float2 *)(a.values + at * HEAD_DIM + i * 8 + lane % 4 * 2) = make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]);
                    }
                }
                __threadfence();
                __syncwarp();
                u32 *finished = a.finished + (u64)here.what.w * per_item + in_item, before = 0;
                if (lane == 0) before = atomicAdd(finished, 1u);
                before = __shfl_sync(LANES_ALL, before, 0);
                if (before == segments - 1) {
                    if (lane == 0) *finished = 0;
                    __threadfence();
                    merge_segments(a, here.more.x, segments, in_item, per_item, heads, out);
                }
            }
        }
        next(here, a, units, stride);
    }
}

KERNEL(attend_prompt, Attend, PROMPT_WARPS * 32) {
    DYNAMIC_SHARED(bytes);
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
        // What all rows of the warp see, and what none of them does.
        const i32 lowest_upper = (i32)(item.position + warp * 16 + 1), highest_upper = lowest_upper + 15;
        const i32 highest_lower = lowest((u32)highest_upper, a.window);
        const i32 first = lowest(item.position + 1, a.window) / BLOCK, end = (i32)((item.position + item.rows + BLOCK - 1) / BLOCK);
#pragma unroll 1
        for (i32 i = 0; i < PROMPT_RING - 1; i++) {
            i32 t = first + i;
            if (t < end) bring(bytes + t % PROMPT_RING * TILE_BYTES, a, a.tables[item.table + t], kv_head, (i32)item.keys - t * BLOCK, threadIdx.x, PROMPT_WARPS * 32);
            copy_commit();
        }
        Rows r;
        float most[2] = {NONE, NONE}, sum[2] = {0.0f, 0.0f}, total[HEAD_DIM / 8][4];
        clear(r);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) total[i][e] = 0.0f;
#pragma unroll 1
        for (i32 t = first; t < end; t++) {
            copy_wait<PROMPT_RING - 2>();
            __syncthreads();
            i32 n = t + PROMPT_RING - 1;
            if (n < end) bring(bytes + n % PROMPT_RING * TILE_BYTES, a, a.tables[item.table + n], kv_head, (i32)item.keys - n * BLOCK, threadIdx.x, PROMPT_WARPS * 32);
            copy_commit();
            const char *tile = bytes + t % PROMPT_RING * TILE_BYTES;
            if (t * BLOCK >= highest_lower && (t + 1) * BLOCK <= lowest_upper) walk<false>(r, q, tile, t * BLOCK, span, a);
            else if (t * BLOCK < highest_upper) walk<true>(r, q, tile, t * BLOCK, span, a);
            if (t % TILES == TILES - 1 || t == end - 1) {
                gather(r);
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
                clear(r);
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (own + h * 8 < item.rows) {
                bf16 *y = a.out + ((u64)(item.token + own + h * 8) * a.heads + head) * HEAD_DIM + lane % 4 * 2;
#pragma unroll
                for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(y + i * 8) = pack2(__fdiv_rn(total[i][2 * h], sum[h]), __fdiv_rn(total[i][2 * h + 1], sum[h]));
            }
        copy_wait<0>();
        __syncthreads();
    }
}
