// stream.h: what is queued where, and when it runs.
//
// eager: an operation runs when it is issued (everything before it has). lazy: it waits until something
// synchronises; then operations of all streams run in a random order (seeded) that respects stream order,
// events and the rules of the default stream. A program that lacks a synchronisation sees stale data under
// some seed.
#pragma once
#include "runtime.h"

namespace cusim {

struct Operation;

// The n-th operation of a stream (from 1).
struct Point {
    CUstream_st* stream = nullptr;
    u64 number = 0;
};

struct Operation {
    std::function<void()> run;
    std::vector<Point> after;
    const char* name = "";
};

}  // namespace cusim

// How far each captured stream has got, in operations of the graph.
using CaptureProgress = std::map<CUstream_st*, size_t>;

struct CUstream_st {
    std::deque<cusim::Operation> queue;
    cusim::u64 issued = 0, completed = 0;
    bool blocking = true;  // ordered with the default stream
    unsigned flags = 0;
    int priority = 0;
    bool destroyed = false;
    CUgraph_st* capture = nullptr;
    bool capture_origin = false;
    CaptureProgress captured;  // what comes before its next operation
};

struct CUevent_st {
    cusim::Point point;
    bool recorded = false;
    unsigned flags = 0;
    double time = 0;  // seconds, when it was reached
    CUgraph_st* capture = nullptr;
    CaptureProgress captured;
};

namespace cusim {

// Null and the special handles name the default streams.
CUstream_st* stream_of(cudaStream_t handle);  // null if invalid
// Issues an operation; while the stream is captured it is recorded instead.
void enqueue(CUstream_st* stream, const char* name, std::function<void()> run);
bool reached(const Point& point);
// Runs operations until the point is reached / a stream is idle / everything is.
void run_until(const Point& point);
void run_stream(CUstream_st* stream);
void run_all();
// One operation of any stream, so that a program polling an event gets on.
void run_some();
// Calls that could wait or touch memory at once (allocation, synchronous copies, queries) are forbidden while
// a stream is captured, as cudaThreadExchangeStreamCaptureMode describes. True if so; then the capture fails.
bool forbidden_by_capture();
bool capture_active(CUgraph_st* graph);
// Ends it for all streams that take part. False if another stream's work never came back to `origin`.
bool end_capture(CUstream_st* origin);

}  // namespace cusim
