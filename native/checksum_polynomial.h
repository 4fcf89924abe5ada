// The polynomial of CRC-32 (IEEE 802.3) and what is derived from it when compiling.
//
// Bits are reflected: bit 31 of a value is the coefficient of x^0, bit 0 that of x^31.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace meshcache {

constexpr uint32_t kPolynomial = 0xEDB88320;

constexpr uint32_t times_x(uint32_t value) { return (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0); }

// x^exponent modulo the polynomial.
constexpr uint32_t power_of_x(unsigned exponent) {
  uint32_t value = 0x80000000;
  for (unsigned i = 0; i < exponent; i++) value = times_x(value);
  return value;
}

// Row k: what a byte contributes that k further bytes follow.
using ByteTables = std::array<std::array<uint32_t, 256>, 16>;

constexpr ByteTables make_byte_tables() {
  ByteTables tables{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; bit++) value = times_x(value);
    tables[0][byte] = value;
  }
  for (size_t row = 1; row < tables.size(); row++) {
    for (size_t byte = 0; byte < 256; byte++) {
      const uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

}  // namespace meshcache
