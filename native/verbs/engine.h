// One-sided reads of peers' memory over reliable connections, and the serving of one's own.
//
// One thread (the poller) owns every connection, queue pair and completion queue; callers talk to it through a
// locked mailbox and hear from it through reports. So there are no locks on the data path, and the order of
// things is the order of the mailbox.
//
// An operation is reported once nothing can write into its memory any more: its work requests have completed, or
// their queue pair is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "api.h"

namespace meshcache {

// Same numbers as OP_STATUS in src/native/addon/contract.ts.
enum class OpStatus : uint8_t {
  kOk = 0,
  kBadLocalMemory,
  kRefused,
  kUnreachable,
  kRejected,
  kRemoteAccess,
  kConnectionLost,
  kTimeout,
  kChecksum,
  kClosed,
  kDeviceError,
  kStale,
};

// Same numbers as RDMA_EVENT_KINDS in src/native/addon/contract.ts.
enum class EventKind : uint8_t {
  kConnectFailed = 0,
  kRejected,
  kRejectedPeer,
  kConnectionLost,
  kDeviceError,
  kPortState,
};

// Same numbers as RDMA_EVENT_CAUSES in src/native/addon/contract.ts, which has them in words.
enum class EventCause : uint8_t {
  kSystemError = 0,
  kCompletionError,
  kWrongSecret,
  kUnknownProtocol,
  kTooManyConnections,
  kRefusedSecret,
  kRefusedVersion,
  kRefusedTooMany,
  kRefusedClosing,
  kRefused,
  kNobodyListens,
  kUnreachable,
  kWentAway,
  kClosedByPeer,
  kNoAnswer,
  kNoProgress,
  kReadTooLate,
  kNotPosted,
  kNoAddress,
  kOtherDevice,
  kCompletionQueueFull,
  kOtherEngine,
  kNoRegionTable,
  kDeviceFailed,
  kCompletionQueueFailed,
  kPortActive,
  kPortDown,
};

// Same bits as in src/native/addon/contract.ts.
constexpr uint32_t kAccessRemoteRead = 1;
constexpr uint32_t kAccessLocalWrite = 2;

constexpr size_t kTokenBytes = 32;
constexpr size_t kMaxRails = 8;
// Regions with kAccessRemoteRead at one time.
constexpr size_t kMaxPublishedRegions = 512;

struct Token {
  uint8_t request[kTokenBytes];
  uint8_t reply[kTokenBytes];
};

struct RailOptions {
  std::string device_name;
  uint8_t ib_port = 1;
  std::string address;
  uint16_t port = 0;
};

struct EngineOptions {
  std::vector<RailOptions> rails;
  std::vector<Token> tokens;
  uint32_t queue_pairs_per_peer = 2;
  uint32_t queue_depth = 32;
  uint32_t read_max_bytes = 4u << 20;
  uint32_t connect_timeout_ms = 2000;
  uint32_t stall_timeout_ms = 3000;
  uint32_t idle_probe_ms = 30000;
  uint32_t accepted_max_count = 4096;
  uint32_t spin_us = 20;
  uint32_t verify_threads = 1;
  // Differentiated services code point of the packets of both directions; negative: that of the system.
  int32_t dscp = -1;
};

// A verbs or system call failed while the engine was being made, or memory registered.
class VerbsError : public std::runtime_error {
 public:
  VerbsError(std::string call_name, int error, std::string device_name, const std::string& message)
      : std::runtime_error(message), call(std::move(call_name)), errnum(error), device(std::move(device_name)) {}
  const std::string call;
  const int errnum;
  const std::string device;
};

// A page's stamp, as in src/memory/page-stamp.ts.
constexpr size_t kStampBytes = 6;

struct Piece {
  uint64_t addr;
  uint64_t length;
};

struct ReadOp {
  uint32_t peer;
  uint32_t rkey;
  uint64_t remote_addr;
  int64_t checksum;  // CRC-32 that the bytes must have; -1: none
  uint64_t stamp;    // that the last kStampBytes must be, little endian; 0: none
  uint32_t first_piece;
  uint32_t piece_count;
};

struct ReadBatch {
  uint64_t id = 0;
  std::vector<ReadOp> ops;
  std::vector<Piece> pieces;
  uint32_t timeout_ms = 0;
};

struct EngineEvent {
  EventKind kind;
  EventCause cause;
  std::string device;
  std::string peer;
  std::string call;
  int errnum = 0;
  int wc_status = -1;
};

struct BatchResult {
  uint64_t id;
  std::vector<uint8_t> statuses;
};

struct Report {
  std::vector<BatchResult> batches;
  std::vector<EngineEvent> events;
  std::vector<uint32_t> deregistered;
  bool closed = false;
};

struct EngineStats {
  uint64_t read_ops, read_bytes, failed_ops, checksum_failures, posted_requests, retried_ops, connections,
      accepted_connections, connects, reconnects, refused_connections, protocol_errors, region_table_reads,
      lost_connections, dropped_events, stale_ops;
};

class Engine {
 public:
  // Listens on every rail. `wake` is called from threads of the engine whenever a report has begun to fill; it must
  // not call back into the engine. Throws VerbsError.
  Engine(const VerbsApi& api, EngineOptions options, std::function<void()> wake);
  // Closes, and waits for the end.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // All of these may be called from any thread.
  std::vector<uint16_t> ports() const;
  struct Registration {
    uint32_t handle;
    uint32_t lkey;
  };
  Registration register_mr(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access);  // throws VerbsError
  bool deregister_mr(uint32_t handle);
  uint32_t peer(const std::string& host, uint16_t port);
  void submit(ReadBatch batch);
  void set_tokens(std::vector<Token> tokens);  // for connections that are made from then on
  Report take_report();
  EngineStats stats() const;
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshcache
