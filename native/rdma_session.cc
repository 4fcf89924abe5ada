#include "rdma_session.h"

#include <cerrno>
#include <cmath>
#include <string>
#include <utility>

#include "arguments.h"
#include "contract.h"

namespace meshcache {
namespace {

constexpr double kUint32Limit = 4294967296.0;
constexpr double kStampLimit = 281474976710656.0;  // 2^(8 kStampBytes)
constexpr double kNumberLimit = 9007199254740992.0;  // 2^53
constexpr size_t kPieceColumns = 2;

Napi::Value statuses_array(Napi::Env env, const std::vector<uint8_t>& statuses) {
  Napi::Uint8Array array = Napi::Uint8Array::New(env, statuses.size());
  std::copy(statuses.begin(), statuses.end(), array.Data());
  return array;
}

Napi::Object event_object(Napi::Env env, const EngineEvent& event) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("kind", static_cast<uint32_t>(event.kind));
  object.Set("cause", static_cast<uint32_t>(event.cause));
  object.Set("device", event.device);
  object.Set("peer", event.peer);
  object.Set("call", event.call);
  object.Set("errno", event.errnum);
  object.Set("wcStatus", event.wc_status);
  return object;
}

Napi::Object report_object(Napi::Env env, const Report& report) {
  Napi::Array ids = Napi::Array::New(env, report.batches.size());
  Napi::Array statuses = Napi::Array::New(env, report.batches.size());
  for (uint32_t i = 0; i < report.batches.size(); i++) {
    ids.Set(i, static_cast<double>(report.batches[i].id));
    statuses.Set(i, statuses_array(env, report.batches[i].statuses));
  }
  Napi::Array events = Napi::Array::New(env, report.events.size());
  for (uint32_t i = 0; i < report.events.size(); i++) events.Set(i, event_object(env, report.events[i]));
  Napi::Array deregistered = Napi::Array::New(env, report.deregistered.size());
  for (uint32_t i = 0; i < report.deregistered.size(); i++) deregistered.Set(i, report.deregistered[i]);
  Napi::Object object = Napi::Object::New(env);
  object.Set("batchIds", ids);
  object.Set("statuses", statuses);
  object.Set("events", events);
  object.Set("deregistered", deregistered);
  object.Set("closed", Napi::Boolean::New(env, report.closed));
  return object;
}

// Takes the numbers of `submit` one after the other.
class Columns {
 public:
  explicit Columns(const Napi::Float64Array& array)
      : env_(array.Env()), at_(array.Data()), end_(at_ + array.ElementLength()) {}

  uint64_t whole(double limit) {
    const double value = next();
    if (!is_whole(value, limit)) wrong_argument(env_, "ops has a number that is not whole, or out of its range");
    return static_cast<uint64_t>(value);
  }

  int64_t checksum() {
    const double value = next();
    if (value == -1) return -1;
    if (!is_whole(value, kUint32Limit)) wrong_argument(env_, "a checksum in ops must be -1 or a number of 32 bits");
    return static_cast<int64_t>(value);
  }

  size_t left() const { return static_cast<size_t>(end_ - at_); }

 private:
  double next() {
    if (at_ == end_) wrong_argument(env_, "ops is too short");
    return *at_++;
  }

  const Napi::Env env_;
  const double* at_;
  const double* const end_;
};

}  // namespace

RdmaSession::RdmaSession(Napi::Function on_report, const VerbsApi& api, EngineOptions options)
    : on_report_(Napi::Persistent(on_report)),
      wake_(std::make_unique<JsWake>(on_report.Env(), "meshcache rdma", [this](Napi::Env env) { deliver(env); })) {
  engine_ = std::make_unique<Engine>(api, std::move(options), [wake = wake_.get()] { wake->wake(); });
}

void RdmaSession::end() {
  if (engine_ == nullptr) return;
  engine_->close();
  last_stats_ = engine_->stats();
  engine_ = nullptr;
  registered_.clear();
  wake_ = nullptr;
  on_report_.Reset();
}

Engine& RdmaSession::live(Napi::Env env, const char* call) {
  if (engine_ == nullptr) throw native_failure(env, "the RDMA engine is closed", call, ESHUTDOWN, "");
  return *engine_;
}

void RdmaSession::deliver(Napi::Env env) {
  if (engine_ == nullptr) return;
  const std::shared_ptr<RdmaSession> self = shared_from_this();  // nobody else may hold it when it has ended
  const Report report = engine_->take_report();
  for (const uint32_t handle : report.deregistered) {
    registered_.erase(handle);
    if (leaving_.erase(handle) > 0) wake_->release();
  }
  for (size_t i = 0; i < report.batches.size(); i++) wake_->release();
  const Napi::Function on_report = on_report_.Value();
  const Napi::Object object = report_object(env, report);
  if (report.closed) {
    end();
    if (on_closed_ != nullptr) on_closed_();
  }
  on_report.Call({object});
}

