// Many connections made, used and ended, and nothing left of them.
#pragma once

#include <cstdint>

namespace meshcache::tests {

// Prints what it found; false when something leaks.
bool run_cycles(uint64_t count, uint64_t seed);

}  // namespace meshcache::tests
