// base.h: the integer names every cusim file uses, and the two ways it reports trouble.
//
// PtxError: the PTX text is malformed or uses a form cusim does not know (thrown by parser and decoder).
// stop(): the program cannot go on (unknown API call, unreadable module): one message, exit status 99.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace cusim {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

constexpr int kWarp = 32;
constexpr u32 kFullMask = ~0u;
constexpr int kExitStatus = 99;

struct PtxError : std::runtime_error {
    int line;  // of the PTX text, from 1; 0 if unknown
    PtxError(const std::string& what, int line) : std::runtime_error(what), line(line) {}
};

// Prints "cusim: error: MESSAGE" after flushing stdout and ends the process with status 99.
[[noreturn]] void stop(const std::string& message);

// printf into a string.
std::string text(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace cusim
