#include "peer.h"

#include <algorithm>

namespace meshcache {

namespace {

constexpr uint64_t kMillisecond = 1000000;
// A connection beside working ones is tried again after so long, doubling.
constexpr uint64_t kSlotBackoffMin = 200 * kMillisecond;
constexpr uint64_t kSlotBackoffMax = 30000 * kMillisecond;
// Who answers and does not let in is about to close or withdraws memory, which cuts off whoever is connecting: it is
// tried again after so long, doubling; 1.3 s in all.
constexpr uint64_t kRoundPauseMin = 10 * kMillisecond;
constexpr uint32_t kRoundMaxCount = 8;
// A table that is torn so often in a row is read at intervals, for its owner's thread may have lost its processor in the
// middle of a change; one that has been for so long is none.
constexpr uint32_t kTornAtOnceCount = 64;
constexpr uint64_t kTornPause = 10 * kMillisecond;
constexpr uint64_t kTornLimit = 1000 * kMillisecond;

}  // namespace

Peer::Peer(PeerLinks& links, uint32_t number, std::string host_name, uint16_t port)
    : number(number), host(std::move(host_name)), port(port), name(format_endpoint(host, port)), links_(links),
      slots_(links.rail_count() * links.options().queue_pairs_per_peer) {
  address_ = parse_address(host, port);
  is_numeric_ = address_.is_valid();
  if (is_numeric_) naming_ = Naming::kKnown;
}

void Peer::submit(Operation& operation) {
  if (!has_work()) rounds_ = 0;
  operation.is_queued = true;
  waiting_.push_back(&operation);
}

void Peer::advance() {
  if (!has_work()) return;
  if (!any(Connection::State::kEstablished)) {
    if (naming_ == Naming::kKnown && !is_connecting()) {
      begin_round();
    } else if (naming_ == Naming::kUnknown) {
      naming_ = Naming::kAsked;
      links_.look_up(*this);
    }
    return;
  }
  if (!has_table_) return request_table();
  connect_missing();
  route();
  pump();
}

void Peer::remove(Operation& operation) {
  if (!operation.is_queued) return;
  operation.is_queued = false;
  const auto waits = std::find(waiting_.begin(), waiting_.end(), &operation);
  if (waits != waiting_.end()) {
    waiting_.erase(waits);
    return;
  }
  const auto is_ready = std::find(ready_.begin(), ready_.end(), &operation);
  if (is_ready != ready_.end()) ready_.erase(is_ready);
}

std::vector<Connection*> Peer::carriers(const Operation& operation) const {
  std::vector<Connection*> found;
  for (Connection* connection : connections()) {
    if (connection->carries(operation)) found.push_back(connection);
  }
  return found;
}

void Peer::named(const Address& address) {
  address_ = address;
  naming_ = address.is_valid() ? Naming::kKnown : Naming::kUnknown;
  if (!address.is_valid()) fail_all(OpStatus::kUnreachable);
}

bool Peer::connected(Connection& connection) {
  const Connection* other = other_than(connection);
  if (other != nullptr && other->remote_engine_id != connection.remote_engine_id) return false;
  slots_[connection.rail_slot].backoff = 0;
  links_.count_connected(other == nullptr && has_failed_);
  if (other == nullptr) {
    has_failed_ = false;
    torn_count_ = 0;
  }
  // Read again for each connection: whatever is posted on one was in the table after it was made, and
  // an owner that withdraws memory ends all connections first.
  forget_table();
  rails_tried_ = 0;
  has_answered_ = false;
  return true;
}

void Peer::connect_failed(Connection& connection, OpStatus reason, bool has_answered) {
  Slot& slot = slots_[connection.rail_slot];
  slot.backoff = std::min(kSlotBackoffMax, std::max(kSlotBackoffMin, slot.backoff * 2));
  slot.retry_at = links_.now() + slot.backoff;
  detach(connection);
  if (any(Connection::State::kEstablished)) return;
  has_answered_ |= has_answered;
  if (is_connecting() || !has_work()) return;
  connect_first(reason);
}

void Peer::lost(Connection& connection, OpStatus reason, bool may_retry) {
  detach(connection);
  has_failed_ = true;
  if (may_retry || any(Connection::State::kEstablished)) return;
  if (!is_connecting()) return fail_all(reason);
  // It is silent: the attempt under way decides, and no other one after it.
  rails_tried_ = static_cast<uint32_t>(links_.rail_count());
  has_answered_ = false;
}

void Peer::table_arrived() {
  const TableLayout* layout = links_.scratch(table_scratch_);
  const bool is_whole = table_.parse(*layout);
  links_.release_scratch(table_scratch_);
  table_scratch_ = -1;
  if (is_whole && table_.engine_id() == table_engine_id_) {
    torn_count_ = 0;
    rounds_ = 0;
    has_table_ = !is_reading_outdated_;
    table_since_ = reading_since_;
    return;
  }
  has_table_ = false;
  if (torn_count_++ == 0) torn_since_ = reading_since_;
  if (torn_count_ < kTornAtOnceCount || links_.now() - torn_since_ < kTornLimit) return;
  torn_count_ = 0;
  links_.table_is_bad(*this);
  fail_all(OpStatus::kRejected);
}

void Peer::table_failed() {
  if (table_scratch_ < 0) return;
  links_.release_scratch(table_scratch_);
  table_scratch_ = -1;
}

void Peer::fail_all(OpStatus reason) {
  has_failed_ = true;
  std::vector<Operation*> ended;
  ended.swap(waiting_);
  ended.insert(ended.end(), ready_.begin(), ready_.end());
  ready_.clear();
  for (Operation* operation : ended) {
    operation->is_queued = false;
    // It was reached before: what ends the operation is that the connection was lost.
    const bool was_reached = operation->attempts > 0 && reason == OpStatus::kUnreachable;
    operation->fail(was_reached ? OpStatus::kConnectionLost : reason, false);
    if (operation->pending == 0) links_.settle(*operation);
  }
}

Connection* Peer::other_than(const Connection& connection) const {
  for (const Slot& slot : slots_) {
    if (slot.connection == nullptr || slot.connection == &connection) continue;
    if (slot.connection->state == Connection::State::kEstablished) return slot.connection;
  }
  return nullptr;
}

std::vector<Connection*> Peer::connections() const {
  std::vector<Connection*> all;
  for (const Slot& slot : slots_) {
    if (slot.connection != nullptr) all.push_back(slot.connection);
  }
  return all;
}

bool Peer::any(Connection::State state) const {
  return std::any_of(slots_.begin(), slots_.end(), [state](const Slot& slot) {
    return slot.connection != nullptr && slot.connection->state == state;
  });
}

bool Peer::is_connecting() const {
  return any(Connection::State::kResolvingAddress) || any(Connection::State::kResolvingRoute) ||
         any(Connection::State::kConnecting);
}

void Peer::begin_round() {
  if (rounds_ == kRoundMaxCount) return give_up(OpStatus::kUnreachable);
  if (rounds_ > 0 && links_.now() < next_round_at_) return;
  next_round_at_ = links_.now() + (kRoundPauseMin << rounds_);
  rounds_++;
  rails_tried_ = 0;
  has_answered_ = false;
  connect_first(OpStatus::kUnreachable);
}

// To the address that the peer is known by, from one rail after the other until one gets through.
void Peer::connect_first(OpStatus reason_so_far) {
  while (rails_tried_ < links_.rail_count()) {
    const uint32_t rail = rails_tried_++;
    Slot& slot = slots_[rail * links_.options().queue_pairs_per_peer];
    slot.connection = links_.connect(*this, rail, address_);
    if (slot.connection == nullptr) continue;
    slot.connection->rail_slot = static_cast<uint32_t>(&slot - slots_.data());
    return;
  }
  // The peer is there: another round follows when it is time.
  if (!has_answered_) give_up(reason_so_far);
}

void Peer::give_up(OpStatus reason) {
  // The name may have another address by now.
  if (!is_numeric_) naming_ = Naming::kUnknown;
  fail_all(reason);
}

void Peer::connect_missing() {
  const uint32_t per_rail = links_.options().queue_pairs_per_peer;
  for (uint32_t i = 0; i < slots_.size(); i++) {
    Slot& slot = slots_[i];
    if (slot.connection != nullptr || links_.now() < slot.retry_at) continue;
    const std::vector<Address>& remote = table_.rails();
    const uint32_t rail = i / per_rail;
    slot.connection = links_.connect(*this, rail, remote[rail % remote.size()]);
    if (slot.connection != nullptr) {
      slot.connection->rail_slot = i;
    } else {
      slot.backoff = std::min(kSlotBackoffMax, std::max(kSlotBackoffMin, slot.backoff * 2));
      slot.retry_at = links_.now() + slot.backoff;
    }
  }
}

void Peer::request_table() {
  if (table_scratch_ >= 0) return;
  // Nobody has looked for so long: what was torn then is not in a row with what comes.
  if (links_.now() - reading_since_ > kTornLimit) torn_count_ = 0;
  if (torn_count_ >= kTornAtOnceCount && links_.now() < reading_since_ + kTornPause) return;
  Connection* connection = least_loaded();
  if (connection == nullptr) return;
  const int scratch = links_.take_scratch();
  if (scratch < 0) return;
  table_scratch_ = scratch;
  reading_since_ = links_.now();
  is_reading_outdated_ = false;
  table_engine_id_ = connection->remote_engine_id;
  links_.count_table_read();
  connection->chain_fetch(RequestKind::kTable, reinterpret_cast<uint64_t>(links_.scratch(scratch)),
                          links_.scratch_lkey(scratch, connection->rail.index), connection->remote_table_addr,
                          connection->remote_table_rkey, sizeof(TableLayout));
  if (connection->in_flight == 1) connection->last_progress = links_.now();
  const int error = connection->flush([&](const Request& request) {
    links_.request_failed(*connection, request, OpStatus::kDeviceError, false);
  });
  if (error != 0) links_.post_failed(*connection, error, other_than(*connection) != nullptr);
}

// Finds out for every waiting operation under which keys its devices know the memory, or that there is none.
void Peer::route() {
  std::vector<Operation*> unknown;
  std::vector<Operation*> routed;
  routed.swap(waiting_);
  for (Operation* operation : routed) {
    const TableEntry* entry = table_.find(operation->rkey);
    if (entry == nullptr && table_since_ <= operation->since) {
      unknown.push_back(operation);
      continue;
    }
    const uint64_t from = operation->remote_addr;
    const bool is_within = entry != nullptr && from >= entry->addr && operation->length <= entry->length &&
                           from - entry->addr <= entry->length - operation->length;
    if (is_within && operation->length > 0) {
      ready_.push_back(operation);
      continue;
    }
    operation->is_queued = false;
    // The CRC-32 of no bytes is 0.
    const OpStatus of_nothing = operation->checksum > 0 ? OpStatus::kChecksum : OpStatus::kOk;
    links_.finish(*operation, is_within ? of_nothing : OpStatus::kRefused);
  }
  waiting_.insert(waiting_.end(), unknown.begin(), unknown.end());
  if (!waiting_.empty()) request_table();
}

void Peer::pump() {
  const uint32_t max_bytes = links_.options().read_max_bytes;
  std::vector<Connection*> used;
  const auto flush = [&](Connection* connection) {
    const int error = connection->flush([&](const Request& request) {
      links_.request_failed(*connection, request, OpStatus::kConnectionLost, true);
    });
    if (error != 0) links_.post_failed(*connection, error, true);
    return error == 0;
  };
  while (!ready_.empty()) {
    Connection* connection = least_loaded();
    if (connection == nullptr) break;
    if (connection->chain_is_full() && !flush(connection)) break;
    if (std::find(used.begin(), used.end(), connection) == used.end()) used.push_back(connection);
    Operation* operation = ready_.front();
    const TableEntry* entry = table_.find(operation->rkey);
    if (entry == nullptr) {
      // The table was read anew meanwhile.
      operation->is_queued = false;
      ready_.pop_front();
      operation->fail(OpStatus::kRefused, false);
      if (operation->pending == 0) links_.settle(*operation);
      continue;
    }
    if (connection->in_flight == 0) connection->last_progress = links_.now();
    const uint32_t limit = std::min(max_bytes, connection->rail.max_message_bytes);
    connection->chain_read(*operation, limit, connection->rail.max_pieces,
                           entry->device_rkeys[connection->remote_rail]);
    links_.count_posted();
    if (!operation->is_requested()) continue;
    operation->is_queued = false;
    ready_.pop_front();
  }
  for (Connection* connection : used) flush(connection);
}

Connection* Peer::least_loaded() const {
  Connection* best = nullptr;
  for (const Slot& slot : slots_) {
    Connection* connection = slot.connection;
    if (connection == nullptr || connection->state != Connection::State::kEstablished || !connection->has_room()) continue;
    if (best == nullptr || connection->in_flight_bytes < best->in_flight_bytes) best = connection;
  }
  return best;
}

void Peer::detach(Connection& connection) {
  Slot& slot = slots_[connection.rail_slot];
  if (slot.connection == &connection) slot.connection = nullptr;
}

}  // namespace meshcache
