// One device, opened at one of its addresses: listener, protection domain, completion queue.
#pragma once

#include <cstdint>
#include <string>

#include "address.h"
#include "api.h"
#include "engine.h"

namespace meshcache {

class Rail {
 public:
  // Listens at once; who connects before the poller runs waits. Throws VerbsError; nothing is left behind then.
  Rail(const VerbsApi& api, rdma_event_channel* channel, const RailOptions& options, uint32_t index);
  // Every connection, queue pair and memory region of the rail must be gone.
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  // Room in the completion queue for `entries` more. False: there is none.
  bool reserve(uint32_t entries) {
    if (entries > free_entries_) return false;
    free_entries_ -= entries;
    return true;
  }
  void release(uint32_t entries) { free_entries_ += entries; }

  // Sleeps end when something completes from now on. False: the device refused.
  bool arm();
  // Takes the events that `arm` asked for.
  void take_completion_events();

  const uint32_t index;
  std::string device_name;
  const uint8_t ib_port;
  // With the port that is listened on.
  Address address;
  rdma_cm_id* listener = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* completion_channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_device_attr attributes{};
  uint32_t completion_entries = 0;
  // Longest message of the port in bytes.
  uint32_t max_message_bytes = 0;
  // Pieces of local memory that one read may be scattered over.
  uint32_t max_pieces = 1;

 private:
  void open(const RailOptions& options);
  void close();
  [[noreturn]] void fail(const char* call, int error, const std::string& what) const;

  const VerbsApi& api_;
  rdma_event_channel* channel_;
  uint32_t free_entries_ = 0;
};

}  // namespace meshcache
