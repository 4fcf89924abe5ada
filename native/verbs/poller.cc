#include "poller.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "../thread_signals.h"

namespace meshcache {

namespace {

constexpr uint64_t kMicrosecond = 1000;
constexpr uint64_t kMillisecond = 1000 * kMicrosecond;
// Deadlines are looked at so often while there are any.
constexpr uint64_t kTick = 10 * kMillisecond;
constexpr int kIdleTickMs = 200;
constexpr int kCompletionsAtOnce = 64;
constexpr int kEventsAtOnce = 64;
// Turns between two looks at the descriptors while completions keep coming.
constexpr int kBusyTurns = 64;

uint64_t monotonic_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000u + static_cast<uint64_t>(time.tv_nsec);
}

uint64_t random_id() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

void make_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

[[noreturn]] void fail(const char* call, int error) {
  throw VerbsError(call, error, "", std::string(call) + ": " + strerror(error));
}

}  // namespace

Engine::Impl::Impl(const VerbsApi& api, EngineOptions options, std::function<void()> wake)
    : api_(api), options_(std::move(options)), reporter_(std::move(wake)), engine_id_(random_id()) {
  lookups_->engine = this;
  try {
    open();
  } catch (...) {
    release();
    throw;
  }
}

Engine::Impl::~Impl() {
  close();
  if (thread_.joinable()) thread_.join();
  release();
}

std::vector<uint16_t> Engine::Impl::ports() const {
  std::vector<uint16_t> ports;
  for (const auto& rail : rails_) ports.push_back(rail->address.port());
  return ports;
}

Engine::Registration Engine::Impl::register_mr(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access) {
  return registrations_->add(addr, length, rkey, access);
}

bool Engine::Impl::deregister_mr(uint32_t handle) {
  std::shared_ptr<Region> region = registrations_->take(handle);
  if (region == nullptr) return true;
  // A device may give the same rkey to what is registered next, and readers that know it from the region table must not read
  // that: they are cut off first. No device serves a queue pair that is in error.
  if (region->access & kAccessRemoteRead) {
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> is_done = done->get_future();
    post([this, done] {
      disconnect_readers();
      done->set_value();
    });
    while (!has_stopped_ && is_done.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) continue;
  }
  const std::weak_ptr<Region> left = region;
  region.reset();
  return left.expired();
}

uint32_t Engine::Impl::peer(const std::string& host, uint16_t port) {
  std::lock_guard<std::mutex> lock(peers_mutex_);
  const auto [found, is_new] =
      peer_numbers_.emplace(format_endpoint(host, port), static_cast<uint32_t>(peers_.size()));
  if (is_new) peers_.push_back(std::make_unique<Peer>(*this, found->second, host, port));
  return found->second;
}

void Engine::Impl::submit(ReadBatch request) {
  auto batch = std::make_shared<std::unique_ptr<Batch>>(std::make_unique<Batch>());
  (*batch)->request = std::move(request);
  // Now, so that memory which is deregistered from now on is held until the reads have ended.
  for (const Piece& piece : (*batch)->request.pieces) {
    (*batch)->regions.push_back(registrations_->find_writable(piece.addr, piece.length));
  }
  const uint64_t id = (*batch)->request.id;
  const size_t count = (*batch)->request.ops.size();
  {
    std::lock_guard<std::mutex> lock(messages_mutex_);
    if (takes_batches_) {
      messages_.push_back([this, batch] { start_batch(std::move(*batch)); });
      const uint64_t one = 1;
      if (messages_.size() == 1 && write(bell_, &one, sizeof one) < 0) return;
      return;
    }
  }
  reporter_.batch_done({id, std::vector<uint8_t>(count, static_cast<uint8_t>(OpStatus::kClosed))});
}

