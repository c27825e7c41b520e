// tensor.cpp: mma.sync, the tensor-core multiply. Fragment layouts are those of the PTX manual, "Matrix
// Fragments for mma.m16n8k*": with P elements per 32-bit register, lane = 4 * group + t holds
//   A register r: row group + 8 * (r & 1), columns 4P * (r >> 1) + P * t + (0..P-1)
//   B register r: rows 4P * r + P * t + (0..P-1), column group
//   C registers: row group (+ 8 for the second half), columns 2t and 2t + 1.
//
// Products are exact in f32 and are added in order of k, starting from C. A tensor core adds in another order
// and cuts off low bits: results agree to rounding, not to the bit.
#include "counters.h"
#include "float.h"
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

struct Bf16 {
    static constexpr int kPerRegister = 2;
    static f32 element(u32 word, int e) { return bit_cast<f32>(e ? word & 0xffff0000 : word << 16); }
};
struct F16 {
    static constexpr int kPerRegister = 2;
    static f32 element(u32 word, int e) { return from_f16(u16(e ? word >> 16 : word)); }
};
// The hardware ignores the low 13 bits.
struct Tf32 {
    static constexpr int kPerRegister = 1;
    static f32 element(u32 word, int) { return bit_cast<f32>(word & ~0x1fffu); }
};

// Operands: more = D registers, A registers, B registers, C registers. mode: blocks of k (1 or 2) per
// fragment.
struct Operands {
    const Column *d, *a, *b, *c;
};
Operands operands(const Inst& i, int result_registers, int blocks) {
    const Column* at = i.more.data();
    return {at, at + result_registers, at + result_registers + 2 * blocks,
            at + result_registers + 3 * blocks};
}

void require_full_warp(Warp& w, const Inst& i) {
    if (w.mask != kFullMask) fault(w, i, -1, kLaunchFailure, "tensor-core instruction without all 32 lanes");
}

// One row of results lies in lanes 4g..4g+3 of two registers: columns 0 2 4 6 and 1 3 5 7. B is brought into
// that order.
//
// x holds rows of four floats, one per column n = 0..7; out gets rows of eight, `step` floats apart, one per
// index in the four.
void transpose_columns(const f32* x, f32* out, int step) {
    for (int odd = 0; odd < 2; odd++) {
        const f32* from = x + 4 * odd;
        __m128 r0 = _mm_load_ps(from), r1 = _mm_load_ps(from + 8), r2 = _mm_load_ps(from + 16);
        __m128 r3 = _mm_load_ps(from + 24);
        _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
        f32* to = out + 4 * odd;
        _mm_store_ps(to, r0);
        _mm_store_ps(to + step, r1);
        _mm_store_ps(to + 2 * step, r2);
        _mm_store_ps(to + 3 * step, r3);
    }
}

