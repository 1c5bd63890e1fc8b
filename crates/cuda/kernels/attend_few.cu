// Few decoded rows of one to four segments: a block takes a (row, KV head) and a warp each of its segments, with as much under way at once as
// fits. Segments are merged in shared memory.

#define FEW_RING 6   // halves of blocks in flight, per warp: a segment's keys or values, and two of what follows
#define FEW_WARPS 4  // segments of a row, at most

// Leaves a segment's sums in shared memory: `values` is [segment][head][HEAD_DIM], `scales` [segment][head] its maxima and sums.
DEVICE void store_partial_shared(float *values, float2 *scales, const SoftmaxState &r, u32 segment) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const u32 at = segment * 16 + lane / 4 + h * 8;
        if (lane % 4 == 0) scales[at] = make_float2(r.most[h], r.sum[h]);
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++) *(float2 *)(values + at * HEAD_DIM + i * 8 + lane % 4 * 2) = make_float2(r.values[i][2 * h], r.values[i][2 * h + 1]);
    }
}
// Two columns of a head's output.
DEVICE u32 merged_pair(const float *values, const float2 *scales, u32 segments, u32 head, u32 pair) {
    float most = MINUS_INFINITY, sum = 0.0f;
    float2 total = make_float2(0.0f, 0.0f);
    for (u32 s = 0; s < segments; s++) {
        const float2 scale = scales[s * 16 + head], v = ((const float2 *)(values + (s * 16 + head) * HEAD_DIM))[pair];
        const Merge w = merge(most, scale.x);
        total.x = merged(w, total.x, v.x), total.y = merged(w, total.y, v.y);
        sum = merged(w, sum, scale.y), most = w.most;
    }
    return result(total, reciprocal_of(sum));
}

// Block b computes row b / per_item. A row has four items, from item 4 * row on; those that it does not need have `segments` = 0.
DEVICE void attend_few_rows(const DecodeAttend &d, const Attend &a) {
    DYNAMIC_HALVES(bytes);
    const u32 warp = threadIdx.x / 32, parts = parts_of_group(a), per_item = a.kv_heads * parts;
    const u32 row = blockIdx.x / per_item, in_item = blockIdx.x % per_item;
    const Units units = {~0u, parts, per_item};
    const Heads heads = heads_of(in_item, a, units);
    const DecodeUnit unit = unit_of(in_item, read_item(a.items + row * SEGMENT_BLOCKS + warp), a, units);
    const bool busy = unit.what.w != 0;
    SoftmaxState r;
    if (busy) {
        auto ring = own_ring<FEW_RING, FEW_WARPS>(bytes);
        auto fill = [&](u32 n, const HalfSlot &to) { fetch_half(unit, n, d, to); };
        fill_ring(ring, unit, true, fill);
        u32 q[FRAGMENTS][4];
        load_queries(q, a.queries + ((u64)unit.what.x * a.heads + heads.first) * HEAD_DIM, heads.count);
        attend_segment<2>(r, q, unit, a, ring, fill);
    } else {
        grid_dependency_wait();
    }
    __syncthreads();
    float *values = (float *)bytes;
    float2 *scales = (float2 *)(values + FEW_WARPS * 16 * HEAD_DIM);
    if (busy) store_partial_shared(values, scales, r, warp);
    __syncthreads();
    const u32 segments = a.items[row * SEGMENT_BLOCKS].segments;
    u32 *out = (u32 *)(a.out + ((u64)a.items[row * SEGMENT_BLOCKS].token * a.heads + heads.first) * HEAD_DIM);
    for (u32 at = threadIdx.x; segments > 0 && at < heads.count * (HEAD_DIM / 2); at += FEW_WARPS * 32)
        out[at] = merged_pair(values, scales, segments, at / (HEAD_DIM / 2), at % (HEAD_DIM / 2));
}
EARLY_KERNEL(attend_few, DecodeAttend, FEW_WARPS * 32) { attend_few_rows(a, plain(a)); }
