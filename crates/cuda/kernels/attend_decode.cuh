// What the kernels of decoded rows share: a warp computes a segment for the query heads of one KV head, from a ring of halves of blocks in
// shared memory.

#define HALVES (2 * TILES)  // of a segment: its keys, then its values
#define FEW_RING 6    // halves of blocks in flight, per warp: a segment's keys or values, and two of what follows
#define SHORT_RING 3  // the same where there are many rows: few enough for many blocks on a multiprocessor

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
