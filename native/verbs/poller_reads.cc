// The poller's part on reads: from a batch to its result.
#include <algorithm>
#include <cerrno>

#include "../checksum.h"
#include "poller.h"

namespace meshcache {

namespace {

constexpr uint64_t kMillisecond = 1000000;
// A device that does not give back what was posted after so long loses its queue pair, which has the same effect.
constexpr uint64_t kDrainLimit = 1000 * kMillisecond;
// Tries of an operation that fails through no fault of its own: each withdrawal of other memory of the same owner costs one.
constexpr uint32_t kMaxAttempts = 32;
// Checksums of fewer bytes are taken at once: handing them on costs more.
constexpr uint64_t kVerifyAtOnceBytes = 16384;

bool has_checksum(const Operation& operation) {
  uint32_t sum = 0;
  for (uint32_t i = 0; i < operation.piece_count; i++) {
    sum = crc32(reinterpret_cast<const void*>(operation.pieces[i].addr), operation.pieces[i].length, sum);
  }
  return sum == static_cast<uint32_t>(operation.checksum);
}

// Whether the last bytes are the stamp asked for. Before the checksum: a page that was freed is no damaged one.
bool has_stamp(const Operation& operation) {
  if (operation.stamp == 0) return true;
  uint64_t stamp = 0;
  size_t left = kStampBytes;
  for (uint32_t i = operation.piece_count; i > 0 && left > 0; i--) {
    const Piece& piece = operation.pieces[i - 1];
    const auto* bytes = reinterpret_cast<const uint8_t*>(piece.addr);
    for (uint64_t at = piece.length; at > 0 && left > 0; at--, left--) stamp = stamp << 8 | bytes[at - 1];
  }
  return left == 0 && stamp == operation.stamp;
}

// Whether the work request itself was wrong, not the connection.
bool is_own_fault(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return true;
    default:
      return false;
  }
}

// Whether it says that nobody answers.
bool is_silence(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
}

OpStatus status_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return OpStatus::kRemoteAccess;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return OpStatus::kConnectionLost;
    default:
      return OpStatus::kDeviceError;
  }
}

}  // namespace

void Engine::Impl::start_batch(std::unique_ptr<Batch> owned) {
  Batch& batch = *owned;
  const ReadBatch& request = batch.request;
  batches_.emplace(&batch, std::move(owned));
  batch.deadline = now_ + request.timeout_ms * kMillisecond;
  batch.remaining = request.ops.size();
  batch.statuses.assign(request.ops.size(), static_cast<uint8_t>(OpStatus::kOk));
  batch.operations.resize(request.ops.size());
  if (request.ops.empty()) {
    reporter_.batch_done({request.id, {}});
    finished_.push_back(&batch);
    return;
  }
  for (uint32_t i = 0; i < request.ops.size(); i++) {
    if (!start_operation(batch, i)) finish(batch.operations[i], OpStatus::kBadLocalMemory);
  }
}

// False: its destination is not registered memory.
bool Engine::Impl::start_operation(Batch& batch, uint32_t index) {
  const ReadBatch& request = batch.request;
  const ReadOp& asked = request.ops[index];
  Operation& operation = batch.operations[index];
  operation.batch = &batch;
  operation.index = index;
  if (asked.first_piece > request.pieces.size() || asked.piece_count > request.pieces.size() - asked.first_piece) return false;
  operation.pieces = request.pieces.data() + asked.first_piece;
  operation.regions = batch.regions.data() + asked.first_piece;
  operation.piece_count = asked.piece_count;
  operation.peer = asked.peer;
  operation.rkey = asked.rkey;
  operation.remote_addr = asked.remote_addr;
  operation.checksum = asked.checksum;
  operation.stamp = asked.stamp;
  operation.since = now_;
  for (uint32_t i = 0; i < asked.piece_count; i++) {
    const Piece& piece = operation.pieces[i];
    if (operation.regions[i] == nullptr && piece.length > 0) return false;
    operation.length += piece.length;
  }
  Peer* peer = nullptr;
  {
    std::lock_guard<std::mutex> lock(peers_mutex_);
    if (asked.peer < peers_.size()) peer = peers_[asked.peer].get();
  }
  if (is_closing_ || peer == nullptr) {
    finish(operation, is_closing_ ? OpStatus::kClosed : OpStatus::kUnreachable);
    return true;
  }
  peer->submit(operation);
  mark(*peer);
  return true;
}