EngineStats Engine::Impl::stats() const {
  const Counters& c = reporter_.counters;
  return {c.read_ops,    c.read_bytes, c.failed_ops, c.checksum_failures,   c.posted_requests, c.retried_ops,
          c.connections, c.accepted_connections,     c.connects,            c.reconnects,      c.refused_connections,
          c.protocol_errors, c.region_table_reads,   c.lost_connections,    c.dropped_events,
          c.stale_ops};
}

void Engine::Impl::set_tokens(std::vector<Token> tokens) {
  post([this, tokens = std::move(tokens)] { options_.tokens = tokens; });
}

void Engine::Impl::close() {
  post([this] { begin_close(); });
}

void Engine::Impl::open() {
  if (options_.rails.empty() || options_.rails.size() > kMaxRails) fail("rails", EINVAL);
  channel_ = api_.create_event_channel();
  if (channel_ == nullptr) fail("rdma_create_event_channel", errno);
  make_non_blocking(channel_->fd);
  for (const RailOptions& rail : options_.rails) {
    rails_.push_back(std::make_unique<Rail>(api_, channel_, rail, static_cast<uint32_t>(rails_.size())));
  }
  registrations_ = std::make_unique<Registrations>(api_, reporter_, rails_, engine_id_);

  scratch_bytes_ = ((kScratchCount + 1) * sizeof(TableLayout) + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, scratch_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap", errno);
  // A child process must not get the pages that devices write to, and this one copies.
  madvise(memory, scratch_bytes_, MADV_DONTFORK);
  scratch_memory_ = static_cast<TableLayout*>(memory);
  for (const auto& rail : rails_) {
    ibv_mr* mr = api_.reg_mr(rail->pd, memory, scratch_bytes_, IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) fail("ibv_reg_mr", errno);
    scratch_mrs_.push_back(mr);
  }
  for (int i = 0; i < kScratchCount; i++) free_scratch_.push_back(i);

  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) fail("epoll_create1", errno);
  bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell_ < 0) fail("eventfd", errno);
  std::vector<int> watched{bell_, channel_->fd};
  for (const auto& rail : rails_) {
    watched.push_back(rail->completion_channel->fd);
    watched.push_back(rail->context->async_fd);
  }
  for (int fd : watched) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    // Rails of one device share its descriptor for asynchronous events.
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST) fail("epoll_ctl", errno);
  }

  const SignalsBlocked blocked;
  try {
    workers_ = std::make_unique<WorkerPool>(std::max(1u, options_.verify_threads));
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception&) {
    fail("pthread_create", EAGAIN);
  }
}

