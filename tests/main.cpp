// The tests' main, alone in its file: the rest of doctest's code is compiled once, here.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
