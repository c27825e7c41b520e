// mma.cuh: products of small matrices in a warp: fragments of tensor cores, tiles of shared memory that they
// read without bank conflicts, and copies into those tiles in the background. For kernels.cu only.
//
// For bf16 a product is mma.sync m16n8k16, summed in float. For float the same interface is plain fused
// multiply-adds (tf32 would keep 10 bits), so that one kernel template serves both types.
//
//   Left<T>   16 x depth      Right<T>  depth x 16      sums (16 x 16): two float[4], 8 columns each
//   A lane holds of 8 columns of sums: rows lane / 4 and lane / 4 + 8, columns lane % 4 * 2 and the next:
//   c[0], c[1] of the upper row, c[2], c[3] of the lower, for both types.
//
// All 32 lanes of a warp take part in every call. Layouts: PTX ISA, "matrix fragments for mma.m16n8k16".
#pragma once
#include "cuda_kernel.cuh"

template <class T>
constexpr int mma_depth = std::is_same_v<T, bf16> ? 16 : 4;

// ---- tiles of shared memory -----------------------------------------------------------------------------

// Rows of E numbers, in chunks of 16 bytes. The chunks of a row are permuted by the row so that one chunk of
// eight consecutive rows lies in eight different groups of banks: that is what ldmatrix reads. Tiles start at
// multiples of 128 bytes; E is a multiple of 16.
template <class T, int E>
struct SharedTile {
    static constexpr int chunk = 16 / int(sizeof(T)), chunks = E / chunk;
    static constexpr int period =
        (chunks & -chunks) < 8 ? (chunks & -chunks) : 8;  // chunks that change places
    __device__ static int permutation(int row) { return row / (8 / period) % period; }
    __device__ static int offset(int row, int c) { return (row * chunks + (c ^ permutation(row))) * chunk; }
    // Where number (row, column) lies.
    __device__ static int at(int row, int column) { return offset(row, column / chunk) + column % chunk; }
};

__device__ inline uint32_t shared_address(const void* p) {
    return uint32_t(__cvta_generic_to_shared(p));
}

// Copies of 16 bytes (4 for one float) from global to shared memory in the background; zeros if not `valid`,
// when nothing is read and `from` may point anywhere.
template <class T>
__device__ inline void copy_async(T* to, const T* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_async_one(float* to, const float* from, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}
// What this thread copied since the last commit becomes a group; wait until at most `pending` groups are
// under way. A barrier makes the copies of others visible.
__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int pending>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Starts to copy `rows` rows of `columns` numbers, `stride` apart, into a tile of Rows x E; the rest becomes
// zero. By all `threads` of the block.
template <int Rows, int E, int threads, class T>
__device__ inline void copy_tile(T* tile, const T* from, int stride, int rows, int columns) {
    using Place = SharedTile<T, E>;
    constexpr int step = threads / Place::chunks;  // rows at a time
    const int first = int(threadIdx.x) / Place::chunks, c = int(threadIdx.x) % Place::chunks;
    if (threads % Place::chunks != 0 && first == step) return;
    const bool inside = c * Place::chunk < columns;
    from += size_t(first) * stride + c * Place::chunk;
    T* to = tile + Place::offset(first, c);
#pragma unroll
    for (int i = 0; i < (Rows + step - 1) / step; i++, from += step * stride) {
        const int row = first + i * step;
        if (Rows % step != 0 && row >= Rows) break;
        // Eight rows on, the permutation is the same.
        copy_async(step % 8 == 0 ? to + i * step * E : tile + Place::offset(row, c), from,
                   inside && row < rows);
    }
}

// ---- fragments ------------------------------------------------------------------------------------------

template <class T>
struct Left;
template <class T>
struct Right;
template <>
struct Left<bf16> {
    uint32_t x[4];
};
template <>
struct Right<bf16> {
    uint32_t x[4];
};
template <>
struct Left<float> {
    float x[2][4];  // (rows lane / 4, + 8; depth)
};
template <>
struct Right<float> {
    float x[4][4];  // (columns lane % 4 * 2, + 1, + 8, + 9; depth)
};

// Reads fragments of one tile, at a row that is a multiple of 8 and a column that is a multiple of 16 (of the
// depth for float) from where the reader stands. Three readings:
//   LeftReader     left(i, k) = tile(row + i, column + k)
//   RightReader    right(k, j) = tile(row + j, column + k): the product with the tile's rows
//   AcrossReader   right(k, j) = tile(row + k, column + j): the product with the tile itself
template <class T, int E>
struct LeftReader;
template <class T, int E>
struct RightReader;
template <class T, int E>
struct AcrossReader;

// Four 8 x 8 matrices; lane 8 m + r gives the address of row r of matrix m.
template <bool transposed>
__device__ inline void load_matrices(uint32_t (&x)[4], uint32_t address) {
    if constexpr (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address)
                     : "memory");
}

