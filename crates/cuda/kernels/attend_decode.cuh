// What the kernels of decoded rows share: a warp computes a segment for the query heads of one KV head, from a ring of halves of blocks in
// shared memory. Blocks outside of what the row sees are passed over: their keys' weights would be zero.
//
// A lane asks the copy engine for a whole half with two instructions (BOXES), where 32 threads take some 80 each to copy it. That leaves more
// of a multiprocessor's time for products, and counts most when products of weights have made the GPU lower its clock.

#if BOXES
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
// The item of a unit; of one beyond the last, any.
DEVICE ItemWords item_of(u32 number, const Attend &a, const Units &units) {
    if (number >= units.count) return {};
    return read_item(a.items + number / units.per_item);
}
// The same value in all lanes, which the compiler learns by this.
DEVICE u32 of_warp(u32 value) { return __shfl_sync(LANES_ALL, value, 0); }
DEVICE DecodeUnit unit_of(u32 number, const ItemWords &item, const Attend &a, const Units &units) {
    const i32 lower = lowest(item.what.y, a.window), base = (i32)(item.what.z * SEGMENT);
    const u32 first = lower > base ? (u32)(lower - base) / BLOCK : 0, end = min((item.what.y - base + BLOCK - 1) / BLOCK, (u32)TILES);
    return {number, number % units.per_item / units.parts, of_warp(first), of_warp(end - first), lower, item.what, item.blocks};
}
DEVICE u32 block_of(const DecodeUnit &u, u32 tile) { return tile == 0 ? u.blocks.x : tile == 1 ? u.blocks.y : tile == 2 ? u.blocks.z : u.blocks.w; }
// How many halves of blocks a warp with a ring of SLOTS takes for a unit: keys, then values. At least a whole ring, so that halves that are on
// their way belong to this unit or to the next; what is beyond the values is empty.
template <u32 SLOTS> DEVICE u32 halves_of(const DecodeUnit &u) { return 2 * u.tiles > SLOTS ? 2 * u.tiles : SLOTS; }
// A place for a half, and the barrier that says when it is there.
struct HalfSlot {
    char *bytes;
    u64 *full;  // with BOXES
};
// Brings one of the unit's halves into a slot.
DEVICE void bring_half(const DecodeUnit &u, u32 half, const DecodeAttend &d, const HalfSlot &to) {
    const u32 which = half < u.tiles ? KEYS : VALUES, tile = u.first + half - which * u.tiles;
#if BOXES
    if (threadIdx.x % 32 != 0) return;
    if (half >= 2 * u.tiles) return barrier_arrive(to.full);
    barrier_arrive_expecting(to.full, HALF_BYTES);
    const u32 row = ((block_of(u, tile) * plain(d).kv_heads + u.kv_head) * 2 + which) * BLOCK;
#pragma unroll
    for (u32 panel = 0; panel < HEAD_DIM / 64; panel++) copy_box(to.bytes + panel * PANEL_BYTES, d.kv, panel * 64, row, to.full);
#else
    const i32 base = (i32)(u.what.z * SEGMENT + tile * BLOCK);
    if (half < 2 * u.tiles) bring<32>(to.bytes, plain(d), block_of(u, tile), u.kv_head, which, u.lower - base, (i32)u.what.y - base, threadIdx.x % 32);
    copy_commit();
#endif
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
    u64 *full;   // with BOXES, a barrier for each slot
    u32 oldest;
    u32 parity;  // of the oldest's barrier
};
// The ring of one of a block's warps; barriers lie behind all slots.
template <int SLOTS, int WARPS> DEVICE Ring<SLOTS> own_ring(char *bytes) {
    const u32 first = threadIdx.x / 32 * SLOTS;
    Ring<SLOTS> ring = {bytes + first * HALF_BYTES, (u64 *)(bytes + WARPS * SLOTS * HALF_BYTES) + first, 0, 0};
#if BOXES
    if (threadIdx.x % 32 == 0) {
        for (u32 slot = 0; slot < SLOTS; slot++) barrier_create(ring.full + slot, 1);
        publish_writes();
    }
    __syncwarp();
#endif
    return ring;
}
template <int SLOTS> DEVICE HalfSlot slot_of(const Ring<SLOTS> &ring, u32 slot) { return {ring.bytes + slot * HALF_BYTES, ring.full + slot}; }
// The oldest half, as soon as it is there.
template <int SLOTS> DEVICE char *await_half(const Ring<SLOTS> &ring) {
#if BOXES
    barrier_wait(ring.full + ring.oldest, ring.parity);
#else
    copy_wait<SLOTS - 1>();
#endif
    __syncwarp();
    return slot_of(ring, ring.oldest).bytes;
}
// Said by all lanes when they have read a half: the copy engine, which is about to overwrite it, writes by another path than they read.
DEVICE void release_half() {
#if BOXES
    publish_writes();
#endif
    __syncwarp();
}
template <int SLOTS> DEVICE void pass_half(Ring<SLOTS> &ring) {
    const bool last = ring.oldest + 1 == SLOTS;
    ring.oldest = last ? 0 : ring.oldest + 1, ring.parity ^= last;
}
// The copy engine brings whole blocks: values of tokens that the row does not see become zeros, as threads that copy leave them.
DEVICE void clear_unseen(char *values, const DecodeUnit &unit, u32 tile) {
#if BOXES
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
    const u32 own = some ? (first.what.y - 1) / BLOCK - first.what.z * TILES : 0;
    const u32 early = own < TILES ? min(own - min(own, first.first), (u32)SLOTS) : SLOTS;
#pragma unroll 1
    for (u32 i = 0; i < early; i++) fill(i, slot_of(ring, i));
    after_the_kernel_before();
#pragma unroll 1
    for (u32 i = early; i < SLOTS; i++) fill(i, slot_of(ring, i));
}
// One segment, block by block, for the first 8 * HALF_ROWS query heads. `fill(n, to)` brings half n of the unit, or of those that the warp
// computes after it: one behind the other.
template <int HALF_ROWS, int SLOTS, class Fill>
DEVICE void attend_segment(Rows &r, const u32 (&q)[FRAGMENTS][4], const DecodeUnit &unit, const Attend &a, Ring<SLOTS> &ring, Fill fill) {
    float s[TILES][4][4];
    u32 used = 0;
    auto next = [&] {
        release_half();
        fill(SLOTS + used++, slot_of(ring, ring.oldest));
        pass_half(ring);
    };
    auto seen = [&](u32 tile) { return tile - unit.first < unit.tiles; };
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        clear_scores(s[t]);
        if (!seen(t)) continue;
        const char *keys[1] = {await_half(ring)};
        multiply_keys(s + t, q, keys);
        next();
    }
    const i32 base = (i32)(unit.what.z * SEGMENT), keys = (i32)unit.what.y;
    const Span span = {{unit.lower, unit.lower}, {keys, keys}};
    if (base >= unit.lower && base + SEGMENT <= keys) soften<false, HALF_ROWS>(s, r, base, span, a);
    else soften<true, HALF_ROWS>(s, r, base, span, a);
    begin_values(r);
#pragma unroll
    for (int t = 0; t < TILES; t++) {
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
