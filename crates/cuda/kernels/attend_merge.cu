// Merges the segments of decoded rows, after `attend_decode` (`attend_decode.cu`) left the sums of each in memory.
//
// A block takes one (row, query head) at a time, a thread per column. A warp reads 32 segments at once: each lane one maximum and one sum,
// and each lane its column of all of them. Maxima never depend on the order in which they are taken, so that the lanes find the weights of
// all 32 segments together; then every column adds up its segments in ascending order, by the formula of `merge` and `merged`.

#define MERGE_THREADS ((HEAD_DIM + 31) / 32 * 32)
#define AT_ONCE 32u

// A decoded row's items; no segments where there is no such row.
struct DecodedRow {
    u32 token, first_item, segments;
};
DEVICE DecodedRow decoded_row(const Attend &a, u32 row) {
    if (row >= a.counts[0]) return {0, 0, 0};
    const u32 end = a.items[row].row_end;
    if (end == 0) return {0, 0, 0};
    const DecodeItem &last = a.items[end - 1];
    return {last.token, end - last.segments, last.segments};
}

// Up to 32 segments of one head: a lane's own segment, and the lane's column of all.
struct Segments {
    float most, sum, values[AT_ONCE];
};
DEVICE void load_segments(Segments &s, const Attend &a, u32 first_item, u32 count, u32 head, u32 column) {
    const u32 lane = threadIdx.x % 32;
    const u64 first = (u64)first_item * a.heads + head;
    const float2 scale = __ldcg(a.partial_stats + first + (u64)min(lane, count - 1) * a.heads);
    s.most = lane < count ? scale.x : MINUS_INFINITY, s.sum = scale.y;
    const float *values = a.partial_values + first * HEAD_DIM + column;
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++)
        if (i < count) s.values[i] = __ldcg(values + (u64)i * a.heads * HEAD_DIM);
}

// One column of the segments so far.
struct Column {
    float most, sum, value;
};
// The largest of `v` in this lane and those below it.
DEVICE float largest_up_to(float v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) v = fmaxf(v, __shfl_sync(LANES_ALL, v, lane >= step ? lane - step : lane));
    return v;
}
DEVICE void merge_segments(Column &total, const Segments &s, u32 count) {
    const int lane = threadIdx.x % 32;
    const float most = fmaxf(total.most, largest_up_to(s.most)), below = __shfl_sync(LANES_ALL, most, lane > 0 ? lane - 1 : 0);
    const Merge own = merge(lane > 0 ? below : total.most, s.most);
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++)
        if (i < count) {
            const Merge w = {__shfl_sync(LANES_ALL, own.keep, i), __shfl_sync(LANES_ALL, own.take, i), 0.0f};
            total.sum = merged(w, total.sum, __shfl_sync(LANES_ALL, s.sum, i));
            total.value = merged(w, total.value, s.values[i]);
        }
    total.most = __shfl_sync(LANES_ALL, most, 31);
}
// A row's column of one head; the next segments are on their way while these are merged.
DEVICE float merged_column(const Attend &a, const DecodedRow &row, u32 head, u32 column) {
    Column total = {MINUS_INFINITY, 0.0f, 0.0f};
    Segments next;
    load_segments(next, a, row.first_item, min(row.segments, AT_ONCE), head, column);
#pragma unroll 1
    for (u32 s = 0; s < row.segments; s += AT_ONCE) {
        const Segments here = next;
        const u32 left = row.segments - s;
        if (left > AT_ONCE) load_segments(next, a, row.first_item + s + AT_ONCE, min(left - AT_ONCE, AT_ONCE), head, column);
        merge_segments(total, here, min(left, AT_ONCE));
    }
    return __fmul_rn(total.value, reciprocal_of(total.sum));
}

EARLY_KERNEL(attend_merge, Attend, MERGE_THREADS) {
    const u32 column = min(threadIdx.x, HEAD_DIM - 1u);
    u32 unit = blockIdx.x;
    DecodedRow row = decoded_row(a, unit / a.heads);
    grid_dependency_wait();
#pragma unroll 1
    while (row.segments > 0) {
        const u32 head = unit % a.heads;
        if (row.segments > 1) {  // `attend_decode` wrote the others itself
            const float value = merged_column(a, row, head, column);
            if (threadIdx.x < HEAD_DIM) a.out[((u64)row.token * a.heads + head) * HEAD_DIM + column] = narrow(value);
        }
        unit += gridDim.x;
        row = decoded_row(a, unit / a.heads);
    }
}