__device__ inline int lane_id() {
    return int(threadIdx.x) % 32;
}
// The shuffle tells the compiler that all lanes hold the same: what follows from it needs one register a warp,
// and its branches no reconvergence.
__device__ inline int warp_id() {
    return __shfl_sync(0xffffffffu, int(threadIdx.x) / 32, 0);
}

// Where a lane reads in a tile: its own row and chunk, from which it moves on by constants. The permutation is a
// xor, so a move is one too if lane and move set different bits of the row (modulo 8) and of the chunk.
template <class T, int E>
struct LanePlace {
    using Place = SharedTile<T, E>;
    uint32_t address;
    __device__ LanePlace(const T* tile, int row, int chunk, int within = 0)
        : address(shared_address(tile + Place::offset(row, chunk) + within)) {}
    __device__ uint32_t at(int row, int column) const {
        const int c = column / Place::chunk, low = c % Place::period;
        return (address ^ uint32_t((low ^ Place::permutation(row)) * 16)) +
               uint32_t((c - low) * 16 + row * E * int(sizeof(T)));
    }
};

template <int E>
struct LeftReader<bf16, E> {
    LanePlace<bf16, E> from;
    __device__ explicit LeftReader(const bf16* tile) : from(tile, lane_id() % 16, lane_id() / 16) {}
    __device__ Left<bf16> operator()(int row, int column) const {
        Left<bf16> f;
        load_matrices<false>(f.x, from.at(row, column));
        return f;
    }
};
template <int E>
struct RightReader<bf16, E> {
    LanePlace<bf16, E> from;
    __device__ explicit RightReader(const bf16* tile)
        : from(tile, lane_id() / 16 * 8 + lane_id() % 8, lane_id() / 8 % 2) {}
    __device__ Right<bf16> operator()(int row, int column) const {
        Right<bf16> f;
        load_matrices<false>(f.x, from.at(row, column));
        return f;
    }
};
template <int E>
struct AcrossReader<bf16, E> {
    LanePlace<bf16, E> from;
    __device__ explicit AcrossReader(const bf16* tile) : from(tile, lane_id() % 16, lane_id() / 16) {}
    __device__ Right<bf16> operator()(int row, int column) const {
        Right<bf16> f;
        load_matrices<true>(f.x, from.at(row, column));
        return f;
    }
};

__device__ inline void load_shared(float (&x)[4], uint32_t address) {
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(address)
                 : "memory");
}
template <int E>
struct LeftReader<float, E> {
    LanePlace<float, E> from;
    __device__ explicit LeftReader(const float* tile) : from(tile, lane_id() / 4, 0) {}
    __device__ Left<float> operator()(int row, int column) const {
        Left<float> f;
        for (int i = 0; i < 2; i++) load_shared(f.x[i], from.at(row + 8 * i, column));
        return f;
    }
};
template <int E>
struct RightReader<float, E> {
    LanePlace<float, E> even, odd;
    __device__ explicit RightReader(const float* tile)
        : even(tile, lane_id() % 4 * 2, 0), odd(tile, lane_id() % 4 * 2 + 1, 0) {}
    __device__ Right<float> operator()(int row, int column) const {
        Right<float> f;
        for (int j = 0; j < 4; j++) load_shared(f.x[j], (j % 2 ? odd : even).at(row + j / 2 * 8, column));
        return f;
    }
};
template <int E>
struct AcrossReader<float, E> {
    LanePlace<float, E> from;
    __device__ explicit AcrossReader(const float* tile)
        : from(tile, 0, lane_id() % 4 / 2, lane_id() % 2 * 2) {}
    __device__ Right<float> operator()(int row, int column) const {
        Right<float> f;
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 4; j += 2)
                asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                             : "=f"(f.x[j][k]), "=f"(f.x[j + 1][k])
                             : "r"(from.at(row + k, column + 4 * j))
                             : "memory");
        return f;
    }
};

// ---- products -------------------------------------------------------------------------------------------

