// createDescriptorListener, duplicate, setDscp and peerCredentials.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "contract.h"
#include "descriptor_listener.h"
#include "giving_back.h"
#include "instance.h"
#include "js_wake.h"

namespace meshcache {
namespace {

static_assert(DescriptorListener::kRecordMaxBytes == kDescriptorRecordMaxBytes &&
              DescriptorListener::kReplyMaxBytes == kDescriptorReplyMaxBytes);

constexpr double kNumberLimit = 9007199254740992.0;  // 2^53
constexpr double kUint32Limit = 4294967296.0;

Napi::Object record_object(Napi::Env env, DescriptorRecord& record) {
  Napi::Object object = Napi::Object::New(env);
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, record.bytes.size());
  std::copy(record.bytes.begin(), record.bytes.end(), bytes.Data());
  object.Set("connection", static_cast<double>(record.connection));
  object.Set("record", bytes);
  object.Set("pid", static_cast<double>(record.pid));
  object.Set("uid", static_cast<double>(record.uid));
  object.Set("gid", static_cast<double>(record.gid));
  object.Set("fd", record.fd.get());
  return object;
}

// A listener as JavaScript has it. Used on its environment's thread only. The process may end while it listens.
class DescriptorSession : public std::enable_shared_from_this<DescriptorSession> {
 public:
  // Throws SystemError.
  DescriptorSession(Napi::Function on_records, DescriptorListenerOptions options)
      : on_records_(Napi::Persistent(on_records)),
        wake_(std::make_unique<JsWake>(on_records.Env(), "meshcache descriptors", [this](Napi::Env env) { deliver(env); })),
        listener_(std::make_unique<DescriptorListener>(std::move(options), [wake = wake_.get()] { wake->wake(); })) {}
  ~DescriptorSession() { end(); }
  DescriptorSession(const DescriptorSession&) = delete;
  DescriptorSession& operator=(const DescriptorSession&) = delete;

  // Idempotent; nothing is delivered afterwards.
  void end() {
    if (listener_ == nullptr) return;
    listener_->close();
    last_stats_ = listener_->stats();
    listener_ = nullptr;
    wake_ = nullptr;
    on_records_.Reset();
  }

  void reply(const Napi::CallbackInfo& info) {
    const uint64_t connection = whole_number(info[0], "connection", kNumberLimit);
    const Napi::Uint8Array bytes = byte_view(info[1], "bytes");
    if (bytes.ByteLength() == 0 || bytes.ByteLength() > kDescriptorReplyMaxBytes) {
      wrong_argument(info.Env(), "bytes must be 1 to " + std::to_string(kDescriptorReplyMaxBytes));
    }
    const int fd = info[2].IsUndefined() ? -1 : static_cast<int>(whole_number(info[2], "fd", INT_MAX));
    if (listener_ != nullptr) listener_->reply(connection, bytes.Data(), bytes.ByteLength(), fd);
  }

  Napi::Value stats(Napi::Env env) const {
    const DescriptorListenerStats s = listener_ != nullptr ? listener_->stats() : last_stats_;
    Napi::Object object = Napi::Object::New(env);
    object.Set("connections", static_cast<double>(s.connections));
    object.Set("refused", static_cast<double>(s.refused));
    object.Set("malformed", static_cast<double>(s.malformed));
    object.Set("timedOut", static_cast<double>(s.timed_out));
    return object;
  }

 private:
  void deliver(Napi::Env env) {
    if (listener_ == nullptr) return;
    const std::shared_ptr<DescriptorSession> self = shared_from_this();  // the callback may close it
    std::vector<DescriptorRecord> records = listener_->take();
    if (records.empty()) return;
    const Napi::Array array = Napi::Array::New(env);
    for (uint32_t i = 0; i < records.size(); i++) array.Set(i, record_object(env, records[i]));
    for (DescriptorRecord& record : records) record.fd.release();  // they are JavaScript's now
    on_records_.Value().Call({array});
  }

  Napi::FunctionReference on_records_;
  std::unique_ptr<JsWake> wake_;
  std::unique_ptr<DescriptorListener> listener_;  // null: closed
  DescriptorListenerStats last_stats_;
};

class SessionHolder : public EnvironmentResource {
 public:
  explicit SessionHolder(std::shared_ptr<DescriptorSession> session) : session_(std::move(session)) {}
  ~SessionHolder() override { session_->end(); }

