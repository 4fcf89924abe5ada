// Reads on their way: a batch of operations, each of which is one or more requests (work requests) to a device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine.h"
#include "registrations.h"

namespace meshcache {

struct Batch;

// One read of a contiguous remote range. It is requested from the front on; `pending` requests are with a device.
struct Operation {
  Batch* batch = nullptr;
  const Piece* pieces = nullptr;
  const std::shared_ptr<Region>* regions = nullptr;  // of each piece
  uint32_t index = 0;
  uint32_t piece_count = 0;
  uint32_t peer = 0;
  uint32_t rkey = 0;
  uint64_t remote_addr = 0;
  uint64_t length = 0;
  int64_t checksum = -1;
  uint64_t stamp = 0;

  uint64_t requested_bytes = 0;
  uint32_t piece = 0;        // that the next request begins in
  uint64_t piece_offset = 0;
  uint32_t pending = 0;
  uint32_t attempts = 0;
  // Nanoseconds; the peer's region table must be younger than this before its word on the rkey is final.
  uint64_t since = 0;
  OpStatus status = OpStatus::kOk;
  bool may_retry = false;  // it failed, but through no fault of its own
  bool is_queued = false;  // a peer's queue has it
  bool is_verifying = false;
  bool is_done = false;    // its result is in the batch

  bool is_requested() const { return requested_bytes == length; }

  // A failure that is its own outweighs one that came with its connection.
  void fail(OpStatus reason, bool retry) {
    if (status != OpStatus::kOk && !may_retry) return;
    status = reason;
    may_retry = retry;
  }

  void start_over(uint64_t now) {
    requested_bytes = 0;
    piece = 0;
    piece_offset = 0;
    status = OpStatus::kOk;
    may_retry = false;
    attempts++;
    since = now;
  }
};

struct Batch {
  ReadBatch request;
  std::vector<std::shared_ptr<Region>> regions;  // beside request.pieces
  std::vector<Operation> operations;
  std::vector<uint8_t> statuses;
  size_t remaining = 0;
  uint64_t deadline = 0;  // nanoseconds
};

}  // namespace meshcache
