// Socket addresses of rdma_cm ids: numeric text in and out.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace meshcache {

struct Address {
  sockaddr_storage storage{};

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  bool is_valid() const { return storage.ss_family == AF_INET || storage.ss_family == AF_INET6; }
  uint16_t port() const;
  void set_port(uint16_t port);
};

// A numeric IPv4 or IPv6 address (a link-local one with `%interface`, brackets allowed). Not valid when it is none.
Address parse_address(const std::string& host, uint16_t port);

// As parse_address, but a name is looked up, which may block for seconds.
Address resolve_address(const std::string& host, uint16_t port);

// `host:port`, IPv6 in brackets.
std::string format_endpoint(const std::string& host, uint16_t port);
std::string format_address(const Address& address);

}  // namespace meshcache