Napi::Value RdmaSession::ports(Napi::Env env) const {
  Napi::Array array = Napi::Array::New(env);
  uint32_t count = 0;
  for (const uint16_t port : engine_->ports()) array.Set(count++, port);
  return array;
}

Napi::Value RdmaSession::register_mr(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Engine& engine = live(env, "registerMr");
  const uint64_t addr = address(info[0], "addr");
  const uint64_t length = address(info[1], "length");
  const uint32_t rkey = uint32(info[2], "rkey");
  const uint32_t access = uint32(info[3], "access");
  if (addr == 0 || length == 0) wrong_argument(env, "addr and length must not be 0");
  if ((access & ~(kAccessRemoteRead | kAccessLocalWrite)) != 0) wrong_argument(env, "access has unknown bits");
  MappingRef mapping = mappings::around(addr, length);
  try {
    const Engine::Registration made = engine.register_mr(addr, length, rkey, access);
    registered_[made.handle] = std::move(mapping);
    Napi::Object object = Napi::Object::New(env);
    object.Set("handle", made.handle);
    object.Set("lkey", made.lkey);
    return object;
  } catch (const VerbsError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, error.device);
  }
}

Napi::Value RdmaSession::deregister_mr(const Napi::CallbackInfo& info) {
  Engine& engine = live(info.Env(), "deregisterMr");
  const uint32_t handle = uint32(info[0], "handle");
  // It has been released and reported, or never was: either way there is nothing to wait for.
  if (registered_.count(handle) == 0) return Napi::Boolean::New(info.Env(), true);
  if (leaving_.insert(handle).second) wake_->hold();
  return Napi::Boolean::New(info.Env(), engine.deregister_mr(handle));
}

Napi::Value RdmaSession::peer(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Engine& engine = live(env, "peer");
  if (!info[0].IsString()) wrong_argument(env, "host must be a string");
  const auto port = static_cast<uint16_t>(whole_number(info[1], "port", 65536));
  const uint32_t number = engine.peer(info[0].As<Napi::String>().Utf8Value(), port);
  if (number >= peer_count_) peer_count_ = number + 1;
  return Napi::Number::New(env, number);
}

void RdmaSession::submit(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Engine& engine = live(env, "submit");
  ReadBatch batch;
  batch.id = whole_number(info[0], "batchId", kNumberLimit);
  const size_t op_count = uint32(info[1], "opCount");
  const Napi::Float64Array ops = float64_array(info[2], "ops");
  batch.timeout_ms = uint32(info[3], "timeoutMs");
  Columns columns(ops);
  if (op_count > columns.left() / kOpColumns) wrong_argument(env, "ops is too short");
  batch.ops.reserve(op_count);
  uint64_t piece_count = 0;
  for (size_t i = 0; i < op_count; i++) {
    ReadOp op{};
    op.peer = static_cast<uint32_t>(columns.whole(peer_count_));
    op.rkey = static_cast<uint32_t>(columns.whole(kUint32Limit));
    op.remote_addr = columns.whole(kNumberLimit);
    op.checksum = columns.checksum();
    op.stamp = columns.whole(kStampLimit);
    op.first_piece = static_cast<uint32_t>(piece_count);
    op.piece_count = static_cast<uint32_t>(columns.whole(kUint32Limit));
    piece_count += op.piece_count;
    if (piece_count > ops.ElementLength()) wrong_argument(env, "ops is too short");
    batch.ops.push_back(op);
  }
  if (columns.left() != piece_count * kPieceColumns) {
    wrong_argument(env, "ops must end with the pieces of its operations");
  }
  batch.pieces.reserve(piece_count);
  for (uint64_t i = 0; i < piece_count; i++) {
    const uint64_t addr = columns.whole(kAddressLimit);
    batch.pieces.push_back({addr, columns.whole(kAddressLimit)});
  }
  wake_->hold();
  engine.submit(std::move(batch));
}

void RdmaSession::set_tokens(Napi::Env env, std::vector<Token> tokens) {
  live(env, "setTokens").set_tokens(std::move(tokens));
}

Napi::Value RdmaSession::stats(const Napi::CallbackInfo& info) const {
  const EngineStats s = engine_ != nullptr ? engine_->stats() : last_stats_;
  const uint64_t values[] = {s.read_ops,       s.read_bytes,          s.failed_ops,      s.checksum_failures,
                             s.posted_requests, s.retried_ops,        s.connections,     s.accepted_connections,
                             s.connects,       s.reconnects,          s.refused_connections, s.protocol_errors,
                             s.region_table_reads, s.lost_connections, s.dropped_events, s.stale_ops};
  constexpr size_t kCount = sizeof values / sizeof values[0];
  Napi::Float64Array array = Napi::Float64Array::New(info.Env(), kCount);
  for (size_t i = 0; i < kCount; i++) array[i] = static_cast<double>(values[i]);
  return array;
}

void RdmaSession::close() {
  if (engine_ == nullptr || std::exchange(closing_, true)) return;
  wake_->hold();
  engine_->close();
}

}  // namespace meshcache