void Engine::Impl::completed(const ibv_wc& completion) {
  const auto found = connections_.find(static_cast<uint32_t>(completion.wr_id >> 32));
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const Request request = connection.take(static_cast<uint32_t>(completion.wr_id));
  if (!request.is_used) return;
  connection.last_progress = now_;
  if (completion.status == IBV_WC_SUCCESS) {
    if (request.kind == RequestKind::kRead) {
      Operation& operation = *request.operation;
      operation.pending--;
      read_done(operation);
    } else if (request.kind == RequestKind::kTable) {
      connection.peer->table_arrived();
    }
    if (connection.peer != nullptr) mark(*connection.peer);
    return;
  }

  const bool is_fault = is_own_fault(completion.status);
  const bool is_own = request.kind == RequestKind::kRead && is_fault;
  // Of a region table that may not be read, or a peer that is silent, another connection would tell the same. With any
  // other error a new one shows whether the peer is there; its word that it has closed this one may be on the way.
  const bool is_final = is_silence(completion.status) || (is_fault && !is_own);
  if (connection.state != Connection::State::kDraining) {
    const bool has_other = connection.peer != nullptr && connection.peer->other_than(connection) != nullptr;
    if (is_own && connection.peer != nullptr) connection.peer->forget_table();
    EngineEvent event =
        event_of(EventKind::kConnectionLost, connection, "ibv_poll_cq", 0, EventCause::kCompletionError);
    event.wc_status = static_cast<int>(completion.status);
    drain(connection, OpStatus::kConnectionLost, !is_final || has_other, std::move(event));
  }
  if (is_own) request_failed(connection, request, status_of(completion.status), false);
  else request_failed(connection, request, connection.drain_reason, connection.drain_may_retry);
}

// A request of it has been answered.
void Engine::Impl::read_done(Operation& operation) {
  if (operation.pending > 0 || operation.is_queued) return;
  if (operation.status != OpStatus::kOk) return settle(operation);
  if (!has_stamp(operation)) return finish(operation, OpStatus::kStale);
  if (operation.checksum < 0) return finish(operation, OpStatus::kOk);
  if (operation.length <= kVerifyAtOnceBytes) {
    return finish(operation, has_checksum(operation) ? OpStatus::kOk : OpStatus::kChecksum);
  }
  verifying_count_++;
  operation.is_verifying = true;
  workers_->submit([this, &operation] {
    const OpStatus status = has_checksum(operation) ? OpStatus::kOk : OpStatus::kChecksum;
    post([this, &operation, status] {
      verifying_count_--;
      finish(operation, status);
    });
  });
}

void Engine::Impl::finish(Operation& operation, OpStatus status) {
  Batch& batch = *operation.batch;
  Counters& counters = reporter_.counters;
  operation.is_done = true;
  batch.statuses[operation.index] = static_cast<uint8_t>(status);
  if (status == OpStatus::kOk) {
    counters.read_ops++;
    counters.read_bytes += operation.length;
  } else {
    counters.failed_ops++;
    if (status == OpStatus::kChecksum) counters.checksum_failures++;
    if (status == OpStatus::kStale) counters.stale_ops++;
  }
  if (--batch.remaining > 0) return;
  // Nothing writes any more; the memory may go once the caller knows.
  batch.regions.clear();
  reporter_.batch_done({batch.request.id, std::move(batch.statuses)});
  finished_.push_back(&batch);
}

void Engine::Impl::settle(Operation& operation) {
  const bool can_retry = operation.may_retry && operation.attempts + 1 < kMaxAttempts && !is_closing_ &&
                         now_ < operation.batch->deadline;
  if (!can_retry) return finish(operation, operation.status);
  reporter_.counters.retried_ops++;
  operation.start_over(now_);
  Peer* peer;
  {
    std::lock_guard<std::mutex> lock(peers_mutex_);
    peer = peers_[operation.peer].get();
  }
  peer->submit(operation);
  mark(*peer);
}

