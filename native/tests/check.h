// Checks and the list of tests. A failed check ends its test, not the program.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace meshcache::tests {

class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void check_failed(const char* file, int line, const std::string& what) {
  throw CheckFailed(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <class A, class B>
void check_equal(const A& actual, const B& expected, const char* text, const char* file, int line) {
  if (actual == expected) return;
  std::ostringstream what;
  what << text << ": is " << actual << ", expected " << expected;
  check_failed(file, line, what.str());
}

#define CHECK(condition) \
  do { \
    if (!(condition)) ::meshcache::tests::check_failed(__FILE__, __LINE__, #condition); \
  } while (0)

#define CHECK_EQ(actual, expected) \
  ::meshcache::tests::check_equal((actual), (expected), #actual, __FILE__, __LINE__)

struct Test {
  const char* name;
  void (*run)(uint64_t seed);
};

std::vector<Test>& all_tests();

struct AddTest {
  AddTest(const char* name, void (*run)(uint64_t)) { all_tests().push_back({name, run}); }
};

// TEST(function, "area: what holds") { ... } has `seed` to draw from.
#define TEST(function, title) \
  static void function(uint64_t seed); \
  static const ::meshcache::tests::AddTest function##_added{title, function}; \
  static void function([[maybe_unused]] uint64_t seed)

}  // namespace meshcache::tests