// f32 sums. kHalfResult: C and D are f16 pairs.
template <class In, bool kHalfResult>
void multiply(Warp& w, const Inst& i) {
    require_full_warp(w, i);
    constexpr int P = In::kPerRegister;
    const int blocks = i.mode, depth = blocks * 4 * P;
    Operands o = operands(i, kHalfResult ? 2 : 4, blocks);
    if (w.block->launch->counters) w.block->launch->counters->tensor_multiply_adds += u64(16 * 8 * depth);

    alignas(32) f32 b[16][8];
    for (int k = 0; k < blocks; k++) {
        const u32* words = w.column<u32>(o.b[k]);
        for (int e = 0; e < P; e++) {
            alignas(32) f32 lane_order[kWarp];
            for (int l = 0; l < kWarp; l++) lane_order[l] = In::element(words[l], e);
            transpose_columns(lane_order, b[k * 4 * P + e], P * 8);
        }
    }
    // a[half][k] holds eight rows' values of column k in lanes order: index 4 * group + t within register and
    // element.
    alignas(32) f32 a[2][2][P][kWarp];
    for (int k = 0; k < blocks; k++)
        for (int half = 0; half < 2; half++) {
            const u32* words = w.column<u32>(o.a[2 * k + half]);
            for (int e = 0; e < P; e++)
                for (int l = 0; l < kWarp; l++) a[k][half][e][l] = In::element(words[l], e);
        }
    for (int half = 0; half < 2; half++) {
        __m256 sum[8];
        for (int g = 0; g < 8; g++) {
            if (kHalfResult) {
                const u32* c = w.column<u32>(o.c[half]) + 4 * g;
                alignas(32) f32 row[8];
                for (int t = 0; t < 4; t++)
                    row[t] = from_f16(u16(c[t])), row[4 + t] = from_f16(u16(c[t] >> 16));
                sum[g] = _mm256_load_ps(row);
            } else {
                sum[g] = _mm256_set_m128(_mm_loadu_ps(w.column<f32>(o.c[2 * half + 1]) + 4 * g),
                                         _mm_loadu_ps(w.column<f32>(o.c[2 * half]) + 4 * g));
            }
        }
        for (int k = 0; k < blocks; k++)
            for (int t = 0; t < 4; t++)
                for (int e = 0; e < P; e++) {
                    __m256 row = _mm256_load_ps(b[(k * 4 + t) * P + e]);
                    const f32* column = a[k][half][e] + t;
                    for (int g = 0; g < 8; g++)
                        sum[g] = _mm256_fmadd_ps(_mm256_broadcast_ss(column + 4 * g), row, sum[g]);
                }
        for (int g = 0; g < 8; g++) {
            if (kHalfResult) {
                alignas(32) f32 row[8];
                _mm256_store_ps(row, sum[g]);
                u32* d = w.column<u32>(o.d[half]) + 4 * g;
                for (int t = 0; t < 4; t++) d[t] = to_f16(row[t]) | u32(to_f16(row[4 + t])) << 16;
            } else {
                // NaN becomes the GPU's one NaN.
                __m256 is_nan = _mm256_cmp_ps(sum[g], sum[g], _CMP_UNORD_Q);
                __m256 row =
                    _mm256_blendv_ps(sum[g], _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), is_nan);
                _mm_storeu_ps(w.column<f32>(o.d[2 * half]) + 4 * g, _mm256_castps256_ps128(row));
                _mm_storeu_ps(w.column<f32>(o.d[2 * half + 1]) + 4 * g, _mm256_extractf128_ps(row, 1));
            }
        }
    }
}

// 8-bit integers, s32 sums. flag: A signed; register_bytes: B signed; source_bytes: saturate.
void multiply_bytes(Warp& w, const Inst& i) {
    require_full_warp(w, i);
    const int blocks = i.mode;
    Operands o = operands(i, 4, blocks);
    if (w.block->launch->counters)
        w.block->launch->counters->tensor_multiply_adds += u64(16 * 8 * 16 * blocks);
    s64 result[4][kWarp];
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < kWarp; l++) {
            int row = l / 4, half = r >> 1, column = 2 * (l & 3) + (r & 1);
            s64 sum = w.column<s32>(o.c[r])[l];
            for (int k = 0; k < blocks; k++)
                for (int t = 0; t < 4; t++) {
                    u32 x = w.column<u32>(o.a[2 * k + half])[4 * row + t],
                        y = w.column<u32>(o.b[k])[4 * column + t];
                    for (int e = 0; e < 32; e += 8)
                        sum += s64(i.flag ? s8(x >> e) : s32(u8(x >> e))) *
                               (i.register_bytes ? s8(y >> e) : s32(u8(y >> e)));
                }
            result[r][l] = i.source_bytes ? (sum > INT32_MAX   ? INT32_MAX
                                             : sum < INT32_MIN ? INT32_MIN
                                                               : sum)
                                          : sum;
        }
    for (int r = 0; r < 4; r++)
        for (int l = 0; l < kWarp; l++) w.column<s32>(o.d[r])[l] = s32(u32(u64(result[r][l])));
}

