// A failed system call, as an exception.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace meshcache {

class SystemError : public std::runtime_error {
 public:
  SystemError(std::string call_name, int error, const std::string& message)
      : std::runtime_error(message), call(std::move(call_name)), errnum(error) {}
  const std::string call;
  const int errnum;
};

}  // namespace meshcache
