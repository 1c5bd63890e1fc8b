// Decoded rows of any number of segments.

// Warps take units in turn, so that few units lie on different multiprocessors. Halves of the next unit are on their way before this one's
// sums are written, and the item after that is read: no load but that of queries is waited for between two units.
DEVICE void attend_segments(const DecodeAttend &d, const Attend &a) {
    DYNAMIC_HALVES(bytes);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, stride = gridDim.x * DECODE_WARPS;
    const u32 parts = parts_of_group(a), per_item = a.kv_heads * parts, first = warp * gridDim.x + blockIdx.x;
    const Units units = {a.counts[0] * per_item, parts, per_item};
    DecodeUnit here = unit_of(first, item_of(first, a, units), a, units), next = here;
    ItemWords upcoming = item_of(first + stride, a, units);
    auto ring = own_ring<DECODE_RING, DECODE_WARPS>(bytes);
    auto fill = [&](u32 n, const HalfSlot &to) { fetch_ahead<DECODE_RING>(here, next, n, d, to); };
    fill_ring(ring, here, here.number < units.count, fill);
#pragma unroll 1
    while (here.number < units.count) {
        next = unit_of(here.number + stride, upcoming, a, units);
        upcoming = item_of(next.number + stride, a, units);
        const Heads heads = heads_of(here.number % per_item, a, units);
        const u64 place = ((u64)here.what.x * a.heads + heads.first) * HEAD_DIM;
        u32 q[FRAGMENTS][4];
        load_queries(q, a.queries + place, heads.count);
        SoftmaxState r;
        attend_segment<2>(r, q, here, a, ring, fill);
        if (here.what.w == 1) {  // merging one segment with nothing gives its own bits
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (lane / 4 + h * 8 < heads.count) write_row(a.out + place + (u64)(lane / 4 + h * 8) * HEAD_DIM, r, h);
        } else {
            store_partial(a, r, here.number / per_item, heads);
        }
        here = next;  // a ring is no longer than a unit
    }
}
EARLY_KERNEL(attend_decode, DecodeAttend, DECODE_WARPS * 32) { attend_segments(a, plain(a)); }
