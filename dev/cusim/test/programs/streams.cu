// streams.cu: two streams that hand a value over with an event, or (argument "missing") without one. Prints
// the value.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

__global__ void set(int* p, int x) {
    *p = x;
}
__global__ void copy(int* to, const int* from) {
    *to = *from;
}

int main(int argc, char** argv) {
    bool missing = argc > 1 && !std::strcmp(argv[1], "missing");
    int *p, got = -1;
    cudaMalloc(&p, 8);
    cudaMemset(p, 0, 8);
    cudaDeviceSynchronize();
    cudaStream_t a, b;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEvent_t ready;
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    set<<<1, 1, 0, a>>>(p, 42);
    cudaEventRecord(ready, a);
    if (!missing) cudaStreamWaitEvent(b, ready);
    copy<<<1, 1, 0, b>>>(p + 1, p);
    cudaMemcpyAsync(&got, p + 1, 4, cudaMemcpyDeviceToHost, b);
    cudaStreamSynchronize(b);
    cudaDeviceSynchronize();
    std::printf("%d\n", got);
}