// m8n8k4 in f64: lane holds A[l / 4][l % 4], B[l % 4][l / 4], C[l / 4][2 (l % 4) + 0..1].
void multiply_f64(Warp& w, const Inst& i) {
    require_full_warp(w, i);
    if (w.block->launch->counters) w.block->launch->counters->tensor_multiply_adds += 8 * 8 * 4;
    const Column* at = i.more.data();
    const f64 *a = w.column<f64>(at[2]), *b = w.column<f64>(at[3]);
    f64 result[2][kWarp];
    for (int r = 0; r < 2; r++)
        for (int l = 0; l < kWarp; l++) {
            int row = l / 4, column = 2 * (l & 3) + r;
            f64 sum = w.column<f64>(at[4 + r])[l];
            for (int k = 0; k < 4; k++) sum = __builtin_fma(a[4 * row + k], b[4 * column + k], sum);
            result[r][l] = sum;
        }
    for (int r = 0; r < 2; r++) std::memcpy(w.column<f64>(at[r]), result[r], sizeof result[r]);
}

// Depth of k from the shape m16n8k<depth>; 0 for another shape.
int take_depth(Form& f, std::string_view tile) {
    for (std::string_view m : f.rest()) {
        if (m.substr(0, tile.size()) != tile) continue;
        int depth = 0;
        for (char c : m.substr(tile.size())) depth = depth * 10 + (c - '0');
        f.take(m);
        return depth;
    }
    return 0;
}

void build_mma(Decoder& d, Form& f) {
    bool sync = f.take("sync");
    f.take("aligned");
    int depth = take_depth(f, "m16n8k");
    bool f64_shape = !depth && f.take("m8n8k4");
    if (!sync || !f.take("row") || !f.take("col")) d.unknown("matrix layout", "exec/tensor.cpp");
    bool saturates = f.take("satfinite");
    Type result = f.take_type(), a = f.take_type(), b = f.take_type(), c = f.take_type();
    Inst i;
    i.flow = Flow::Collective;
    i.kind = Class::Tensor;
    int results = 4, blocks = 1;
    if (f64_shape && result == Type::F64) {
        i.run = multiply_f64;
        results = 2;
    } else if (result == Type::S32 && type_bytes(a) == 1 && type_bytes(b) == 1 &&
               (depth == 16 || depth == 32)) {
        blocks = depth / 16;
        i.run = multiply_bytes;
        i.flag = a == Type::S8;
        i.register_bytes = b == Type::S8;
        i.source_bytes = saturates;
    } else if (a == b && (result == Type::F32 || result == Type::F16) && result == c) {
        bool half = result == Type::F16;
        int per_block = a == Type::TF32 ? 4 : 8;
        blocks = depth / per_block;
        if (a == Type::BF16 && !half) i.run = multiply<Bf16, false>;
        if (a == Type::F16) i.run = half ? multiply<F16, true> : multiply<F16, false>;
        if (a == Type::TF32 && !half) i.run = multiply<Tf32, false>;
        if (half) results = 2;
        if (blocks * per_block != depth || blocks < 1 || blocks > 2) i.run = nullptr;
    }
    if (!i.run) d.unknown("matrix shape or types", "exec/tensor.cpp");
    i.mode = u8(blocks);
    auto fragment = [&](size_t operand, int count, Type type, bool writes) {
        const Operand& o = d.operand(operand);
        if (o.kind != Operand::Vector) {  // a single register may stand without braces
            if (count != 1) d.error("wrong number of fragment registers");
            i.more.push_back(d.read(o, type));
            return;
        }
        if (int(o.parts.size()) != count) d.error("wrong number of fragment registers");
        for (const Operand& p : o.parts) i.more.push_back(writes ? d.write(p, type) : d.read(p, type));
    };
    Type element = f64_shape ? Type::B64 : Type::B32;
    fragment(0, results, element, true);
    fragment(1, f64_shape ? 1 : 2 * blocks, element, false);
    fragment(2, blocks, element, false);
    fragment(3, results, element, false);
    d.emit(std::move(i));
}

}  // namespace

void add_tensor(BuilderTable& t) {
    t["mma"] = build_mma;
}

}  // namespace cusim
