// One rdma_cm connection and its queue pair: posting of requests and the keeping of who they belong to. What happens
// when something goes wrong is for others to decide.
#pragma once

#include <cstdint>
#include <vector>

#include "rail.h"
#include "reads.h"

namespace meshcache {

class Peer;

enum class RequestKind : uint8_t { kRead, kTable, kProbe };

struct Request {
  RequestKind kind = RequestKind::kRead;
  Operation* operation = nullptr;  // of a read
  uint32_t bytes = 0;
  bool is_used = false;
};

class Connection {
 public:
  enum class State { kResolvingAddress, kResolvingRoute, kConnecting, kAccepting, kEstablished, kDraining };

  // Takes the id over.
  Connection(const VerbsApi& api, Rail& rail, uint32_t number, rdma_cm_id* id, uint32_t depth);
  // Destroys queue pair and id: from then on no device writes into memory of its requests.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // 0 or errno.
  int create_queue_pair();
  // Peers may read registered memory through this queue pair, and nothing else.
  void allow_reads_only();

  bool has_room() const { return !free_.empty(); }
  // The chain must be flushed before more is chained.
  bool chain_is_full() const;
  bool carries(const Operation& operation) const;

  // Chains one request; `flush` posts the chain. Has room.
  void chain_read(Operation& operation, uint32_t max_bytes, uint32_t max_pieces, uint32_t device_rkey);
  void chain_fetch(RequestKind kind, uint64_t local_addr, uint32_t lkey, uint64_t remote_addr, uint32_t device_rkey,
                   uint32_t bytes);
  // Posts what is chained. 0 or errno; what could not be posted is completed with `on_unposted(request)`.
  template <typename OnUnposted>
  int flush(OnUnposted on_unposted);

  // The request of a completion, taken out of the books.
  Request take(uint32_t slot);
  // All requests that have not completed, taken out of the books: once the queue pair is destroyed.
  std::vector<Request> take_all();

  // Nothing posted starts any more; what is under way completes with an error.
  void begin_drain();
  void destroy_queue_pair();

  const uint32_t number;
  Rail& rail;
  rdma_cm_id* const id;
  const uint32_t depth;
  State state = State::kResolvingAddress;
  Peer* peer = nullptr;  // null: accepted
  uint32_t rail_slot = 0;  // its place among the peer's connections
  uint32_t remote_rail = 0;
  uint64_t remote_table_addr = 0;
  uint32_t remote_table_rkey = 0;
  uint64_t remote_engine_id = 0;
  uint32_t in_flight = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t last_progress = 0;  // nanoseconds: something completed, or was posted when nothing was in flight
  uint64_t deadline = 0;       // nanoseconds: of connecting, or of draining
  bool has_reserved = false;   // room in the completion queue
  OpStatus drain_reason = OpStatus::kOk;
  bool drain_may_retry = false;

 private:
  uint32_t add(Request request);
  ibv_send_wr& next_work_request(uint32_t slot);

  const VerbsApi& api_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_;
  // The chain; sized once, so that the work requests can point into it.
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> chain_pieces_;
  uint32_t chained_ = 0;
  uint32_t chained_pieces_ = 0;
  bool has_queue_pair_ = false;
};

template <typename OnUnposted>
int Connection::flush(OnUnposted on_unposted) {
  if (chained_ == 0) return 0;
  const uint32_t count = chained_;
  for (uint32_t i = 0; i + 1 < count; i++) chain_[i].next = &chain_[i + 1];
  chain_[count - 1].next = nullptr;
  chained_ = 0;
  chained_pieces_ = 0;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(id->qp, &chain_[0], &bad);
  if (error == 0) return 0;
  // From the bad one on nothing was posted.
  for (uint32_t i = bad == nullptr ? 0 : static_cast<uint32_t>(bad - &chain_[0]); i < count; i++) {
    on_unposted(take(static_cast<uint32_t>(chain_[i].wr_id)));
  }
  return error > 0 ? error : -error;
}

}  // namespace meshcache
