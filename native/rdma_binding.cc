// rdmaProbe and createRdmaEngine.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "contract.h"
#include "instance.h"
#include "rdma_session.h"

namespace meshcache {
namespace {

static_assert(kAccessRemoteRead == kContractAccessRemoteRead && kAccessLocalWrite == kContractAccessLocalWrite);
static_assert(static_cast<int>(OpStatus::kOk) == 0 && static_cast<int>(OpStatus::kDeviceError) == 10,
              "in the order of kOpStatusNames");

constexpr char kConnectionDevice[] = "/dev/infiniband/rdma_cm";

// The session, for as long as its environment lives.
class SessionHolder : public EnvironmentResource {
 public:
  explicit SessionHolder(std::shared_ptr<RdmaSession> session) : session_(std::move(session)) {}
  ~SessionHolder() override { session_->end(); }

 private:
  const std::shared_ptr<RdmaSession> session_;
};

Napi::Value probe_result(Napi::Env env, const char* step, const std::string& reason) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("usable", Napi::Boolean::New(env, *step == '\0'));
  result.Set("step", step);
  result.Set("reason", reason);
  return result;
}

Napi::Value probe(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const VerbsLoad& load = load_verbs();
  if (load.api == nullptr) return probe_result(env, load.step, load.reason);
  errno = 0;
  rdma_event_channel* channel = load.api->create_event_channel();
  if (channel != nullptr) {
    load.api->destroy_event_channel(channel);
    return probe_result(env, "", "");
  }
  std::string reason = "rdma_create_event_channel: ";
  reason += std::strerror(errno);
  if (access(kConnectionDevice, F_OK) != 0) {
    reason += std::string(": ") + kConnectionDevice + " is not there, which the kernel module rdma_ucm provides";
  } else if (access(kConnectionDevice, R_OK | W_OK) != 0) {
    reason += std::string(": this process must be allowed to read and write ") + kConnectionDevice;
  }
  return probe_result(env, "rdma_cm", reason);
}

uint32_t uint32_of(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  return uint32(value, name);
}

std::string string_of(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsString()) wrong_argument(object.Env(), std::string(name) + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

Napi::Array array_of(const Napi::Object& object, const char* name) {
  const Napi::Value value = object.Get(name);
  if (!value.IsArray()) wrong_argument(object.Env(), std::string(name) + " must be an array");
  return value.As<Napi::Array>();
}

RailOptions rail_options(const Napi::Value& value) {
  if (!value.IsObject()) wrong_argument(value.Env(), "a rail must be an object");
  const Napi::Object object = value.As<Napi::Object>();
  RailOptions rail;
  rail.device_name = string_of(object, "deviceName");
  rail.ib_port = static_cast<uint8_t>(whole_number(object.Get("ibPort"), "ibPort", 256));
  rail.address = string_of(object, "address");
  rail.port = static_cast<uint16_t>(whole_number(object.Get("port"), "port", 65536));
  return rail;
}

Token token_of(const Napi::Value& value) {
  const Napi::Uint8Array bytes = byte_view(value, "a token");
  if (bytes.ByteLength() != sizeof(Token)) wrong_argument(value.Env(), "a token must have 64 bytes");
  Token token;
  std::memcpy(token.request, bytes.Data(), kTokenBytes);
  std::memcpy(token.reply, bytes.Data() + kTokenBytes, kTokenBytes);
  return token;
}

std::vector<Token> tokens_of(const Napi::Array& array) {
  std::vector<Token> tokens;
  for (uint32_t i = 0; i < array.Length(); i++) tokens.push_back(token_of(array.Get(i)));
  return tokens;
}

EngineOptions engine_options(const Napi::Value& value) {
  if (!value.IsObject()) wrong_argument(value.Env(), "options must be an object");
  const Napi::Object object = value.As<Napi::Object>();
  EngineOptions options;
  const Napi::Array rails = array_of(object, "rails");
  if (rails.Length() == 0 || rails.Length() > kMaxRails) wrong_argument(value.Env(), "rails must be 1 to 8");
  for (uint32_t i = 0; i < rails.Length(); i++) options.rails.push_back(rail_options(rails.Get(i)));
  options.tokens = tokens_of(array_of(object, "tokens"));
  options.queue_pairs_per_peer = uint32_of(object, "queuePairsPerPeer");
  options.queue_depth = uint32_of(object, "queueDepth");
  options.read_max_bytes = uint32_of(object, "readMaxBytes");
  options.connect_timeout_ms = uint32_of(object, "connectTimeoutMs");
  options.stall_timeout_ms = uint32_of(object, "stallTimeoutMs");
  options.idle_probe_ms = uint32_of(object, "idleProbeMs");
  options.accepted_max_count = uint32_of(object, "acceptedMaxCount");
  options.spin_us = uint32_of(object, "spinUs");
  options.verify_threads = uint32_of(object, "verifyThreads");
  if (!object.Get("dscp").IsUndefined()) options.dscp = static_cast<int32_t>(uint32_of(object, "dscp"));
  return options;
}

Napi::Value create(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  EngineOptions options = engine_options(info[0]);
  if (!info[1].IsFunction()) wrong_argument(env, "onReport must be a function");
  const VerbsLoad& load = load_verbs();
  if (load.api == nullptr) throw native_failure(env, load.reason, load.step, ENOENT, "");
  std::shared_ptr<RdmaSession> session;
  try {
    session = std::make_shared<RdmaSession>(info[1].As<Napi::Function>(), *load.api, std::move(options));
  } catch (const VerbsError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, error.device);
  }
  auto* holder = new SessionHolder(session);
  Instance& instance = Instance::of(env);
  instance.keep(holder);
  session->on_closed([&instance, holder] { instance.discard(holder); });

  using Info = const Napi::CallbackInfo&;
  Napi::Object engine = Napi::Object::New(env);
  engine.Set("ports", session->ports(env));
  engine.Set("registerMr", Napi::Function::New(env, [session](Info call) { return session->register_mr(call); }));
  engine.Set("deregisterMr", Napi::Function::New(env, [session](Info call) { return session->deregister_mr(call); }));
  engine.Set("peer", Napi::Function::New(env, [session](Info call) { return session->peer(call); }));
  engine.Set("submit", Napi::Function::New(env, [session](Info call) { session->submit(call); }));
  engine.Set("setTokens", Napi::Function::New(env, [session](Info call) {
    if (!call[0].IsArray()) wrong_argument(call.Env(), "tokens must be an array");
    session->set_tokens(call.Env(), tokens_of(call[0].As<Napi::Array>()));
  }));
  engine.Set("stats", Napi::Function::New(env, [session](Info call) { return session->stats(call); }));
  engine.Set("close", Napi::Function::New(env, [session](Info) { session->close(); }));
  return engine;
}

}  // namespace

void export_rdma(Napi::Env env, Napi::Object exports) {
  exports.Set("hasRdma", Napi::Boolean::New(env, true));
  exports.Set("rdmaProbe", Napi::Function::New(env, probe, "rdmaProbe"));
  exports.Set("createRdmaEngine", Napi::Function::New(env, create, "createRdmaEngine"));
}

}  // namespace meshcache