// Children before their parents.
void Engine::Impl::release() {
  workers_.reset();
  connections_.clear();
  for (ibv_mr* mr : scratch_mrs_) api_.dereg_mr(mr);
  scratch_mrs_.clear();
  if (scratch_memory_ != nullptr) munmap(scratch_memory_, scratch_bytes_);
  scratch_memory_ = nullptr;
  registrations_.reset();
  rails_.clear();
  if (channel_ != nullptr) api_.destroy_event_channel(channel_);
  channel_ = nullptr;
  for (int* fd : {&epoll_, &bell_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void Engine::Impl::post(std::function<void()> message) {
  std::lock_guard<std::mutex> lock(messages_mutex_);
  messages_.push_back(std::move(message));
  const uint64_t one = 1;
  // The counter cannot overflow; a bell that rings already is as good.
  if (messages_.size() == 1 && write(bell_, &one, sizeof one) < 0) return;
}

void Engine::Impl::run() {
  pthread_setname_np(pthread_self(), "meshcache-rdma");
  uint64_t last_work = 0;
  int busy_turns = 0;
  for (;;) {
    now_ = monotonic_now();
    bool has_worked = take_messages();
    has_worked |= poll_completions();
    if (!has_worked || ++busy_turns >= kBusyTurns) {
      busy_turns = 0;
      has_worked |= take_connection_events();
    }
    serve_marked();
    if (now_ - last_tick_ >= kTick) tick();
    reap();
    serve_marked();
    if (has_ended()) break;
    if (has_worked) last_work = now_;
    if (!has_worked && now_ - last_work >= options_.spin_us * kMicrosecond) sleep();
  }
  {
    std::lock_guard<std::mutex> lock(lookups_->mutex);
    lookups_->engine = nullptr;
  }
  has_stopped_ = true;
  // Nobody can come in any more; what is registered goes, and who asks from now on is told so.
  registrations_->close();
  reporter_.closed();
}

bool Engine::Impl::take_messages() {
  std::vector<std::function<void()>> taken;
  {
    std::lock_guard<std::mutex> lock(messages_mutex_);
    taken.swap(messages_);
  }
  for (const auto& message : taken) message();
  return !taken.empty();
}

bool Engine::Impl::poll_completions() {
  bool has_any = false;
  for (const auto& rail : rails_) {
    ibv_wc completions[kCompletionsAtOnce];
    const int count = ibv_poll_cq(rail->cq, kCompletionsAtOnce, completions);
    for (int i = 0; i < count; i++) completed(completions[i]);
    has_any |= count > 0;
  }
  return has_any;
}

bool Engine::Impl::take_connection_events() {
  bool has_any = false;
  rdma_cm_event* event = nullptr;
  // Not all there are: who sends many must not keep the poller from everything else.
  for (int i = 0; i < kEventsAtOnce && api_.get_cm_event(channel_, &event) == 0; i++) {
    has_any = true;
    ConnectionEvent copy{};
    copy.type = event->event;
    copy.id = event->id;
    copy.listen_id = event->listen_id;
    copy.status = event->status;
    copy.responder_resources = event->param.conn.responder_resources;
    copy.initiator_depth = event->param.conn.initiator_depth;
    const auto* data = static_cast<const uint8_t*>(event->param.conn.private_data);
    if (data != nullptr) copy.private_data.assign(data, data + event->param.conn.private_data_len);
    // First: an id cannot be destroyed while one of its events is not acknowledged.
    api_.ack_cm_event(event);
    handle(copy);
  }
  return has_any;
}

void Engine::Impl::take_device_events(Rail& rail) {
  ibv_async_event event{};
  while (api_.get_async_event(rail.context, &event) == 0) {
    const ibv_event_type type = event.event_type;
    api_.ack_async_event(&event);
    EngineEvent told{};
    told.kind = EventKind::kDeviceError;
    told.device = rail.device_name;
    told.call = "ibv_get_async_event";
    switch (type) {
      case IBV_EVENT_PORT_ACTIVE:
        told.kind = EventKind::kPortState;
        told.cause = EventCause::kPortActive;
        break;
      case IBV_EVENT_PORT_ERR:
        told.kind = EventKind::kPortState;
        told.cause = EventCause::kPortDown;
        break;
      case IBV_EVENT_DEVICE_FATAL:
        told.cause = EventCause::kDeviceFailed;
        break;
      case IBV_EVENT_CQ_ERR:
        told.cause = EventCause::kCompletionQueueFailed;
        break;
      default:
        continue;  // of a queue pair: it shows in its completions
    }
    reporter_.event(std::move(told));
    if (type != IBV_EVENT_DEVICE_FATAL && type != IBV_EVENT_CQ_ERR) continue;
    for (Connection* connection : all_connections()) {
      if (&connection->rail != &rail || connection->state == Connection::State::kDraining) continue;
      EngineEvent lost =
          event_of(EventKind::kConnectionLost, *connection, "ibv_get_async_event", EIO, EventCause::kDeviceFailed);
      if (connection->state == Connection::State::kEstablished) {
        drain(*connection, OpStatus::kDeviceError, true, std::move(lost));
      } else {
        connecting_failed(*connection, OpStatus::kDeviceError, std::move(lost));
      }
    }
  }
}

void Engine::Impl::sleep() {
  for (const auto& rail : rails_) rail->arm();
  // What has completed before it was armed rings no bell.
  if (poll_completions()) return;
  const bool is_waiting = !batches_.empty() || !draining_.empty() || is_closing_;
  epoll_event events[2 + 2 * kMaxRails];
  const int timeout_ms = is_waiting ? static_cast<int>(kTick / kMillisecond) : kIdleTickMs;
  const int count = epoll_wait(epoll_, events, 2 + 2 * kMaxRails, timeout_ms);
  now_ = monotonic_now();
  for (int i = 0; i < count; i++) {
    const int fd = events[i].data.fd;
    if (fd == bell_) {
      uint64_t rings;
      if (read(bell_, &rings, sizeof rings) < 0) continue;
    } else if (fd == channel_->fd) {
      take_connection_events();
    } else {
      for (const auto& rail : rails_) {
        if (fd == rail->completion_channel->fd) rail->take_completion_events();
        if (fd == rail->context->async_fd) take_device_events(*rail);
      }
    }
  }
}

void Engine::Impl::tick() {
  last_tick_ = now_;
  std::vector<Batch*> expired;
  for (const auto& [address, batch] : batches_) {
    if (now_ >= batch->deadline && batch->remaining > 0) expired.push_back(address);
  }
  for (Batch* batch : expired) expire(*batch);

  const uint64_t stall = options_.stall_timeout_ms * kMillisecond;
  const uint64_t idle = options_.idle_probe_ms * kMillisecond;
  for (Connection* each : all_connections()) {
    Connection& connection = *each;
    if (connection.state == Connection::State::kDraining) continue;
    if (connection.state != Connection::State::kEstablished) {
      if (now_ < connection.deadline) continue;
      connecting_failed(connection, OpStatus::kUnreachable,
                        event_of(EventKind::kConnectFailed, connection, "rdma_connect", ETIMEDOUT, EventCause::kNoAnswer));
    } else if (connection.in_flight > 0 && now_ - connection.last_progress >= stall) {
      drain(connection, OpStatus::kConnectionLost, connection.peer != nullptr && connection.peer->other_than(connection),
            event_of(EventKind::kConnectionLost, connection, "ibv_poll_cq", ETIMEDOUT, EventCause::kNoProgress));
    } else if (connection.in_flight == 0 && now_ - connection.last_progress >= idle) {
      probe(connection);
    }
  }
  std::lock_guard<std::mutex> lock(peers_mutex_);
  for (const auto& peer : peers_) {
    if (peer->has_work()) mark(*peer);
  }
}

void Engine::Impl::serve_marked() {
  while (!marked_.empty()) {
    std::vector<Peer*> peers;
    peers.swap(marked_);
    for (Peer* peer : peers) {
      peer->is_marked = false;
      peer->advance();
    }
  }
  for (Batch* batch : finished_) batches_.erase(batch);
  finished_.clear();
}

bool Engine::Impl::has_ended() {
  if (!is_closing_ || !batches_.empty() || !connections_.empty()) return false;
  // A batch may have come in just before no more were taken.
  std::lock_guard<std::mutex> lock(messages_mutex_);
  return messages_.empty();
}

std::vector<Connection*> Engine::Impl::all_connections() const {
  std::vector<Connection*> all;
  all.reserve(connections_.size());
  for (const auto& [number, connection] : connections_) all.push_back(connection.get());
  return all;
}

void Engine::Impl::begin_close() {
  if (is_closing_) return;
  is_closing_ = true;
  {
    std::lock_guard<std::mutex> lock(messages_mutex_);
    takes_batches_ = false;
  }
  {
    std::lock_guard<std::mutex> lock(peers_mutex_);
    for (const auto& peer : peers_) peer->fail_all(OpStatus::kClosed);
  }
  for (Connection* connection : all_connections()) {
    if (connection->state == Connection::State::kDraining) continue;
    drain(*connection, OpStatus::kClosed, false, std::nullopt);
  }
}

}  // namespace meshcache
