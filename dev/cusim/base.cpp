// base.cpp: message formatting and the one way out.
#include "base.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>

namespace cusim {

std::string text(const char* pattern, ...) {
    va_list args, again;
    va_start(args, pattern);
    va_copy(again, args);
    int size = std::vsnprintf(nullptr, 0, pattern, args);
    va_end(args);
    std::string out(size_t(size > 0 ? size : 0) + 1, '\0');
    std::vsnprintf(&out[0], out.size(), pattern, again);
    va_end(again);
    out.pop_back();
    return out;
}

void stop(const std::string& message) {
    std::fflush(stdout);
    std::fprintf(stderr, "cusim: error: %s\n", message.c_str());
    std::fflush(stderr);
    // _exit: the program's static destructors would call back into a half-finished runtime.
    _exit(kExitStatus);
}

}  // namespace cusim
