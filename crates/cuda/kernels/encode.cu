// Encoders: whole texts at a time, every token sees its text in both directions. Rows of all texts lie one after the other.
//
//   encode_embed        words + positions + types, then a norm
//   encode_norm         a branch into the residual stream, with a norm on the sum or on what reads it
//   encode_prepare_qkv  bias and rotation; queries, keys and values in bf16
//   encode_attend       item = up to 64 tokens of a text; a block takes one (item, head): 4 warps with 16 tokens each
//   encode_activate     the non-linearity of an MLP, gated or not
//   encode_pool         a text's rows to one
//
// A row's result depends on its text alone: keys are taken in tiles of 64 from the text's first token on, and sums run in a fixed order.
// ROW_THREADS, GROUPS and HEAD_DIM are set at compile time.

#define TILE 64
#define PITCH (HEAD_DIM * 2 + 16)   // an odd number of 16-byte pieces: eight rows lie in different banks
#define TILE_BYTES (TILE * PITCH)
#define FRAGMENTS (HEAD_DIM / 16)
#define STAGES 2
#define MINUS_INFINITY minus_infinity()

// --- rows ---

DEVICE float4 plus(float4 a, float4 b) { return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)); }
DEVICE float sum_of(float4 v, float sum) { return __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, v.x), v.y), v.z), v.w); }
DEVICE float squares_around(float4 v, float mean, float sum) {
    float x = __fsub_rn(v.x, mean), y = __fsub_rn(v.y, mean), z = __fsub_rn(v.z, mean), w = __fsub_rn(v.w, mean);
    return __fmaf_rn(w, w, __fmaf_rn(z, z, __fmaf_rn(y, y, __fmaf_rn(x, x, sum))));
}
DEVICE float normed(float v, float mean, float scale, float weight, float bias) { return __fmaf_rn(__fmul_rn(__fsub_rn(v, mean), scale), weight, bias); }

struct Norm {
    const float *weight;  // [width], or null: nothing is normed
    const float *bias;    // [width], or null
    float eps;
    u32 width;
};
// Norms the row that the block's threads hold, four values each at a time; all of it is in registers.
DEVICE void norm_row(float4 (&x)[GROUPS], const Norm &n, float *scratch) {
    if (!n.weight) return;
    const u32 groups = n.width / 4;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUPS; i++) sum = sum_of(x[i], sum);
    const float mean = __fdiv_rn(block_sum(sum, scratch), (float)n.width);
#pragma unroll
    for (int i = 0; i < GROUPS; i++)
        if (threadIdx.x + i * ROW_THREADS < groups) squares = squares_around(x[i], mean, squares);
    const float variance = __fdiv_rn(block_sum(squares, scratch), (float)n.width);
    const float scale = __fdiv_rn(1.0f, sqrtf(__fadd_rn(variance, n.eps)));
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        if (at >= groups) continue;
        float4 w = ((const float4 *)n.weight)[at], b = n.bias ? ((const float4 *)n.bias)[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f), v = x[i];
        x[i] = make_float4(normed(v.x, mean, scale, w.x, b.x), normed(v.y, mean, scale, w.y, b.y), normed(v.z, mean, scale, w.z, b.z), normed(v.w, mean, scale, w.w, b.w));
    }
}
DEVICE void write_hidden(float *hidden, const float4 (&x)[GROUPS], u32 row, u32 width) {
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        if (at < width / 4) ((float4 *)(hidden + (u64)row * width))[at] = x[i];
    }
}
DEVICE void write_ready(bf16 *ready, const float4 (&x)[GROUPS], u32 row, u32 width) {
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        if (at < width / 4) ((uint2 *)(ready + (u64)row * width))[at] = make_uint2(pack_bf16x2(x[i].x, x[i].y), pack_bf16x2(x[i].z, x[i].w));
    }
}

struct EncodeEmbed {
    const u32 *tokens, *types, *position_ids;  // [rows]
    const bf16 *word_embeddings;               // [vocab][width]
    const float *position_embeddings;          // [first + longest][width], or null
    const float *type_embeddings;              // [types][width], or null
    float *hidden;                             // [rows][width]
    bf16 *ready;                               // [rows][width]
    Norm norm;
    u32 first;                                 // the row of `position_embeddings` for a text's first token
    u32 unused;
};
KERNEL(encode_embed, EncodeEmbed, ROW_THREADS) {
    __shared__ float scratch[32];
    const u32 row = blockIdx.x, width = a.norm.width;
    const uint2 *word = (const uint2 *)(a.word_embeddings + (u64)a.tokens[row] * width);
    const float4 *position = (const float4 *)(a.position_embeddings + (u64)(a.first + a.position_ids[row]) * width);
    const float4 *kind = (const float4 *)(a.type_embeddings + (u64)a.types[row] * width);
    float4 x[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (at >= width / 4) continue;
        uint2 w = word[at];
        x[i] = make_float4(low_bf16(w.x), high_bf16(w.x), low_bf16(w.y), high_bf16(w.y));
        if (a.position_embeddings) x[i] = plus(x[i], position[at]);
        if (a.type_embeddings) x[i] = plus(x[i], kind[at]);
    }
    norm_row(x, a.norm, scratch);
    write_hidden(a.hidden, x, row, width), write_ready(a.ready, x, row, width);
}

