#include "address.h"

#include <netdb.h>

#include <cstring>

namespace meshcache {

namespace {

Address look_up(const std::string& host, uint16_t port, int flags) {
  Address address;
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  if (name.empty()) return address;
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return address;
  if (found != nullptr && found->ai_addrlen <= sizeof address.storage) {
    memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.set_port(port);
  }
  freeaddrinfo(found);
  return address;
}

}  // namespace

uint16_t Address::port() const {
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  return ntohs(storage.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
}

void Address::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  if (storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
}

Address parse_address(const std::string& host, uint16_t port) { return look_up(host, port, AI_NUMERICHOST); }

Address resolve_address(const std::string& host, uint16_t port) { return look_up(host, port, 0); }

std::string format_endpoint(const std::string& host, uint16_t port) {
  const bool needs_brackets = host.find(':') != std::string::npos && host.front() != '[';
  return (needs_brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string format_address(const Address& address) {
  char host[NI_MAXHOST] = "?";
  const socklen_t length = address.storage.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return format_endpoint(host, address.port());
}

}  // namespace meshcache
