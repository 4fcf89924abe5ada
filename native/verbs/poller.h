// The engine's thread: owns everything that has to do with connections and reads, and does all of it.
//
//     mailbox -> peers -> queue pairs -> completion queues -> (checksum threads) -> reports
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../worker_pool.h"
#include "connection.h"
#include "handshake.h"
#include "peer.h"
#include "rail.h"
#include "reads.h"
#include "registrations.h"
#include "reporter.h"

namespace meshcache {

class Engine::Impl : public PeerLinks {
 public:
  Impl(const VerbsApi& api, EngineOptions options, std::function<void()> wake);
  ~Impl() override;

  std::vector<uint16_t> ports() const;
  Engine::Registration register_mr(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access);
  bool deregister_mr(uint32_t handle);
  uint32_t peer(const std::string& host, uint16_t port);
  void submit(ReadBatch batch);
  void set_tokens(std::vector<Token> tokens);
  Report take_report() { return reporter_.take(); }
  EngineStats stats() const;
  void close();

 private:
  // poller.cc: the thread and its events.
  void open();
  void release();
  void post(std::function<void()> message);
  void run();
  bool take_messages();
  bool poll_completions();
  bool take_connection_events();
  void take_device_events(Rail& rail);
  void sleep();
  void tick();
  void serve_marked();
  bool has_ended();
  void begin_close();
  // A copy, for loops in which connections come to be.
  std::vector<Connection*> all_connections() const;

  // poller_reads.cc: operations and completions.
  void start_batch(std::unique_ptr<Batch> batch);
  bool start_operation(Batch& batch, uint32_t index);
  void completed(const ibv_wc& completion);
  void read_done(Operation& operation);
  void expire(Batch& batch);
  void drain(Connection& connection, OpStatus reason, bool may_retry, std::optional<EngineEvent> event);
  void reap();
  void mark(Peer& peer);

  // poller_connections.cc: rdma_cm events.
  struct ConnectionEvent {
    rdma_cm_event_type type;
    rdma_cm_id* id;
    rdma_cm_id* listen_id;
    int status;
    uint8_t responder_resources;
    uint8_t initiator_depth;
    std::vector<uint8_t> private_data;
  };
  void handle(const ConnectionEvent& event);
  void requested(const ConnectionEvent& event);
  void accept(const ConnectionEvent& event, Rail& rail, const RequestData& request);
  void refuse(rdma_cm_id* id, Refusal reason);
  void address_resolved(Connection& connection);
  void route_resolved(Connection& connection);
  void established(Connection& connection, const ConnectionEvent& event);
  void connecting_failed(Connection& connection, OpStatus reason, EngineEvent event, bool has_answered = false);
  void probe(Connection& connection);
  void looked_up(Peer& peer, const Address& address);
  void disconnect_readers();
  Connection& adopt(rdma_cm_id* id, Rail& rail, uint32_t depth);
  EngineEvent event_of(EventKind kind, const Connection& connection, const char* call, int error,
                       EventCause cause) const;

  // PeerLinks
  uint64_t now() const override { return now_; }
  const EngineOptions& options() const override { return options_; }
  size_t rail_count() const override { return rails_.size(); }
  Connection* connect(Peer& peer, uint32_t rail_index, Address address) override;
  void look_up(Peer& peer) override;
  void finish(Operation& operation, OpStatus status) override;
  void settle(Operation& operation) override;
  void post_failed(Connection& connection, int error, bool may_retry) override;
  void request_failed(Connection& connection, const Request& request, OpStatus reason, bool may_retry) override;
  int take_scratch() override;
  void release_scratch(int scratch) override { free_scratch_.push_back(scratch); }
  TableLayout* scratch(int scratch) override { return &scratch_memory_[scratch]; }
  uint32_t scratch_lkey(int scratch, uint32_t rail_index) override;
  void table_is_bad(Peer& peer) override;
  void count_table_read() override { reporter_.counters.region_table_reads++; }
  void count_posted() override { reporter_.counters.posted_requests++; }
  void count_connected(bool again) override;

  // Region tables that can be read at one time, of all peers; one more place is for probes, whose bytes nobody looks at.
  static constexpr int kScratchCount = 16;
  static constexpr int kProbeScratch = kScratchCount;

  const VerbsApi& api_;
  EngineOptions options_;  // tokens may change, on the poller's thread
  Reporter reporter_;
  const uint64_t engine_id_;
  uint64_t now_ = 0;  // nanoseconds, monotonic; of this turn

  // Made before the thread starts, released after it has ended.
  rdma_event_channel* channel_ = nullptr;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<Registrations> registrations_;
  TableLayout* scratch_memory_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::vector<ibv_mr*> scratch_mrs_;
  int epoll_ = -1;
  int bell_ = -1;  // an eventfd: there are messages
  std::unique_ptr<WorkerPool> workers_;

  std::mutex messages_mutex_;
  std::vector<std::function<void()>> messages_;
  bool takes_batches_ = true;

  std::mutex peers_mutex_;  // of the two below; the poller alone touches what the peers hold
  std::unordered_map<std::string, uint32_t> peer_numbers_;
  std::vector<std::unique_ptr<Peer>> peers_;

  // The thread's own.
  std::unordered_map<uint32_t, std::unique_ptr<Connection>> connections_;
  uint32_t next_connection_ = 1;
  uint32_t accepted_count_ = 0;
  std::vector<Connection*> draining_;
  std::vector<Peer*> marked_;
  // What threads that look up names hold on to; they may outlive the engine.
  struct Lookups {
    std::mutex mutex;
    Impl* engine;
  };
  std::shared_ptr<Lookups> lookups_ = std::make_shared<Lookups>();
  std::unordered_map<Batch*, std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> finished_;
  std::vector<int> free_scratch_;
  uint32_t verifying_count_ = 0;
  uint64_t last_tick_ = 0;
  bool is_closing_ = false;
  std::atomic<bool> has_stopped_{false};
  std::thread thread_;
};

}  // namespace meshcache
