// The test runner's main function. Catch2 3 brings its own in a library; version 2 makes it here.
#if __has_include(<catch2/catch_all.hpp>)
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
