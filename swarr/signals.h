// signals.h: Ctrl-C that loses nothing. The first SIGINT or SIGTERM asks the program to finish its step, save
// and exit with 0; a second one exits at once with 130.
#pragma once
#include <unistd.h>
#include <csignal>

inline volatile std::sig_atomic_t& stop_flag() {
    static volatile std::sig_atomic_t flag = 0;
    return flag;
}

inline bool stop_requested() {
    return stop_flag() != 0;
}

inline void on_stop_signal(int) {
    if (stop_flag()) _exit(130);
    stop_flag() = 1;
    const char text[] = "\nfinishing this step; once more to exit at once\n";
    // write() is safe in a handler; its result cannot help here.
    if (::write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
}

inline void catch_signals() {
    stop_flag() = 0;  // the static must exist before a handler runs
    std::signal(SIGINT, on_stop_signal);
    std::signal(SIGTERM, on_stop_signal);
}
