// The reading side of one peer: its connections, what is known of its memory, and the operations that wait.
//
//     submit -> waiting (connection? table? rkey?) -> ready -> requested, spread over the connections
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "address.h"
#include "connection.h"
#include "region_table.h"

namespace meshcache {

class Peer;

// What a peer needs of the poller.
class PeerLinks {
 public:
  virtual ~PeerLinks() = default;
  virtual uint64_t now() const = 0;
  virtual const EngineOptions& options() const = 0;
  virtual size_t rail_count() const = 0;
  // Begins to connect; null: it failed at once, and has been reported.
  virtual Connection* connect(Peer& peer, uint32_t rail_index, Address address) = 0;
  // Looks the peer's name up on another thread; `Peer::named` follows.
  virtual void look_up(Peer& peer) = 0;
  virtual void finish(Operation& operation, OpStatus status) = 0;
  // The operation has failed and nothing of it is under way: it starts over or ends.
  virtual void settle(Operation& operation) = 0;
  virtual void post_failed(Connection& connection, int error, bool may_retry) = 0;
  virtual void request_failed(Connection& connection, const Request& request, OpStatus reason, bool may_retry) = 0;
  // Memory for one region table; negative: none free now.
  virtual int take_scratch() = 0;
  virtual void release_scratch(int scratch) = 0;
  virtual TableLayout* scratch(int scratch) = 0;
  virtual uint32_t scratch_lkey(int scratch, uint32_t rail_index) = 0;
  virtual void table_is_bad(Peer& peer) = 0;
  virtual void count_table_read() = 0;
  virtual void count_posted() = 0;
  virtual void count_connected(bool again) = 0;
};

class Peer {
 public:
  Peer(PeerLinks& links, uint32_t number, std::string host, uint16_t port);

  void submit(Operation& operation);
  // Does everything that can be done now.
  void advance();
  // Takes an operation out of the queues; harmless when it is in none.
  void remove(Operation& operation);
  // Connections that carry requests of it.
  std::vector<Connection*> carriers(const Operation& operation) const;

  void named(const Address& address);
  // False: it leads to another engine than the peer's other connections do; it is not to be used.
  bool connected(Connection& connection);
  // The connection is on its way out; never was established, or is lost. `has_answered`: the peer is there, only this attempt
  // came to nothing.
  void connect_failed(Connection& connection, OpStatus reason, bool has_answered);
  void lost(Connection& connection, OpStatus reason, bool may_retry);
  void table_arrived();
  void table_failed();
  // What is known of the peer's memory is out of date.
  void forget_table() {
    has_table_ = false;
    is_reading_outdated_ = true;
  }
  // Ends everything that is not under way.
  void fail_all(OpStatus reason);

  // Another established connection; null: none.
  Connection* other_than(const Connection& connection) const;
  bool has_work() const { return !waiting_.empty() || !ready_.empty(); }
  std::vector<Connection*> connections() const;

  const uint32_t number;
  const std::string host;
  const uint16_t port;
  const std::string name;
  bool is_marked = false;  // the poller will call `advance`

 private:
  enum class Naming { kUnknown, kAsked, kKnown };

  struct Slot {
    Connection* connection = nullptr;
    uint64_t retry_at = 0;
    uint64_t backoff = 0;
  };

  bool any(Connection::State state) const;
  bool is_connecting() const;
  void begin_round();
  void give_up(OpStatus reason);
  void connect_first(OpStatus reason_so_far);
  void connect_missing();
  void request_table();
  void route();
  void pump();
  Connection* least_loaded() const;
  void detach(Connection& connection);

  PeerLinks& links_;
  Naming naming_ = Naming::kUnknown;
  Address address_;
  bool is_numeric_ = false;
  std::vector<Slot> slots_;  // queue pairs of rail 0, of rail 1, ...
  // A round: attempts to connect from one rail after the other, until one gets through.
  uint32_t rounds_ = 0;         // since operations began to wait, or the region table was last read
  uint64_t next_round_at_ = 0;  // nanoseconds
  uint32_t rails_tried_ = 0;
  bool has_answered_ = false;   // the peer, to one of them
  bool has_failed_ = false;
  std::vector<Operation*> waiting_;
  std::deque<Operation*> ready_;
  RemoteTable table_;
  bool has_table_ = false;
  uint64_t table_since_ = 0;    // nanoseconds: when the reading of what is known began
  uint64_t reading_since_ = 0;  // of the reading under way
  bool is_reading_outdated_ = false;
  int table_scratch_ = -1;    // a reading is under way
  uint64_t table_engine_id_ = 0;  // of the connection it is read through
  uint32_t torn_count_ = 0;     // in a row
  uint64_t torn_since_ = 0;
};

}  // namespace meshcache
