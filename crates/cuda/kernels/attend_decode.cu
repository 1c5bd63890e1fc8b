// Decoded rows of any number of segments, and few rows of few segments.

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

// For few rows: as much as fits is under way at once.
EARLY_KERNEL(attend_few, Attend, 128) { attend_short<4, FEW_RING>(a); }