 private:
  const std::shared_ptr<DescriptorSession> session_;
};

DescriptorListenerOptions listener_options(const Napi::Value& value) {
  if (!value.IsObject()) wrong_argument(value.Env(), "options must be an object");
  const Napi::Object object = value.As<Napi::Object>();
  const auto number = [&object](const char* name, double limit) { return whole_number(object.Get(name), name, limit); };
  DescriptorListenerOptions options;
  const Napi::Value path = object.Get("path");
  if (!path.IsString()) wrong_argument(value.Env(), "path must be a string");
  options.path = path.As<Napi::String>().Utf8Value();
  options.mode = static_cast<uint32_t>(number("mode", 01000));
  const Napi::Value gid = object.Get("gid");
  options.gid = gid.IsUndefined() ? -1 : static_cast<int64_t>(whole_number(gid, "gid", kUint32Limit - 1));
  options.record_bytes = number("recordBytes", kDescriptorRecordMaxBytes + 1);
  options.connections_max_count = number("connectionsMaxCount", kUint32Limit);
  options.timeout_ms = static_cast<uint32_t>(number("timeoutMs", kUint32Limit));
  if (options.record_bytes == 0) wrong_argument(value.Env(), "recordBytes must not be 0");
  return options;
}

Napi::Value create(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  DescriptorListenerOptions options = listener_options(info[0]);
  if (!info[1].IsFunction()) wrong_argument(env, "onRecords must be a function");
  std::shared_ptr<DescriptorSession> session;
  try {
    session = std::make_shared<DescriptorSession>(info[1].As<Napi::Function>(), std::move(options));
  } catch (const SystemError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, "");
  }
  Instance& instance = Instance::of(env);
  auto* holder = new SessionHolder(session);
  instance.keep(holder);

  using Info = const Napi::CallbackInfo&;
  Napi::Object listener = Napi::Object::New(env);
  listener.Set("reply", Napi::Function::New(env, [session](Info call) { session->reply(call); }));
  listener.Set("stats", Napi::Function::New(env, [session](Info call) { return session->stats(call.Env()); }));
  listener.Set("close", Napi::Function::New(env, [session, holder, &instance](Info) {
                 session->end();
                 instance.discard(holder);
               }));
  return listener;
}

Napi::Value credentials(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto fd = static_cast<int>(whole_number(info[0], "fd", INT_MAX));
  try {
    const PeerCredentials peer = peer_credentials(fd);
    Napi::Object object = Napi::Object::New(env);
    object.Set("pid", static_cast<double>(peer.pid));
    object.Set("uid", static_cast<double>(peer.uid));
    object.Set("gid", static_cast<double>(peer.gid));
    return object;
  } catch (const SystemError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, "");
  }
}

void close_received(const Napi::CallbackInfo& info) {
  giving_back::close_file(static_cast<int>(whole_number(info[0], "fd", INT_MAX)));
}

Napi::Value duplicate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const int fd = fcntl(static_cast<int>(whole_number(info[0], "fd", INT_MAX)), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw native_failure(env, std::string("fcntl: ") + strerror(errno), "fcntl", errno, "");
  return Napi::Number::New(env, fd);
}

void set_dscp(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto fd = static_cast<int>(whole_number(info[0], "fd", INT_MAX));
  // The two lower bits of the byte are those of explicit congestion notification, which the kernel sets.
  const int traffic_class = static_cast<int>(whole_number(info[1], "dscp", 64)) << 2;
  const auto set = [&](int level, int option) {
    return setsockopt(fd, level, option, &traffic_class, sizeof traffic_class) == 0;
  };
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw native_failure(env, std::string("getsockname: ") + strerror(errno), "getsockname", errno, "");
  }
  // A socket of IPv6 also speaks IPv4, with an address that is mapped.
  const bool is_marked = address.ss_family == AF_INET6 ? set(IPPROTO_IPV6, IPV6_TCLASS) && set(IPPROTO_IP, IP_TOS)
                                                       : set(IPPROTO_IP, IP_TOS);
  if (!is_marked) throw native_failure(env, std::string("setsockopt: ") + strerror(errno), "setsockopt", errno, "");
}

}  // namespace

void export_descriptors(Napi::Env env, Napi::Object exports) {
  exports.Set("createDescriptorListener", Napi::Function::New(env, create, "createDescriptorListener"));
  exports.Set("closeReceived", Napi::Function::New(env, close_received, "closeReceived"));
  exports.Set("duplicate", Napi::Function::New(env, duplicate, "duplicate"));
  exports.Set("setDscp", Napi::Function::New(env, set_dscp, "setDscp"));
  exports.Set("peerCredentials", Napi::Function::New(env, credentials, "peerCredentials"));
}

}  // namespace meshcache