// sum = hidden + branch + bias; ready = norm(sum), and hidden = sum, or norm(sum) as well.
struct EncodeNorm {
    float *hidden;        // [rows][width]
    const float *branch;  // [rows][width], or null: nothing is added
    const float *bias;   // of the branch: [width], or null
    bf16 *ready;         // [rows][width]
    Norm norm;
    u32 norms_residual;  // 1: hidden becomes norm(sum); 0: hidden becomes sum
    u32 unused;
};
KERNEL(encode_norm, EncodeNorm, ROW_THREADS) {
    __shared__ float scratch[32];
    const u32 row = blockIdx.x, width = a.norm.width;
    const float4 *hidden = (const float4 *)(a.hidden + (u64)row * width), *branch = (const float4 *)(a.branch + (u64)row * width);
    float4 x[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        u32 at = threadIdx.x + i * ROW_THREADS;
        x[i] = at < width / 4 ? hidden[at] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (a.branch && at < width / 4) x[i] = plus(x[i], a.bias ? plus(branch[at], ((const float4 *)a.bias)[at]) : branch[at]);
    }
    if (!a.norms_residual) write_hidden(a.hidden, x, row, width);
    norm_row(x, a.norm, scratch);
    if (a.norms_residual) write_hidden(a.hidden, x, row, width);
    write_ready(a.ready, x, row, width);
}

// --- attention ---

struct EncodePrepareQkv {
    const float *projections;  // [rows][queries | keys | values]
    const float *bias;         // the same for one row, or null
    const float *cos_sin;     // [place][cos: pairs | sin: pairs], or null
    const u32 *position_ids;  // [rows]
    bf16 *qkv;                // [rows][queries | keys | values]
    u32 width;                // of each of the three
    u32 pairs, interleaved;
    u32 unused;
};
DEVICE float projected(const EncodePrepareQkv &a, const float *row, u32 at) { return a.bias ? __fadd_rn(row[at], a.bias[at]) : row[at]; }
// A value of a query or key after its pair was turned.
DEVICE float rotated(const EncodePrepareQkv &a, const float *row, u32 at, const float *cosines) {
    const u32 in_head = at % HEAD_DIM;
    const float x = projected(a, row, at);
    if (in_head >= 2 * a.pairs) return x;
    const bool first = a.interleaved ? in_head % 2 == 0 : in_head < a.pairs;
    const u32 pair = a.interleaved ? in_head / 2 : in_head % a.pairs, apart = a.interleaved ? 1 : a.pairs;
    const float y = projected(a, row, first ? at + apart : at - apart), c = cosines[pair], s = cosines[a.pairs + pair];
    return first ? __fsub_rn(__fmul_rn(x, c), __fmul_rn(y, s)) : __fadd_rn(__fmul_rn(y, s), __fmul_rn(x, c));
}
KERNEL(encode_prepare_qkv, EncodePrepareQkv, 256) {
    const u32 pair = blockIdx.y * blockDim.x + threadIdx.x, at = 2 * pair;
    if (at >= 3 * a.width) return;
    const float *row = a.projections + (u64)blockIdx.x * 3 * a.width;
    const float *cosines = a.cos_sin + (u64)a.position_ids[blockIdx.x] * 2 * a.pairs;
    const bool rotates = a.cos_sin && at < 2 * a.width;
    float x = rotates ? rotated(a, row, at, cosines) : projected(a, row, at);
    float y = rotates ? rotated(a, row, at + 1, cosines) : projected(a, row, at + 1);
    ((u32 *)(a.qkv + (u64)blockIdx.x * 3 * a.width))[pair] = pack_bf16x2(x, y);
}

