// Many decoded rows of one to four segments: a warp takes all segments of a (row, KV head), one after the other, and merges them in its
// registers.
//
//   warp      row 0: K K K K V V V V | K K V V     row 132: K K K K V V V V | K V     ...
//             segment 0              segment 1
//
// Warps take units in turn, as in `attend_decode.cu`. Their rings go on from unit to unit, so that memory is read without a pause, which a block
// per row would make when it begins and ends. Measured on an H200 between products of 256 rows, 201 MB of keys and values of an 8B model's layer:
// 65.7 us by a block per row; copying into rings alone takes 50.

// A group has up to eight query heads, and the second half of the matrix instruction's rows is not used: the sums of 16 heads and of their
// total would not fit into registers. Steps of models with larger groups attend by segments (`src/shape.rs`).

// The segments of a row so far, of a thread's row.
struct RowTotal {
    float most, sum, values[HEAD_DIM / 8][2];
};
DEVICE void begin_total(RowTotal &total, const SoftmaxState &r) {
    total.most = r.most[0], total.sum = r.sum[0];
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) total.values[i][0] = r.values[i][0], total.values[i][1] = r.values[i][1];
}
DEVICE void add_segment(RowTotal &total, const SoftmaxState &r) {
    const Merge w = merge(total.most, r.most[0]);
    total.most = w.most, total.sum = merged(w, total.sum, r.sum[0]);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
        for (int e = 0; e < 2; e++) total.values[i][e] = merged(w, total.values[i][e], r.values[i][e]);
}
DEVICE void write_total(bf16 *out, const RowTotal &total) {
    const float share = reciprocal_of(total.sum);
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(out + i * 8 + threadIdx.x % 4 * 2) = result(make_float2(total.values[i][0], total.values[i][1]), share);
}

// What a warp computes next: a unit, and which of its row's segments.
struct RowPlace {
    u32 unit, segment;
};
DEVICE ItemWords item_at(const RowPlace &place, const Attend &a, const Units &units) {
    if (place.unit >= units.count) return {};
    return read_item(a.items + place.unit / units.per_item * SEGMENT_BLOCKS + place.segment);
}

DEVICE void attend_whole_rows(const DecodeAttend &d, const Attend &a) {
    DYNAMIC_HALVES(bytes);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, stride = gridDim.x * DECODE_WARPS;
    const Units units = {a.counts[0] / SEGMENT_BLOCKS * a.kv_heads, 1, a.kv_heads};
    RowPlace place = {warp * gridDim.x + blockIdx.x, 0};
    ItemWords upcoming = item_at(place, a, units);  // at that place
    auto advance = [&] {
        const DecodeUnit unit = unit_of(place.unit, upcoming, a, units);
        if (place.segment + 1 < unit.what.w) place.segment++;
        else place = {place.unit + stride, 0};
        upcoming = item_at(place, a, units);
        return unit;
    };
    DecodeUnit here = advance(), next = here;
    auto ring = own_ring<DECODE_RING, DECODE_WARPS>(bytes);
    auto fill = [&](u32 n, const HalfSlot &to) { fetch_ahead<DECODE_RING>(here, next, n, d, to); };
    fill_ring(ring, here, here.number < units.count, fill);
    RowTotal total;
    bool begins = true;
#pragma unroll 1
    while (here.number < units.count) {
        next = advance();
        const Heads heads = heads_of(here.number % a.kv_heads, a, units);
        const u64 at = ((u64)here.what.x * a.heads + heads.first) * HEAD_DIM;
        u32 q[FRAGMENTS][4];
        load_queries(q, a.queries + at, heads.count);
        SoftmaxState r;
        attend_segment<1>(r, q, here, a, ring, fill);
        if (begins) begin_total(total, r);
        else add_segment(total, r);
        begins = next.number != here.number;
        if (begins && lane / 4 < heads.count) write_total(a.out + at + (u64)(lane / 4) * HEAD_DIM, total);
        here = next;
    }
}
EARLY_KERNEL(attend_rows, DecodeAttend, DECODE_WARPS * 32) { attend_whole_rows(a, plain(a)); }
