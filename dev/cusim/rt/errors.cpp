// errors.cpp: error codes of the runtime API, and the two ends a kernel's fault can have.
#include <unistd.h>
#include <csignal>

#include "../exec/counters.h"
#include "runtime.h"
#include "standin.h"
#include "stream.h"

namespace cusim {

cudaError_t& last_error() {
    thread_local cudaError_t e = cudaSuccess;
    return e;
}

cudaError_t done(cudaError_t e) {
    Runtime& r = Runtime::get();
    if (r.sticky) e = r.sticky;
    if (e != cudaSuccess) last_error() = e;
    return e;
}

namespace {
// A program that ignores its errors must not end well.
void exit_with_failure() {
    if (!Runtime::get().sticky) return;
    std::fflush(nullptr);
    _exit(kExitStatus);
}
}  // namespace

void report_fault(const std::string& report, cudaError_t error) {
    if (!options().sticky) {
        write_counters();
        stop(report);
    }
    std::fflush(stdout);
    std::fprintf(stderr, "cusim: error: %s\n", report.c_str());
    Runtime::get().sticky = error;
    std::atexit(exit_with_failure);
}

void standin_enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
    Locked locked;
    CUstream_st* s = stream_of(stream);
    if (!s) stop(text("%s: invalid stream", name));
    enqueue(s, name, std::move(work));
}

void* standin_bytes(const void* device, size_t bytes, bool write, const char* call, const char* argument) {
    Memory& m = Runtime::get().memory;
    u64 address = reinterpret_cast<u64>(device);
    char* at = m.translate(address, bytes);
    if (!at)
        stop(text("%s: %s = %p, %zu bytes: %s", call, argument, device, bytes, m.explain(address).c_str()));
    if (write) m.mark_written(address, bytes);
    return at;
}

void standin_stop(const char* message) {
    stop(message);
}

namespace {

// The host followed a device pointer: say so before dying as on real hardware.
struct sigaction previous;
void on_fault(int signal, siginfo_t* info, void* context) {
    u64 address = reinterpret_cast<u64>(info->si_addr);
    if (address - Memory::kBase < Memory::kReserved) {
        char line[200];
        int n = std::snprintf(
            line, sizeof line,
            "cusim: error: host code touched device memory at 0x%llx (copy it with cudaMemcpy)\n",
            (unsigned long long)address);
        if (n > 0 && write(2, line, size_t(n)) < 0) _exit(kExitStatus);
        _exit(kExitStatus);
    }
    if (previous.sa_flags & SA_SIGINFO && previous.sa_sigaction)
        return previous.sa_sigaction(signal, info, context);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

__attribute__((constructor)) void watch_host() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous);
}

struct ErrorName {
    cudaError_t code;
    const char *name, *text;
};
#define ERROR_NAME(code, text) \
    { code, #code, text }
const ErrorName kErrors[] = {
    ERROR_NAME(cudaSuccess, "no error"),
    ERROR_NAME(cudaErrorInvalidValue, "invalid argument"),
    ERROR_NAME(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_NAME(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_NAME(cudaErrorInvalidSymbol, "invalid device symbol"),
    ERROR_NAME(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    ERROR_NAME(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR_NAME(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    ERROR_NAME(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_NAME(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_NAME(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_NAME(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR_NAME(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_NAME(cudaErrorNotReady, "device not ready"),
    ERROR_NAME(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_NAME(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR_NAME(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_NAME(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR_NAME(cudaErrorAssert, "device-side assert triggered"),
    ERROR_NAME(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    ERROR_NAME(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR_NAME(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    ERROR_NAME(cudaErrorNotSupported, "operation not supported"),
    ERROR_NAME(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ERROR_NAME(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR_NAME(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR_NAME(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    ERROR_NAME(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_NAME(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR_NAME(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR_NAME(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    ERROR_NAME(cudaErrorGraphExecUpdateFailure,
               "the graph update was not performed because it included changes which "
               "violated constraints specific to instantiated graph update"),
    ERROR_NAME(cudaErrorUnknown, "unknown error"),
};

const ErrorName& error_name(cudaError_t e) {
    for (const ErrorName& n : kErrors)
        if (n.code == e) return n;
    static const ErrorName unrecognised = {cudaErrorUnknown, "unrecognized error code",
                                           "unrecognized error code"};
    return unrecognised;
}

}  // namespace

}  // namespace cusim

using namespace cusim;

CUSIM_API cudaError_t cudaGetLastError() {
    cudaError_t e = last_error();
    last_error() = Runtime::get().sticky;
    return e;
}
CUSIM_API cudaError_t cudaPeekAtLastError() {
    return last_error();
}
CUSIM_API const char* cudaGetErrorName(cudaError_t e) {
    return error_name(e).name;
}
CUSIM_API const char* cudaGetErrorString(cudaError_t e) {
    return error_name(e).text;
}