struct EncodeItem {
    u32 text;    // the row of the text's first token
    u32 len;     // its tokens
    u32 start;   // the first token of the item within the text
};
struct EncodeAttend {
    const bf16 *qkv;             // [rows][queries | keys | values]
    bf16 *out;                   // [rows][width]
    const EncodeItem *items;
    const u32 *count;            // items
    const float *relative_bias;  // [head][distance + longest - 1], times log2(e), or null
    u32 heads, longest;
    u32 reach;                   // tokens further away are not seen; 0: all are
    float scale;              // times log2(e)
};
// Copies a tile of keys or values of one head into shared memory; tokens behind the text's end become zeros.
DEVICE void fetch_kv(char *to, const bf16 *from, u32 stride, i32 rows) {
    constexpr u32 PIECES = HEAD_DIM / 8;
#pragma unroll 4
    for (u32 at = threadIdx.x; at < TILE * PIECES; at += 128) {
        u32 row = at / PIECES, piece = at % PIECES;
        cp_async_16(to + row * PITCH + piece * 16, from + (u64)row * stride + piece * 8, (i32)row < rows);
    }
}
struct Online {
    float most[2], sum[2], total[HEAD_DIM / 8][4];
};
// A tile's scores; what a row does not see has none.
DEVICE void score(float (&s)[TILE / 8][4], const EncodeAttend &a, const EncodeItem &item, u32 head, i32 base, const i32 (&row)[2]) {
    const i32 lane = threadIdx.x % 32;
    const float *relative_bias = a.relative_bias + (u64)head * (2 * a.longest - 1) + a.longest - 1;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const i32 key = base + j * 8 + lane % 4 * 2 + e % 2, away = key - row[e / 2];
            const bool seen = key < (i32)item.len && row[e / 2] < (i32)item.len && (!a.reach || (away <= (i32)a.reach && -away <= (i32)a.reach));
            float v = __fmul_rn(s[j][e], a.scale);
            if (seen && a.relative_bias) v = __fadd_rn(v, relative_bias[away]);
            s[j][e] = seen ? v : MINUS_INFINITY;
        }
}
// Scores to weights, in place; what was summed before is weighted anew.
DEVICE void online_softmax(float (&s)[TILE / 8][4], Online &o) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = o.most[h], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) most = fmaxf(most, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, 1));
        most = fmaxf(most, __shfl_xor_sync(LANES_ALL, most, 2));
        const float zero = most == MINUS_INFINITY ? 0.0f : most, keep = exp2_approx(__fsub_rn(o.most[h], zero));
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &v = s[j][2 * h + e];
                v = exp2_approx(__fsub_rn(v, zero));
                sum = __fadd_rn(sum, v);
            }
        sum = __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 1));
        sum = __fadd_rn(sum, __shfl_xor_sync(LANES_ALL, sum, 2));
        o.sum[h] = __fmaf_rn(o.sum[h], keep, sum), o.most[h] = most;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) o.total[i][2 * h + e] = __fmul_rn(o.total[i][2 * h + e], keep);
    }
}
DEVICE void attend_tile(Online &o, const u32 (&q)[FRAGMENTS][4], const char *keys, const char *values, const EncodeAttend &a, const EncodeItem &item, u32 head, i32 base, const i32 (&row)[2]) {
    const int lane = threadIdx.x % 32;
    float s[TILE / 8][4];
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
        for (int j = 0; j < TILE / 16; j++) {
            u32 b[4];
            ldmatrix_x4(b, keys + (j * 16 + lane % 8 + lane / 16 * 8) * PITCH + (k * 2 + lane / 8 % 2) * 16);
            mma_m16n8k16(s[2 * j], q[k], b), mma_m16n8k16(s[2 * j + 1], q[k], b + 2);
        }
    score(s, a, item, head, base, row);
    online_softmax(s, o);
#pragma unroll
    for (int j = 0; j < TILE / 16; j++) {
        const u32 p[4] = {pack_bf16x2(s[2 * j][0], s[2 * j][1]), pack_bf16x2(s[2 * j][2], s[2 * j][3]), pack_bf16x2(s[2 * j + 1][0], s[2 * j + 1][1]), pack_bf16x2(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
        for (int i = 0; i < FRAGMENTS; i++) {
            u32 b[4];
            ldmatrix_x4_trans(b, values + (j * 16 + lane % 8 + lane / 8 % 2 * 8) * PITCH + (i * 2 + lane / 16) * 16);
            mma_m16n8k16(o.total[2 * i], p, b), mma_m16n8k16(o.total[2 * i + 1], p, b + 2);
        }
    }
}
DEVICE void attend_item(const EncodeAttend &a, const EncodeItem &item, u32 head, char *bytes) {
    const u32 width = a.heads * HEAD_DIM, stride = 3 * width, lane = threadIdx.x % 32;
    const bf16 *text = a.qkv + (u64)item.text * stride + head * HEAD_DIM;
    const i32 len = (i32)item.len, own = (i32)(item.start + threadIdx.x / 32 * 16 + lane / 4), row[2] = {own, own + 8};
    // Tiles that any row of the item sees.
    const i32 reach = a.reach ? (i32)a.reach : len, lowest = (i32)item.start - reach, highest = (i32)item.start + TILE - 1 + reach;
    const i32 first = lowest > 0 ? lowest / TILE : 0, last = ((highest + 1 < len ? highest + 1 : len) + TILE - 1) / TILE;
    auto keys_at = [&](i32 tile) { return bytes + tile % STAGES * 2 * TILE_BYTES; };
    auto fetch_tile = [&](i32 tile) {
        if (tile < last) {
            const bf16 *from = text + (u64)tile * TILE * stride;
            fetch_kv(keys_at(tile), from + width, stride, len - tile * TILE);
            fetch_kv(keys_at(tile) + TILE_BYTES, from + 2 * width, stride, len - tile * TILE);
        }
        cp_async_commit_group();
    };
    fetch_tile(first);
    u32 q[FRAGMENTS][4];
#pragma unroll
    for (int k = 0; k < FRAGMENTS; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) q[k][e] = row[e % 2] < len ? *(const u32 *)(text + (u64)row[e % 2] * stride + k * 16 + lane % 4 * 2 + e / 2 * 8) : 0u;
    Online o = {{MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}, {}};
#pragma unroll 1
    for (i32 tile = first; tile < last; tile++) {
        cp_async_wait_group<0>();
        __syncthreads();
        fetch_tile(tile + 1);
        attend_tile(o, q, keys_at(tile), keys_at(tile) + TILE_BYTES, a, item, head, tile * TILE, row);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row[h] >= len) continue;
        bf16 *out = a.out + (u64)(item.text + row[h]) * width + head * HEAD_DIM + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 8; i++) *(u32 *)(out + i * 8) = pack_bf16x2(__fdiv_rn(o.total[i][2 * h], o.sum[h]), __fdiv_rn(o.total[i][2 * h + 1], o.sum[h]));
    }
    cp_async_wait_group<0>();
    __syncthreads();
}
KERNEL(encode_attend, EncodeAttend, 128) {
    DYNAMIC_SHARED(bytes);
    const u32 units = *a.count * a.heads;
    for (u32 unit = blockIdx.x; unit < units; unit += gridDim.x) attend_item(a, a.items[unit / a.heads], unit % a.heads, bytes);
}

