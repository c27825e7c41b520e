// runtime.cu: the runtime API as a program sees it: errors, copies, streams, events, graphs, symbols,
// attributes. Prints a line per failed expectation and exits with their number. Runs on a GPU too.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <vector>

static int failures = 0;
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) std::printf("line %d: expected %s\n", __LINE__, #condition), failures++; \
    } while (0)
#define OK(call) EXPECT((call) == cudaSuccess)

__constant__ float table[4] = {1, 2, 3, 4};
__device__ int counter = 7;
__device__ const char* words[2] = {"zero", "one"};

__global__ void add(float* p, int n, float x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += x;
}
__global__ void use_symbols(float* out) {
    out[threadIdx.x] = table[threadIdx.x] + atomicAdd(&counter, 1);
    if (threadIdx.x == 1)
        printf("word %s, %d %5.2f %llu %c|%-4d|\n", words[threadIdx.x], -3, 2.5, 1ull << 40, 'x', 12);
}
__global__ void dynamic_shared(int* out, int n) {
    extern __shared__ int buffer[];
    __shared__ int fixed[3];
    for (int i = threadIdx.x; i < n; i += blockDim.x) buffer[i] = i;
    if (threadIdx.x < 3) fixed[threadIdx.x] = 100;
    __syncthreads();
    if (threadIdx.x == 0) *out = buffer[n - 1] + fixed[2];
}
// Every block waits for all others: only a cooperative launch can do that.
__global__ void across_grid(int* sum) {
    atomicAdd(sum, 1);
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) atomicAdd(sum + 1, *static_cast<volatile int*>(sum));
}
__device__ __noinline__ int gcd(int a, int b) {
    while (b) {
        int r = a % b;
        a = b;
        b = r;
    }
    return a;
}
__global__ void calls(int* out, int n) {
    int t = threadIdx.x;
    if (t % 3)
        out[t] = gcd(t * 12, n);
    else
        out[t] = gcd(t, 18) + gcd(t + 1, 8);
}
struct Big {
    int values[40];
};
__global__ void by_value(int* out, Big big, int i) {
    *out = big.values[i];
}

__global__ void say(const char* text) {
    printf("%s\n", text);
}

static std::vector<float> fetch(const float* p, int n) {
    std::vector<float> h(n);
    OK(cudaMemcpy(h.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost));
    return h;
}

static void errors() {
    float* p = nullptr;
    OK(cudaGetLastError());
    EXPECT(cudaMalloc(&p, size_t(1) << 60) == cudaErrorMemoryAllocation);
    EXPECT(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    add<<<1, 2048>>>(p, 0, 0);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    add<<<0, 32>>>(p, 0, 0);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    dynamic_shared<<<1, 32, 60000>>>(nullptr, 1);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaSetDevice(99) == cudaErrorInvalidDevice);
    cudaGetLastError();
    EXPECT(!std::strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue"));
    OK(cudaFree(nullptr));
}

static void memory() {
    float *p, *q;
    OK(cudaMalloc(&p, 100 * sizeof(float)));
    OK(cudaMalloc(&q, 100 * sizeof(float)));
    OK(cudaMemset(p, 0, 100 * sizeof(float)));
    add<<<1, 128>>>(p, 100, 2);
    OK(cudaMemcpy(q, p, 50 * sizeof(float), cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy2D(q + 50, 40, p, 20, 20, 5, cudaMemcpyDeviceToDevice));
    auto h = fetch(q, 55);
    EXPECT(h[0] == 2 && h[49] == 2 && h[54] == 2);
    float *pinned, *managed, *seen;
    OK(cudaMallocHost(&pinned, 64));
    OK(cudaHostGetDevicePointer(&seen, pinned, 0));
    pinned[3] = 5;
    add<<<1, 16>>>(seen, 16, 1);
    OK(cudaMallocManaged(&managed, 64));
    managed[2] = 1;
    add<<<1, 16>>>(managed, 16, 1);
    OK(cudaDeviceSynchronize());
    EXPECT(pinned[3] == 6);
    EXPECT(managed[2] == 2);
    cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, p));
    EXPECT(a.type == cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&a, pinned));
    EXPECT(a.type == cudaMemoryTypeHost);
    size_t left, total, later;
    OK(cudaMemGetInfo(&left, &total));
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&later, &total));
    EXPECT(later >= left);
    OK(cudaFree(q));
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
}

static void symbols() {
    float* out;
    OK(cudaMalloc(&out, 4 * sizeof(float)));
    use_symbols<<<1, 4>>>(out);
    auto h = fetch(out, 4);
    EXPECT(h[0] == 8 && h[3] == 14);
    float other[2] = {10, 20};
    OK(cudaMemcpyToSymbol(table, other, sizeof other, 2 * sizeof(float)));
    int zero = 0, got = -1;
    OK(cudaMemcpyToSymbol(counter, &zero, sizeof zero));
    use_symbols<<<1, 4>>>(out);
    h = fetch(out, 4);
    EXPECT(h[2] == 12 && h[3] == 23);
    OK(cudaMemcpyFromSymbol(&got, counter, sizeof got));
    EXPECT(got == 4);
    char* text;
    OK(cudaMalloc(&text, 1001));
    OK(cudaMemset(text, 'x', 1000));
    OK(cudaMemset(text + 1000, 0, 1));
    say<<<1, 1>>>(text);
    OK(cudaFree(text));
    size_t bytes;
    OK(cudaGetSymbolSize(&bytes, table));
    EXPECT(bytes == 16);
    OK(cudaFree(out));
}

