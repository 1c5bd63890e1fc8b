// What the decode kernels share: a warp computes one segment for the query heads of one KV head (a unit), from a ring of halves of KV blocks in
// shared memory. Blocks that the row does not see are skipped: their keys' weights would be zero.
//
// With KV_BY_TMA, one lane requests a half by HEAD_DIM / 64 TMA copies. Without, all 32 lanes issue cp.async for it, some 80 instructions each with
// heads of 128 values.

#if KV_BY_TMA
#define DYNAMIC_HALVES(name) DYNAMIC_PANELS(name)
struct DecodeAttend {
    Attend attend;
    TensorMap kv;  // this layer's blocks as rows of HEAD_DIM values, in boxes of 64 columns and a block's rows
};
DEVICE const Attend &plain(const DecodeAttend &d) { return d.attend; }
#else
#define DYNAMIC_HALVES(name) DYNAMIC_SHARED(name)
typedef Attend DecodeAttend;
DEVICE const Attend &plain(const Attend &a) { return a; }
#endif
struct Units {
    u32 count, parts, per_item;  // parts of a group of many query heads; units of an item
};
#define PART_HEADS 16u  // query heads of a part, at most: rows of the matrix instruction
DEVICE u32 parts_of_group(const Attend &a) { return (a.heads / a.kv_heads + PART_HEADS - 1) / PART_HEADS; }
// What a warp computes: a segment and a KV head.
struct DecodeUnit {
    u32 number, kv_head;
    u32 first, tiles;    // the segment's blocks that the row sees some of
    i32 lower;           // the first position that counts
    uint4 what, blocks;  // the item: token, keys, segment, segments; blocks
};
struct ItemWords {
    uint4 what, blocks;
};
DEVICE ItemWords read_item(const DecodeItem *item) { return {((const uint4 *)item)[0], ((const uint4 *)item)[1]}; }
// The item of a unit; zeros for a number beyond the last unit.
DEVICE ItemWords item_of(u32 number, const Attend &a, const Units &units) {
    if (number >= units.count) return {};
    return read_item(a.items + number / units.per_item);
}
// Lane 0's value. All lanes have the same one; the shuffle tells the compiler that it is uniform over the warp.
DEVICE u32 of_warp(u32 value) { return __shfl_sync(LANES_ALL, value, 0); }
DEVICE DecodeUnit unit_of(u32 number, const ItemWords &item, const Attend &a, const Units &units) {
    const i32 lower = first_visible_key(item.what.y, a.window), base = (i32)(item.what.z * SEGMENT);
    const u32 first = lower > base ? (u32)(lower - base) / BLOCK : 0, end = min((item.what.y - base + BLOCK - 1) / BLOCK, (u32)SEGMENT_BLOCKS);
    return {number, number % units.per_item / units.parts, of_warp(first), of_warp(end - first), lower, item.what, item.blocks};
}
DEVICE u32 block_of(const DecodeUnit &u, u32 tile) { return tile == 0 ? u.blocks.x : tile == 1 ? u.blocks.y : tile == 2 ? u.blocks.z : u.blocks.w; }
// How many ring slots a unit takes: one for each half of its keys, then of its values, and at least SLOTS, so that halves in flight belong to
// this unit or to the next one. Slots beyond the values stay empty.
template <u32 SLOTS> DEVICE u32 halves_of(const DecodeUnit &u) { return 2 * u.tiles > SLOTS ? 2 * u.tiles : SLOTS; }
// A place for a half, and the barrier that says when it is there.
struct HalfSlot {
    char *bytes;
    u64 *full;  // with KV_BY_TMA
};
// Brings one of the unit's halves into a slot.
DEVICE void fetch_half(const DecodeUnit &u, u32 half, const DecodeAttend &d, const HalfSlot &to) {
    const u32 which = half < u.tiles ? KEYS : VALUES, tile = u.first + half - which * u.tiles;
#if KV_BY_TMA
    if (threadIdx.x % 32 != 0) return;
    if (half >= 2 * u.tiles) return mbarrier_arrive(to.full);
    mbarrier_arrive_expect_tx(to.full, HALF_BYTES);
    const u32 row = ((block_of(u, tile) * plain(d).kv_heads + u.kv_head) * 2 + which) * BLOCK;
#pragma unroll
    for (u32 panel = 0; panel < HEAD_DIM / 64; panel++) tma_load(to.bytes + panel * PANEL_BYTES, d.kv, panel * 64, row, to.full);
#else
    const i32 base = (i32)(u.what.z * SEGMENT + tile * BLOCK);
    if (half < 2 * u.tiles) fetch_kv<32>(to.bytes, plain(d), block_of(u, tile), u.kv_head, which, u.lower - base, (i32)u.what.y - base, threadIdx.x % 32);
    cp_async_commit_group();
#endif
}
// Brings half n of a unit, or of the one that the warp computes next: one behind the other.
template <u32 SLOTS> DEVICE void fetch_ahead(const DecodeUnit &here, const DecodeUnit &next, u32 n, const DecodeAttend &d, const HalfSlot &to) {
    const u32 own = halves_of<SLOTS>(here);
    const DecodeUnit unit = n < own ? here : next;
    fetch_half(unit, n < own ? n : n - own, d, to);
}
// The query heads of a unit: all of its group, or a part of it.
struct Heads {
    u32 first, count;
};
DEVICE Heads heads_of(u32 in_item, const Attend &a, const Units &units) {
    const u32 group = a.heads / a.kv_heads, part = in_item % units.parts * PART_HEADS;
    return {in_item / units.parts * group + part, min(group - part, PART_HEADS)};
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
// A warp's ring of SLOTS halves, all of them in use or on their way: the slot of the oldest one is filled when that is done with. Every fill
// counts, also where there was nothing to bring.
template <int SLOTS> struct Ring {
    char *bytes;
    u64 *full;   // with KV_BY_TMA, a barrier for each slot
    u32 oldest;
    u32 parity;  // of the oldest's barrier
};
// The ring of one of a block's warps; barriers lie behind all slots.
template <int SLOTS, int WARPS> DEVICE Ring<SLOTS> own_ring(char *bytes) {
    const u32 first = threadIdx.x / 32 * SLOTS;
    Ring<SLOTS> ring = {bytes + first * HALF_BYTES, (u64 *)(bytes + WARPS * SLOTS * HALF_BYTES) + first, 0, 0};
#if KV_BY_TMA
    if (threadIdx.x % 32 == 0) {
        for (u32 slot = 0; slot < SLOTS; slot++) mbarrier_init(ring.full + slot, 1);
        fence_proxy_async();
    }
    __syncwarp();
#endif
    return ring;
}
template <int SLOTS> DEVICE HalfSlot slot_of(const Ring<SLOTS> &ring, u32 slot) { return {ring.bytes + slot * HALF_BYTES, ring.full + slot}; }
// The oldest half, as soon as it is there.
template <int SLOTS> DEVICE char *await_half(const Ring<SLOTS> &ring) {
#if KV_BY_TMA
    mbarrier_wait(ring.full + ring.oldest, ring.parity);
#else
    cp_async_wait_group<SLOTS - 1>();
#endif
    __syncwarp();
    return slot_of(ring, ring.oldest).bytes;
}
// Said by all lanes when they have read a half: TMA, which is about to overwrite it, writes by another path than they read.
DEVICE void release_half() {
#if KV_BY_TMA
    fence_proxy_async();
#endif
    __syncwarp();
}
template <int SLOTS> DEVICE void pass_half(Ring<SLOTS> &ring) {
    const bool last = ring.oldest + 1 == SLOTS;
    ring.oldest = last ? 0 : ring.oldest + 1, ring.parity ^= last;
}
// TMA copies whole blocks: values of tokens that the row does not see are overwritten with zeros, as copying threads leave them.
DEVICE void clear_unseen(char *values, const DecodeUnit &unit, u32 tile) {
#if KV_BY_TMA
    const i32 base = (i32)(unit.what.z * SEGMENT + tile * BLOCK), keys = (i32)unit.what.y, lane = (i32)(threadIdx.x % 32);
    if (base >= unit.lower && base + BLOCK <= keys) return;
    if (base + lane < unit.lower || base + lane >= keys) {
#pragma unroll
        for (u32 piece = 0; piece < HEAD_DIM / 8; piece++)
            write_piece(values + piece / 8 * PANEL_BYTES + lane * 128 + (piece % 8 ^ lane % 8) * 16, make_uint4(0, 0, 0, 0));
    }
    __syncwarp();
#endif
}
// Fills a ring for the first time. What earlier steps wrote is brought while the kernel before, which writes this step's keys and values,
// may still run; a row's own token is in the last block that it sees.
template <int SLOTS, class Fill> DEVICE void fill_ring(const Ring<SLOTS> &ring, const DecodeUnit &first, bool some, Fill fill) {
    const u32 own = some ? (first.what.y - 1) / BLOCK - first.what.z * SEGMENT_BLOCKS : 0;
    const u32 early = own < SEGMENT_BLOCKS ? min(own - min(own, first.first), (u32)SLOTS) : SLOTS;
#pragma unroll 1
    for (u32 i = 0; i < early; i++) fill(i, slot_of(ring, i));
    grid_dependency_wait();
#pragma unroll 1
    for (u32 i = early; i < SLOTS; i++) fill(i, slot_of(ring, i));
}
// One segment, block by block, for the first 8 * HALF_ROWS query heads. `fill(n, to)` brings half n of the unit, or of the
// next one behind it.
template <int HALF_ROWS, int SLOTS, class Fill>
DEVICE void attend_segment(SoftmaxState &r, const u32 (&q)[FRAGMENTS][4], const DecodeUnit &unit, const Attend &a, Ring<SLOTS> &ring, Fill fill) {
    float s[SEGMENT_BLOCKS][4][4];
    u32 used = 0;
    auto next = [&] {
        release_half();
        fill(SLOTS + used++, slot_of(ring, ring.oldest));
        pass_half(ring);
    };
    auto seen = [&](u32 tile) { return tile - unit.first < unit.tiles; };
#pragma unroll
    for (int t = 0; t < SEGMENT_BLOCKS; t++) {
        clear_scores(s[t]);
        if (!seen(t)) continue;
        const char *keys[1] = {await_half(ring)};
        multiply_keys(s + t, q, keys);
        next();
    }
    const i32 base = (i32)(unit.what.z * SEGMENT), keys = (i32)unit.what.y;
    const Span span = {{unit.lower, unit.lower}, {keys, keys}};
    if (base >= unit.lower && base + SEGMENT <= keys) softmax_segment<false, HALF_ROWS>(s, r, base, span, a);
    else softmax_segment<true, HALF_ROWS>(s, r, base, span, a);
    begin_values(r);
#pragma unroll
    for (int t = 0; t < SEGMENT_BLOCKS; t++) {
        if (!seen(t)) continue;
        char *half = await_half(ring);
        clear_unseen(half, unit, t);
        const char *values[1] = {half};
        multiply_values(r, s + t, values);
        next();
    }
#pragma unroll 1
    while (used < halves_of<SLOTS>(unit)) await_half(ring), next();
}
// Writes a segment's partial result to global memory: each query head's maximum, sum and weighted values.
DEVICE void store_partial(const Attend &a, const SoftmaxState &r, u32 item, const Heads &heads) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const u32 g = lane / 4 + h * 8;
        if (g < heads.count) {
            const u64 at = (u64)item * a.heads + heads.first + g;
            if (lane % 4 == 0) a.partial_stats[at] = make_float2(r.most[h], r.sum[h]);
#pragma unroll
            for (int i = 0; i < HEAD_DIM / 8; i++)
                *(float2 *)(a.partial_values + at * HEAD_DIM + i * 8 + lane % 4 * 2) = make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]);
        }
    }
}
