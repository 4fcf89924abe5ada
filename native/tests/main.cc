// engine_test [--seed N] [--seeds N] [--cycles N] [--filter TEXT] [--list]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "check.h"
#include "cycles.h"

using namespace meshcache::tests;

// Freed memory is kept back for a while, so that its use is seen; not so much that leaks are hidden by it.
// SIGBUS is left to what is tested.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=4:detect_stack_use_after_return=1:handle_sigbus=0"; }
extern "C" const char* __tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1:handle_sigbus=0"; }

namespace {

struct Options {
  uint64_t seed = std::random_device()();
  uint64_t seeds = 1;
  uint64_t cycles = 0;
  std::string filter;
  bool is_list = false;
};

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i++) {
    const std::string word = words[i];
    const bool has_value = i + 1 < count;
    if (word == "--list") {
      options.is_list = true;
    } else if (word == "--seed" && has_value) {
      options.seed = strtoull(words[++i], nullptr, 0);
    } else if (word == "--seeds" && has_value) {
      options.seeds = strtoull(words[++i], nullptr, 0);
    } else if (word == "--cycles" && has_value) {
      options.cycles = strtoull(words[++i], nullptr, 0);
    } else if (word == "--filter" && has_value) {
      options.filter = words[++i];
    } else {
      fprintf(stderr, "%s is no option; there are --seed N, --seeds N, --cycles N, --filter TEXT, --list\n", word.c_str());
      exit(2);
    }
  }
  return options;
}

// Whether it passed.
bool run(const Test& test, uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  std::string failure;
  printf("  %s ...", test.name);
  fflush(stdout);
  try {
    test.run(seed);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  printf(" %s (%.0f ms)\n", failure.empty() ? "ok" : "FAILED", took.count());
  if (!failure.empty()) printf("    %s\n    again with --seed %llu\n", failure.c_str(), static_cast<unsigned long long>(seed));
  return failure.empty();
}

}  // namespace

int main(int count, char** words) {
  const Options options = parse(count, words);
  unsigned failed = 0;
  unsigned passed = 0;
  printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  if (options.cycles > 0) return run_cycles(options.cycles, options.seed) ? 0 : 1;
  for (uint64_t round = 0; round < options.seeds; round++) {
    for (const Test& test : all_tests()) {
      if (options.is_list) puts(test.name);
      if (options.is_list || strstr(test.name, options.filter.c_str()) == nullptr) continue;
      (run(test, options.seed + round) ? passed : failed)++;
    }
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed > 0 || (passed == 0 && !options.is_list) ? 1 : 0;
}