static void streams_and_graphs() {
    float *p, *pinned;
    OK(cudaMalloc(&p, 64));
    OK(cudaMallocHost(&pinned, 64));
    cudaStream_t s, t;
    cudaEvent_t a, b;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaMemsetAsync(p, 0, 64, s));
    add<<<1, 16, 0, s>>>(p, 16, 1);
    OK(cudaEventRecord(a, s));
    OK(cudaStreamWaitEvent(t, a));
    add<<<1, 16, 0, t>>>(p, 16, 2);
    OK(cudaMemcpyAsync(pinned, p, 64, cudaMemcpyDeviceToHost, t));
    OK(cudaEventRecord(b, t));
    OK(cudaEventSynchronize(b));
    EXPECT(pinned[7] == 3);
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, a, b));
    EXPECT(ms >= 0);
    OK(cudaStreamQuery(t));

    // A graph over two streams, launched twice and updated.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(t, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    add<<<1, 16, 0, t>>>(p, 16, 10);
    OK(cudaEventRecord(a, t));
    OK(cudaStreamWaitEvent(s, a));
    add<<<1, 16, 0, s>>>(p, 8, 100);
    OK(cudaEventRecord(b, s));
    OK(cudaStreamWaitEvent(t, b));
    OK(cudaStreamEndCapture(t, &graph));
    size_t nodes;
    OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 2);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaStreamSynchronize(t));
    EXPECT(fetch(p, 16)[15] == 3);  // capturing executes nothing
    OK(cudaGraphLaunch(exec, t));
    OK(cudaGraphLaunch(exec, t));
    OK(cudaStreamSynchronize(t));
    auto h = fetch(p, 16);
    EXPECT(h[0] == 223 && h[15] == 23);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));

    // What may not happen during a capture ends it without a graph.
    OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(a, t));
    OK(cudaStreamWaitEvent(s, a));
    add<<<1, 16, 0, s>>>(p, 16, 1);
    EXPECT(cudaStreamEndCapture(t, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
    void* q;
    OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeThreadLocal));
    EXPECT(cudaMalloc(&q, 64) == cudaErrorStreamCaptureUnsupported);
    OK(cudaStreamIsCapturing(t, &status));
    EXPECT(status == cudaStreamCaptureStatusInvalidated);
    EXPECT(cudaStreamEndCapture(t, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(t, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&q, 64));
    OK(cudaFree(q));
    OK(cudaStreamEndCapture(t, &graph));
    OK(cudaGraphDestroy(graph));
    cudaGetLastError();
    int called = 0;
    OK(cudaLaunchHostFunc(
        s, [](void* x) { ++*static_cast<int*>(x); }, &called));
    OK(cudaStreamDestroy(s));
    OK(cudaDeviceSynchronize());
    EXPECT(called == 1);
    OK(cudaStreamDestroy(t));
    OK(cudaEventDestroy(a));
    OK(cudaEventDestroy(b));
    OK(cudaFree(p));
    OK(cudaFreeHost(pinned));
}

static void launches() {
    int *out, h[64];
    OK(cudaMalloc(&out, sizeof h));
    OK(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 80000));
    dynamic_shared<<<1, 64, 80000>>>(out, 20000);
    OK(cudaMemcpy(h, out, 4, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 20099);
    OK(cudaMemset(out, 0, 8));
    void* args[] = {&out};
    OK(cudaLaunchCooperativeKernel(across_grid, dim3(3), dim3(64), args, 0, nullptr));
    OK(cudaMemcpy(h, out, 8, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 192 && h[1] == 3 * 192);
    calls<<<1, 64>>>(out, 30);
    OK(cudaMemcpy(h, out, sizeof h, cudaMemcpyDeviceToHost));
    EXPECT(h[5] == 30 && h[1] == 6 && h[3] == 7 && h[9] == 11);
    Big big;
    for (int i = 0; i < 40; i++) big.values[i] = i * i;
    by_value<<<1, 1>>>(out, big, 33);
    OK(cudaMemcpy(h, out, 4, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 33 * 33);
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    OK(cudaLaunchKernelEx(&config, by_value, out, big, 3));
    OK(cudaMemcpy(h, out, 4, cudaMemcpyDeviceToHost));
    EXPECT(h[0] == 9);
    const char* name = "";
    OK(cudaFuncGetName(&name, reinterpret_cast<const void*>(by_value)));
    EXPECT(std::strstr(name, "by_value"));
    EXPECT(cudaFuncGetName(&name, &big) == cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
    int blocks = 0, threads = 0, grid = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, dynamic_shared, 64, 1000));
    EXPECT(blocks >= 1);
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, add));
    EXPECT(threads >= 32);
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, dynamic_shared));
    EXPECT(attributes.sharedSizeBytes == 12);
    cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    int sms = 0;
    OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(properties.multiProcessorCount == sms && properties.warpSize == 32);
    OK(cudaFree(out));
}

int main() {
    errors();
    memory();
    symbols();
    streams_and_graphs();
    launches();
    OK(cudaDeviceSynchronize());
    std::printf("runtime: %d failed\n", failures);
    return failures > 0;
}