// (c0, c1) += a b: columns 0..7 of b to c0, columns 8..15 to c1.
__device__ inline void multiply_add(float (&c0)[4], float (&c1)[4], const Left<bf16>& a,
                                    const Right<bf16>& b) {
    auto product = [&](float(&c)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
    };
    product(c0, b.x[0], b.x[1]);
    product(c1, b.x[2], b.x[3]);
}
__device__ inline void multiply_add(float (&c0)[4], float (&c1)[4], const Left<float>& a,
                                    const Right<float>& b) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) {
                c0[2 * i + j] = fmaf(a.x[i][k], b.x[j][k], c0[2 * i + j]);
                c1[2 * i + j] = fmaf(a.x[i][k], b.x[2 + j][k], c1[2 * i + j]);
            }
}

__device__ inline uint32_t pack_pair(float low, float high) {
    const __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&p);
}

// Columns `column` .. of the sums of a product as the left side of the next, rounded to T.
template <class T, int n>
__device__ inline Left<T> left_of(const float (&c)[n][4], int column) {
    Left<T> f;
    const int j = column / 8;
    if constexpr (std::is_same_v<T, bf16>) {
        for (int i = 0; i < 4; i++) f.x[i] = pack_pair(c[j + i / 2][i % 2 * 2], c[j + i / 2][i % 2 * 2 + 1]);
    } else {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 4; k++)
                f.x[i][k] =
                    __shfl_sync(0xffffffffu, c[j][2 * i + k % 2], (lane_id() & ~3) + column % 8 / 2 + k / 2);
    }
    return f;
}

// s (16 M x 8 N) += rows of the left tile times rows of the right tile.
template <int E, class T, int M, int N>
__device__ inline void multiply_rows(float (&s)[M][N][4], const LeftReader<T, E>& left,
                                     const RightReader<T, E>& right) {
    constexpr int unrolled = std::is_same_v<T, bf16> ? (E == 128 ? 4 : E / 16) : 2;
#pragma unroll unrolled
    for (int k = 0; k < E; k += mma_depth<T>) {
        Left<T> a[M];
#pragma unroll
        for (int m = 0; m < M; m++) a[m] = left(16 * m, k);
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            const Right<T> b = right(8 * j, k);
#pragma unroll
            for (int m = 0; m < M; m++) multiply_add(s[m][j], s[m][j + 1], a[m], b);
        }
    }
}

// c (16 M x E) += p (16 M x 8 N), rounded to T, times 8 N rows of the tile.
template <int E, class T, int M, int N>
__device__ inline void multiply_across(float (&c)[M][E / 8][4], const float (&p)[M][N][4],
                                       const AcrossReader<T, E>& right) {
#pragma unroll
    for (int k = 0; k < 8 * N; k += mma_depth<T>) {
        Left<T> a[M];
#pragma unroll
        for (int m = 0; m < M; m++) a[m] = left_of<T>(p[m], k);
#pragma unroll
        for (int j = 0; j < E / 8; j += 2) {
            const Right<T> b = right(k, 8 * j);
#pragma unroll
            for (int m = 0; m < M; m++) multiply_add(c[m][j], c[m][j + 1], a[m], b);
        }
    }
}

// Over the four lanes that share a row of sums, in all four.
__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// 2^x, within 2 units of the last place; 0 for -inf and below 2^-126.
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Writes 16 rows of sums, times upper (rows 0..7) and lower (8..15), to `rows` rows of `columns` numbers in
// global memory, through 16 rows of a tile (starting at a multiple of 8) that only this warp uses.
template <int E, class T>
__device__ inline void store_rows(T* to, int stride, int rows, int columns, T* tile,
                                  const float (&c)[E / 8][4], float upper, float lower) {
    using Place = SharedTile<T, E>;
    const int lane = lane_id();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < E / 8; j++) {
            const float scale = i == 0 ? upper : lower, x = c[j][2 * i] * scale, y = c[j][2 * i + 1] * scale;
            T* at = tile + Place::at(lane / 4 + 8 * i, j * 8 + lane % 4 * 2);
            if constexpr (std::is_same_v<T, bf16>)
                *reinterpret_cast<uint32_t*>(at) = pack_pair(x, y);
            else
                *reinterpret_cast<float2*>(at) = make_float2(x, y);
        }
    __syncwarp();
    for (int i = lane; i < 16 * Place::chunks; i += 32) {
        const int row = i / Place::chunks, column = i % Place::chunks * Place::chunk;
        if (row >= rows || column >= columns) continue;
        const uint4 x = *reinterpret_cast<const uint4*>(tile + Place::at(row, column));
        // Written out: nvcc 13.0 makes four stores of a plain assignment here.
        asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to + size_t(row) * stride + column),
                     "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                     : "memory");
    }
}