void Engine::Impl::request_failed(Connection& connection, const Request& request, OpStatus reason, bool may_retry) {
  if (request.kind == RequestKind::kTable) {
    connection.peer->table_failed();
    mark(*connection.peer);
  }
  if (request.kind != RequestKind::kRead) return;
  Operation& operation = *request.operation;
  operation.pending--;
  operation.fail(reason, may_retry);
  connection.peer->remove(operation);
  if (operation.pending == 0) settle(operation);
}

void Engine::Impl::post_failed(Connection& connection, int error, bool may_retry) {
  if (connection.state == Connection::State::kDraining) return;
  drain(connection, OpStatus::kDeviceError, may_retry,
        event_of(EventKind::kConnectionLost, connection, "ibv_post_send", error, EventCause::kNotPosted));
}

// Its time is over: what waits ends, what is under way is stopped first.
void Engine::Impl::expire(Batch& batch) {
  for (Operation& operation : batch.operations) {
    if (operation.is_done || operation.is_verifying) continue;
    Peer* peer;
    {
      std::lock_guard<std::mutex> lock(peers_mutex_);
      peer = peers_[operation.peer].get();
    }
    peer->remove(operation);
    if (operation.pending == 0) {
      finish(operation, OpStatus::kTimeout);
      continue;
    }
    operation.fail(OpStatus::kTimeout, false);
    for (Connection* connection : peer->carriers(operation)) {
      drain(*connection, OpStatus::kConnectionLost, true,
            event_of(EventKind::kConnectionLost, *connection, "ibv_poll_cq", ETIMEDOUT, EventCause::kReadTooLate));
    }
  }
}

// Stops a connection: what it carries fails with `reason`, or may be tried again on another one.
void Engine::Impl::drain(Connection& connection, OpStatus reason, bool may_retry,
                         std::optional<EngineEvent> event) {
  if (connection.state == Connection::State::kDraining) return;
  const bool was_established = connection.state == Connection::State::kEstablished;
  connection.drain_reason = reason;
  connection.drain_may_retry = may_retry;
  connection.deadline = now_ + kDrainLimit;
  connection.begin_drain();
  draining_.push_back(&connection);
  if (was_established) {
    (connection.peer == nullptr ? reporter_.counters.accepted_connections : reporter_.counters.connections)--;
    if (reason != OpStatus::kClosed && connection.peer != nullptr) reporter_.counters.lost_connections++;
  }
  // That a reader goes is no news.
  if (event.has_value() && connection.peer != nullptr) reporter_.event(std::move(*event));
  if (connection.peer == nullptr) return;
  connection.peer->lost(connection, reason, may_retry);
  mark(*connection.peer);
}

// Ends connections from which nothing can come any more.
void Engine::Impl::reap() {
  for (size_t i = 0; i < draining_.size();) {
    Connection* connection = draining_[i];
    if (connection->in_flight > 0 && now_ < connection->deadline) {
      i++;
      continue;
    }
    draining_[i] = draining_.back();
    draining_.pop_back();
    connection->destroy_queue_pair();
    for (const Request& request : connection->take_all()) {
      request_failed(*connection, request, connection->drain_reason, connection->drain_may_retry);
    }
    if (connection->has_reserved) connection->rail.release(connection->depth + 1);
    if (connection->peer == nullptr) accepted_count_--;
    connections_.erase(connection->number);
  }
}

void Engine::Impl::mark(Peer& peer) {
  if (peer.is_marked) return;
  peer.is_marked = true;
  marked_.push_back(&peer);
}

int Engine::Impl::take_scratch() {
  if (free_scratch_.empty()) return -1;
  const int scratch = free_scratch_.back();
  free_scratch_.pop_back();
  return scratch;
}

uint32_t Engine::Impl::scratch_lkey(int, uint32_t rail_index) { return scratch_mrs_[rail_index]->lkey; }

}  // namespace meshcache
