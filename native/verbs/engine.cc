#include "engine.h"

#include "poller.h"

namespace meshcache {

Engine::Engine(const VerbsApi& api, EngineOptions options, std::function<void()> wake)
    : impl_(std::make_unique<Impl>(api, std::move(options), std::move(wake))) {}

Engine::~Engine() = default;

std::vector<uint16_t> Engine::ports() const { return impl_->ports(); }

Engine::Registration Engine::register_mr(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access) {
  return impl_->register_mr(addr, length, rkey, access);
}

bool Engine::deregister_mr(uint32_t handle) { return impl_->deregister_mr(handle); }

uint32_t Engine::peer(const std::string& host, uint16_t port) { return impl_->peer(host, port); }

void Engine::submit(ReadBatch batch) { impl_->submit(std::move(batch)); }

void Engine::set_tokens(std::vector<Token> tokens) { impl_->set_tokens(std::move(tokens)); }

Report Engine::take_report() { return impl_->take_report(); }

EngineStats Engine::stats() const { return impl_->stats(); }

void Engine::close() { impl_->close(); }

}  // namespace meshcache