// --- MLP and pooling ---

struct EncodeActivate {
    const float *inner;  // [rows][gate: width | up: width], or without a gate [rows][width]
    const float *bias;   // the same for one row, or null
    bf16 *out;           // [rows][width]
    u32 width, kind, gated;
    u32 unused;
};
KERNEL(encode_activate, EncodeActivate, 256) {
    const u32 at = (blockIdx.y * blockDim.x + threadIdx.x) * 2, wide = a.gated ? 2 * a.width : a.width;
    if (at >= a.width) return;
    const float *row = a.inner + (u64)blockIdx.x * wide;
    float v[2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float x = a.bias ? __fadd_rn(row[at + e], a.bias[at + e]) : row[at + e];
        v[e] = activated(x, a.kind);
        if (!a.gated) continue;
        float up = row[a.width + at + e];
        v[e] = __fmul_rn(v[e], a.bias ? __fadd_rn(up, a.bias[a.width + at + e]) : up);
    }
    *(u32 *)(a.out + (u64)blockIdx.x * a.width + at) = pack_bf16x2(v[0], v[1]);
}

#define MEAN 0u
#define FIRST 1u
#define LAST 2u
struct EncodePool {
    const float *hidden;  // [rows][width]
    const uint2 *texts;   // [texts]: first row, rows
    float *out;           // [texts][width]
    bf16 *ready;          // the same, for a product
    u32 width, how;
};
KERNEL(encode_pool, EncodePool, 256) {
    const u32 column = blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= a.width) return;
    const uint2 text = a.texts[blockIdx.x];
    const float *from = a.hidden + (u64)text.x * a.width + column;
    float v = from[(u64)(a.how == LAST ? text.y - 1 : 0) * a.width];
    if (a.how != FIRST && a.how != LAST)
        for (u32 row = 1; row < text.y; row++) {
            float x = from[(u64)row * a.width];
            v = a.how == MEAN ? __fadd_rn(v, x) : fmaxf(v, x);
        }
    if (a.how == MEAN) v = __fdiv_rn(v, (float)text.y);
    a.out[(u64)blockIdx.x * a.width + column] = v;
    a.ready[(u64)blockIdx.x * a.width + column] = narrow(v);
}
