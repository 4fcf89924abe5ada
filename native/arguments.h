// What JavaScript hands in, checked so that a wrong call is an exception there and not the end of the process.
#pragma once

#include <napi.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace meshcache {

// User-space addresses and lengths of memory are below this.
constexpr double kAddressLimit = 281474976710656.0;  // 2^48

[[noreturn]] inline void wrong_argument(Napi::Env env, const std::string& message) {
  throw Napi::TypeError::New(env, message);
}

inline bool is_whole(double value, double limit) { return value >= 0 && value < limit && std::floor(value) == value; }

// A whole number from 0 up to and not including `limit`.
inline uint64_t whole_number(const Napi::Value& value, const char* name, double limit) {
  if (value.IsNumber()) {
    const double number = value.As<Napi::Number>().DoubleValue();
    if (is_whole(number, limit)) return static_cast<uint64_t>(number);
  }
  wrong_argument(value.Env(), std::string(name) + " must be a whole number from 0 and below " +
                                  std::to_string(static_cast<uint64_t>(limit)));
}

inline uint64_t address(const Napi::Value& value, const char* name) {
  return whole_number(value, name, kAddressLimit);
}

inline uint32_t uint32(const Napi::Value& value, const char* name) {
  return static_cast<uint32_t>(whole_number(value, name, 4294967296.0));
}

inline Napi::Uint8Array byte_view(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    wrong_argument(value.Env(), std::string(name) + " must be a Uint8Array");
  }
  return value.As<Napi::Uint8Array>();
}

inline Napi::Float64Array float64_array(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_float64_array) {
    wrong_argument(value.Env(), std::string(name) + " must be a Float64Array");
  }
  return value.As<Napi::Float64Array>();
}

// An `Error` with the fields of NativeFailure in contract.ts.
inline Napi::Error native_failure(Napi::Env env, const std::string& message, const std::string& call, int errnum,
                                  const std::string& device) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Set("call", Napi::String::New(env, call));
  error.Set("errno", Napi::Number::New(env, errnum));
  error.Set("device", Napi::String::New(env, device));
  return error;
}

}  // namespace meshcache
